"""The exact positions of a segment's most recent batches, so that reads at the tail parse nothing.

Pure. `Segment.note` appends to the three arrays itself, as one call less per batch.
"""

from array import array
from bisect import bisect_left, bisect_right

from oncelog.core.limits import RECENT_BATCHES_COUNT_MAX

__all__ = ["RecentBatches"]


class RecentBatches:
    """Base offset, last offset and position of each, in the order of the file."""

    __slots__ = ("bases", "floor", "lasts", "positions")

    def __init__(self, floor: int) -> None:
        self.bases = array("q")
        self.lasts = array("q")
        self.positions = array("q")
        self.floor = floor
        """All batches from this offset on are known here."""

    def forget_older_half(self) -> None:
        """Keep the newer half: the index finds the others."""
        self.floor = self.lasts[RECENT_BATCHES_COUNT_MAX - 1] + 1
        for column in (self.bases, self.lasts, self.positions):
            del column[:RECENT_BATCHES_COUNT_MAX]

    def span(
        self, offset: int, size_max: int, upper_bound: int, min_one: bool, end: tuple[int, int]
    ) -> tuple[int, int]:
        """Return (first, end) position of the batches to read from `offset`, not below `floor`.

        `end` is the segment's end offset and its size in bytes. Equal positions: nothing to read.
        """
        positions = self.positions
        first = bisect_left(self.lasts, offset)
        if first == len(positions):
            return 0, 0
        start = positions[first]
        end_offset, size = end
        last = len(positions)
        if upper_bound < end_offset:
            last = bisect_left(self.bases, upper_bound)
        if last <= first:
            return 0, 0
        stop = positions[last] if last < len(positions) else size
        if stop - start > size_max:
            stop = positions[bisect_right(positions, start + size_max) - 1]
            if stop <= start:
                if not min_one:
                    return 0, 0
                stop = positions[first + 1] if first + 1 < len(positions) else size
        return start, stop
