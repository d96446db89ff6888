"""Fetch, versions 4 to 18, both directions, written by hand (D4).

An encoded response is a gather list: it contains the record buffers unchanged. What changes with
the version: 5 log start offset, 7 sessions and error code (KIP-227), 9 current leader epoch, 11
rack and preferred replica, 12 compact types, diverging epoch, current leader, 13 topic ids in place
of names, 15 replica state as a tagged field, 16 endpoints, 17 directory id, 18 high watermark of
the follower. This module must not look into the records.
"""

from collections.abc import Sequence
from struct import error as StructError  # noqa: N812 - it is an exception class

from oncelog.core.integers import integers
from oncelog.core.limits import REQUEST_PARTITIONS_COUNT_MAX
from oncelog.protocol import wire
from oncelog.protocol.fetch_client import encode_fetch_request, parse_fetch_response
from oncelog.protocol.fetch_values import (
    ABORTED,
    ABORTED_COMPACT,
    ENDPOINTS_SINCE,
    EPOCH_OFFSET,
    FLEXIBLE_SINCE,
    HEAD_V4,
    HEAD_V7,
    HEAD_V15,
    HIGH_WATERMARK_UNKNOWN,
    LEADER,
    PARTITION_V4,
    PARTITION_V5,
    PARTITION_V9,
    PARTITION_V12,
    REPLICA_STATE,
    RESPONSE_V4,
    RESPONSE_V5,
    RESPONSE_V12,
    SESSION,
    TOPIC_IDS_SINCE,
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
    read_topic,
)
from oncelog.protocol.produce import NodeEndpoint, endpoints_bytes
from oncelog.protocol.wire import INT32, INT64, Buffer, malformed, uvarint

__all__ = [
    "HIGH_WATERMARK_UNKNOWN",
    "AbortedTransaction",
    "FetchPartition",
    "FetchPartitionResponse",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchTopicResponse",
    "ForgottenTopic",
    "encode_fetch_request",
    "encode_fetch_response",
    "parse_fetch_request",
    "parse_fetch_response",
]


def parse_fetch_request(buffer: Buffer, version: int, position: int = 0) -> FetchRequest:
    """Parse the request's body, which begins at `position`.

    Raises `ProtocolError` (invalid_request).
    """
    try:
        if version >= FLEXIBLE_SINCE:
            return _parse_compact(buffer, version, position)
        return _parse_legacy(buffer, version, position)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise malformed(f"fetch request v{version}: {error}") from error


def _parse_legacy(buffer: Buffer, version: int, position: int) -> FetchRequest:
    session_id, session_epoch = 0, -1
    if version >= 7:
        replica_id, wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = (
            HEAD_V7.unpack_from(buffer, position)
        )
        position += HEAD_V7.size
    else:
        replica_id, wait_ms, min_bytes, max_bytes, isolation = HEAD_V4.unpack_from(buffer, position)
        position += HEAD_V4.size
    topics = []
    total = 0
    topic_count, position = wire.read_array_count(buffer, position)
    for _ in range(topic_count):
        name, position = wire.read_string(buffer, position)
        count, position = wire.read_array_count(buffer, position)
        total = _bounded(total + count + 1)
        partitions = []
        for _ in range(count):
            epoch = start = -1
            if version >= 9:
                index, epoch, offset, start, size = PARTITION_V9.unpack_from(buffer, position)
                position += PARTITION_V9.size
            elif version >= 5:
                index, offset, start, size = PARTITION_V5.unpack_from(buffer, position)
                position += PARTITION_V5.size
            else:
                index, offset, size = PARTITION_V4.unpack_from(buffer, position)
                position += PARTITION_V4.size
            partitions.append(FetchPartition(index, offset, size, epoch, -1, start))
        topics.append(FetchTopic(name, None, partitions))
    forgotten = []
    rack_id = ""
    if version >= 7:
        topic_count, position = wire.read_array_count(buffer, position)
        for _ in range(topic_count):
            name, position = wire.read_string(buffer, position)
            count, position = wire.read_array_count(buffer, position)
            total = _bounded(total + count + 1)
            indexes = integers(f">{count}i").unpack_from(buffer, position)
            position += 4 * count
            forgotten.append(ForgottenTopic(name, None, indexes))
    if version >= 11:
        rack_id, position = wire.read_string(buffer, position)
    return FetchRequest(
        wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        replica_id,
    )


