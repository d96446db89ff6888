"""Reads that would hold up the event loop, carried out in the disk's executor (D12).

A limited number of requests have theirs under way at a time; the others wait here, first come,
first served. It must not know what is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from oncelog.core.limits import COLD_READS_COUNT_MAX
from oncelog.runtime.disk import Disk, Lane

__all__ = ["ColdRead", "ColdReads"]


class ColdRead:
    """One request's read, until `done` was called with what it found or raised."""

    __slots__ = ("done", "is_cancelled", "work")

    def __init__(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.work = work
        self.done = done
        self.is_cancelled = False

    def cancel(self) -> None:
        """Nobody waits any more: it is not begun, or its result is dropped."""
        self.is_cancelled = True


class ColdReads:
    """All cold reads of a broker."""

    __slots__ = ("_disk", "_loop", "_running", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, disk: Disk) -> None:
        self._loop = loop
        self._disk = disk
        self._running: set[asyncio.Task[None]] = set()
        self._waiting: deque[ColdRead] = deque()

    @property
    def running_count(self) -> int:
        """How many are under way."""
        return len(self._running)

    def start(self, work: Callable[[], Any], done: Callable[[Any], None]) -> ColdRead:
        """Have `work` done in the executor; `done` is called in the loop, later.

        It is given the result, or the exception that `work` ended with.
        """
        read = ColdRead(work, done)
        self._waiting.append(read)
        self._start_next()
        return read

    def close(self) -> None:
        """Nothing more is begun, and nobody is told."""
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < COLD_READS_COUNT_MAX:
            read = self._waiting.popleft()
            if not read.is_cancelled:
                task = self._loop.create_task(self._run(read))
                self._running.add(task)
                task.add_done_callback(self._ended)

    async def _run(self, read: ColdRead) -> None:
        try:
            result: Any = await self._disk.run(read.work, Lane.READ)
        except Exception as error:  # noqa: BLE001 - a task boundary: the request answers for it
            result = error
        if not read.is_cancelled:
            read.done(result)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.result()
            self._start_next()
