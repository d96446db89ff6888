"""Produce, versions 3 to 13, both directions, written by hand (D4).

A parsed request holds memoryviews into the frame: the log patches the batches there and writes that
slice. An encoded request is a gather list whose records are not copied. What changes with the
version: 5 log start offset, 8 record errors, 9 compact types, 10 current leader and endpoints as
tagged fields (KIP-951), 13 topic ids in place of names. This module must not look into the records.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Final, NamedTuple
from uuid import UUID

from oncelog.core.integers import integers
from oncelog.core.limits import REQUEST_PARTITIONS_COUNT_MAX
from oncelog.protocol import wire
from oncelog.protocol.codec import error_of
from oncelog.protocol.headers import request_header_bytes
from oncelog.protocol.wire import INT32, Buffer, malformed, uvarint

FLEXIBLE_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 13

_ACKS_TIMEOUT_COUNT: Final = integers(">hii")
_ACKS_TIMEOUT: Final = integers(">hi")
_INDEX_SIZE: Final = integers(">ii")
_PARTITION_V3: Final = integers(">ihqq")
_PARTITION_V5: Final = integers(">ihqqq")
_PARTITION_V8: Final = integers(">ihqqqih")
_PARTITION_V9: Final = integers(">ihqqqBBB")
_LEADER: Final = integers(">iiB")
_TAGGED_HEADER: Final = integers(">ix")
_ONE: Final = wire.ONE_BYTE

# It takes half the time of a named tuple's own constructor; used once per partition.
_new = tuple.__new__

_unpack_int32: Final = INT32.unpack_from


class ProducePartition(NamedTuple):
    """Batches for one partition.

    `records` points into the frame and can be written to if the frame can.
    """

    index: int  # type: ignore[assignment]
    records: memoryview | None


class ProduceTopic(NamedTuple):
    """Up to version 12 a topic has a name, from 13 on an id; the other one is None."""

    name: str | None
    topic_id: UUID | None
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    """A produce request. `acks` is 0, 1 or -1, unchecked."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducePartitionResponse(NamedTuple):
    """The outcome for one partition.

    `error` is an `ErrorCode` or its number; times are milliseconds, -1 for none.
    """

    index: int  # type: ignore[assignment]
    error: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    current_leader: tuple[int, int] | None = None
    """(leader id, leader epoch), sent with not_leader_or_follower from version 10 on."""


class ProduceTopicResponse(NamedTuple):
    """The outcomes for one topic; name or id as in the request."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[ProducePartitionResponse]


class NodeEndpoint(NamedTuple):
    """The address of a leader that a response names."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class ProduceResponse(NamedTuple):
    """A produce response as a client reads it."""

    topics: list[ProduceTopicResponse]
    throttle_ms: int
    node_endpoints: list[NodeEndpoint]


def parse_produce_request(buffer: memoryview, version: int, position: int = 0) -> ProduceRequest:
    """Parse the request's body, which begins at `position`.

    Raises `ProtocolError` (invalid_request).
    """
    try:
        if version >= FLEXIBLE_SINCE:
            return _parse_compact(buffer, version, position)
        return _parse_legacy(buffer, position)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise malformed(f"produce request v{version}: {error}") from error


