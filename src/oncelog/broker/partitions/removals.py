"""Applies retention, and removes deleted files and folders after their renames (D12, D14).

The rename records the decision, and the next start finishes a removal that a crash or a stop
interrupts. Removing a large file takes long, so it waits `file.delete.delay.ms` and runs in the
executor, one path at a time.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Iterable
from typing import NamedTuple

from oncelog.core.limits import REMOVAL_CHECK_MS
from oncelog.runtime.clock import Clock
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage import PartitionLog
from oncelog.storage.files import LOG_SUFFIX

__all__ = ["Removals", "Retained", "delete_old_segments"]

log = logging.getLogger(__name__)


class Removals:
    """The files and folders that wait for their removal."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._waiting: list[tuple[float, str]] = []
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, paths: Iterable[str], delay_ms: int) -> None:
        """Remove these folders or files after `delay_ms`."""
        due_ms = self._clock.monotonic_ms() + delay_ms
        for path in paths:
            heapq.heappush(self._waiting, (due_ms, path))
            self._added.set()

    async def run(self) -> None:
        """Remove what is due, until cancelled."""
        while True:
            if not self._waiting:
                self._added.clear()
                await self._added.wait()
            left_ms = self._waiting[0][0] - self._clock.monotonic_ms()
            if left_ms > 0:
                # A path added meanwhile may be due earlier.
                await self._clock.sleep(min(left_ms, REMOVAL_CHECK_MS))
                continue
            _, path = heapq.heappop(self._waiting)
            try:
                await self._disk.run(lambda path=path: self._remove(path))  # type: ignore[misc]
            except StorageFailure as failure:
                log.warning("%s; the next start tries again", failure)

    def _remove(self, path: str) -> None:
        if self._disk.is_dir(path):
            self._disk.remove_tree(path)
        else:
            self._disk.remove(path)


class Retained(NamedTuple):
    """What one round of retention did."""

    deleted: list[tuple[list[str], int]]
    """Of each log: the renamed files, and after how many milliseconds they are to be removed."""
    failures: list[StorageFailure]


def delete_old_segments(due: Iterable[tuple[PartitionLog, int]], now_ms: int) -> Retained:
    """Apply retention to these logs, up to the high watermark of each. Blocking.

    A log that fails keeps none of the others from it: they may be in a sound log directory.
    """
    retained = Retained([], [])
    for held, high_watermark in due:
        paths: list[str] = []
        try:
            held.delete_old_segments(now_ms, high_watermark, paths)
        except StorageFailure as failure:
            retained.failures.append(failure)
        if paths:
            count = sum(LOG_SUFFIX in path for path in paths)
            log.info(
                "%s: retention deleted %d segment%s, the log starts at %d now",
                *(held.topic_partition, count, "" if count == 1 else "s", held.log_start_offset),
            )
            retained.deleted.append((paths, held.config.file_delete_delay_ms))
    return retained
