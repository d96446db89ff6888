"""Clean a log that no broker has open: for tools, tests and measurements."""

from collections.abc import Iterator

from oncelog.runtime.disk import Disk
from oncelog.storage.cleaner.batch_filter import CleanerStats
from oncelog.storage.cleaner.cleaning import Cleaning
from oncelog.storage.cleaner.selection import log_to_clean
from oncelog.storage.cleaner.settings import CleanerSettings
from oncelog.storage.log import PartitionLog

__all__ = ["clean_log"]


def clean_log(
    disk: Disk,
    held: PartitionLog,
    now_ms: int,
    *,
    clean_offset: int = 0,
    settings: CleanerSettings | None = None,
) -> tuple[int, CleanerStats]:
    """Clean a log once, all that may be cleaned, whatever its ratio. Blocking.

    Returns the first offset that is dirty now and what was done. Everything in the log counts as
    replicated. Raises as `Cleaning.steps`.
    """
    end = held.log_end_offset
    target = log_to_clean(disk, held, clean_offset, held.last_stable_offset(end), now_ms)
    cleaning = Cleaning(disk, target, settings or CleanerSettings(), end, now_ms)
    _exhaust(cleaning.steps())
    return cleaning.end_offset, cleaning.stats


def _exhaust(steps: Iterator[int]) -> None:
    for _ in steps:
        pass
