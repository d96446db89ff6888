"""A segment's sparse index from timestamps to offsets, in Kafka's format.

An entry means: no record up to and including offset `base_offset + relative` has a timestamp above
`timestamp_ms`. Entries are twelve bytes on disk, big-endian (i64, i32), both increasing. This
module knows no files; the segment reads and writes the bytes.
"""

from array import array
from bisect import bisect_left

from oncelog.core.integers import integers

__all__ = ["TIME_INDEX_ENTRY_SIZE_BYTES", "TimeIndex"]

TIME_INDEX_ENTRY_SIZE_BYTES = 12

_ENTRY = integers(">qi")


class TimeIndex:
    """Entries of one segment, in the order of both timestamps and offsets."""

    __slots__ = ("_timestamps", "base_offset", "offsets")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self.offsets = array("i")
        """Offsets of the entries, relative to the base offset. Read only."""

    def __len__(self) -> int:
        return len(self.offsets)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if the timestamp is above the last one's."""
        # Timestamps of producers go back and forth; the index needs rising ones to be searched.
        latest_ms = self._timestamps[-1] if self._timestamps else -1
        if timestamp_ms > latest_ms:
            # In this order: a reader in another thread finds an entry by its timestamp.
            self.offsets.append(offset - self.base_offset)
            self._timestamps.append(timestamp_ms)

    def last_entry(self) -> tuple[int, int]:
        """Return (timestamp_ms, offset) of the last entry; (-1, base offset) when there is none."""
        if not self.offsets:
            return -1, self.base_offset
        return self._timestamps[-1], self.base_offset + self.offsets[-1]

    def offset_before(self, timestamp_ms: int) -> int:
        """An offset such that all records before it are older than `timestamp_ms`."""
        slot = bisect_left(self._timestamps, timestamp_ms) - 1
        return self.base_offset + (self.offsets[slot] if slot >= 0 else 0)

    def truncate(self, end_offset: int) -> None:
        """Drop the entries of offsets at or above `end_offset`."""
        slot = bisect_left(self.offsets, end_offset - self.base_offset)
        del self._timestamps[slot:]
        del self.offsets[slot:]

    def to_bytes(self) -> bytes:
        """The file's content."""
        return b"".join(map(_ENTRY.pack, self._timestamps, self.offsets))

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes) -> "TimeIndex | None":
        """Parse a file's content, or None when its entries do not rise."""
        if len(data) % TIME_INDEX_ENTRY_SIZE_BYTES:
            return None
        index = cls(base_offset)
        timestamp_before, offset_before = -1, -1
        for timestamp_ms, relative in _ENTRY.iter_unpack(data):
            if timestamp_ms == 0 and relative == 0 and len(index):
                break  # Kafka preallocates the file; the rest is zeros.
            if timestamp_ms <= timestamp_before or relative <= offset_before:
                return None
            timestamp_before, offset_before = timestamp_ms, relative
            index._timestamps.append(timestamp_ms)
            index.offsets.append(relative)
        return index
