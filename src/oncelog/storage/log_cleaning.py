"""Gives the cleaner access to a log: its sealed segments, and their replacement.

`PartitionLog` extends it. The cleaner reads the segments through its own descriptors, without the
log's lock; only `replace_segments` changes the log, and only if its segments are unchanged.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.core.errors import OncelogError
from oncelog.runtime.disk import StorageFailure
from oncelog.storage.aborted import AbortedTxn
from oncelog.storage.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
)
from oncelog.storage.log_view import LogView
from oncelog.storage.producer_state import LastRecord
from oncelog.storage.segment import Segment
from oncelog.storage.swap import commit, publish, retire

__all__ = ["CleanableLog", "LogChanged"]


class LogChanged(OncelogError):  # noqa: N818 - names what happened to the log
    """The log was closed, deleted or cut while it was cleaned: no segment was replaced."""


class CleanableLog(LogView):
    """The part of a log that compaction sees."""

    @property
    def is_open(self) -> bool:
        """Whether the log is neither closed nor deleted nor failed."""
        return not self._closed and self._failure is None

    def sealed_segments(self) -> list[Segment]:
        """All segments but the active one."""
        with self._lock:
            return list(self._segments)[:-1]

    @property
    def active_base_offset(self) -> int:
        """The base offset of the segment that takes appends."""
        return self._segments.active.base_offset

    def last_records(self) -> dict[int, LastRecord]:
        """The last record of each remembered producer (INV-2)."""
        with self._lock:
            return self._state.producers.last_records()

    def aborted_below(self, offset: int) -> list[AbortedTxn]:
        """The aborted transactions that began below `offset`."""
        with self._lock:
            entries = self._state.aborted.between(0, self.log_end_offset)
        return [entry for entry in entries if entry.first_offset < offset]

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Fail the log if the body raises: its files may no longer match its state (D12)."""
        try:
            yield
        except StorageFailure as failure:
            if not self._deleted:
                self._failure = failure
                self._files.note_failed_sync(failure)
            raise

    def require_segments(self, segments: list[Segment]) -> None:
        """Raise `LogChanged` unless these are neighbours here that could be replaced."""
        with self._renaming():
            if not self._segments.holds(segments):
                raise LogChanged(f"the segments of {self.topic_partition} are others now")

    def replace_segments(
        self, replaced: list[Segment], cleaned: Segment, aborted: list[AbortedTxn]
    ) -> None:
        """Put `cleaned`, synced under its `.cleaned` names, in the place of neighbours. Blocking.

        `aborted`: the transactions with markers in there that readers still have to know of
        (INV-3). Raises `LogChanged`, `StorageFailure`.
        """
        with self._upkeep, self._failing():
            self.require_segments(replaced)
            self._replace(replaced, cleaned, aborted)

    def _replace(
        self, replaced: list[Segment], cleaned: Segment, aborted: list[AbortedTxn]
    ) -> None:
        disk, directory = self._disk, self.directory
        others = [segment.prefix for segment in replaced[1:]]
        with self._renaming():
            self._files.note_sealed(cleaned, CLEANED_SUFFIX)
        # Before the swap: otherwise the removed records would look lost to a loss of power.
        self._files.sync_register()
        commit(disk, directory, cleaned.prefix, self._renaming)
        cleaned.kept.path = cleaned.path + SWAP_SUFFIX
        with self._renaming():
            self._segments.replace(replaced, cleaned)
            self._state.aborted.replace(cleaned.base_offset, replaced[-1].end_offset, aborted)
        retire(disk, directory, others, self._renaming)
        publish(disk, directory, cleaned.prefix, self._renaming, cleaned.take_name)
        with self._renaming():
            cleaned.release()
            self._snapshots.remove_at([segment.base_offset for segment in replaced[1:]])
        for prefix in others:
            for suffix in SEGMENT_SUFFIXES:
                disk.remove(prefix + suffix + DELETED_SUFFIX)

    @contextmanager
    def _renaming(self) -> Iterator[None]:
        """Hold the lock, so that no append, read or deletion runs during the renames."""
        with self._lock:
            if not self.is_open:
                raise LogChanged(f"{self.topic_partition} was closed")
            self._removals_count += 1  # A cold read that misses a file now looks again.
            yield
