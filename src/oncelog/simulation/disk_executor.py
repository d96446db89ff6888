"""The executor of a simulated process, which runs work without threads.

Work runs as one unit in a later callback of the process's loop, and its result arrives in another.
Before each half of the virtual time passes that it takes: some milliseconds, or seconds while the
disk is slow. So the loop may write after an fsync has begun and before it is told of its end. In
each lane as many units run at a time as `SystemDisk` has threads; the others wait in the order of
arrival.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from oncelog.core.limits import DISK_EXECUTOR_THREAD_COUNT
from oncelog.runtime.disk import Lane
from oncelog.simulation.disk_device import DiskOwner

__all__ = ["Executor"]

T = TypeVar("T")


class _Pool:
    """The threads of one lane."""

    __slots__ = ("running_count", "waiting")

    def __init__(self) -> None:
        self.running_count = 0
        self.waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()


class Executor:
    """One per process. `delay_s` returns how long the next work takes."""

    __slots__ = ("_delay_s", "_pools", "_process", "is_working")

    def __init__(self, process: DiskOwner, delay_s: Callable[[], float]) -> None:
        self._process = process
        self._delay_s = delay_s
        self._pools = {lane: _Pool() for lane in Lane}
        self.is_working = False
        """Whether the running code is work given to it, and not the event loop's."""

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        """Run the work later; return its result or raise its exception.

        If it is cancelled, work that has begun is finished and its result dropped, as in a thread
        pool.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        pool = self._pools[lane]
        pool.waiting.append((work, future))
        self._start(pool)
        return await future

    def _start(self, pool: _Pool) -> None:
        while pool.waiting and pool.running_count < DISK_EXECUTOR_THREAD_COUNT:
            work, future = pool.waiting.popleft()
            if future.cancelled():
                continue
            pool.running_count += 1
            half_s = self._delay_s() / 2
            future.get_loop().call_later(half_s, self._work, pool, work, future, half_s)

    def _work(
        self, pool: _Pool, work: Callable[[], Any], future: asyncio.Future[Any], half_s: float
    ) -> None:
        if not self._process.alive:
            return
        tell: Callable[[], None]
        # `ProcessDied` goes to the scheduler: no code of the process may run after it.
        self.is_working = True
        try:
            tell = partial(future.set_result, work())
        except Exception as error:  # noqa: BLE001 - a task boundary: `await` raises it
            tell = partial(future.set_exception, error)
        self.is_working = False
        future.get_loop().call_later(half_s, self._end, pool, future, tell)

    def _end(self, pool: _Pool, future: asyncio.Future[Any], tell: Callable[[], None]) -> None:
        if not future.done():
            tell()
        pool.running_count -= 1
        self._start(pool)
