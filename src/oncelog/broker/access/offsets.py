"""Asks for the APIs of a group's offsets: the group, then each topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from oncelog.broker.access.asked import Asked, AskedParts, by_name
from oncelog.broker.apis.needs import (
    DELETE_GROUP,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    Need,
)
from oncelog.broker.apis.refusals import refused_offsets
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest
from oncelog.protocol.messages.offset_delete import OffsetDeleteRequest
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

_BY_TOPIC: Final = AskedParts("topics", "topics", lambda topic: topic.topic_id or topic.name)
_BY_GROUP: Final = AskedParts("groups", "groups", lambda group: group.group_id)


def offset_commit(asked: Asked[OffsetCommitRequest]) -> object:
    """The second for each topic."""
    if not asked.may(READ_GROUP, asked.body.group_id):
        return asked.refuse(READ_GROUP)
    return _topics(asked, asked.body.topics)


def txn_offset_commit(asked: Asked[TxnOffsetCommitRequest]) -> object:
    """The last for each topic."""
    body = asked.body
    if not asked.may(WRITE_TRANSACTIONAL_ID, body.transactional_id):
        return asked.refuse(WRITE_TRANSACTIONAL_ID)
    if not asked.may(READ_GROUP, body.group_id):
        return asked.refuse(READ_GROUP)
    return _topics(asked, body.topics)


def _topics(asked: Asked[Any], topics: Iterable[Any]) -> object:
    """Refuse the topics that may not be read; the handler refuses ids that no topic has."""
    denied = _denied(asked, READ_TOPIC, topics)
    refused = {
        _BY_TOPIC.label(topic): READ_TOPIC.error
        for topic in topics
        if asked.name_of(topic) in denied
    }
    return asked.serve_but(_BY_TOPIC, refused)


def _denied(asked: Asked[Any], need: Need, topics: Iterable[Any]) -> frozenset[str]:
    names = (asked.name_of(topic) for topic in topics)
    return asked.denied(need, (name for name in names if name is not None))


def offset_delete(asked: Asked[OffsetDeleteRequest]) -> object:
    """The second for each topic."""
    body = asked.body
    if not asked.may(DELETE_GROUP, body.group_id):
        return asked.refuse(DELETE_GROUP)
    denied = asked.denied(READ_TOPIC, (topic.name for topic in body.topics))
    return asked.serve_but(by_name, dict.fromkeys(denied, READ_TOPIC.error), always=True)


def offset_fetch(asked: Asked[OffsetFetchRequest]) -> object:
    """Each group, then each topic that it names; a list of all topics leaves the others out."""
    groups = asked.body.groups
    closed = asked.denied(DESCRIBE_GROUP, {group.group_id for group in groups})
    open_groups = [group for group in groups if group.group_id not in closed]
    hidden = _denied(
        asked, DESCRIBE_TOPIC, [topic for group in open_groups for topic in group.topics or ()]
    )
    first = {group.group_id: group for group in reversed(groups)}
    asked.request.body = replace(
        asked.body, groups=tuple(_without(asked, group, hidden) for group in groups)
    )

    def merged(response: OffsetFetchResponse) -> OffsetFetchResponse:
        groups = tuple(
            _with_refused(asked, first[each.group_id], each, hidden) for each in response.groups
        )
        return replace(response, groups=groups)

    return asked.serve_but(_BY_GROUP, dict.fromkeys(closed, DESCRIBE_GROUP.error), merged)


def _without(
    asked: Asked[OffsetFetchRequest], group: OffsetFetchRequestGroup, hidden: frozenset[str]
) -> OffsetFetchRequestGroup:
    if group.topics is None:
        return group
    kept = tuple(topic for topic in group.topics if asked.name_of(topic) not in hidden)
    return replace(group, topics=kept)


def _with_refused(
    asked: Asked[OffsetFetchRequest],
    group: OffsetFetchRequestGroup,
    answer: OffsetFetchResponseGroup,
    hidden: frozenset[str],
) -> OffsetFetchResponseGroup:
    """Return a group's answer with the topics that are refused, or without those not described."""
    if answer.error_code is not ErrorCode.none:
        return answer
    if group.topics is None:
        unseen = asked.denied(
            DESCRIBE_TOPIC, (topic.name or "" for topic in answer.topics), is_filter=True
        )
        shown = tuple(topic for topic in answer.topics if topic.name not in unseen)
        return replace(answer, topics=shown)
    some = tuple(topic for topic in group.topics if asked.name_of(topic) in hidden)
    body = replace(asked.body, groups=(replace(group, topics=some),))
    refused = refused_offsets(asked.request, body, DESCRIBE_TOPIC.error)
    ids = {topic.topic_id for topic in group.topics if topic.topic_id is not None}
    places = {_BY_TOPIC.label(each): place for place, each in reversed([*enumerate(group.topics)])}
    topics = sorted(
        (*answer.topics, *refused),
        key=lambda topic: places.get(topic.topic_id if ids else topic.name, len(places)),
    )
    return replace(answer, topics=tuple(topics))