def _parse_compact(buffer: memoryview, version: int, position: int) -> ProduceRequest:
    """Varints of one byte are read in place: a call costs more than the field."""
    size = len(buffer)
    transactional_id = None
    if buffer[position]:
        transactional_id, position = wire.read_compact_nullable_string(buffer, position)
    else:
        position += 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(buffer, position)
    position += 6
    topic_count = buffer[position] - 1
    if topic_count == 1:
        position += 1
    else:
        topic_count, position = wire.read_compact_array_count(buffer, position)
    topics = []
    total = 0
    for _ in range(topic_count):
        name = topic_id = None
        length = buffer[position]
        if version >= TOPIC_IDS_SINCE:
            topic_id, position = wire.read_uuid(buffer, position)
        elif 0 < length < 0x80 and position + length <= size:
            end = position + length
            name = str(buffer[position + 1 : end], "utf-8")
            position = end
        else:
            name, position = wire.read_compact_string(buffer, position)
        partition_count = buffer[position] - 1
        if partition_count == 1:
            position += 1
        else:
            partition_count, position = wire.read_compact_array_count(buffer, position)
        total += partition_count + 1
        if total > REQUEST_PARTITIONS_COUNT_MAX:
            raise malformed(f"more than {REQUEST_PARTITIONS_COUNT_MAX} partitions")
        partitions = []
        for _ in range(partition_count):
            index = _unpack_int32(buffer, position)[0]
            position += 4
            length = buffer[position]
            if length < 0x80:
                position += 1
            else:
                length, position = wire.read_uvarint(buffer, position)
            records = None
            if length:
                end = position + length - 1
                if end > size:
                    raise malformed(f"records of {length - 1} bytes, {size - position} left")
                records = buffer[position:end]
                position = end
            position = position + 1 if buffer[position] == 0 else wire.skip_tags(buffer, position)
            partitions.append(_new(ProducePartition, (index, records)))
        position = position + 1 if buffer[position] == 0 else wire.skip_tags(buffer, position)
        topics.append(_new(ProduceTopic, (name, topic_id, partitions)))
    if buffer[position] != 0:
        wire.skip_tags(buffer, position)
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def _parse_legacy(buffer: memoryview, position: int) -> ProduceRequest:
    size = len(buffer)
    transactional_id = None
    if buffer[position] == 0xFF == buffer[position + 1]:
        position += 2
    else:
        transactional_id, position = wire.read_nullable_string(buffer, position)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(buffer, position)
    position += 10
    if not 0 <= topic_count <= size - position:
        raise malformed(f"array of {topic_count} topics")
    topics = []
    total = 0
    for _ in range(topic_count):
        name, position = wire.read_string(buffer, position)
        partition_count, position = wire.read_array_count(buffer, position)
        total += partition_count + 1
        if total > REQUEST_PARTITIONS_COUNT_MAX:
            raise malformed(f"more than {REQUEST_PARTITIONS_COUNT_MAX} partitions")
        partitions = []
        for _ in range(partition_count):
            index, length = _INDEX_SIZE.unpack_from(buffer, position)
            position += 8
            records = None
            if length >= 0:
                end = position + length
                if end > size:
                    raise malformed(f"records of {length} bytes, {size - position} left")
                records = buffer[position:end]
                position = end
            elif length != -1:
                raise malformed(f"records of {length} bytes")
            partitions.append(_new(ProducePartition, (index, records)))
        topics.append(_new(ProduceTopic, (name, None, partitions)))
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[ProduceTopicResponse],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Encode header and body; the frame's 4-byte size is not part of it."""
    if version < FLEXIBLE_SINCE:
        return _encode_legacy(version, correlation_id, topics, throttle_ms)
    count = len(topics) + 1
    out = [_TAGGED_HEADER.pack(correlation_id), _ONE[count] if count < 0x80 else uvarint(count)]
    for name, topic_id, partitions in topics:
        if version >= TOPIC_IDS_SINCE:
            out.append(wire.uuid_bytes(topic_id))
        else:
            out.append(_compact_name(name or ""))
        count = len(partitions) + 1
        out.append(_ONE[count] if count < 0x80 else uvarint(count))
        for partition in partitions:
            index, error, base_offset, time_ms, start, message, record_errors, leader = partition
            if not record_errors and message is None and leader is None:
                out.append(_PARTITION_V9.pack(index, error, base_offset, time_ms, start, 1, 0, 0))
            else:
                out.append(_compact_partition(version, partition))
        out.append(b"\x00")
    out.append(INT32.pack(throttle_ms))
    if version >= 10 and node_endpoints:
        out.append(b"\x01" + wire.tag(0, endpoints_bytes(node_endpoints)))
    else:
        out.append(b"\x00")
    return b"".join(out)


def _encode_legacy(
    version: int, correlation_id: int, topics: Sequence[ProduceTopicResponse], throttle_ms: int
) -> bytes:
    out = [INT32.pack(correlation_id), INT32.pack(len(topics))]
    for name, _topic_id, partitions in topics:
        out.append(wire.string(name or ""))
        out.append(INT32.pack(len(partitions)))
        out.extend([_legacy_partition(version, partition) for partition in partitions])
    out.append(INT32.pack(throttle_ms))
    return b"".join(out)


