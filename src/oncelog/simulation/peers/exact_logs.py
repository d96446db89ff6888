"""What one client's partitions hold, as that client wrote it: a model without a broker's code.

Batches are compared byte by byte from the magic byte on; what the broker writes before it (offset,
leader epoch) is worked out. One segment holds a whole log, so a read ends only where limits or the
high watermark say so. This module sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["KnownBatch", "KnownLog", "LogMark", "same_batches"]

_OFFSET: Final = slice(0, 8)
_EPOCH: Final = slice(12, 16)
_MAGIC: Final = 16
"""Where a batch's header has its offset, its leader epoch and what its writer decides."""


@dataclass(frozen=True)
class KnownBatch:
    """A batch as it was sent, and the offset that it got."""

    base_offset: int
    count: int
    data: bytes
    times: tuple[int, ...]

    @property
    def next_offset(self) -> int:
        """The offset behind the batch."""
        return self.base_offset + self.count


class LogMark(NamedTuple):
    """What was certain of a log at one moment: its high watermark was not below, its end there."""

    committed: int
    end: int


@dataclass
class KnownLog:
    """One partition: its batches, where it begins, and what of it was told to be committed."""

    batches: list[KnownBatch] = field(default_factory=list)
    start: int = 0
    committed: int = 0
    """No high watermark may be below this one."""

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.batches[-1].next_offset if self.batches else 0

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all batches."""
        return sum(len(batch.data) for batch in self.batches)

    def append(self, data: bytes, times: Sequence[int]) -> KnownBatch:
        """Add a batch; it gets the next offsets."""
        batch = KnownBatch(self.end, len(times), data, tuple(times))
        self.batches.append(batch)
        return batch

    @property
    def mark(self) -> LogMark:
        """Return what is certain when a request is sent."""
        return LogMark(self.committed, self.end)

    def is_high_watermark(self, offset: int, since: LogMark) -> bool:
        """Whether the high watermark could be there: behind a batch, and not below a former one."""
        ends = [0, *(batch.next_offset for batch in self.batches)]
        return offset >= since.committed and (offset in ends or offset == self.start)

    def watermarks(self, since: LogMark) -> list[int]:
        """Return all places of the high watermark since that moment."""
        ends = {batch.next_offset for batch in self.batches}
        return sorted({since.committed, *(end for end in ends if end > since.committed)})

    def read(
        self, offset: int, size_max: int, high_watermark: int, *, whole_first: bool
    ) -> list[KnownBatch]:
        """Return the batches of a fetch; with `whole_first` the first one whatever its size."""
        found: list[KnownBatch] = []
        size = 0
        for batch in self.batches:
            if batch.next_offset <= offset:
                continue
            size += len(batch.data)
            is_first = whole_first and not found
            if batch.next_offset > high_watermark or (size > size_max and not is_first):
                break
            found.append(batch)
        return found

    def at_time(self, time_ms: int, high_watermark: int) -> tuple[int, int]:
        """Return (time, offset) of the first record not before a time, (-1, -1) without one."""
        for batch in self.batches:
            for place, time in enumerate(batch.times):
                offset = batch.base_offset + place
                if time >= time_ms and self.start <= offset < high_watermark:
                    return time, offset
        return -1, -1

    def newest(self, high_watermark: int, end: int) -> tuple[int, int]:
        """Return (time, offset) of the first record with the largest time, (-1, -1) without one.

        The log ended at `end` then.
        """
        rows = [
            (time, batch.base_offset + place)
            for batch in self.batches
            for place, time in enumerate(batch.times)
            if self.start <= batch.base_offset + place < end
        ]
        if not rows:
            return -1, -1
        largest = max(time for time, _ in rows)
        found = next(row for row in rows if row[0] == largest)
        return found if found[1] < high_watermark else (-1, -1)


def same_batches(told: bytes, wanted: Sequence[KnownBatch], epochs: range) -> bool:
    """Whether these bytes are the batches, with leader epochs in a range that never fall."""
    position, last_epoch = 0, epochs.start
    for batch in wanted:
        data = told[position : position + len(batch.data)]
        position += len(batch.data)
        if len(data) < len(batch.data):
            return False
        epoch = int.from_bytes(data[_EPOCH], "big", signed=True)
        is_same = (
            int.from_bytes(data[_OFFSET], "big") == batch.base_offset
            and data[8:12] == batch.data[8:12]
            and data[_MAGIC:] == batch.data[_MAGIC:]
        )
        if not is_same or epoch not in epochs or epoch < last_epoch:
            return False
        last_epoch = epoch
    return position == len(told)
