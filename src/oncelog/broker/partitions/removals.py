"""Removes deleted folders and files after they were renamed as deleted (D12, D14).

The rename records the decision, and the next start finishes a removal that a crash or a stop
interrupts. Removing a large file takes long, so it waits `file.delete.delay.ms` and runs in the
executor, one path at a time.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Iterable

from oncelog.core.limits import REMOVAL_CHECK_MS
from oncelog.runtime.clock import Clock
from oncelog.runtime.disk import Disk, StorageFailure

__all__ = ["Removals"]

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