def _parse_compact(buffer: Buffer, version: int, position: int) -> FetchRequest:
    replica_id = -1
    if version < 15:
        replica_id = INT32.unpack_from(buffer, position)[0]
        position += 4
    wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = HEAD_V15.unpack_from(
        buffer, position
    )
    position += HEAD_V15.size
    topics = []
    total = 0
    topic_count, position = wire.read_compact_array_count(buffer, position)
    for _ in range(topic_count):
        name, topic_id, position = read_topic(buffer, version, position)
        count, position = wire.read_compact_array_count(buffer, position)
        total = _bounded(total + count + 1)
        partitions = []
        for _ in range(count):
            index, epoch, offset, fetched_epoch, start, size = PARTITION_V12.unpack_from(
                buffer, position
            )
            position += PARTITION_V12.size
            partition = FetchPartition(index, offset, size, epoch, fetched_epoch, start)
            if buffer[position] == 0:
                position += 1
            else:
                partition, position = _read_partition_tags(buffer, position, partition)
            partitions.append(partition)
        position = wire.skip_tags(buffer, position)
        topics.append(FetchTopic(name, topic_id, partitions))
    forgotten: list[ForgottenTopic] = []
    topic_count, position = wire.read_compact_array_count(buffer, position)
    if topic_count:
        forgotten, position = _read_forgotten(buffer, version, position, topic_count, total)
    rack_id, position = wire.read_compact_string(buffer, position)
    replica_epoch = -1
    cluster_id = None
    for number, start, _end in wire.iter_tags(buffer, position):
        if number == 0:
            cluster_id, _ = wire.read_compact_nullable_string(buffer, start)
        elif number == 1 and version >= 15:
            replica_id, replica_epoch, _tags = REPLICA_STATE.unpack_from(buffer, start)
    return FetchRequest(
        wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        replica_id,
        replica_epoch,
        cluster_id,
    )


def _read_forgotten(
    buffer: Buffer, version: int, position: int, topic_count: int, total: int
) -> tuple[list[ForgottenTopic], int]:
    """Read the partitions that the session no longer fetches, and the position after them."""
    forgotten = []
    for _ in range(topic_count):
        name, topic_id, position = read_topic(buffer, version, position)
        count, position = wire.read_compact_array_count(buffer, position)
        total = _bounded(total + count + 1)
        indexes = integers(f">{count}i").unpack_from(buffer, position)
        position = wire.skip_tags(buffer, position + 4 * count)
        forgotten.append(ForgottenTopic(name, topic_id, indexes))
    return forgotten, position


def _bounded(total: int) -> int:
    if total > REQUEST_PARTITIONS_COUNT_MAX:
        raise malformed(f"more than {REQUEST_PARTITIONS_COUNT_MAX} partitions")
    return total


def _read_partition_tags(
    buffer: Buffer, position: int, partition: FetchPartition
) -> tuple[FetchPartition, int]:
    for number, start, end in wire.iter_tags(buffer, position):
        if number == 0:
            directory_id, _ = wire.read_uuid(buffer, start)
            partition = partition._replace(replica_directory_id=directory_id)
        elif number == 1:
            high_watermark = INT64.unpack_from(buffer, start)[0]
            partition = partition._replace(high_watermark=high_watermark)
        position = end
    return partition, position


