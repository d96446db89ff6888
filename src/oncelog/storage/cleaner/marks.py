"""Marks the offsets in the dirty part of a log at which the newest record of a key is.

The cleaner drops a batch without a mark before it decompresses or parses its records. In a log
whose keys are often overwritten these are most batches.
"""

from collections.abc import Iterable

from oncelog.core.limits import CLEANER_MARKS_SIZE_BYTES

__all__ = ["Marks"]


class Marks:
    """Marks on the offsets from `first_offset` to before `end_offset`, in bounded memory.

    One mark stands for several neighbouring offsets where there are more offsets than marks.
    """

    __slots__ = ("_marks", "_shift", "end_offset", "first_offset")

    def __init__(self, first_offset: int, end_offset: int) -> None:
        self.first_offset = first_offset
        self.end_offset = end_offset
        count = max(0, end_offset - first_offset)
        self._shift = max(0, count.bit_length() - CLEANER_MARKS_SIZE_BYTES.bit_length() + 1)
        self._marks = bytearray((count >> self._shift) + 1)

    def add(self, offsets: Iterable[int]) -> None:
        """Mark offsets, all of them within the range."""
        marks, shift, first_offset = self._marks, self._shift, self.first_offset
        for offset in offsets:
            marks[(offset - first_offset) >> shift] = 1

    def none_between(self, first_offset: int, last_offset: int) -> bool:
        """Whether these offsets are all within the range and none of them is marked.

        False may also mean that a neighbouring offset which shares a mark is marked.
        """
        if first_offset < self.first_offset or last_offset >= self.end_offset:
            return False
        begin = (first_offset - self.first_offset) >> self._shift
        end = (last_offset - self.first_offset) >> self._shift
        return self._marks.find(1, begin, end + 1) < 0
