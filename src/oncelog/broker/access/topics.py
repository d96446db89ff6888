"""Asks for the APIs that name topics and do one thing to each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from oncelog.broker.access.asked import Asked, AskedParts, by_name
from oncelog.broker.apis.needs import (
    CLUSTER_ACTION,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    READ_TOPIC,
    Need,
)
from oncelog.controller.topics import name_problem
from oncelog.protocol.messages.delete_records import DeleteRecordsRequest
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsRequest
from oncelog.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

_BY_TOPIC: Final = AskedParts("topics", "topics", lambda one: one.topic)


def list_offsets(asked: Asked[ListOffsetsRequest]) -> object:
    """Each topic needs it."""
    return _topics(asked, DESCRIBE_TOPIC, (topic.name for topic in asked.body.topics))


def offset_for_leader_epoch(asked: Asked[OffsetForLeaderEpochRequest]) -> object:
    """Brokers need the first, others the second for each topic."""
    if asked.may(CLUSTER_ACTION, is_filter=True):
        return asked.serve()
    names = (topic.topic for topic in asked.body.topics)
    return _topics(asked, DESCRIBE_TOPIC, names, _BY_TOPIC)


def delete_records(asked: Asked[DeleteRecordsRequest]) -> object:
    """Each topic needs it."""
    return _topics(asked, DELETE_TOPIC, (topic.name for topic in asked.body.topics))


def describe_producers(asked: Asked[DescribeProducersRequest]) -> object:
    """Each topic needs it, but a name that no topic can have."""
    names = (topic.name for topic in asked.body.topics if name_problem(topic.name) is None)
    return _topics(asked, READ_TOPIC, names)


def _topics(
    asked: Asked[Any], need: Need, names: Iterable[str], parts: AskedParts = by_name
) -> object:
    return asked.serve_but(parts, dict.fromkeys(asked.denied(need, names), need.error))
