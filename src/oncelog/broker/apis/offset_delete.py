"""Handles OffsetDelete (47), version 0: deletes a group's committed offsets (KIP-496).

A partition of a topic that a member subscribes to gets GROUP_SUBSCRIBED_TO_TOPIC, one that does not
exist UNKNOWN_TOPIC_OR_PARTITION. The whole request gets NON_EMPTY_GROUP if the group has members
that are no consumers, GROUP_ID_NOT_FOUND if it does not exist. Gap: none known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.pending import Pending
from oncelog.group.events import OffsetDelete
from oncelog.group.replies import OffsetDeleteReply
from oncelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[OffsetDeleteRequest]
) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
    """Ask the group's coordinator about the partitions that exist."""
    body = request.body
    asked = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in body.topics
        for partition in topic.partitions
    ]
    known = tuple(tp for tp in asked if context.image.partition(*tp) is not None)

    def convert(result: OffsetDeleteReply) -> OffsetDeleteResponse:
        if result.error is not ErrorCode.none:
            return OffsetDeleteResponse(error_code=result.error)
        errors = {(p.topic, p.partition): p.error for p in result.partitions}
        missing = ErrorCode.unknown_topic_or_partition
        return _response((tp, errors.get(tp, missing)) for tp in asked)

    event = OffsetDelete(body.group_id, known)
    return context.groups.ask(
        body.group_id, event, convert, lambda error: convert(OffsetDeleteReply(error))
    )


def _response(outcomes: Iterable[tuple[TopicPartition, ErrorCode]]) -> OffsetDeleteResponse:
    topics: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for (topic, index), error in outcomes:
        topics.setdefault(topic, []).append(
            OffsetDeleteResponsePartition(partition_index=index, error_code=error)
        )
    return OffsetDeleteResponse(
        error_code=ErrorCode.none,
        topics=tuple(
            OffsetDeleteResponseTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )
