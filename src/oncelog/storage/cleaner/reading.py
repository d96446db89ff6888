"""Reads the batches of sealed segments and checks each, through its own file descriptor.

So a cleaning in the executor and the readers of the log do not wait for each other.
"""

from collections.abc import Iterator
from typing import NamedTuple

from oncelog.core.limits import INT32_MAX
from oncelog.protocol.batch import HEADER_SIZE, MAGIC, BatchHeader, check_crc
from oncelog.runtime.disk import Disk
from oncelog.storage.header_walk import parse_header
from oncelog.storage.results import CorruptBatch
from oncelog.storage.segment import Segment

__all__ = ["ReadBatch", "first_timestamp_ms", "iter_batches"]


class ReadBatch(NamedTuple):
    """A whole batch: its position in `buffer`, and its header."""

    buffer: bytes
    position: int
    header: BatchHeader


def iter_batches(disk: Disk, segment: Segment, chunk_bytes: int) -> Iterator[ReadBatch]:
    """Yield the batches of a sealed segment, reading `chunk_bytes` at a time.

    Raises `CorruptBatch` at the first one that is not sound, `StorageFailure`.
    """
    file = disk.open(segment.path)
    try:
        position, size, chunk, chunk_start = 0, segment.size, b"", 0
        expected = segment.base_offset
        while position < size:
            place = position - chunk_start
            if place + HEADER_SIZE > len(chunk):
                chunk, chunk_start, place = file.pread(chunk_bytes, position), position, 0
            if len(chunk) < HEADER_SIZE:
                raise CorruptBatch(segment.path, position, expected, "the file ends before it")
            header = parse_header(chunk, place)
            if not _is_plausible(header, segment, expected, size - position):
                raise CorruptBatch(segment.path, position, expected, "its header is damaged")
            if place + header.length > len(chunk):
                length = max(chunk_bytes, header.length)
                chunk, chunk_start, place = file.pread(length, position), position, 0
            if place + header.length > len(chunk) or not check_crc(chunk, place, header):
                raise CorruptBatch(segment.path, position, expected, "its checksum is wrong")
            yield ReadBatch(chunk, place, header)
            expected = header.next_offset
            position += header.length
    finally:
        file.close()


def first_timestamp_ms(disk: Disk, segment: Segment) -> int:
    """Return the largest timestamp of a segment's first batch; -1 when there is none."""
    file = disk.open(segment.path)
    try:
        data = file.pread(HEADER_SIZE, 0)
    finally:
        file.close()
    return parse_header(data, 0).max_timestamp if len(data) == HEADER_SIZE else -1


def _is_plausible(header: BatchHeader, segment: Segment, expected: int, available: int) -> bool:
    return (
        header.magic == MAGIC
        and HEADER_SIZE <= header.length <= available
        and expected <= header.base_offset
        and header.last_offset_delta >= 0
        and header.record_count >= 0
        and header.last_offset - segment.base_offset <= INT32_MAX
        and header.last_offset < segment.end_offset
    )
