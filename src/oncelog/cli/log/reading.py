"""Reads the batches of a `.log` file in order, and the damaged ranges between them.

What is sound and what is damage is judged as by a broker's recovery (`storage/batch_reader.py`), so
that one flipped bit costs one batch. It opens files for reading only, so a broker may be running;
batches appended after the file was opened are not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from oncelog.core.limits import INT64_MAX
from oncelog.protocol.batch import BatchHeader
from oncelog.storage.batch_reader import BatchReader
from oncelog.storage.formats import format_problem, unknown_magic

__all__ = ["Damage", "IntactBatch", "read_log"]


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
        pread, size = partial(_pread, file.fileno()), os.fstat(file.fileno()).st_size
        reader = BatchReader(pread, size, base_offset, None, compact=True, certain_end=INT64_MAX)
        position, expected, epoch = 0, base_offset, -1
        while position < size:
            sound = reader.sound_at(position, expected)
            # Recovery opens no records, so it believes a count that cannot be; a person is told.
            if (
                sound is not None
                and sound.header.record_count <= sound.header.last_offset_delta + 1
            ):
                header, start = sound.header, sound.place
                data = bytes(sound.buffer[start : start + header.length])
                yield IntactBatch(position, header, data)
                position, expected = position + header.length, header.next_offset
                epoch = header.leader_epoch
                continue
            magic = unknown_magic(pread, size, position, expected)
            if magic is not None:
                reason, rest = format_problem(position, magic), size - position
                yield Damage(
                    position, rest, reason, expected, expected, epoch, is_last=True, is_unknown=True
                )
                return
            damage = _damage(reader, position, expected, epoch)
            yield damage
            position += damage.size
            if not damage.is_last:
                expected = damage.next_offset


def _may_hold(header: BatchHeader) -> bool:
    """Whether so many records fit into the offsets: recovery, which opens none, does not ask."""
    return header.record_count <= header.last_offset_delta + 1


def _pread(descriptor: int, size: int, position: int) -> bytes:
    """Read whole: a read of the system may be short."""
    parts = []
    while size > 0 and (data := os.pread(descriptor, size, position)):
        parts.append(data)
        size, position = size - len(data), position + len(data)
    return b"".join(parts)


def _damage(reader: BatchReader, start: int, expected: int, epoch: int) -> Damage:
    reason = reader.fault_at(start, expected)
    end, after = reader.behind(start, expected)
    following = reader.header_at(end)
    if epoch < 0 and following is not None:
        epoch = following.leader_epoch
    is_last = after is None
    if after is None:
        after = _claimed_end(reader, start, expected)
    return Damage(start, end - start, reason, expected, after, epoch, is_last)


def _claimed_end(reader: BatchReader, position: int, expected: int) -> int:
    """The offset after the last bytes of a file by their own header, if that is plausible."""
    header = reader.header_at(position)
    if header is None:
        return expected
    is_whole = reader.is_plausible(header, expected, header.length)
    ends = header.length == reader.size - position
    return header.next_offset if ends and is_whole and header.base_offset == expected else expected
