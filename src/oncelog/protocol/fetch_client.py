"""The client's side of Fetch, versions 4 to 18: requests written, responses read.

Use it through `oncelog.protocol.fetch`, which documents the versions. The records of a parsed
response are memoryviews into the frame.
"""

from struct import error as StructError  # noqa: N812 - it is an exception class
from uuid import UUID

from oncelog.core.integers import integers
from oncelog.protocol import wire
from oncelog.protocol.codec import error_of
from oncelog.protocol.fetch_values import (
    ABORTED,
    ABORTED_COMPACT,
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
    SESSION,
    TOPIC_IDS_SINCE,
    AbortedTransaction,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    read_topic,
)
from oncelog.protocol.headers import request_header_bytes
from oncelog.protocol.produce import NodeEndpoint, read_endpoints
from oncelog.protocol.wire import INT32, INT64, Buffer, malformed, uvarint


def encode_fetch_request(
    version: int, correlation_id: int, client_id: str | None, request: FetchRequest
) -> bytes:
    """Encode header and body; the frame's 4-byte size is not part of it."""
    if version >= FLEXIBLE_SINCE:
        return _encode_compact_request(version, correlation_id, client_id, request)
    out = bytearray(request_header_bytes(1, version, correlation_id, client_id, False))
    head = (
        request.replica_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
    )
    if version >= 7:
        out += HEAD_V7.pack(*head, request.session_id, request.session_epoch)
    else:
        out += HEAD_V4.pack(*head)
    out += INT32.pack(len(request.topics))
    for name, _topic_id, partitions in request.topics:
        out += wire.string(name or "") + INT32.pack(len(partitions))
        for partition in partitions:
            index, offset, size, epoch, _fetched_epoch, start, _directory, _high = partition
            if version >= 9:
                out += PARTITION_V9.pack(index, epoch, offset, start, size)
            elif version >= 5:
                out += PARTITION_V5.pack(index, offset, start, size)
            else:
                out += PARTITION_V4.pack(index, offset, size)
    if version >= 7:
        out += INT32.pack(len(request.forgotten_topics))
        for name, _topic_id, indexes in request.forgotten_topics:
            out += wire.string(name or "") + INT32.pack(len(indexes))
            out += integers(f">{len(indexes)}i").pack(*indexes)
    if version >= 11:
        out += wire.string(request.rack_id)
    return bytes(out)


def _encode_compact_request(
    version: int, correlation_id: int, client_id: str | None, request: FetchRequest
) -> bytes:
    out = bytearray(request_header_bytes(1, version, correlation_id, client_id, True))
    if version < 15:
        out += INT32.pack(request.replica_id)
    out += HEAD_V15.pack(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    )
    out += uvarint(len(request.topics) + 1)
    for topic in request.topics:
        out += _topic_bytes(version, topic.name, topic.topic_id)
        out += uvarint(len(topic.partitions) + 1)
        for partition in topic.partitions:
            index, offset, size, epoch, fetched_epoch, start, directory_id, high = partition
            out += PARTITION_V12.pack(index, epoch, offset, fetched_epoch, start, size)
            tags = []
            if version >= 17 and directory_id is not None:
                tags.append(wire.tag(0, directory_id.bytes))
            if version >= 18 and high != HIGH_WATERMARK_UNKNOWN:
                tags.append(wire.tag(1, INT64.pack(high)))
            out.append(len(tags))
            out += b"".join(tags)
        out.append(0)
    out += uvarint(len(request.forgotten_topics) + 1)
    for forgotten in request.forgotten_topics:
        out += _topic_bytes(version, forgotten.name, forgotten.topic_id)
        indexes = forgotten.partitions
        out += uvarint(len(indexes) + 1) + integers(f">{len(indexes)}i").pack(*indexes) + b"\x00"
    out += wire.compact_string(request.rack_id)
    tags = []
    if request.cluster_id is not None:
        tags.append(wire.tag(0, wire.compact_string(request.cluster_id)))
    if version >= 15 and (request.replica_id != -1 or request.replica_epoch != -1):
        state = REPLICA_STATE.pack(request.replica_id, request.replica_epoch, 0)
        tags.append(wire.tag(1, state))
    out.append(len(tags))
    out += b"".join(tags)
    return bytes(out)


def _topic_bytes(version: int, name: str | None, topic_id: UUID | None) -> bytes:
    if version >= TOPIC_IDS_SINCE:
        return wire.uuid_bytes(topic_id)
    return wire.compact_string(name or "")


