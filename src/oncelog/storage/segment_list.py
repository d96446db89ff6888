"""The segments of one log in order: sealed ones, then the active one.

Finds the segment of an offset, reads through it, and bounds how many sealed segments hold indexes
in memory. It knows no producers; its owner holds the lock.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from copy import copy

from oncelog.core.limits import SEALED_SEGMENTS_OPEN_COUNT_MAX
from oncelog.storage.segment import Segment

__all__ = ["SegmentList"]


class SegmentList:
    """At least one segment, by rising base offset. `active` is the last one."""

    __slots__ = ("_bases", "_read_order", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._read_order: list[Segment] = []
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(tuple(self._segments))

    @property
    def base_offsets(self) -> list[int]:
        """Base offsets, rising."""
        return list(self._bases)

    @property
    def first_base_offset(self) -> int:
        """Base offset of the oldest segment."""
        return self._bases[0]

    def add(self, segment: Segment) -> None:
        """Make an empty segment the active one."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def drop_oldest(self, count: int) -> list[Segment]:
        """Remove the oldest `count` segments from the list.

        Readers that use one continue undisturbed.
        """
        removed = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        self._read_order = [kept for kept in self._read_order if kept not in removed]
        return removed

    def drop_newest(self, offset: int) -> list[Segment]:
        """Remove the segments that begin at or after `offset` and return them, newest first.

        At least one segment always remains.
        """
        removed = []
        while len(self._segments) > 1 and self._bases[-1] >= offset:
            removed.append(self._segments.pop())
            self._bases.pop()
        self.active = self._segments[-1]
        self._read_order = [kept for kept in self._read_order if kept in self._segments[:-1]]
        return removed

    def cut_active(self, offset: int) -> None:
        """Cut the active segment. It is another one then: a cleaning has read the one before."""
        self.active = self._segments[-1] = copy(self.active)
        self.active.truncate(offset)

    def holds(self, segments: list[Segment]) -> bool:
        """Whether these are neighbours here, and none is the active one."""
        slot = bisect_left(self._bases, segments[0].base_offset)
        found = self._segments[slot : slot + len(segments)]
        return found == segments and segments[-1] is not self.active

    def replace(self, replaced: list[Segment], segment: Segment) -> None:
        """Replace several segments by one with the same base offset.

        Readers that use one continue undisturbed.
        """
        slot = bisect_left(self._bases, segment.base_offset)
        self._segments[slot : slot + len(replaced)] = [segment]
        self._bases[slot : slot + len(replaced)] = [segment.base_offset]
        self._read_order = [kept for kept in self._read_order if kept not in replaced]

    def read(
        self, offset: int, size_max: int, upper_bound: int, min_one: bool, cached_only: bool = False
    ) -> bytes | bytearray | memoryview:
        """Whole batches of one segment, from the one that holds `offset`; see `Segment.read`."""
        slot = bisect_right(self._bases, offset) - 1
        while slot < len(self._segments):
            segment = self._segments[slot]
            if segment is not self.active:
                self._keep_open(segment)
            data = segment.read(offset, size_max, upper_bound, min_one, cached_only)
            if (
                data
                or segment.base_offset >= upper_bound
                or segment.has_batch_at(offset, cached_only)
            ):
                return data
            slot += 1  # Compaction removed all batches at or after the offset here.
        return b""

    def holding(self, offset: int) -> Segment:
        """Return the segment for `offset`, and count it as read, so that it is released later."""
        segment = self._segments[bisect_right(self._bases, offset) - 1]
        if segment is not self.active:
            self._keep_open(segment)
        return segment

    def after(self, segment: Segment) -> Segment | None:
        """The next one, if there is one."""
        slot = bisect_right(self._bases, segment.base_offset)
        return self.holding(self._bases[slot]) if slot < len(self._bases) else None

    def _keep_open(self, segment: Segment) -> None:
        order = self._read_order
        if order and order[-1] is segment:
            return
        if segment in order:
            order.remove(segment)
        order.append(segment)
        if len(order) > SEALED_SEGMENTS_OPEN_COUNT_MAX:
            order.pop(0).release()
