"""The executor of a simulated process: a pool of threads that are none.

Work runs as one unit in a later callback of the process's loop. Between the call and that callback
virtual time passes: some milliseconds, or seconds while the disk is slow. As many at a time are
under way as `SystemDisk` has threads; the others wait for their turn, first come, first served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from oncelog.core.limits import DISK_EXECUTOR_THREAD_COUNT
from oncelog.simulation.disk_gate import Owner

__all__ = ["Executor"]

T = TypeVar("T")


class Executor:
    """One per process. `delay_s` says how long the next work takes."""

    __slots__ = ("_delay_s", "_process", "_running_count", "_waiting")

    def __init__(self, process: Owner, delay_s: Callable[[], float]) -> None:
        self._process = process
        self._delay_s = delay_s
        self._running_count = 0
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work later and return its result; what it raises is raised here.

        Cancelled, work that has begun is finished and its result dropped, as in a pool of threads.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, future))
        self._start()
        return await future

    def _start(self) -> None:
        while self._waiting and self._running_count < DISK_EXECUTOR_THREAD_COUNT:
            work, future = self._waiting.popleft()
            if future.cancelled():
                continue
            self._running_count += 1
            future.get_loop().call_later(self._delay_s(), self._work, work, future)

    def _work(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        if not self._process.alive:
            return
        # `ProcessDied` passes through to the scheduler: nothing after it may run.
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - a task boundary: whoever awaits the work hears
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)
        self._running_count -= 1
        self._start()