def encode_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[FetchTopicResponse],
    *,
    throttle_ms: int = 0,
    error: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """Encode header and body as a gather list, without the frame's 4-byte size.

    The list refers to the records; they are not copied.
    """
    out: list[Buffer] = []
    head = bytearray(INT32.pack(correlation_id))
    if version >= FLEXIBLE_SINCE:
        head.append(0)
        head += SESSION.pack(throttle_ms, error, session_id)
        head += uvarint(len(topics) + 1)
        for topic in topics:
            _encode_compact_topic(version, topic, head, out)
        if version >= ENDPOINTS_SINCE and node_endpoints:
            head += b"\x01" + wire.tag(0, endpoints_bytes(node_endpoints))
        else:
            head.append(0)
    else:
        if version >= 7:
            head += SESSION.pack(throttle_ms, error, session_id)
        else:
            head += INT32.pack(throttle_ms)
        head += INT32.pack(len(topics))
        for topic in topics:
            _encode_legacy_topic(version, topic, head, out)
    if head:
        out.append(bytes(head))
    return out


def _encode_compact_topic(
    version: int, topic: FetchTopicResponse, head: bytearray, out: list[Buffer]
) -> None:
    name, topic_id, partitions = topic
    if version >= TOPIC_IDS_SINCE:
        head += wire.uuid_bytes(topic_id)
    else:
        head += wire.compact_string(name or "")
    head += uvarint(len(partitions) + 1)
    for partition in partitions:
        index, error, high, stable, start, aborted, records, preferred, diverging, leader = (
            partition
        )
        if not aborted:
            null_or_empty = 0 if aborted is None else 1
            head += RESPONSE_V12.pack(index, error, high, stable, start, null_or_empty, preferred)
        else:
            head += RESPONSE_V5.pack(index, error, high, stable, start)
            head += uvarint(len(aborted) + 1)
            for producer_id, first_offset in aborted:
                head += ABORTED_COMPACT.pack(producer_id, first_offset, 0)
            head += INT32.pack(preferred)
        _encode_records(records, True, head, out)
        if diverging is None and leader is None:
            head.append(0)
        else:
            head += _response_tags(diverging, leader)
    head.append(0)


def _response_tags(diverging: tuple[int, int] | None, leader: tuple[int, int] | None) -> bytes:
    tags = []
    if diverging is not None:
        tags.append(wire.tag(0, EPOCH_OFFSET.pack(*diverging, 0)))
    if leader is not None:
        tags.append(wire.tag(1, LEADER.pack(*leader, 0)))
    return uvarint(len(tags)) + b"".join(tags)


def _encode_legacy_topic(
    version: int, topic: FetchTopicResponse, head: bytearray, out: list[Buffer]
) -> None:
    name, _topic_id, partitions = topic
    head += wire.string(name or "")
    head += INT32.pack(len(partitions))
    for partition in partitions:
        if version >= 5:
            head += RESPONSE_V5.pack(*partition[:5])
        else:
            head += RESPONSE_V4.pack(*partition[:4])
        aborted = partition.aborted_transactions
        head += INT32.pack(-1 if aborted is None else len(aborted))
        for producer_id, first_offset in aborted or ():
            head += ABORTED.pack(producer_id, first_offset)
        if version >= 11:
            head += INT32.pack(partition.preferred_read_replica)
        _encode_records(partition.records, False, head, out)


def _encode_records(
    records: Buffer | Sequence[Buffer] | None, compact: bool, head: bytearray, out: list[Buffer]
) -> None:
    # Clients treat null records as an error, so no records are sent as empty ones, as in Kafka.
    buffers: Sequence[Buffer]
    if records is None:
        buffers = ()
    elif isinstance(records, (bytes, bytearray, memoryview)):
        buffers = (records,)
    else:
        buffers = records
    size = sum(map(len, buffers))
    head += uvarint(size + 1) if compact else INT32.pack(size)
    if size:
        out.append(bytes(head))
        out.extend(buffers)
        head.clear()
