"""DeleteRecords (21), versions 0-2: move the start of logs forward (KIP-107).

An offset of -1 means the high watermark. An offset at or below the start changes nothing and is no
error; one above the high watermark is OFFSET_OUT_OF_RANGE. Refused for internal topics
(INVALID_TOPIC_EXCEPTION) and for topics that are only compacted (POLICY_VIOLATION). The files go
with the next look at retention. Unlike Kafka, which writes it within a minute, the new start is on
the disk before the answer leaves, so that a crash does not bring the records back. Gap: the
request's timeout is not looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from oncelog.broker.handlers import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import INTERNAL_TOPICS
from oncelog.protocol.messages import message

if TYPE_CHECKING:
    from oncelog.broker.broker import Broker

__all__ = ["handle"]

HIGH_WATERMARK: Final = -1
INVALID_LOW_WATERMARK: Final = -1


def handle(broker: Broker, request: Request) -> Any | Awaitable[Any]:
    """Move each partition's start, then note the starts durably."""
    topics = []
    moved = False
    for topic in request.body.topics:
        results = []
        for asked in topic.partitions:
            error, low_watermark = _delete(broker, topic.name, asked)
            moved = moved or error is ErrorCode.none
            results.append(
                message(
                    DeleteRecordsPartitionResult,
                    partition_index=asked.partition_index,
                    low_watermark=low_watermark,
                    error_code=error,
                )
            )
        topics.append(message(DeleteRecordsTopicResult, name=topic.name, partitions=tuple(results)))
    response = message(DeleteRecordsResponse, topics=tuple(topics))
    return _noted(broker, response) if moved else response


async def _noted(broker: Broker, response: Any) -> Any:
    await broker.disk.run(broker.logs.checkpoint)
    return response


def _delete(broker: Broker, topic: str, asked: Any) -> tuple[ErrorCode, int]:
    index = asked.partition_index
    if broker.image.partition(topic, index) is None:
        return ErrorCode.unknown_topic_or_partition, INVALID_LOW_WATERMARK
    if topic in INTERNAL_TOPICS:
        return ErrorCode.invalid_topic_exception, INVALID_LOW_WATERMARK
    partition = broker.partitions.get(topic, index)
    error = (
        ErrorCode.not_leader_or_follower if partition is None else partition.state.leader_error()
    )
    if partition is None or error is not ErrorCode.none:
        return error, INVALID_LOW_WATERMARK
    policy = partition.log.config.cleanup_policy
    if "compact" in policy and "delete" not in policy:
        return ErrorCode.policy_violation, INVALID_LOW_WATERMARK
    high_watermark = partition.state.high_watermark
    offset = high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= high_watermark:
        return ErrorCode.offset_out_of_range, INVALID_LOW_WATERMARK
    return ErrorCode.none, partition.delete_records(offset)
