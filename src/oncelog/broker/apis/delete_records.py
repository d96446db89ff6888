"""Handles DeleteRecords (21), versions 0-2: advances the start offset of logs (KIP-107).

An offset of -1 means the high watermark. An offset at or below the start changes nothing and is no
error; one above the high watermark gets OFFSET_OUT_OF_RANGE. Internal topics get
INVALID_TOPIC_EXCEPTION, topics that are only compacted POLICY_VIOLATION. The next retention check
deletes the files. The new start is synced before the reply is sent, so that a crash does not bring
the records back (Kafka writes it within a minute); a failed write gets KAFKA_STORAGE_ERROR. The
reply waits until the logs of all replicas that live have started there, which the fetches of the
followers say, or for the request's timeout: then REQUEST_TIMED_OUT. Gap: none known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Container
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.broker.apis.responses import absent
from oncelog.broker.net.request import Request
from oncelog.broker.partitions.damage import note_damage
from oncelog.broker.partitions.delayed import DelayedProduce
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import INTERNAL_TOPICS
from oncelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from oncelog.runtime.disk import StorageFailure

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context
    from oncelog.broker.partitions.partition import Partition

__all__ = ["handle"]

HIGH_WATERMARK: Final = -1
INVALID_LOW_WATERMARK: Final = -1

Outcome = tuple[ErrorCode, int]
"""An error and the low watermark after the deletion."""


def handle(
    context: Context, request: Request[DeleteRecordsRequest]
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    """Advance each partition's start, then sync the new starts."""
    outcomes = [
        [_delete(context, topic.name, asked) for asked in topic.partitions]
        for topic in request.body.topics
    ]
    if any(error is ErrorCode.none for results in outcomes for error, _ in results):
        return _noted(context, request, outcomes)
    return _response(request, outcomes)


async def _noted(
    context: Context, request: Request[DeleteRecordsRequest], outcomes: list[list[Outcome]]
) -> DeleteRecordsResponse:
    """Reply once the new starts are synced; a partition whose write failed gets the error."""
    try:
        await context.partitions.note_log_starts()
    except StorageFailure as failure:
        for topic, results in zip(request.body.topics, outcomes, strict=True):
            for place, asked in enumerate(topic.partitions):
                partition = context.partitions.get(topic.name, asked.partition_index)
                if results[place][0] is ErrorCode.none and partition is not None:
                    results[place] = note_damage(partition, failure), INVALID_LOW_WATERMARK
    await _replicated(context, request, outcomes)
    return _response(request, outcomes)


async def _replicated(
    context: Context, request: Request[DeleteRecordsRequest], outcomes: list[list[Outcome]]
) -> None:
    """Wait for the replicas, and note how far all of them have deleted."""

    def alive() -> Container[int]:
        return context.image.brokers

    waiting: list[tuple[list[Outcome], int, Partition]] = []
    done = context.partitions.loop.create_future()
    deletion = DelayedProduce(lambda errors: None if done.done() else done.set_result(errors))
    for topic, results in zip(request.body.topics, outcomes, strict=True):
        for place, asked in enumerate(topic.partitions):
            partition = context.partitions.get(topic.name, asked.partition_index)
            error, offset = results[place]
            if error is ErrorCode.none and partition is not None:
                deletion.wait_for(len(waiting), partial(partition.on_started, alive), offset)
                waiting.append((results, place, partition))
    deletion.start(context.partitions.loop, request.body.timeout_ms)
    errors = await done
    for key, (results, place, partition) in enumerate(waiting):
        if errors[key] is ErrorCode.none:
            results[place] = ErrorCode.none, partition.low_watermark(alive)
        else:
            results[place] = errors[key], INVALID_LOW_WATERMARK


def _response(
    request: Request[DeleteRecordsRequest], outcomes: list[list[Outcome]]
) -> DeleteRecordsResponse:
    topics = []
    for topic, results in zip(request.body.topics, outcomes, strict=True):
        partitions = tuple(
            DeleteRecordsPartitionResult(
                partition_index=asked.partition_index,
                low_watermark=low_watermark,
                error_code=error,
            )
            for asked, (error, low_watermark) in zip(topic.partitions, results, strict=True)
        )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=tuple(topics))


def _delete(context: Context, topic: str, asked: DeleteRecordsPartition) -> Outcome:
    index = asked.partition_index
    if context.image.partition(topic, index) is None:
        return ErrorCode.unknown_topic_or_partition, INVALID_LOW_WATERMARK
    if topic in INTERNAL_TOPICS:
        return ErrorCode.invalid_topic_exception, INVALID_LOW_WATERMARK
    partition = context.partitions.get(topic, index)
    if partition is None:
        return absent(context.image, context.broker_id, topic, index), INVALID_LOW_WATERMARK
    error = partition.state.leader_error()
    if error is not ErrorCode.none:
        return error, INVALID_LOW_WATERMARK
    policy = partition.log.config.cleanup_policy
    if "compact" in policy and "delete" not in policy:
        return ErrorCode.policy_violation, INVALID_LOW_WATERMARK
    high_watermark = partition.state.high_watermark
    offset = high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= high_watermark:
        return ErrorCode.offset_out_of_range, INVALID_LOW_WATERMARK
    try:
        return ErrorCode.none, partition.delete_records(offset)
    except StorageFailure as failure:
        return note_damage(partition, failure), INVALID_LOW_WATERMARK
