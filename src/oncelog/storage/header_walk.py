"""Iterates over the batch headers of a `.log` file, skipping places known as damaged.

It reads no records and checks no CRC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oncelog.core.integers import integers
from oncelog.protocol.batch import HEADER, HEADER_SIZE, BatchHeader
from oncelog.storage.kept_file import Pread
from oncelog.storage.results import CorruptBatch

__all__ = ["PREFIX", "DamagedPlace", "parse_header", "sound_end", "walk_headers"]

PREFIX = integers(">qi")
"""Base offset, and the length of what follows."""

_WALK_SIZE_BYTES = 16 * 1024


class DamagedPlace(NamedTuple):
    """Bytes of a `.log` file that are no sound batch, and the offsets that are lost with them.

    Both ends are exclusive. A place has no bytes where the file is too short, or missing.
    """

    position: int
    end_position: int
    offset: int
    end_offset: int


def parse_header(buffer: bytes | bytearray | memoryview, position: int) -> BatchHeader:
    """Parse the header at `position`, without checking that the batch is complete."""
    fields = HEADER.unpack_from(buffer, position)
    return BatchHeader(fields[0], fields[1] + PREFIX.size, *fields[2:])


def sound_end(damaged: Sequence[DamagedPlace], offset: int, size: int, path: str) -> int:
    """Return how far a file of `size` bytes is known to be sound from `offset` on.

    Raises `CorruptBatch` if that offset is itself in a damaged place.
    """
    for place in damaged:
        if place.offset <= offset < place.end_offset:
            why = f"what it held up to offset {place.end_offset} is damaged or missing"
            raise CorruptBatch(path, place.position, place.offset, why)
        if offset < place.offset:
            return place.position
    return size


def walk_headers(
    pread: Pread,
    path: str,
    size: int,
    damaged: Sequence[DamagedPlace],
    *,
    position: int,
    offset: int,
    base_offset: int,
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) from a batch boundary on, reading ahead in small chunks.

    `offset` is one of the batch at `position`, for messages. Raises `CorruptBatch` where no batch
    can begin.
    """
    chunk: bytes | bytearray = b""
    chunk_start, expected = position, base_offset
    known = {place.position: place for place in damaged if place.end_position > place.position}
    while position + HEADER_SIZE <= size:
        if position in known:
            position, expected = known[position].end_position, known[position].end_offset
            continue
        relative = position - chunk_start
        if relative + HEADER_SIZE > len(chunk):
            chunk = pread(min(_WALK_SIZE_BYTES, size - position), position)
            chunk_start, relative = position, 0
            if len(chunk) < HEADER_SIZE:
                raise CorruptBatch(path, position, offset, "the file ends before it")
        header = parse_header(chunk, relative)
        if (
            header.length < HEADER_SIZE
            or header.base_offset < expected
            or header.last_offset_delta < 0
        ):
            raise CorruptBatch(path, position, offset, "its header is damaged")
        if header.length > size - position:
            raise CorruptBatch(path, position, offset, "the file ends within it")
        yield position, header
        expected = offset = header.next_offset
        position += header.length
