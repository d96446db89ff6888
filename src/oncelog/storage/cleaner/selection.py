"""Selects the log to clean next, and its part (Kafka's `LogCleanerManager`, `LogToClean`).

A log is clean below a checkpoint and dirty from there on. It is due when the dirty part that may be
cleaned is larger than `min.cleanable.dirty.ratio` of what there is, or holds a record older than
`max.compaction.lag.ms`. The dirtiest goes first.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from oncelog.core.limits import INT64_MAX
from oncelog.runtime.disk import Disk
from oncelog.storage.cleaner.reading import first_timestamp_ms
from oncelog.storage.log import PartitionLog
from oncelog.storage.segment import Segment

__all__ = ["LogToClean", "filthiest", "log_to_clean"]


@dataclass(frozen=True, slots=True)
class LogToClean:
    """One log, and the part of it that a cleaning may change."""

    log: PartitionLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of the first segment that must not change."""
    cleanable_bytes: int
    total_bytes: int
    is_overdue: bool
    """Whether a dirty record is older than `max.compaction.lag.ms`."""

    @property
    def ratio(self) -> float:
        """Share of the bytes that are dirty and may be cleaned."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the dirty share exceeds the configured ratio, or a dirty record is overdue."""
        if not self.cleanable_bytes:
            return False
        return self.is_overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio


def log_to_clean(
    disk: Disk, held: PartitionLog, clean_offset: int | None, stable_offset: int, now_ms: int
) -> LogToClean:
    """Describe one log to the cleaner. Blocking.

    `clean_offset`: the checkpoint, None for a log never cleaned. `stable_offset`: the last stable
    offset, at most the high watermark.
    """
    segments = held.cleaning.sealed_segments()
    first_dirty = _first_dirty_offset(held, clean_offset)
    end = min(stable_offset, held.cleaning.active_base_offset)
    lag_ms = held.config.min_compaction_lag_ms
    cleanable = []
    cleaned_bytes = 0
    first_uncleanable = segments[0].base_offset if segments else first_dirty
    for segment in segments:
        if segment.end_offset > end:
            break
        is_clean = segment.end_offset <= first_dirty
        if not is_clean and lag_ms > 0 and segment.newest_ms() > now_ms - lag_ms:
            break
        if is_clean:
            cleaned_bytes += segment.size
        else:
            cleanable.append(segment)
        first_uncleanable = segment.end_offset
    cleanable_bytes = sum(segment.size for segment in cleanable)
    return LogToClean(
        held,
        first_dirty,
        first_uncleanable,
        cleanable_bytes,
        cleaned_bytes + cleanable_bytes,
        _is_overdue(disk, cleanable, held.config.max_compaction_lag_ms, now_ms),
    )


def filthiest(candidates: Iterable[LogToClean]) -> LogToClean | None:
    """The one with the largest dirty share among those that are due."""
    due = [candidate for candidate in candidates if candidate.is_due]
    return max(due, key=lambda candidate: candidate.ratio, default=None)


def _first_dirty_offset(held: PartitionLog, clean_offset: int | None) -> int:
    start = held.log_start_offset
    if clean_offset is None or not start <= clean_offset <= held.log_end_offset:
        return start
    return clean_offset


def _is_overdue(disk: Disk, cleanable: list[Segment], lag_ms: int, now_ms: int) -> bool:
    if lag_ms >= INT64_MAX:
        return False
    times = (first_timestamp_ms(disk, segment) for segment in cleanable)
    return any(0 < time_ms < now_ms - lag_ms for time_ms in times)