def _legacy_partition(version: int, partition: ProducePartitionResponse) -> bytes:
    index, error, base_offset, time_ms, start, message, record_errors, _leader = partition
    if version >= 8:
        if not record_errors and message is None:
            return _PARTITION_V8.pack(index, error, base_offset, time_ms, start, 0, -1)
        out = [_PARTITION_V5.pack(index, error, base_offset, time_ms, start)]
        out.append(INT32.pack(len(record_errors)))
        for batch_index, text in record_errors:
            out.append(INT32.pack(batch_index) + wire.string(text))
        out.append(wire.string(message))
        return b"".join(out)
    if version >= 5:
        return _PARTITION_V5.pack(index, error, base_offset, time_ms, start)
    return _PARTITION_V3.pack(index, error, base_offset, time_ms)


@lru_cache(maxsize=4096)
def _compact_name(name: str) -> bytes:
    return wire.compact_string(name)


def _compact_partition(version: int, partition: ProducePartitionResponse) -> bytes:
    index, error, base_offset, time_ms, start, message, record_errors, leader = partition
    out = [_PARTITION_V5.pack(index, error, base_offset, time_ms, start)]
    out.append(uvarint(len(record_errors) + 1))
    for batch_index, text in record_errors:
        out.append(INT32.pack(batch_index) + wire.compact_string(text) + b"\x00")
    out.append(wire.compact_string(message))
    if version >= 10 and leader is not None:
        out.append(b"\x01" + wire.tag(0, _LEADER.pack(*leader, 0)))
    else:
        out.append(b"\x00")
    return b"".join(out)