def parse_fetch_response(buffer: Buffer, version: int, position: int = 0) -> FetchResponse:
    """Parse the body, which begins at `position` (after the response header).

    Raises `ProtocolError`.
    """
    try:
        view = memoryview(buffer)
        if version >= FLEXIBLE_SINCE:
            return _parse_compact_response(view, version, position)
        return _parse_legacy_response(view, version, position)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise malformed(f"fetch response v{version}: {error}") from error


def _parse_legacy_response(view: memoryview, version: int, position: int) -> FetchResponse:
    error = session_id = 0
    if version >= 7:
        throttle_ms, error, session_id = SESSION.unpack_from(view, position)
        position += SESSION.size
    else:
        throttle_ms = INT32.unpack_from(view, position)[0]
        position += 4
    topics = []
    topic_count, position = wire.read_array_count(view, position)
    for _ in range(topic_count):
        name, position = wire.read_string(view, position)
        count, position = wire.read_array_count(view, position)
        partitions = []
        for _ in range(count):
            partition, position = _read_legacy_partition(view, version, position)
            partitions.append(partition)
        topics.append(FetchTopicResponse(name, None, partitions))
    return FetchResponse(topics, throttle_ms, error_of(error), session_id, [])


def _read_legacy_partition(
    view: memoryview, version: int, position: int
) -> tuple[FetchPartitionResponse, int]:
    index, code, high, stable = RESPONSE_V4.unpack_from(view, position)
    position += RESPONSE_V4.size
    start = preferred = -1
    if version >= 5:
        start = INT64.unpack_from(view, position)[0]
        position += 8
    count = INT32.unpack_from(view, position)[0]
    position += 4
    aborted = None
    if count >= 0:
        end = position + count * ABORTED.size
        if end > len(view):
            raise malformed(f"{count} aborted transactions")
        aborted = [AbortedTransaction(*pair) for pair in ABORTED.iter_unpack(view[position:end])]
        position = end
    if version >= 11:
        preferred = INT32.unpack_from(view, position)[0]
        position += 4
    size = INT32.unpack_from(view, position)[0]
    position += 4
    records = None
    if size >= 0:
        records, position = _slice(view, position, size)
    return (
        FetchPartitionResponse(
            index, error_of(code), high, stable, start, aborted, records, preferred
        ),
        position,
    )


def _slice(view: memoryview, position: int, size: int) -> tuple[memoryview, int]:
    end = position + size
    if end > len(view):
        raise malformed(f"records of {size} bytes, {len(view) - position} left")
    return view[position:end], end


def _parse_compact_response(view: memoryview, version: int, position: int) -> FetchResponse:
    throttle_ms, error, session_id = SESSION.unpack_from(view, position)
    position += SESSION.size
    topics = []
    topic_count, position = wire.read_compact_array_count(view, position)
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, version, position)
        count, position = wire.read_compact_array_count(view, position)
        partitions = []
        for _ in range(count):
            partition, position = _read_compact_partition(view, position)
            partitions.append(partition)
        position = wire.skip_tags(view, position)
        topics.append(FetchTopicResponse(name, topic_id, partitions))
    endpoints: list[NodeEndpoint] = []
    for number, start, _end in wire.iter_tags(view, position):
        if number == 0:
            endpoints = read_endpoints(view, start)
    return FetchResponse(topics, throttle_ms, error_of(error), session_id, endpoints)


def _read_compact_partition(view: memoryview, position: int) -> tuple[FetchPartitionResponse, int]:
    index, code, high, stable, start = RESPONSE_V5.unpack_from(view, position)
    position += RESPONSE_V5.size
    count, position = wire.read_uvarint(view, position)
    aborted = None
    if count:
        end = position + (count - 1) * ABORTED_COMPACT.size
        if end > len(view):
            raise malformed(f"{count - 1} aborted transactions")
        aborted = []
        for _ in range(count - 1):
            aborted.append(AbortedTransaction(*ABORTED.unpack_from(view, position)))
            position = wire.skip_tags(view, position + ABORTED.size)
    preferred = INT32.unpack_from(view, position)[0]
    size, position = wire.read_uvarint(view, position + 4)
    records = None
    if size:
        records, position = _slice(view, position, size - 1)
    diverging = leader = None
    for number, begin, end in wire.iter_tags(view, position):
        if number == 0:
            epoch, end_offset, _tags = EPOCH_OFFSET.unpack_from(view, begin)
            diverging = (epoch, end_offset)
        elif number == 1:
            leader_id, leader_epoch, _tags = LEADER.unpack_from(view, begin)
            leader = (leader_id, leader_epoch)
        position = end
    return (
        FetchPartitionResponse(
            index,
            error_of(code),
            high,
            stable,
            start,
            aborted,
            records,
            preferred,
            diverging,
            leader,
        ),
        position,
    )
