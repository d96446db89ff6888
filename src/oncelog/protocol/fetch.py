"""Fetch, versions 4 to 18, both directions, written by hand (D4).

An encoded response is a gather list: the record bytes stand in it as they were given. What changes
with the version: 5 log start offset, 7 sessions and error code (KIP-227), 9 current leader epoch,
11 rack and preferred replica, 12 compact types, diverging epoch, current leader, 13 topic ids in
place of names, 15 replica state as a tagged field, 16 endpoints, 17 directory id, 18 high watermark
of the follower. This module must not look into the records.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Final, NamedTuple
from uuid import UUID

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import INT32_MAX, REQUEST_PARTITIONS_COUNT_MAX
from oncelog.protocol import wire
from oncelog.protocol.headers import request_header_bytes
from oncelog.protocol.produce import NodeEndpoint, endpoints_bytes, read_endpoints
from oncelog.protocol.schema import error_of
from oncelog.protocol.wire import INT32, INT64, Buffer, malformed, uvarint

FLEXIBLE_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
HIGH_WATERMARK_UNKNOWN: Final = 2**63 - 1

_HEAD_V4: Final = Struct(">iiiib")
_HEAD_V7: Final = Struct(">iiiibii")
_HEAD_V15: Final = Struct(">iiibii")
_PARTITION_V4: Final = Struct(">iqi")
_PARTITION_V5: Final = Struct(">iqqi")
_PARTITION_V9: Final = Struct(">iiqqi")
_PARTITION_V12: Final = Struct(">iiqiqi")
_REPLICA_STATE: Final = Struct(">iqB")

_RESPONSE_V4: Final = Struct(">ihqq")
_RESPONSE_V5: Final = Struct(">ihqqq")
_RESPONSE_V12: Final = Struct(">ihqqqBi")
_ABORTED: Final = Struct(">qq")
_ABORTED_COMPACT: Final = Struct(">qqB")
_SESSION: Final = Struct(">ihi")
_EPOCH_OFFSET: Final = Struct(">iqB")
_LEADER: Final = Struct(">iiB")


class FetchPartition(NamedTuple):
    """What is asked of one partition; sizes in bytes."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    replica_directory_id: UUID | None = None
    high_watermark: int = HIGH_WATERMARK_UNKNOWN


class FetchTopic(NamedTuple):
    """Up to version 12 a topic has a name, from 13 on an id; the other one is None."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that leave a fetch session."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[int]


class FetchRequest(NamedTuple):
    """A fetch request.

    `isolation_level` is 0 (read_uncommitted) or 1; `replica_id` -1 for a consumer.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int = INT32_MAX
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: Sequence[FetchTopic] = ()
    forgotten_topics: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    replica_id: int = -1
    replica_epoch: int = -1
    cluster_id: str | None = None


class AbortedTransaction(NamedTuple):
    """An aborted transaction in the fetched range.

    A read_committed consumer drops its records from `first_offset` up to its abort marker.
    """

    producer_id: int
    first_offset: int


class FetchPartitionResponse(NamedTuple):
    """What one partition gives.

    `records` is one buffer, or several that follow each other; None is sent as empty.
    """

    partition: int
    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    records: Buffer | Sequence[Buffer] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, end offset), to followers and validating consumers, from version 12 on."""
    current_leader: tuple[int, int] | None = None
    """(leader id, leader epoch), from version 12 on."""


class FetchTopicResponse(NamedTuple):
    """The partitions of one topic; name or id as in the request."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchPartitionResponse]


