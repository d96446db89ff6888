"""Holds the start offset of each leader epoch in one partition's log (KIP-101, KIP-279).

Epochs and start offsets increase. A follower and its leader compare the list to find where their
logs diverge. This module knows no files; the log writes the checkpoint, and recovery can rebuild
the list from the batches, which contain their epoch.
"""

from bisect import bisect_right
from typing import NamedTuple

from oncelog.core.ids import NO_LEADER_EPOCH

__all__ = ["EpochEnd", "LeaderEpochs"]


class EpochEnd(NamedTuple):
    """The end offset (exclusive) of the largest epoch not above the requested one.

    -1, -1 when unknown.
    """

    leader_epoch: int
    end_offset: int


class LeaderEpochs:
    """(epoch, start offset) pairs in order."""

    __slots__ = ("_entries", "changed", "latest")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries = list(entries or ())
        self.changed = False
        self.latest: int = self._entries[-1][0] if self._entries else NO_LEADER_EPOCH
        """The newest epoch, or -1. Read only; every append compares its own with it."""

    def entries(self) -> list[tuple[int, int]]:
        """A copy, in order."""
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` starts at `start_offset`.

        Older or equal epochs change nothing.
        """
        if epoch <= self.latest:
            return
        # Remove an epoch that wrote no record before the next one began at the same offset.
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self.latest = epoch
        self.changed = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the end offset of `epoch`, or of the largest known one below it.

        The latest ends at the log's end.
        """
        # A newer epoch than any here has no end that could be told (KIP-101).
        if not self._entries or epoch < 0 or epoch > self.latest:
            return EpochEnd(-1, -1)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        slot = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if slot == 0:
            # Older than all known epochs: it ended at or before the first known start.
            return EpochEnd(epoch, self._entries[0][1])
        return EpochEnd(self._entries[slot - 1][0], self._entries[slot][1])

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote the batch at `offset`, or -1."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[slot - 1][0] if slot else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that began at or after `end_offset`."""
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
            self.latest = self._entries[-1][0] if self._entries else NO_LEADER_EPOCH
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before `start_offset`.

        The epoch that contains it then begins there.
        """
        # The newest of the epochs before the start is kept: it wrote what begins there (KIP-320).
        slot = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        if slot > 1 or (slot == 1 and self._entries[0][1] < start_offset):
            self._entries[:slot] = [(self._entries[slot - 1][0], start_offset)]
            self.changed = True
