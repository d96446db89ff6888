"""Handles ListOffsets (2), versions 1-11: finds offsets by timestamp and at the ends of logs.

A timestamp >= 0 asks for the first record at or after that time; -1 for the end (the high
watermark, or for read_committed the last stable offset, INV-7); -2 for the start; -3 for the record
with the largest timestamp; -4 for the start of the local log, which is the start, as there is no
tiered storage; -5 (latest tiered) and -6 (earliest pending upload) find nothing. A record that a
consumer may not read yet is not found. A new leader that does not know yet how much is committed
answers OFFSET_NOT_AVAILABLE for an end, and instead of finding nothing (KIP-207). As in Kafka a
replica id of -2 asks about the log of any replica, followers too, up to its very end. Where a
lookup by time meets damage, that partition gets CORRUPT_MESSAGE, or KAFKA_STORAGE_ERROR if the read
fails. Lookups by time that would read from disk run in the executor (D12), and hold back only
replies (D13). Gap: none known.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from oncelog.broker.apis.responses import absent
from oncelog.broker.net.request import Request
from oncelog.broker.partitions.damage import note_damage
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.pending import Pending, gather
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from oncelog.runtime.disk import NotCached, StorageFailure

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context
    from oncelog.broker.partitions.manager import Partition
    from oncelog.storage import TimestampOffset

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
READ_COMMITTED: Final = 1
ANY_REPLICA: Final = -2
"""The replica id of who asks a broker about its own log, whether it leads or not."""

_NONE: Final = -1
_MIN_VERSION_OF: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


def handle(
    context: Context, request: Request[ListOffsetsRequest]
) -> ListOffsetsResponse | Pending[ListOffsetsResponse]:
    """Look up each partition independently, and reply when all have finished."""
    results: list[ListOffsetsPartitionResponse | Pending[ListOffsetsPartitionResponse]] = []
    for topic in request.body.topics:
        counts: dict[int, int] = {}
        for asked in topic.partitions:
            counts[asked.partition_index] = counts.get(asked.partition_index, 0) + 1
        for asked in topic.partitions:
            index = asked.partition_index
            if counts[index] > 1:
                results.append(_result(index, ErrorCode.invalid_request))
            else:
                results.append(_partition(context, request, topic.name, asked))
    return gather(results, partial(_response, request.body.topics), holds_back=False)


def _response(
    asked: Iterable[ListOffsetsTopic], results: list[ListOffsetsPartitionResponse]
) -> ListOffsetsResponse:
    topics, rest = [], iter(results)
    for topic in asked:
        found = tuple(islice(rest, len(topic.partitions)))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
    return ListOffsetsResponse(topics=tuple(topics))


def _partition(
    context: Context, request: Request[ListOffsetsRequest], topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse | Pending[ListOffsetsPartitionResponse]:
    index = asked.partition_index
    partition = context.partitions.get(topic, index)
    if partition is None:
        return _result(index, absent(context.image, context.broker_id, topic, index))
    asks_any = request.body.replica_id == ANY_REPLICA
    if not asks_any or not partition.state.is_follower or partition.is_being_cut:
        error = partition.state.leader_error(asked.current_leader_epoch)
        if error is not ErrorCode.none:
            return _result(index, error)
    if request.version < _MIN_VERSION_OF.get(asked.timestamp, 0) or asked.timestamp < min(
        _MIN_VERSION_OF
    ):
        return _result(index, ErrorCode.unsupported_version)
    log = partition.log
    is_end_known = True
    if asks_any or request.body.replica_id in context.image.brokers:
        readable_end = log.log_end_offset
    else:
        is_end_known = partition.state.knows_committed_end
        readable_end = partition.readable_end(request.body.isolation_level == READ_COMMITTED)
    timestamp = asked.timestamp
    if timestamp == LATEST:
        if not is_end_known:
            return _result(index, ErrorCode.offset_not_available)
        return _found(index, _NONE, readable_end, partition.state.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return _found(index, _NONE, start, log.epoch_at(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _found(index, _NONE, _NONE, _NONE)
    timestamp_ms = None if timestamp == MAX_TIMESTAMP else timestamp
    return _look_up(context, partition, timestamp_ms, readable_end, is_end_known=is_end_known)


def _look_up(
    context: Context,
    partition: Partition,
    timestamp_ms: int | None,
    readable_end: int,
    *,
    is_end_known: bool,
) -> ListOffsetsPartitionResponse | Pending[ListOffsetsPartitionResponse]:
    """Return the first record from a timestamp on, or the newest; a future if the disk is read."""
    index = partition.topic_partition.partition

    def result(found: TimestampOffset | Exception | None) -> ListOffsetsPartitionResponse:
        if isinstance(found, (ProtocolError, StorageFailure)):
            return _result(index, note_damage(partition, found))
        if isinstance(found, Exception):
            raise found
        if found is None or found.offset >= readable_end:
            if not is_end_known:
                return _result(index, ErrorCode.offset_not_available)
            return _found(index, _NONE, _NONE, _NONE)
        return _found(index, *found)

    try:
        return result(partition.log.cached_offset_for_timestamp(timestamp_ms))
    except (ProtocolError, StorageFailure) as unread:
        return result(unread)
    except NotCached:
        pending = Pending(result, holds_back=False)
        look = partial(partition.log.offset_for_timestamp, timestamp_ms)
        pending.on_drop = context.partitions.cold_reads.start(look, pending.complete).cancel
        return pending


def _found(
    index: int, timestamp_ms: int, offset: int, leader_epoch: int
) -> ListOffsetsPartitionResponse:
    """Build the answer; an offset of -1 means nothing was found."""
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.none,
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=leader_epoch,
    )


def _result(index: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=error)