class FetchResponse(NamedTuple):
    """A fetch response as a client reads it; `records` are memoryviews into the frame."""

    topics: list[FetchTopicResponse]
    throttle_ms: int
    error: ErrorCode
    session_id: int
    node_endpoints: list[NodeEndpoint]


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
            _HEAD_V7.unpack_from(buffer, position)
        )
        position += _HEAD_V7.size
    else:
        replica_id, wait_ms, min_bytes, max_bytes, isolation = _HEAD_V4.unpack_from(
            buffer, position
        )
        position += _HEAD_V4.size
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
                index, epoch, offset, start, size = _PARTITION_V9.unpack_from(buffer, position)
                position += _PARTITION_V9.size
            elif version >= 5:
                index, offset, start, size = _PARTITION_V5.unpack_from(buffer, position)
                position += _PARTITION_V5.size
            else:
                index, offset, size = _PARTITION_V4.unpack_from(buffer, position)
                position += _PARTITION_V4.size
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
            indexes = Struct(f">{count}i").unpack_from(buffer, position)
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
    wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_V15.unpack_from(
        buffer, position
    )
    position += _HEAD_V15.size
    topics = []
    total = 0
    topic_count, position = wire.read_compact_array_count(buffer, position)
    for _ in range(topic_count):
        name, topic_id, position = _read_topic(buffer, version, position)
        count, position = wire.read_compact_array_count(buffer, position)
        total = _bounded(total + count + 1)
        partitions = []
        for _ in range(count):
            index, epoch, offset, fetched_epoch, start, size = _PARTITION_V12.unpack_from(
                buffer, position
            )
            position += _PARTITION_V12.size
            partition = FetchPartition(index, offset, size, epoch, fetched_epoch, start)
            if buffer[position] == 0:
                position += 1
            else:
                partition, position = _read_partition_tags(buffer, position, partition)
            partitions.append(partition)
        position = wire.skip_tags(buffer, position)
        topics.append(FetchTopic(name, topic_id, partitions))
    forgotten = []
    topic_count, position = wire.read_compact_array_count(buffer, position)
    for _ in range(topic_count):
        name, topic_id, position = _read_topic(buffer, version, position)
        count, position = wire.read_compact_array_count(buffer, position)
        total = _bounded(total + count + 1)
        indexes = Struct(f">{count}i").unpack_from(buffer, position)
        position = wire.skip_tags(buffer, position + 4 * count)
        forgotten.append(ForgottenTopic(name, topic_id, indexes))
    rack_id, position = wire.read_compact_string(buffer, position)
    replica_epoch = -1
    cluster_id = None
    for number, start, _end in wire.iter_tags(buffer, position):
        if number == 0:
            cluster_id, _ = wire.read_compact_nullable_string(buffer, start)
        elif number == 1 and version >= 15:
            replica_id, replica_epoch, _tags = _REPLICA_STATE.unpack_from(buffer, start)
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


def _bounded(total: int) -> int:
    if total > REQUEST_PARTITIONS_COUNT_MAX:
        raise malformed(f"more than {REQUEST_PARTITIONS_COUNT_MAX} partitions")
    return total


