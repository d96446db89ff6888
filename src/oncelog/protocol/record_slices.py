"""Slices a batch into records without decoding them, and builds a batch of some of them.

Compaction reads every record for its key and writes most of them back as they are. So a record is
decoded only up to its key, and retained records are the bytes that their producer wrote. A batch
that lost records keeps its base offset, last offset delta and sequences, so that no offset changes
and its producer's last sequence is preserved (INV-2, `MemoryRecords.filterTo`).

A batch with a tombstone, or an end marker whose transaction is gone, gets a *delete horizon*
(KIP-534): attribute bit 6, and the base timestamp is then the time from which these may be removed.
"""

from collections.abc import Iterator, Sequence
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Final, NamedTuple

from oncelog.core.crc import crc32c
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.limits import BATCH_DECOMPRESSED_BYTES_MAX
from oncelog.protocol import compression
from oncelog.protocol.batch import (
    CODEC_MASK,
    DELETE_HORIZON_MASK,
    HEADER_FROM_CRC,
    HEADER_SIZE,
    HEADER_TO_CRC,
    LENGTH_PREFIX_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    Buffer,
)
from oncelog.protocol.wire import read_varint, read_varlong, varint

__all__ = [
    "RecordSlice",
    "delete_horizon_ms",
    "emptied_batch",
    "iter_slices",
    "thinned_batch",
    "unpacked",
]

_NO_TIMESTAMP: Final = -1
_RECORD_SIZE_MIN: Final = 7


class RecordSlice(NamedTuple):
    """One record's position in the decompressed records of its batch, and its key."""

    start: int
    """Position of its first byte, where its length begins."""
    body: int
    """Position of its attributes, after the length."""
    tail: int
    """Position of its offset delta, after the timestamp delta."""
    end: int
    timestamp_delta: int
    offset: int
    key: bytes | None
    has_value: bool


def unpacked(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    limit_bytes: int = BATCH_DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """The decompressed records of the batch at `position`. Raises as `compression.decompress`."""
    with memoryview(buffer) as view:
        body = view[position + HEADER_SIZE : position + header.length]
        data = compression.decompress(header.codec, body, limit_bytes)
        body.release()
    return data


def iter_slices(data: bytes, header: BatchHeader) -> Iterator[RecordSlice]:
    """Yield the records of a batch, given what `unpacked` returned for it.

    Raises `ProtocolError` (corrupt_message) for malformed records.
    """
    if header.record_count * _RECORD_SIZE_MIN > len(data):
        raise _corrupt(f"{header.record_count} records in {len(data)} bytes")
    end = 0
    for _ in range(header.record_count):
        try:
            found = _slice_at(data, end, header.base_offset)
        except (IndexError, StructError) as error:
            raise _corrupt(f"record: {error}") from error
        except ProtocolError as error:
            raise _corrupt(error.message) from error
        end = found.end
        yield found
    if end != len(data):
        raise _corrupt(f"{len(data) - end} bytes after the last record")


def _slice_at(data: bytes, start: int, base_offset: int) -> RecordSlice:
    size, body = read_varint(data, start)
    end = body + size
    if size < 0 or end > len(data):
        raise _corrupt(f"record of {size} bytes")
    timestamp_delta, tail = read_varlong(data, body + 1)
    offset_delta, position = read_varint(data, tail)
    # Most varints have one byte; reading them inline is faster than a call.
    raw = data[position]
    if raw < 0x80:
        key_size = (raw >> 1) ^ -(raw & 1)
        position += 1
    else:
        key_size, position = read_varint(data, position)
    key = None
    if key_size >= 0:
        key = data[position : position + key_size]
        position += key_size
    if position >= end:
        raise _corrupt(f"key of {key_size} bytes")
    raw = data[position]
    value_size = (raw >> 1) ^ -(raw & 1) if raw < 0x80 else read_varint(data, position)[0]
    if value_size > end - position:
        raise _corrupt(f"value of {value_size} bytes")
    return RecordSlice(
        start, body, tail, end, timestamp_delta, base_offset + offset_delta, key, value_size >= 0
    )


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """Return when the batch's tombstones, or its end marker, may be removed; None: not set yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_MASK else None


def thinned_batch(
    header: BatchHeader, data: bytes, kept: Sequence[RecordSlice], horizon_ms: int | None = None
) -> bytearray:
    """Return the batch with only the `kept` records of `data`, in the same codec.

    `horizon_ms` gives it a delete horizon, which it must not have yet.
    """
    base_timestamp = header.base_timestamp
    attributes = header.attributes
    if horizon_ms is None:
        body = b"".join([data[record.start : record.end] for record in kept])
    else:
        shift = base_timestamp - horizon_ms
        body = b"".join([_shifted(data, record, shift) for record in kept])
        base_timestamp = horizon_ms
        attributes |= DELETE_HORIZON_MASK
    max_timestamp = header.max_timestamp
    if header.timestamp_type != LOG_APPEND_TIME:
        max_timestamp = header.base_timestamp + max(record.timestamp_delta for record in kept)
    codec = header.codec
    packed = compression.compress(codec, body) if header.codec_id else body
    return _batch(header, attributes, base_timestamp, max_timestamp, len(kept), packed)


def emptied_batch(header: BatchHeader) -> bytearray:
    """Return the batch without records; it keeps its last sequence and last offset."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK)
    return _batch(header, attributes, _NO_TIMESTAMP, header.max_timestamp, 0, b"")


def _shifted(data: bytes, record: RecordSlice, shift: int) -> bytes:
    """The record with another timestamp delta, as its batch gets another base timestamp."""
    delta = varint(record.timestamp_delta + shift)
    size = 1 + len(delta) + record.end - record.tail
    return b"".join(
        (varint(size), data[record.body : record.body + 1], delta, data[record.tail : record.end])
    )


def _batch(
    header: BatchHeader,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    packed: bytes,
) -> bytearray:
    covered = HEADER_FROM_CRC.pack(
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
    )
    length = HEADER_SIZE - LENGTH_PREFIX_SIZE + len(packed)
    out = bytearray(
        HEADER_TO_CRC.pack(
            header.base_offset,
            length,
            header.leader_epoch,
            MAGIC,
            crc32c(packed, crc32c(covered)),
        )
    )
    out += covered
    out += packed
    return out


def _corrupt(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.corrupt_message, message)
