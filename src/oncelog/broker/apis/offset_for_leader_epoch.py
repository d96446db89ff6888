"""Handles OffsetForLeaderEpoch (23), versions 2-4: returns the end of a leader epoch (KIP-101).

Consumers send it after a change of leader, to detect truncation of what they read (KIP-320). The
result is the largest epoch not above the requested one (KIP-279) and its end offset, or -1 and -1
when the log has none. Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.apis.responses import absent
from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[OffsetForLeaderEpochRequest]
) -> OffsetForLeaderEpochResponse:
    """Look up each partition independently."""
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(_partition(context, topic.topic, p) for p in topic.partitions),
            )
            for topic in request.body.topics
        ),
    )


def _partition(context: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = context.partitions.get(topic, asked.partition)
    if partition is None:
        error = absent(context.image, context.broker_id, topic, asked.partition)
        return EpochEndOffset(partition=asked.partition, error_code=error)
    error = partition.state.leader_error(asked.current_leader_epoch)
    if error is not ErrorCode.none:
        return EpochEndOffset(partition=asked.partition, error_code=error)
    found = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(
        partition=asked.partition,
        error_code=ErrorCode.none,
        leader_epoch=found.leader_epoch,
        end_offset=found.end_offset,
    )
