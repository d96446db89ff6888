"""Reads the batches of a `.log` file in order, and the damaged ranges between them.

It reads through a window of a fixed size. After damage it searches for the next batch with a
correct CRC, so that one flipped bit costs one batch. It opens files for reading only, so a broker
may be running; batches appended after the file was opened are not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from oncelog.core.crc import crc32c
from oncelog.core.limits import INT32_MAX, RECOVERY_READ_SIZE_BYTES
from oncelog.protocol.batch import CODEC_NAMES, CRC_START, HEADER_SIZE, MAGIC, BatchHeader
from oncelog.storage.formats import format_problem, unknown_magic
from oncelog.storage.header_walk import parse_header

__all__ = ["Damage", "IntactBatch", "read_log"]

_MAGIC_POSITION: Final = 16
_MAGIC_BYTE: Final = bytes([MAGIC])
_ATTRIBUTES_MASK: Final = 0x7F


class IntactBatch(NamedTuple):
    """A batch whose sizes and CRC are right. `data` is all of it."""

    position: int
    header: BatchHeader
    data: bytes


class Damage(NamedTuple):
    """Bytes that are no batch, up to the next batch or the end of the file."""

    position: int
    size: int
    reason: str
    first_offset: int
    """The first offset that is missing, if any is."""
    next_offset: int
    """The offset after it: where the next batch begins, else what the damaged header claims."""
    leader_epoch: int
    """Of the batch before it, or else behind it; -1 when there is neither."""
    is_last: bool
    """Whether no batch follows, so that nothing but the damaged header tells `next_offset`."""
    is_batch: bool = False
    """Whether it is a sound batch all the same, whose records cannot be read."""
    is_unknown: bool = False
    """Whether it is no damage, but of a format that is not read: what follows is not looked at."""


def read_log(path: str, base_offset: int) -> Iterator[IntactBatch | Damage]:
    """Everything in a `.log` file in order. `base_offset` is the one in its name.

    Raises OSError.
    """
    with open(path, "rb", buffering=0) as file:
        window = _Window(file)
        position, expected, epoch = 0, base_offset, -1
        while position < window.size:
            found = _judge(window, position, base_offset, expected)
            if isinstance(found, BatchHeader) and _overtakes(window, position, found, expected):
                found = f"offset {found.base_offset} does not fit between its neighbours"
            if isinstance(found, BatchHeader):
                yield IntactBatch(position, found, window.read(position, found.length))
                position, expected = position + found.length, found.next_offset
                epoch = found.leader_epoch
                continue
            magic = unknown_magic(window.pread, window.size, position, expected)
            if magic is not None:
                reason, rest = format_problem(position, magic), window.size - position
                yield Damage(
                    position, rest, reason, expected, expected, epoch, is_last=True, is_unknown=True
                )
                return
            end = _next_batch(window, position, base_offset, expected)
            # What follows is judged by the last sound batch, for this header may be what is wrong.
            yield _damage(window, position, end, found, base_offset, expected, epoch)
            position = end


class _Window:
    """The part of a file that was read last."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start = 0
        self._bytes = b""
        self.size = os.fstat(file.fileno()).st_size

    def read(self, position: int, length: int) -> bytes:
        """`length` bytes, fewer at the end of the file."""
        place = position - self._start
        if place < 0 or place + length > len(self._bytes):
            wanted = min(max(length, RECOVERY_READ_SIZE_BYTES), self.size - position)
            self._bytes = self._pread(wanted, position)
            self._start, place = position, 0
        return self._bytes[place : place + length]

    def pread(self, length: int, position: int) -> bytes:
        """As `read`, with the arguments of a file's."""
        return self.read(position, length)

    def crc(self, position: int, length: int) -> int:
        """CRC-32C of a range that may be larger than the window."""
        crc = 0
        for start in range(position, position + length, RECOVERY_READ_SIZE_BYTES):
            size = min(RECOVERY_READ_SIZE_BYTES, position + length - start)
            crc = crc32c(self.read(start, size), crc)
        return crc

    def _pread(self, size: int, position: int) -> bytes:
        parts = []
        while size > 0 and (data := os.pread(self._file.fileno(), size, position)):
            parts.append(data)
            size, position = size - len(data), position + len(data)
        return b"".join(parts)


