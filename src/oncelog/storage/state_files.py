"""The files beside a log that its batches imply: leader epochs, aborted transactions, producers.

Each saves work at the next start and can be rebuilt, so they are written without a sync, except
where a start trusts them (below the recovery point). It decides nothing.
"""

import os

from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.aborted import format_aborted
from oncelog.storage.checkpoints import format_epochs
from oncelog.storage.files import ABORTED_SUFFIX, LEADER_EPOCHS_NAME
from oncelog.storage.replay import DerivedState
from oncelog.storage.segment import Segment

__all__ = ["StateFiles"]


class StateFiles:
    """Writes the derived state of the log in one folder."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._is_named = False

    def write_epochs(self, state: DerivedState) -> None:
        """Write the leader epoch checkpoint; `sync_names` makes it last."""
        path = f"{self._directory}/{LEADER_EPOCHS_NAME}"
        self._disk.write_atomic(path, format_epochs(state.epochs.entries()), sync=False)
        state.epochs.changed = False

    def write_aborted(self, state: DerivedState, segment: Segment, *, sync: bool) -> None:
        """Write a segment's `.txnindex`; like Kafka's, it is there only when it has entries."""
        entries = state.aborted.between(segment.base_offset, segment.end_offset)
        path = segment.prefix + ABORTED_SUFFIX
        if entries:
            self._disk.write_atomic(path, format_aborted(entries), sync=sync)
        else:
            self._disk.remove(path)

    def sync_indexes(self, segment: Segment) -> None:
        """Make a sealed segment's index files survive a loss of power before they are trusted."""
        for path in (*segment.index_paths(), segment.prefix + ABORTED_SUFFIX):
            self._sync(path)

    def sync_names(self) -> None:
        """Make the epoch checkpoint and the names of all files survive a loss of power.

        The first time also the name of the folder itself: what is acknowledged once it is flushed
        must be found (INV-9).
        """
        self._sync(f"{self._directory}/{LEADER_EPOCHS_NAME}")
        self._disk.sync_dir(self._directory)
        if not self._is_named:
            self._disk.sync_dir(os.path.dirname(self._directory) or ".")
            self._is_named = True

    def _sync(self, path: str) -> None:
        try:
            file = self._disk.open(path)
        except StorageFailure as failure:
            if not failure.missing:
                raise
            # Not every segment has each of these files, and other threads may delete one or write
            # it for the first time at any moment. What is gone needs no sync; what comes now was
            # not there when the flush began, and belongs to the next one.
            return
        try:
            file.fsync()
        finally:
            file.close()