def _read_topic(buffer: Buffer, version: int, position: int) -> tuple[str | None, UUID | None, int]:
    if version >= TOPIC_IDS_SINCE:
        topic_id, position = wire.read_uuid(buffer, position)
        return None, topic_id, position
    name, position = wire.read_compact_string(buffer, position)
    return name, None, position


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

    Records are referred to, not copied.
    """
    out: list[Buffer] = []
    head = bytearray(INT32.pack(correlation_id))
    if version >= FLEXIBLE_SINCE:
        head.append(0)
        head += _SESSION.pack(throttle_ms, error, session_id)
        head += uvarint(len(topics) + 1)
        for topic in topics:
            _encode_compact_topic(version, topic, head, out)
        if version >= 16 and node_endpoints:
            head += b"\x01" + wire.tag(0, endpoints_bytes(node_endpoints))
        else:
            head.append(0)
    else:
        if version >= 7:
            head += _SESSION.pack(throttle_ms, error, session_id)
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
            head += _RESPONSE_V12.pack(index, error, high, stable, start, null_or_empty, preferred)
        else:
            head += _RESPONSE_V5.pack(index, error, high, stable, start)
            head += uvarint(len(aborted) + 1)
            for producer_id, first_offset in aborted:
                head += _ABORTED_COMPACT.pack(producer_id, first_offset, 0)
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
        tags.append(wire.tag(0, _EPOCH_OFFSET.pack(*diverging, 0)))
    if leader is not None:
        tags.append(wire.tag(1, _LEADER.pack(*leader, 0)))
    return uvarint(len(tags)) + b"".join(tags)


def _encode_legacy_topic(
    version: int, topic: FetchTopicResponse, head: bytearray, out: list[Buffer]
) -> None:
    name, _topic_id, partitions = topic
    head += wire.string(name or "")
    head += INT32.pack(len(partitions))
    for partition in partitions:
        if version >= 5:
            head += _RESPONSE_V5.pack(*partition[:5])
        else:
            head += _RESPONSE_V4.pack(*partition[:4])
        aborted = partition.aborted_transactions
        head += INT32.pack(-1 if aborted is None else len(aborted))
        for producer_id, first_offset in aborted or ():
            head += _ABORTED.pack(producer_id, first_offset)
        if version >= 11:
            head += INT32.pack(partition.preferred_read_replica)
        _encode_records(partition.records, False, head, out)


def _encode_records(
    records: Buffer | Sequence[Buffer] | None, compact: bool, head: bytearray, out: list[Buffer]
) -> None:
    # Clients take null records for an error, so none is sent as empty, as Kafka does.
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
        out += _HEAD_V7.pack(*head, request.session_id, request.session_epoch)
    else:
        out += _HEAD_V4.pack(*head)
    out += INT32.pack(len(request.topics))
    for name, _topic_id, partitions in request.topics:
        out += wire.string(name or "") + INT32.pack(len(partitions))
        for partition in partitions:
            index, offset, size, epoch, _fetched_epoch, start, _directory, _high = partition
            if version >= 9:
                out += _PARTITION_V9.pack(index, epoch, offset, start, size)
            elif version >= 5:
                out += _PARTITION_V5.pack(index, offset, start, size)
            else:
                out += _PARTITION_V4.pack(index, offset, size)
    if version >= 7:
        out += INT32.pack(len(request.forgotten_topics))
        for name, _topic_id, indexes in request.forgotten_topics:
            out += wire.string(name or "") + INT32.pack(len(indexes))
            out += Struct(f">{len(indexes)}i").pack(*indexes)
    if version >= 11:
        out += wire.string(request.rack_id)
    return bytes(out)


def _encode_compact_request(
    version: int, correlation_id: int, client_id: str | None, request: FetchRequest
) -> bytes:
    out = bytearray(request_header_bytes(1, version, correlation_id, client_id, True))
    if version < 15:
        out += INT32.pack(request.replica_id)
    out += _HEAD_V15.pack(
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
            out += _PARTITION_V12.pack(index, epoch, offset, fetched_epoch, start, size)
            tags = []
            if version >= 17 and directory_id is not None:
                tags.append(wire.tag(0, directory_id.bytes))
            if version >= 18 and high != HIGH_WATERMARK_UNKNOWN:
                tags.append(wire.tag(1, INT64.pack(high)))
            out += uvarint(len(tags)) + b"".join(tags)
        out.append(0)
    out += uvarint(len(request.forgotten_topics) + 1)
    for forgotten in request.forgotten_topics:
        out += _topic_bytes(version, forgotten.name, forgotten.topic_id)
        indexes = forgotten.partitions
        out += uvarint(len(indexes) + 1) + Struct(f">{len(indexes)}i").pack(*indexes) + b"\x00"
    out += wire.compact_string(request.rack_id)
    tags = []
    if request.cluster_id is not None:
        tags.append(wire.tag(0, wire.compact_string(request.cluster_id)))
    if version >= 15 and (request.replica_id != -1 or request.replica_epoch != -1):
        state = _REPLICA_STATE.pack(request.replica_id, request.replica_epoch, 0)
        tags.append(wire.tag(1, state))
    out += uvarint(len(tags)) + b"".join(tags)
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
        throttle_ms, error, session_id = _SESSION.unpack_from(view, position)
        position += _SESSION.size
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
    index, code, high, stable = _RESPONSE_V4.unpack_from(view, position)
    position += _RESPONSE_V4.size
    start = preferred = -1
    if version >= 5:
        start = INT64.unpack_from(view, position)[0]
        position += 8
    count = INT32.unpack_from(view, position)[0]
    position += 4
    aborted = None
    if count >= 0:
        end = position + count * _ABORTED.size
        if end > len(view):
            raise malformed(f"{count} aborted transactions")
        aborted = [AbortedTransaction(*pair) for pair in _ABORTED.iter_unpack(view[position:end])]
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
    throttle_ms, error, session_id = _SESSION.unpack_from(view, position)
    position += _SESSION.size
    topics = []
    topic_count, position = wire.read_compact_array_count(view, position)
    for _ in range(topic_count):
        name, topic_id, position = _read_topic(view, version, position)
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
    index, code, high, stable, start = _RESPONSE_V5.unpack_from(view, position)
    position += _RESPONSE_V5.size
    count, position = wire.read_uvarint(view, position)
    aborted = None
    if count:
        end = position + (count - 1) * _ABORTED_COMPACT.size
        if end > len(view):
            raise malformed(f"{count - 1} aborted transactions")
        aborted = []
        for _ in range(count - 1):
            aborted.append(AbortedTransaction(*_ABORTED.unpack_from(view, position)))
            position = wire.skip_tags(view, position + _ABORTED.size)
    preferred = INT32.unpack_from(view, position)[0]
    size, position = wire.read_uvarint(view, position + 4)
    records = None
    if size:
        records, position = _slice(view, position, size - 1)
    diverging = leader = None
    for number, begin, end in wire.iter_tags(view, position):
        if number == 0:
            epoch, end_offset, _tags = _EPOCH_OFFSET.unpack_from(view, begin)
            diverging = (epoch, end_offset)
        elif number == 1:
            leader_id, leader_epoch, _tags = _LEADER.unpack_from(view, begin)
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
