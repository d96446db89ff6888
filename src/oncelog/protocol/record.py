"""Encodes and decodes the records of a batch.

The broker's hot path does not use it (D4); coordinators, the client, compaction and tools do.
Control batches, the markers that end a transaction, are encoded and decoded here too
(`EndTxnMarker.json`, `ControlRecordType.json`).

Layout of a record: length varint, attributes i8, timestamp delta varlong, offset delta varint, key
and value each with a varint length (-1 for null), headers as a varint count of key and value pairs.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Final, NamedTuple

from oncelog.core.crc import crc32c
from oncelog.core.errors import ErrorCode, InvariantViolation, ProtocolError
from oncelog.core.integers import integers
from oncelog.core.limits import BATCH_DECOMPRESSED_BYTES_MAX
from oncelog.protocol import compression
from oncelog.protocol.batch import (
    CONTROL_MASK,
    HEADER_FROM_CRC,
    HEADER_SIZE,
    HEADER_TO_CRC,
    LENGTH_PREFIX_SIZE,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    renew_crc,
    set_codec,
)
from oncelog.protocol.wire import read_varint, read_varlong, varint

ABORT_MARKER: Final = 0
COMMIT_MARKER: Final = 1
NO_TIMESTAMP: Final = -1

_CONTROL_KEY: Final = integers(">hh")
_CONTROL_VALUE: Final = integers(">hi")
_CONTROL_VERSION: Final = 0
_NULL: Final = b"\x01"
_MARKER_FROM_CRC: Final = Struct(HEADER_FROM_CRC.format + "5shhBhiB")
"""The part of a marker that the CRC covers: every marker's record has one size and shape."""
_MARKER_RECORD_START: Final = b"".join(map(varint, (16, 0, 0, 0, _CONTROL_KEY.size)))
"""Length, attributes, two deltas, and the length of the key."""
_MARKER_VALUE_SIZE: Final = varint(_CONTROL_VALUE.size)[0]
_SMALL_COUNT: Final = 4096
_SMALL: Final = tuple(varint(value) for value in range(_SMALL_COUNT))
RECORD_SIZE_MIN: Final = 7
"""Length, attributes, two deltas, two lengths and the header count, one byte each."""

_new = tuple.__new__

Headers = Sequence[tuple[str, bytes | None]]
"""Names and contents. See `header_name` for names that are not UTF-8."""


class Record(NamedTuple):
    """One record. `timestamp` is milliseconds since the epoch; -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class EndMarker(NamedTuple):
    """The contents of a control record: the end of a transaction, and the coordinator epoch."""

    commit: bool
    coordinator_epoch: int


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    codec: str = "none",
    leader_epoch: int = -1,
    timestamp_type: int = 0,
    keep_offsets: bool = False,
) -> bytearray:
    """Encode a batch.

    Records are numbered from `base_offset` on without gaps, whatever their `offset`; with
    `keep_offsets` (compaction) their own offsets count, which must ascend from `base_offset`. At
    least one record is needed. Raises `ValueError` for an unknown codec.
    """
    records = list(records)
    if not records:
        raise InvariantViolation("a batch holds at least one record")
    base_timestamp = records[0].timestamp
    max_timestamp = base_timestamp
    body = bytearray()
    delta = -1
    for record in records:
        delta = record.offset - base_offset if keep_offsets else delta + 1
        if record.timestamp > max_timestamp:
            max_timestamp = record.timestamp
        encoded = encode_record(record, delta, record.timestamp - base_timestamp)
        size = len(encoded)
        body += _SMALL[size] if size < _SMALL_COUNT else varint(size)
        body += encoded
    codec_id = 0 if codec == "none" else compression.codec_id(codec)
    packed: Buffer = compression.compress(codec, body) if codec_id else body
    attributes = codec_id | (timestamp_type * TIMESTAMP_TYPE_MASK)
    if transactional:
        attributes |= TRANSACTIONAL_MASK
    if control:
        attributes |= CONTROL_MASK
    covered = HEADER_FROM_CRC.pack(
        attributes,
        delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c(packed, crc32c(covered))
    length = HEADER_SIZE - LENGTH_PREFIX_SIZE + len(packed)
    out = bytearray(HEADER_TO_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc))
    out += covered
    out += packed
    return out


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """One record without its length, for a batch being filled step by step."""
    _offset, _timestamp, key, value, headers = record
    # Most varints are small; an inline table look-up is faster than a call.
    if key is None:
        key_size, key = _NULL, b""
    else:
        size = len(key)
        key_size = _SMALL[size] if size < _SMALL_COUNT else varint(size)
    if value is None:
        value_size, value = _NULL, b""
    else:
        size = len(value)
        value_size = _SMALL[size] if size < _SMALL_COUNT else varint(size)
    is_small = 0 <= timestamp_delta < _SMALL_COUNT
    time = _SMALL[timestamp_delta] if is_small else varint(timestamp_delta)
    is_small = 0 <= offset_delta < _SMALL_COUNT
    delta = _SMALL[offset_delta] if is_small else varint(offset_delta)
    tail = header_bytes(headers) if headers else b"\x00"
    return b"".join((b"\x00", time, delta, key_size, key, value_size, value, tail))


def _varint(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < _SMALL_COUNT else varint(value)


def header_name(raw: bytes) -> str:
    """The name of a header. Bytes that are not UTF-8 become surrogate escapes (PEP 383).

    Kafka stores any bytes, and its Java clients read a replacement character for them: a record
    that they copy has another name. `name_bytes` returns the bytes as they were.
    """
    return raw.decode("utf-8", "surrogateescape")


def name_bytes(name: str) -> bytes:
    """The bytes of a header's name. Raises `UnicodeEncodeError` for other surrogates."""
    return name.encode("utf-8", "surrogateescape")


