"""Asks for Produce and Fetch inside their handlers, which parse the bytes themselves."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from oncelog.broker.access.asked import Asked
from oncelog.broker.apis.fetch_reading import Reading
from oncelog.broker.apis.needs import (
    CLUSTER_ACTION,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    Need,
)
from oncelog.broker.apis.produce import TopicLabel, is_transactional
from oncelog.protocol.fetch import FetchRequest, FetchTopic
from oncelog.protocol.produce import ProduceRequest, ProduceTopic

if TYPE_CHECKING:
    from oncelog.broker.partitions.fetch_sessions import FetchContext


def produce(asked: Asked[memoryview]) -> object:
    """The first if any batch is transactional, else all are refused; the second for each topic."""

    def look(request: ProduceRequest) -> Set[TopicLabel] | None:
        if _has_transactional(request):
            id_ = request.transactional_id
            if id_ is None or not asked.may(WRITE_TRANSACTIONAL_ID, id_):
                return None
        return _denied(asked, WRITE_TOPIC, request.topics)

    return asked.serve(None, look)


def _has_transactional(request: ProduceRequest) -> bool:
    return any(
        is_transactional(records) for topic in request.topics for _, records in topic.partitions
    )


def fetch(asked: Asked[memoryview]) -> object:
    """Each topic needs the first; a follower the second."""

    def look(request: FetchRequest, session: FetchContext | None) -> Reading | None:
        topics = request.topics if session is None else session.topics_in_brief()
        if request.replica_id < 0:
            denied = _denied(asked, READ_TOPIC, topics)
        else:
            denied = set() if asked.may(CLUSTER_ACTION) else {topic[:2] for topic in topics}
        if not denied:
            return None
        if session is not None:
            request = request._replace(topics=session.every_topic())
        return Reading(asked.context, asked.request, request, session, denied)

    return asked.serve(None, look)


def _denied(
    asked: Asked[memoryview], need: Need, topics: Iterable[ProduceTopic | FetchTopic]
) -> set[TopicLabel]:
    """Return the topics to which the client may not do that; an id that no topic has is none."""
    counts: dict[str, int] = {}
    labels: dict[str, TopicLabel] = {}
    for topic in topics:
        name = asked.name_of(topic)
        if name is not None:
            counts[name] = counts.get(name, 0) + len(topic.partitions)
            labels[name] = topic[:2]
    return {labels[name] for name, count in counts.items() if not asked.may(need, name, count)}
