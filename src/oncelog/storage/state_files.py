"""Reads and writes the files that a log's batches imply, such as producer snapshots.

Each saves work at the next start and can be rebuilt, so they are written without a sync, except
where a start trusts them (below the recovery point). This module decides nothing.
"""

import contextlib
import os

from oncelog.core.crc import crc32c
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.aborted import AbortedTxn, format_aborted, parse_aborted
from oncelog.storage.checkpoints import format_epochs
from oncelog.storage.files import (
    ABORTED_SUFFIX,
    BATCHES_SUFFIX,
    FAILED_SYNC_NAME,
    LEADER_EPOCHS_NAME,
    PARTITION_METADATA_NAME,
    SNAPSHOT_SUFFIX,
    file_prefix,
)
from oncelog.storage.replay import DerivedState
from oncelog.storage.segment import Segment
from oncelog.storage.segment_register import SealedSegment, SegmentRegister

__all__ = ["StateFiles"]


class StateFiles:
    """Writes the derived state of the log in one folder."""

    def __init__(self, disk: Disk, directory: str, *, is_new: bool = False) -> None:
        self._disk = disk
        self._directory = directory
        self._is_named = False
        self.register = SegmentRegister(disk, directory, is_new=is_new)

    def write_epochs(self, state: DerivedState) -> None:
        """Write the leader epoch checkpoint; `sync_names` makes it durable."""
        path = f"{self._directory}/{LEADER_EPOCHS_NAME}"
        self._disk.write_atomic(path, format_epochs(state.epochs.entries()), sync=False)
        state.epochs.changed = False

    def seal(self, state: DerivedState, segment: Segment) -> None:
        """Write the index files of a segment that takes no more batches, and record them.

        As in Kafka, a `.txnindex` exists only when it has entries. `sync_indexes` and `sync_names`
        make them durable.
        """
        index_crc, time_index_crc = segment.write_indexes()
        aborted = format_aborted(state.aborted.between(segment.base_offset, segment.end_offset))
        path = segment.prefix + ABORTED_SUFFIX
        if aborted:
            self._disk.write_atomic(path, aborted, sync=False)
        else:
            self._disk.remove(path)
        self._note(segment, index_crc, time_index_crc, crc32c(aborted))

    def _note(
        self, segment: Segment, index_crc: int, time_index_crc: int, aborted_crc: int
    ) -> None:
        self.register.add(
            SealedSegment(
                segment.base_offset,
                segment.end_offset,
                segment.size,
                index_crc,
                time_index_crc,
                aborted_crc,
                bool(segment.damaged),
            )
        )

    def note_sealed(self, segment: Segment, state: str) -> None:
        """Record the files of a segment that others wrote; their names still end in `state`."""
        paths = (*segment.index_paths(), segment.prefix + ABORTED_SUFFIX)
        index_crc, time_index_crc, aborted_crc = (
            crc32c(self._disk.read(path + state) or b"") for path in paths
        )
        self._note(segment, index_crc, time_index_crc, aborted_crc)

    def read_aborted(
        self, segment: Segment, sealed: SealedSegment | None
    ) -> list[AbortedTxn] | None:
        """Return a segment's `.txnindex`; None when it does not fit, or differs from `sealed`.

        Without a record of the seal a missing file has no entries, as in Kafka.
        """
        data = self._disk.read(segment.prefix + ABORTED_SUFFIX) or b""
        if sealed is not None:
            return parse_aborted(data) if crc32c(data) == sealed.aborted_crc else None
        entries = parse_aborted(data)
        if entries and not (
            segment.base_offset <= entries[0].last_offset
            and entries[-1].last_offset < segment.end_offset
        ):
            return None
        return entries

    def sync_indexes(self, segment: Segment) -> None:
        """Sync the index files of a sealed segment and the producer snapshot at its end.

        A start trusts them only once they survive a loss of power.
        """
        for path in (*segment.index_paths(), segment.prefix + ABORTED_SUFFIX):
            self._sync(path)
        self.sync_snapshot(segment.end_offset)

    def sync_snapshot(self, offset: int) -> None:
        """Sync the producer snapshot at an offset, if there is one."""
        prefix = file_prefix(self._directory, offset)
        self._sync(prefix + SNAPSHOT_SUFFIX)
        self._sync(prefix + BATCHES_SUFFIX)

    def rewrite_topic_id(self) -> None:
        """Write `partition.metadata` again as it is, for `sync_names` to sync."""
        path = f"{self._directory}/{PARTITION_METADATA_NAME}"
        content = self._disk.read(path)
        if content is not None:
            self._disk.write_atomic(path, content, sync=False)

    def sync_register(self) -> None:
        """Make the records of sealed segments survive a loss of power."""
        self._sync(self.register.path)

    def sync_names(self) -> None:
        """Make epoch checkpoint, register and the names of all files survive a loss of power.

        The first call also syncs the name of the folder itself, and the id of its topic: a start
        must find every record that was acknowledged after a flush (INV-9), and none of another
        topic of that name.
        """
        self._sync(f"{self._directory}/{LEADER_EPOCHS_NAME}")
        self.sync_register()
        if not self._is_named:
            self._sync(f"{self._directory}/{PARTITION_METADATA_NAME}")
        self._disk.sync_dir(self._directory)
        if not self._is_named:
            self._disk.sync_dir(os.path.dirname(self._directory) or ".")
            self._is_named = True

    def note_failed_sync(self, failure: StorageFailure) -> None:
        """Let the next start rewrite all unsynced files.

        After a failed fsync the system may show bytes that never reach the disk. A start that reads
        them finds this file as well, so it needs no sync: a power loss destroys both.
        """
        if failure.operation != "fsync":
            return
        with contextlib.suppress(StorageFailure):
            self._disk.open(f"{self._directory}/{FAILED_SYNC_NAME}", create=True).close()

    def _sync(self, path: str) -> None:
        try:
            file = self._disk.open(path)
        except StorageFailure as failure:
            if not failure.missing:
                raise
            # Not every segment has each of these files, and other threads may delete one or write
            # it for the first time at any moment. A deleted file needs no sync; a new one was
            # not there when the flush began, and the next flush syncs it.
            return
        try:
            file.fsync()
        finally:
            file.close()