def header_bytes(headers: Headers) -> bytes:
    """The end of a record: the count of its headers, and each one's name and content."""
    parts = [_varint(len(headers))]
    for name, content in headers:
        raw = name_bytes(name)
        parts.append(_varint(len(raw)))
        parts.append(raw)
        if content is None:
            parts.append(_NULL)
        else:
            parts.append(_varint(len(content)))
            parts.append(content)
    return b"".join(parts)


def iter_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    limit_bytes: int = BATCH_DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """Yield the records of the batch at `position`, decompressed into at most `limit_bytes`.

    Raises `ProtocolError`: corrupt_message for malformed records, message_too_large,
    unsupported_compression_type. The CRC is not checked here.
    """
    yield from _iter_unpacked(unpack_records(buffer, position, header, limit_bytes), header)


def unpack_records(buffer: Buffer, position: int, header: BatchHeader, limit_bytes: int) -> bytes:
    """The records of the batch at `position`, decompressed. Raises as `iter_records`."""
    with memoryview(buffer) as view:
        body = view[position + HEADER_SIZE : position + header.length]
        data = compression.decompress(header.codec, body, limit_bytes)
        body.release()
    return data


def repack_batch(
    buffer: Buffer, position: int, data: bytes, codec: str, level: int | None = None
) -> bytearray:
    """The batch at `position` with `data`, its decompressed records, under another codec."""
    packed: Buffer = data if codec == "none" else compression.compress(codec, data, level)
    out = bytearray(buffer[position : position + HEADER_SIZE])
    set_codec(out, compression.codec_id(codec), HEADER_SIZE + len(packed))
    out += packed
    renew_crc(out, 0, len(out))
    return out


def _iter_unpacked(data: bytes, header: BatchHeader) -> Iterator[Record]:
    if header.record_count * RECORD_SIZE_MIN > len(data):
        raise _corrupt(f"{header.record_count} records in {len(data)} bytes")
    end = 0
    for _ in range(header.record_count):
        try:
            size, start = read_varint(data, end)
            end = start + size
            if not 0 <= end <= len(data) or size < 0:
                raise _corrupt(f"record of {size} bytes")
            record = _read_record(data, start, end, header)
        except (IndexError, StructError) as error:
            raise _corrupt(f"record: {error}") from error
        except ProtocolError as error:
            raise _corrupt(error.message) from error
        yield record
    if end != len(data):
        raise _corrupt(f"{len(data) - end} bytes after the last record")


def _read_record(data: bytes, position: int, end: int, header: BatchHeader) -> Record:
    timestamp_delta, position = read_varlong(data, position + 1)
    # Most varints have one byte; reading them inline is faster than a call.
    raw = data[position]
    if raw < 0x80:
        offset_delta = (raw >> 1) ^ -(raw & 1)
        position += 1
    else:
        offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    headers: Headers = ()
    if data[position] == 0:
        position += 1
    else:
        headers, position = _read_headers(data, position, end)
    if position != end:
        raise _corrupt(f"record ends {end - position} bytes early")
    if header.attributes & TIMESTAMP_TYPE_MASK:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + timestamp_delta
    return _new(Record, (header.base_offset + offset_delta, timestamp, key, value, headers))


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise _corrupt(f"{count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise _corrupt("header without a key")
        content, position = _read_bytes(data, position, end)
        headers.append((header_name(name), content))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    raw = data[position]
    if raw < 0x80:
        size = (raw >> 1) ^ -(raw & 1)
        position += 1
    else:
        size, position = read_varint(data, position)
    if size < 0:
        return None, position
    stop = position + size
    if stop > end:
        raise _corrupt(f"field of {size} bytes")
    return data[position:stop], stop


def _corrupt(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.corrupt_message, message)


def control_batch(
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The marker that ends a producer's transaction on one partition (INV-3).

    It has no sequence.
    """
    covered = _MARKER_FROM_CRC.pack(
        TRANSACTIONAL_MASK | CONTROL_MASK,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        -1,
        1,
        _MARKER_RECORD_START,
        _CONTROL_VERSION,
        COMMIT_MARKER if commit else ABORT_MARKER,
        _MARKER_VALUE_SIZE,
        _CONTROL_VERSION,
        coordinator_epoch,
        0,
    )
    length = HEADER_TO_CRC.size + len(covered) - LENGTH_PREFIX_SIZE
    start = HEADER_TO_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc32c(covered))
    return bytearray(start + covered)


def read_end_marker(record: Record) -> EndMarker | None:
    """Read a control record; None for a type that ends no transaction (the Raft records).

    Raises `ProtocolError` (corrupt_message).
    """
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise _corrupt("control record without a key")
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise _corrupt(f"control record of version {version}")
    if kind not in (ABORT_MARKER, COMMIT_MARKER):
        return None
    if record.value is None or len(record.value) < _CONTROL_VALUE.size:
        raise _corrupt("end of transaction marker without a value")
    version, coordinator_epoch = _CONTROL_VALUE.unpack_from(record.value)
    if version < 0:
        raise _corrupt(f"end of transaction marker of version {version}")
    return EndMarker(kind == COMMIT_MARKER, coordinator_epoch)
