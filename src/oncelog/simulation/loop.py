"""The event loop of one simulated process, on the scheduler that all processes share.

It has the methods that asyncio's tasks, futures, timeouts and task groups need, and no others: no
sockets, threads, signals or subprocesses, so code that bypasses `runtime` fails here at once. Once
the process is dead it does nothing: what a dying coroutine schedules is dropped.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import Context
from inspect import CORO_CREATED, CORO_SUSPENDED, getcoroutinestate
from types import CoroutineType
from typing import Any, Final, TypeVar

from oncelog.simulation.scheduler import Handle, Owner, ProcessDied

__all__ = ["ProcessLoop"]

T = TypeVar("T")

OnError = Callable[[str, BaseException | None], None]

AWAITS_AT_CLOSE_MAX: Final = 100
"""Awaits of one coroutine in its ``finally`` blocks; each stops `close` once."""


class _Numbered:
    """A task or future whose place in a set is that of its number, in each run the same.

    By their addresses a task group would cancel its tasks in another order in each process.
    """

    def __init__(self, number: int, *args: Any, **more: Any) -> None:
        # asyncio puts a task into a set while it is made.
        self._number = number
        super().__init__(*args, **more)

    def __hash__(self) -> int:
        return self._number


class _Future(_Numbered, asyncio.Future[Any]):
    """A future of a simulated process."""


class _Task(_Numbered, asyncio.Task[Any]):
    """A task of a simulated process."""


class ProcessLoop(asyncio.AbstractEventLoop):
    """One per process. `on_error` gets what asyncio would log: failed callbacks and tasks."""

    def __init__(self, process: Owner, on_error: OnError | None = None) -> None:
        self._process = process
        self._scheduler = process.scheduler
        self._on_error = on_error
        # asyncio keeps only weak references to tasks; those of `spawn` live as long as they run.
        self._kept: dict[asyncio.Task[Any], None] = {}
        self._made_count = 0

    def keep(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine as a task and hold the only reference to it."""
        task = self.create_task(work)
        self._kept[task] = None
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        del self._kept[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.call_exception_handler({"message": "a process failed", "exception": error})

    # --- what asyncio asks of a loop

    def time(self) -> float:
        """The monotonic clock of the process, in seconds."""
        return self._scheduler.now_s * self._process.clock_rate

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Run the callback at the current time."""
        return self._scheduler.call_soon(self._process, callback, args)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """Run the callback after `delay` seconds of the process's clock."""
        scheduler = self._scheduler
        when_s = scheduler.now_s + max(0.0, delay) / self._process.clock_rate
        return scheduler.call_at(when_s, self._process, callback, *args)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """Run the callback at the time `when` of the process's clock."""
        process = self._process
        when_s = process.world_time(when)
        while process.local_time(when_s) < when:
            # A caller that gets an earlier time sets the timer again, forever if it is rounded down
            # each time.
            when_s = math.nextafter(when_s, math.inf)
        return self._scheduler.call_at(when_s, process, callback, *args)

    async def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> T:
        """Run a call later, in one step: it takes no virtual time."""
        await asyncio.sleep(0)
        return func(*args)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return _Future(self._next_number(), loop=self)

    def _next_number(self) -> int:
        self._made_count += 1
        return self._made_count

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """A task of this loop. It has a fixed name: asyncio would count tasks over all runs."""
        task = _Task(self._next_number(), coro, loop=self, name=name or "task")
        if self.is_closed():
            _close_unbegun(coro)
        return task

    def abandon(self, unstarted: Iterable[object]) -> None:
        """Close this work, and that of tasks that will not begin: Python would warn of it later."""
        for work in (*unstarted, *(task.get_coro() for task in asyncio.all_tasks(self))):
            _close_unbegun(work)

    def close(self) -> None:
        """Close what tasks of the dead process had begun, whatever fails in it.

        What is left is closed when Python collects it, and each failure is reported then, in the
        middle of something else.
        """
        for task in asyncio.all_tasks(self):
            work = task.get_coro()
            if isinstance(work, CoroutineType):
                _close_begun(work)

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """While the process lives."""
        return self._process.alive

    def is_closed(self) -> bool:
        """Once the process is dead."""
        return not self._process.alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Call `on_error`, unless the process is dead."""
        if self._process.alive and self._on_error is not None:
            self._on_error(str(context.get("message")), context.get("exception"))


def _close_begun(work: CoroutineType[Any, Any, Any]) -> None:
    """Close a coroutine although its ``finally`` blocks fail or await."""
    for _ in range(AWAITS_AT_CLOSE_MAX):
        if getcoroutinestate(work) != CORO_SUSPENDED:
            return
        with suppress(Exception, BaseExceptionGroup, asyncio.CancelledError, ProcessDied):
            work.close()


def _close_unbegun(work: object) -> None:
    """Close a coroutine that has not begun, and those that it was given."""
    if isinstance(work, CoroutineType) and getcoroutinestate(work) == CORO_CREATED:
        frame = work.cr_frame
        given = [] if frame is None else list(frame.f_locals.values())
        work.close()
        for value in given:
            _close_unbegun(value)