def _judge(window: _Window, position: int, base: int, expected: int) -> BatchHeader | str:
    """The header of a sound batch, or why there is none."""
    available = window.size - position
    if available < HEADER_SIZE:
        return f"{available} bytes are too few for a batch"
    header = parse_header(window.read(position, HEADER_SIZE), 0)
    reason = _implausible(header, available, base, expected)
    if reason is not None:
        return reason
    if window.crc(position + CRC_START, header.length - CRC_START) != header.crc:
        return "the CRC is wrong"
    return header


def _implausible(header: BatchHeader, available: int, base: int, expected: int) -> str | None:
    if header.magic != MAGIC:
        return "no batch header"
    if header.length < HEADER_SIZE:
        return f"a batch of {header.length} bytes"
    if header.length > available:
        return f"a batch of {header.length} bytes is cut after {available}"
    if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        return f"{header.record_count} records with last offset delta {header.last_offset_delta}"
    if header.base_offset < expected:
        return f"offset {header.base_offset} comes after {expected - 1}"
    if header.last_offset - base > INT32_MAX:
        return f"offset {header.last_offset} is too far from the segment's first"
    return None


def _overtakes(window: _Window, position: int, header: BatchHeader, expected: int) -> bool:
    """Whether a sound batch follows that begins before this one ends.

    The CRC covers no base offset, so a wrong one shows only beside the neighbours. A batch that
    goes on where the one before it ended is believed.
    """
    if header.base_offset == expected:
        return False
    behind = position + header.length
    if window.size - behind < HEADER_SIZE:
        return False
    following = parse_header(window.read(behind, HEADER_SIZE), 0)
    if not expected <= following.base_offset < header.next_offset:
        return False
    return isinstance(_judge(window, behind, expected, expected), BatchHeader)


def _next_batch(window: _Window, damaged: int, base: int, expected: int) -> int:
    """Where the next sound batch begins, or the end of the file."""
    if window.size - damaged >= HEADER_SIZE:
        header = parse_header(window.read(damaged, HEADER_SIZE), 0)
        behind = damaged + header.length
        if header.length >= HEADER_SIZE and behind <= window.size:
            is_sound = not isinstance(_judge(window, behind, base, expected), str)
            if behind == window.size or is_sound:
                return behind
    start = damaged + 1
    while start + HEADER_SIZE <= window.size:
        data = window.read(start, min(RECOVERY_READ_SIZE_BYTES, window.size - start))
        place = data.find(_MAGIC_BYTE, _MAGIC_POSITION)
        while place >= 0:
            candidate = start + place - _MAGIC_POSITION
            if _may_begin(window, candidate, base, expected):
                return candidate
            place = data.find(_MAGIC_BYTE, place + 1)
        start += max(1, len(data) - _MAGIC_POSITION)
    return window.size


def _may_begin(window: _Window, position: int, base: int, expected: int) -> bool:
    if window.size - position < HEADER_SIZE:
        return False
    header = parse_header(window.read(position, HEADER_SIZE), 0)
    known = not header.attributes & ~_ATTRIBUTES_MASK and header.codec_id < len(CODEC_NAMES)
    return known and isinstance(_judge(window, position, base, expected), BatchHeader)


def _damage(
    window: _Window, start: int, end: int, reason: str, base: int, expected: int, epoch: int
) -> Damage:
    if end < window.size:
        following = parse_header(window.read(end, HEADER_SIZE), 0)
        epoch = following.leader_epoch if epoch < 0 else epoch
        after = following.base_offset
    else:
        after = _claimed_end(window, start, base, expected)
    return Damage(start, end - start, reason, expected, after, epoch, end == window.size)


def _claimed_end(window: _Window, position: int, base: int, expected: int) -> int:
    """The offset after the last bytes of a file by their own header, if that is plausible."""
    if window.size - position < HEADER_SIZE:
        return expected
    header = parse_header(window.read(position, HEADER_SIZE), 0)
    is_whole = header.length == window.size - position and header.magic == MAGIC
    is_near = header.last_offset_delta >= 0 and header.last_offset - base <= INT32_MAX
    is_next = header.base_offset == expected
    return header.next_offset if is_whole and is_near and is_next else expected
