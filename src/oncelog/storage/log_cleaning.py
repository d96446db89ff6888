"""Gives the cleaner access to a log: its sealed segments, and their replacement.

The cleaner reads the segments through its own descriptors, without the log's lock; only
`replace_segments` changes the log, and only if its segments are unchanged.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.core.errors import OncelogError
from oncelog.storage.aborted import AbortedTxn
from oncelog.storage.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
)
from oncelog.storage.local_log import LocalLog
from oncelog.storage.producer_state import LastRecord
from oncelog.storage.segment import Segment
from oncelog.storage.swap import commit, publish, retire

__all__ = ["LogChanged", "LogCleaning"]


class LogChanged(OncelogError):  # noqa: N818 - names what happened to the log
    """The log was closed, deleted or cut while it was cleaned: no segment was replaced."""


class LogCleaning:
    """What compaction may do with one log."""

    __slots__ = ("_local",)

    def __init__(self, local: LocalLog) -> None:
        self._local = local

    @property
    def is_open(self) -> bool:
        """Whether the log is neither closed nor deleted nor failed."""
        return not self._local.is_closed and self._local.failure is None

    def sealed_segments(self) -> list[Segment]:
        """All segments but the active one."""
        with self._local.lock:
            return list(self._local.segments)[:-1]

    @property
    def active_base_offset(self) -> int:
        """The base offset of the segment that takes appends."""
        return self._local.segments.active.base_offset

    @property
    def newest_timestamp_ms(self) -> int:
        """The largest timestamp in the segment that takes appends; -1 without one."""
        return self._local.segments.active.max_timestamp_ms

    def last_records(self) -> dict[int, LastRecord]:
        """The last record of each remembered producer (INV-2)."""
        with self._local.lock:
            return self._local.state.producers.last_records()

    def aborted_from(self, offset: int) -> list[AbortedTxn]:
        """The aborted transactions whose markers are at or after `offset`."""
        local = self._local
        with local.lock:
            return local.state.aborted.between(offset, local.segments.active.end_offset)

    def require_segments(self, segments: list[Segment]) -> None:
        """Raise `LogChanged` unless these are neighbours here that could be replaced."""
        with self._renaming():
            if not self._local.segments.holds(segments):
                raise LogChanged(f"the segments in {self._local.directory} are others now")

    def replace_segments(
        self, replaced: list[Segment], cleaned: Segment, aborted: list[AbortedTxn]
    ) -> None:
        """Put `cleaned`, synced under its `.cleaned` names, in the place of neighbours. Blocking.

        `aborted`: the transactions with markers in there that readers still have to know of
        (INV-3). Raises `LogChanged`, `StorageFailure`.
        """
        with self._local.upkeep, self._local.failing():
            self.require_segments(replaced)
            self._replace(replaced, cleaned, aborted)

    def _replace(
        self, replaced: list[Segment], cleaned: Segment, aborted: list[AbortedTxn]
    ) -> None:
        local = self._local
        disk, directory, files = local.disk, local.directory, local.files
        others = [segment.prefix for segment in replaced[1:]]
        with self._renaming():
            files.note_sealed(cleaned, CLEANED_SUFFIX)
        # Before the swap: otherwise the removed records would look lost to a loss of power.
        files.sync_register()
        commit(disk, directory, cleaned.prefix, self._renaming)
        cleaned.kept.path = cleaned.path + SWAP_SUFFIX
        with self._renaming():
            local.segments.replace(replaced, cleaned)
            local.state.aborted.replace(cleaned.base_offset, replaced[-1].end_offset, aborted)
        retire(disk, directory, others, self._renaming)
        publish(disk, directory, cleaned.prefix, self._renaming, cleaned.take_name)
        with self._renaming():
            cleaned.release()
            local.snapshots.remove_at([segment.base_offset for segment in replaced[1:]])
        for prefix in others:
            for suffix in SEGMENT_SUFFIXES:
                disk.remove(prefix + suffix + DELETED_SUFFIX)

    @contextmanager
    def _renaming(self) -> Iterator[None]:
        """Hold the lock, so that no append, read or deletion runs during the renames."""
        with self._local.lock:
            if not self.is_open:
                raise LogChanged(f"the log in {self._local.directory} was closed")
            self._local.removals_count += 1  # A cold read that misses a file now looks again.
            yield
