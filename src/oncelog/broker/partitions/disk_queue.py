"""Runs work that would block the event loop in the executor (D12).

Requests wait for it: cold reads of fetches and lookups, and the fsyncs of acknowledgements. A
limited number of each runs at a time; the others queue here in order of arrival. It does not know
what the work is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from oncelog.runtime.disk import Disk, Lane

__all__ = ["DiskQueue", "DiskWork"]


class DiskWork:
    """One piece of work, until `done` was called with its result or exception."""

    __slots__ = ("done", "is_cancelled", "work")

    def __init__(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.work = work
        self.done = done
        self.is_cancelled = False

    def cancel(self) -> None:
        """Drop the work: it is not started, or its result is ignored."""
        self.is_cancelled = True


class DiskQueue:
    """The queue of one kind of work that requests wait for."""

    __slots__ = ("_count_max", "_disk", "_lane", "_loop", "_running", "_waiting")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, disk: Disk, lane: Lane, count_max: int
    ) -> None:
        self._loop = loop
        self._disk = disk
        self._lane = lane
        self._count_max = count_max
        self._running: set[asyncio.Task[None]] = set()
        self._waiting: deque[DiskWork] = deque()

    def start(self, work: Callable[[], Any], done: Callable[[Any], None]) -> DiskWork:
        """Run `work` in the executor; `done` is called in the event loop, later.

        It gets the result, or the exception that `work` raised.
        """
        given = DiskWork(work, done)
        self._waiting.append(given)
        self._start_next()
        return given

    def close(self) -> None:
        """Start no more work; `done` is not called for the rest."""
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < self._count_max:
            given = self._waiting.popleft()
            if not given.is_cancelled:
                task = self._loop.create_task(self._run(given))
                self._running.add(task)
                task.add_done_callback(self._ended)

    async def _run(self, given: DiskWork) -> None:
        try:
            result: Any = await self._disk.run(given.work, self._lane)
        except Exception as error:  # noqa: BLE001 - a task boundary: the waiter gets the error
            result = error
        if not given.is_cancelled:
            given.done(result)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            self._start_next()
            task.result()
