"""A segment's sparse index from offsets to byte positions, in Kafka's format.

An entry means: the batch whose *last* offset is `base_offset + relative` begins at `position`.
Entries are eight bytes on disk, big-endian (i32, i32), both increasing. In memory they are two
arrays (D12: no mapped files). This module knows no files; the segment reads and writes the bytes.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise

__all__ = ["OFFSET_INDEX_ENTRY_SIZE_BYTES", "OffsetIndex"]

OFFSET_INDEX_ENTRY_SIZE_BYTES = 8

_SWAP = sys.byteorder == "little"


class OffsetIndex:
    """Entries of one segment, in offset order."""

    __slots__ = ("_positions", "base_offset", "offsets")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("i")
        """Last offsets of the entries, relative to the base offset. Read only."""
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch that ends at `last_offset` and begins at byte `position`."""
        # In this order: a reader in another thread finds an entry by its offset.
        self._positions.append(position)
        self.offsets.append(last_offset - self.base_offset)

    def entry_before(self, offset: int) -> tuple[int, int]:
        """(offset, position) of a batch at or before the one that holds `offset`.

        A header walk begins there; the offset is one of that batch.
        """
        slot = bisect_right(self.offsets, offset - self.base_offset) - 1
        if slot < 0:
            return self.base_offset, 0
        return self.base_offset + self.offsets[slot], self._positions[slot]

    def position_before(self, offset: int) -> int:
        """The position of that batch."""
        return self.entry_before(offset)[1]

    def boundary_at_or_before(self, position: int) -> int:
        """Return the last indexed batch boundary at or before a byte position, or 0."""
        slot = bisect_right(self._positions, position) - 1
        return self._positions[slot] if slot >= 0 else 0

    def truncate(self, size: int) -> None:
        """Drop the entries of batches that begin at or after byte `size`."""
        slot = bisect_left(self._positions, size)
        del self.offsets[slot:]
        del self._positions[slot:]

    def to_bytes(self) -> bytes:
        """The file's content."""
        both = array("i", bytes(OFFSET_INDEX_ENTRY_SIZE_BYTES * len(self)))
        both[0::2] = self.offsets
        both[1::2] = self._positions
        if _SWAP:
            both.byteswap()
        return both.tobytes()

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes, log_size: int) -> "OffsetIndex | None":
        """Parse a file's content, or None when it cannot belong to a log of `log_size` bytes.

        Kafka preallocates the index of an active segment, so trailing zero entries are dropped.
        """
        if len(data) % OFFSET_INDEX_ENTRY_SIZE_BYTES:
            return None
        both = array("i", data)
        if _SWAP:
            both.byteswap()
        index = cls(base_offset)
        index.offsets, index._positions = both[0::2], both[1::2]
        while len(index) > 1 and index._positions[-1] == 0:
            index.offsets.pop()
            index._positions.pop()
        if len(index) == 1 and index.offsets[0] == 0 and index._positions[0] == 0:
            return cls(base_offset)
        return index if index._is_sane(log_size) else None

    def _is_sane(self, log_size: int) -> bool:
        if not len(self):
            return True
        offsets, positions = self.offsets, self._positions
        return (
            offsets[0] >= 0
            and positions[0] >= 0
            and positions[-1] < log_size
            and all(a < b for a, b in pairwise(offsets))
            and all(a < b for a, b in pairwise(positions))
        )
