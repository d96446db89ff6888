"""Reads record batches (format v2) and their records from the bytes of a `.log` file.

Sources: `DefaultRecordBatch.java` and `DefaultRecord.java` of Apache Kafka.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import cramjam

__all__ = ["RawBatch", "RawEndMarker", "RawRecord", "batches_in"]

HEADER_BYTES = 61
PREFIX_BYTES = 12
"""Base offset and length, which the length does not count."""
XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER_BYTES = 16
SEQUENCE_COUNT = 2**31


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record. Times are milliseconds."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RawEndMarker:
    """The content of a control record that ends a transaction."""

    is_commit: bool
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class RawBatch:
    """One batch: the fields of its header, its place in the file, and its bytes."""

    position: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    data: bytes

    @property
    def is_transactional(self) -> bool:
        """Attribute bit 4."""
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        """Attribute bit 5."""
        return bool(self.attributes & 0x20)

    @property
    def last_sequence(self) -> int:
        """Sequences wrap at 2^31; a batch without one has -1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) % SEQUENCE_COUNT

    def records(self) -> Iterator[RawRecord]:
        """Read its records; with log append time all have the batch's largest timestamp."""
        body = _unpacked(self.attributes & 0x07, self.data[HEADER_BYTES:])
        at = 0
        for _ in range(self.record_count):
            size, at = varint(body, at)
            yield self._record(body[at : at + size])
            at += size

    def readable(self) -> list[RawRecord]:
        """Read its records; none of a batch that damage has made unreadable."""
        try:
            return list(self.records())
        except (IndexError, ValueError, EOFError, OSError, zlib.error, cramjam.DecompressionError):
            return []

    def _record(self, body: bytes) -> RawRecord:
        at = 1  # The attributes of a record are unused.
        time_delta, at = varint(body, at)
        offset_delta, at = varint(body, at)
        key, at = _bytes(body, at)
        value, at = _bytes(body, at)
        stamped = bool(self.attributes & 0x08)
        time_ms = self.max_timestamp_ms if stamped else self.base_timestamp_ms + time_delta
        return RawRecord(self.base_offset + offset_delta, time_ms, key, value)

    def end_marker(self) -> RawEndMarker | None:
        """Read the end marker in a control batch; None for other control records, or none left."""
        for record in self.records():
            if record.key is None or record.value is None or len(record.key) < 4:
                return None
            kind = struct.unpack_from(">h", record.key, 2)[0]
            if kind not in (0, 1):
                return None
            return RawEndMarker(kind == 1, struct.unpack_from(">i", record.value, 2)[0])
        return None


def batches_in(data: bytes, from_position: int = 0) -> Iterator[RawBatch]:
    """Read all whole batches of a `.log` file from a position on."""
    at = from_position
    while at + HEADER_BYTES <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, at)
        end = at + PREFIX_BYTES + length
        if length < HEADER_BYTES - PREFIX_BYTES or end > len(data):
            return
        leader_epoch, magic, _, attributes, delta, *rest = struct.unpack_from(
            ">ibIhiqqqhii", data, at + PREFIX_BYTES
        )
        if magic != 2:
            return
        base_ms, max_ms, producer_id, producer_epoch, sequence, count = rest
        yield RawBatch(
            at,
            base_offset,
            base_offset + delta,
            leader_epoch,
            attributes,
            base_ms,
            max_ms,
            producer_id,
            producer_epoch,
            sequence,
            count,
            data[at:end],
        )
        at = end


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint: its value, and where it ends."""
    shift = number = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _unpacked(codec: int, data: bytes) -> bytes:
    if codec == 0:
        return data
    if codec == 1:
        return gzip.decompress(data)
    if codec == 2:
        return _snappy(data)
    if codec == 3:
        return bytes(cramjam.lz4.decompress(data))
    if codec == 4:
        return bytes(cramjam.zstd.decompress(data))
    raise ValueError(f"codec {codec}")


def _snappy(data: bytes) -> bytes:
    """Snappy as one block, or in xerial's frame of blocks, each with its length before it."""
    if not data.startswith(XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    at, blocks = XERIAL_HEADER_BYTES, []
    while at < len(data):
        size = struct.unpack_from(">i", data, at)[0]
        at += 4
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[at : at + size])))
        at += size
    return b"".join(blocks)
