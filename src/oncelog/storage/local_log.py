"""The segments of one partition's log in its folder, and the state that follows from them.

The name is Kafka's: `LocalLog` writes, rolls, syncs, cuts and removes files. It checks no batch,
and knows neither the log's start nor what was synced before: `PartitionLog` gives both as
arguments. It keeps what every change of the files has to keep with them: `DerivedState`, producer
snapshots, the register of sealed segments.

A `StorageFailure` is final (D12): the end of the file is unknown until recovery has read it.

Locks, in the order in which they are taken: `upkeep` while files of sealed segments are replaced or
removed, then `lock` for the list of segments and nothing slower than one write. Appends and reads
take only the second.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from oncelog.core.errors import ProtocolError
from oncelog.protocol.batch import BatchHeader
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.config import LogConfig
from oncelog.storage.placement import PlacedBatch
from oncelog.storage.recovery import Recovered
from oncelog.storage.recovery_files import remove_segment_files, rename_segment_files
from oncelog.storage.replay import DerivedState, state_before
from oncelog.storage.retention import expired_segments_count
from oncelog.storage.segment import Segment
from oncelog.storage.segment_list import SegmentList

__all__ = ["LocalLog"]

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class LocalLog:
    """One log's files, open; see the module's docstring."""

    __slots__ = (
        "_names_changed",
        "directory",
        "disk",
        "failure",
        "files",
        "is_changed",
        "is_closed",
        "is_deleted",
        "lock",
        "removals_count",
        "segments",
        "snapshots",
        "state",
        "upkeep",
    )

    def __init__(self, disk: Disk, directory: str, recovered: Recovered) -> None:
        self.disk = disk
        self.directory = directory
        self.files = recovered.files
        self.segments = SegmentList(recovered.segments)
        self.state = recovered.state
        self.snapshots = recovered.snapshots
        self.lock = threading.RLock()
        self.upkeep = threading.Lock()
        self.failure: StorageFailure | None = None
        """The failure that stopped the log, or None."""
        self.is_closed = self.is_deleted = False
        self.is_changed = recovered.changed
        """Whether a clean stop has anything to write."""
        self.removals_count = 0
        self._names_changed = True

    # ---- writing ----

    def write(
        self, data: Buffer, placed: list[PlacedBatch], config: LogConfig, now_ms: int
    ) -> None:
        """Write batches into the active segment, or into a new one that they begin.

        The caller holds the lock. Raises `StorageFailure`.
        """
        last = placed[-1]
        try:
            active = self.segments.active
            if not active.fits(last, len(data), config, now_ms):
                # A leader's log that was compacted has gaps: the name is the first batch's offset.
                active = self.roll(max(active.end_offset, placed[0].base_offset))
            if not active.size:
                active.begun_ms = now_ms
            active.append(data, placed, config)
        except StorageFailure as failure:
            self.failure = failure
            raise
        self.is_changed = True

    def roll(self, base_offset: int) -> Segment:
        """Seal the active segment and begin the next.

        A crash in between leaves an empty last segment.
        """
        sealed = self.segments.active
        sealed.end_offset = base_offset
        if self.state.epochs.changed:
            # Without them a start would not trust the snapshot.
            self.write_epochs()
        self.files.seal(self.state, sealed)
        self.snapshots.write(self.state.producers, base_offset, sync=False)
        segment = Segment(self.disk, self.directory, base_offset)
        segment.create()
        self.segments.add(segment)
        self._names_changed = self.is_changed = True
        return segment

    def write_epochs(self) -> None:
        """Write the checkpoint of leader epochs; the next sync makes it durable."""
        with self.lock:
            self.files.write_epochs(self.state)
            self._names_changed = True

    def sync(self, from_offset: int) -> None:
        """Sync all segments that end at or after `from_offset`, and the names of files. Blocking.

        One call at a time. Raises `StorageFailure`, unless the log was deleted meanwhile.
        """
        with self.lock:
            active = self.segments.active
            # One that ends right there may have been sealed, unsynced, after the last sync.
            dirty = [s for s in self.segments if s.end_offset >= from_offset]
            if self.state.epochs.changed:
                # Not at the append that began one: until now a start reads it from the batches.
                with self.failing():
                    self.write_epochs()
            names_changed, self._names_changed = self._names_changed, False
            syncs = [(segment, segment.kept.sync_plan()) for segment in dirty]
        with self.failing():
            try:
                for segment, sync in syncs:
                    self._sync_segment(segment, sync, is_sealed=segment is not active)
                if names_changed:
                    self.files.sync_names()
            except StorageFailure:
                if self.is_deleted:
                    return
                raise

    def _sync_segment(self, segment: Segment, sync: Callable[[], None], *, is_sealed: bool) -> None:
        try:
            sync()
        except StorageFailure as failure:
            # Retention deleted the segment during the sync; a deleted file needs no sync.
            if failure.missing and segment not in tuple(self.segments):
                return
            raise
        if is_sealed:
            self.files.sync_indexes(segment)

    # ---- removing ----

    def drop_expired(
        self, config: LogConfig, now_ms: int, high_watermark: int, log_start_offset: int
    ) -> list[Segment]:
        """Take the segments that retention deletes off the list; their files stay (`remove`).

        The caller holds both locks.
        """
        if self.is_closed:
            return []
        segments = self.segments
        count = expired_segments_count(
            list(segments), config, now_ms, high_watermark, log_start_offset
        )
        if not count:
            return []
        if count == len(segments):
            self.roll(segments.active.end_offset)
        self.removals_count += 1
        return segments.drop_oldest(count)

    def forget_before(self, log_start_offset: int) -> None:
        """Forget the aborted transactions and leader epochs of what readers cannot see any more."""
        # Records before the start are in the first segment still, and no seal of it may forget that
        # they were aborted: a start without the checkpoint of log starts shows them again (INV-3).
        self.state.aborted.truncate_from_start(self.segments.first_base_offset)
        self.state.epochs.truncate_from_start(log_start_offset)
        if self.state.epochs.changed:
            self.write_epochs()

    def remove(self, removed: list[Segment], deleted: list[str] | None) -> None:
        """Close segments that were dropped, and remove their files and producer snapshots.

        With `deleted` the segments' files are renamed instead, and their paths added there for the
        caller to remove. Blocking.
        """
        if not removed:
            return
        with self.lock:
            first = self.segments.first_base_offset
        # From now on nothing else has the state of the producers up to there: neither the batches
        # nor an older snapshot. A flush that finds those segments gone would not sync it.
        self.files.sync_snapshot(first)
        with self.lock:
            self.snapshots.remove(below=first)
        for segment in removed:
            segment.close()
            if deleted is None:
                remove_segment_files(self.disk, segment.prefix)
            else:
                deleted += rename_segment_files(self.disk, segment.prefix)

    def boundary_before(self, offset: int) -> int:
        """Return the offset at which the batch with `offset` begins, or `offset` itself."""
        for segment in reversed(tuple(self.segments)):
            if segment.base_offset <= offset:
                found = segment.find(offset)
                return offset if found is None else min(offset, found[1].base_offset)
        return offset

    def truncate(self, offset: int) -> int:
        """Remove all batches that hold `offset` or later ones; returns the new end.

        The caller holds both locks, and calls `settle_truncation` next.
        """
        self.removals_count += 1
        self.snapshots.remove(above=offset)
        for segment in self.segments.drop_newest(offset):
            segment.close()
            remove_segment_files(self.disk, segment.prefix)
        self.segments.cut_active(offset)
        active = self.segments.active
        # The segment that is active again may later be sealed with the same end and other records.
        self.files.register.keep_only(self.segments.base_offsets[:-1])
        self.files.register.write()
        self._names_changed = self.is_changed = True
        end = max(active.end_offset, active.base_offset)
        self.snapshots.remove(above=end)
        return end

    def settle_truncation(self, end_offset: int, now_ms: int, expiration_ms: int) -> None:
        """Rebuild the derived state at the new end, and make the truncation durable. Blocking."""
        self.state = state_before(end_offset, self.state, self.segments, self.snapshots, now_ms)
        self.snapshots.remove_unsound()
        # A snapshot and batches know producers again that have expired since.
        producers = self.state.producers
        producers.remove_expired(producers.entries(), now_ms, expiration_ms)
        self.write_epochs()
        # Otherwise a loss of power could leave bytes of the removed history after new batches.
        self.segments.active.kept.sync_plan()()
        self.files.sync_names()

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Remove all files, and begin with an empty segment at `offset`. Blocking.

        The caller holds both locks. The first segment goes last, once the others are gone durably:
        what a crash leaves is a beginning of the log, never a log with a hole.
        """
        self.removals_count += 1
        self.snapshots.remove(above=-1)
        for segment in self.segments.drop_newest(-1):
            segment.close()
            remove_segment_files(self.disk, segment.prefix)
        self.disk.sync_dir(self.directory)
        self._remove_last()
        self.disk.sync_dir(self.directory)
        self._begin(offset)
        self.segments.active.begun_ms = now_ms
        self.files.register.keep_only(())
        self.files.register.write()
        limit = self.state.producers.producer_limit
        self.state = DerivedState()
        self.state.producers.producer_limit = limit
        self.write_epochs()
        self.segments.active.kept.sync_plan()()
        self.files.sync_names()

    def begin_below(self, first: BatchHeader, end_offset: int) -> bool:
        """Whether a log without any batch may begin with this one, which begins below its end.

        The log start of its leader is within that batch. Its segment is named after it then. The
        caller holds the lock.
        """
        if len(self.segments) > 1 or self.segments.active.size or first.last_offset < end_offset:
            return False
        self.removals_count += 1
        self._remove_last()
        self._begin(first.base_offset)
        return True

    def _remove_last(self) -> None:
        self.segments.active.close()
        remove_segment_files(self.disk, self.segments.active.prefix)

    def _begin(self, offset: int) -> None:
        segment = Segment(self.disk, self.directory, offset)
        segment.create()
        self.segments = SegmentList([segment])
        self._names_changed = self.is_changed = True

    # ---- reading beside appends ----

    def without_lock(self, look: Callable[[], T]) -> T:
        """Run a lookup of any duration without the lock, while appends continue.

        If segments were removed or cut meanwhile, the result is invalid and the lookup runs again.
        The files of a deleted log are gone for good.
        """
        while True:
            removals_count = self.removals_count
            try:
                found = look()
            except (StorageFailure, ProtocolError):
                if self.is_deleted or removals_count == self.removals_count:
                    raise
            else:
                if removals_count == self.removals_count:
                    return found

    def read_from(
        self, segment: Segment, offset: int, max_bytes: int, upper_bound: int, min_one: bool
    ) -> Buffer:
        """Whole batches from `offset` on, which `segment` or a later one holds. No lock is held."""
        found: Segment | None = segment
        while found is not None and found.base_offset < upper_bound:
            data = found.read_indexed(offset, max_bytes, upper_bound, min_one)
            if data or found.has_batch_at(offset):
                return data
            with self.lock:
                found = self.segments.after(found)
        return b""

    # ---- the end of its life ----

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Fail the log if the body raises: its files may no longer match its state (D12)."""
        try:
            yield
        except StorageFailure as failure:
            if not self.is_deleted:
                self.failure = failure
                self.files.note_failed_sync(failure)
            raise

    def write_clean_end(self) -> None:
        """Write what spares the next start a scan: indexes and a producer snapshot.

        Unsynced: after a loss of power a start rebuilds the index files, and uses an older
        snapshot.
        """
        active = self.segments.active
        self.files.seal(self.state, active)
        if active.end_offset:  # At 0 there is nothing to save, and no later sync has the file.
            self.snapshots.write(self.state.producers, active.end_offset, sync=False)

    def close_files(self) -> None:
        """Close all segments."""
        for segment in self.segments:
            segment.close()

    def abandon(self) -> None:
        """Close without saving anything: the log is about to be deleted.

        Later appends are refused.
        """
        self.is_closed = self.is_deleted = True
        self.failure = StorageFailure("append to", self.directory, "the log was deleted")
        with self.lock:
            self.removals_count += 1
            self.close_files()