def endpoints_bytes(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The endpoints that Produce and Fetch responses carry as a tagged field (KIP-951)."""
    out = [uvarint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        out.append(INT32.pack(node_id) + wire.compact_string(host) + INT32.pack(port))
        out.append(wire.compact_string(rack) + b"\x00")
    return b"".join(out)


def read_endpoints(buffer: Buffer, position: int) -> list[NodeEndpoint]:
    """Inverse of `endpoints_bytes`."""
    count, position = wire.read_compact_array_count(buffer, position)
    endpoints = []
    for _ in range(count):
        node_id = INT32.unpack_from(buffer, position)[0]
        host, position = wire.read_compact_string(buffer, position + 4)
        port = INT32.unpack_from(buffer, position)[0]
        rack, position = wire.read_compact_nullable_string(buffer, position + 4)
        position = wire.skip_tags(buffer, position)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    return endpoints


def encode_produce_request(
    version: int,
    correlation_id: int,
    client_id: str | None,
    *,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Iterable[ProduceTopic | tuple[str | None, UUID | None, Sequence[tuple[int, Buffer]]]],
) -> list[Buffer]:
    """Encode header and body as a gather list, without the frame's 4-byte size.

    The list refers to the records; they are not copied.
    """
    flexible = version >= FLEXIBLE_SINCE
    topics = list(topics)
    head = bytearray(request_header_bytes(0, version, correlation_id, client_id, flexible))
    head += wire.compact_string(transactional_id) if flexible else wire.string(transactional_id)
    head += _ACKS_TIMEOUT.pack(acks, timeout_ms)
    head += uvarint(len(topics) + 1) if flexible else INT32.pack(len(topics))
    out: list[Buffer] = []
    for name, topic_id, partitions in topics:
        if version >= TOPIC_IDS_SINCE:
            head += wire.uuid_bytes(topic_id)
        else:
            head += wire.compact_string(name or "") if flexible else wire.string(name or "")
        head += uvarint(len(partitions) + 1) if flexible else INT32.pack(len(partitions))
        for index, records in partitions:
            head += INT32.pack(index)
            size = -1 if records is None else len(records)
            head += uvarint(size + 1) if flexible else INT32.pack(size)
            if records is not None:
                out.append(bytes(head))
                out.append(records)
                head.clear()
            if flexible:
                head.append(0)
        if flexible:
            head.append(0)
    if flexible:
        head.append(0)
    if head:
        out.append(bytes(head))
    return out


def parse_produce_response(buffer: Buffer, version: int, position: int = 0) -> ProduceResponse:
    """Parse the body, which begins at `position` (after the response header).

    Raises `ProtocolError`.
    """
    try:
        if version >= FLEXIBLE_SINCE:
            return _parse_compact_response(buffer, version, position)
        return _parse_legacy_response(buffer, version, position)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise malformed(f"produce response v{version}: {error}") from error


def _parse_legacy_response(buffer: Buffer, version: int, position: int) -> ProduceResponse:
    topics = []
    topic_count, position = wire.read_array_count(buffer, position)
    for _ in range(topic_count):
        name, position = wire.read_string(buffer, position)
        partition_count, position = wire.read_array_count(buffer, position)
        partitions = []
        for _ in range(partition_count):
            index, error, base_offset, time_ms = _PARTITION_V3.unpack_from(buffer, position)
            position += _PARTITION_V3.size
            start, message = -1, None
            record_errors: list[tuple[int, str | None]] = []
            if version >= 5:
                start = wire.INT64.unpack_from(buffer, position)[0]
                position += 8
            if version >= 8:
                count, position = wire.read_array_count(buffer, position)
                for _ in range(count):
                    batch_index = INT32.unpack_from(buffer, position)[0]
                    text, position = wire.read_nullable_string(buffer, position + 4)
                    record_errors.append((batch_index, text))
                message, position = wire.read_nullable_string(buffer, position)
            partitions.append(
                ProducePartitionResponse(
                    index, error_of(error), base_offset, time_ms, start, message, record_errors
                )
            )
        topics.append(ProduceTopicResponse(name, None, partitions))
    return ProduceResponse(topics, INT32.unpack_from(buffer, position)[0], [])


def _parse_compact_response(buffer: Buffer, version: int, position: int) -> ProduceResponse:
    topics = []
    topic_count, position = wire.read_compact_array_count(buffer, position)
    for _ in range(topic_count):
        name = topic_id = None
        if version >= TOPIC_IDS_SINCE:
            topic_id, position = wire.read_uuid(buffer, position)
        else:
            name, position = wire.read_compact_string(buffer, position)
        count, position = wire.read_compact_array_count(buffer, position)
        partitions = []
        for _ in range(count):
            partition, position = _read_compact_partition(buffer, position)
            partitions.append(partition)
        position = wire.skip_tags(buffer, position)
        topics.append(ProduceTopicResponse(name, topic_id, partitions))
    throttle_ms = INT32.unpack_from(buffer, position)[0]
    endpoints: list[NodeEndpoint] = []
    for number, start, _end in wire.iter_tags(buffer, position + 4):
        if number == 0:
            endpoints = read_endpoints(buffer, start)
    return ProduceResponse(topics, throttle_ms, endpoints)


def _read_compact_partition(buffer: Buffer, position: int) -> tuple[ProducePartitionResponse, int]:
    index, error, base_offset, time_ms, start = _PARTITION_V5.unpack_from(buffer, position)
    position += _PARTITION_V5.size
    record_errors: list[tuple[int, str | None]] = []
    count, position = wire.read_compact_array_count(buffer, position)
    for _ in range(count):
        batch_index = INT32.unpack_from(buffer, position)[0]
        text, position = wire.read_compact_nullable_string(buffer, position + 4)
        position = wire.skip_tags(buffer, position)
        record_errors.append((batch_index, text))
    message, position = wire.read_compact_nullable_string(buffer, position)
    leader = None
    for number, begin, end in wire.iter_tags(buffer, position):
        if number == 0:
            leader_id, leader_epoch, _tags = _LEADER.unpack_from(buffer, begin)
            leader = (leader_id, leader_epoch)
        position = end
    response = ProducePartitionResponse(
        index, error_of(error), base_offset, time_ms, start, message, record_errors, leader
    )
    return response, position


__all__ = [
    "NodeEndpoint",
    "ProducePartition",
    "ProducePartitionResponse",
    "ProduceRequest",
    "ProduceResponse",
    "ProduceTopic",
    "ProduceTopicResponse",
    "encode_produce_request",
    "encode_produce_response",
    "endpoints_bytes",
    "parse_produce_request",
    "parse_produce_response",
    "read_endpoints",
]
