"""Holds virtual time and the queue of all callbacks of a run.

Nothing sleeps: when no callback is due, time advances to the next one. Callbacks of the same time
run in the order in which they were scheduled. A callback belongs to a simulated process, or to the
world (None). This module does not know what callbacks do.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from oncelog.core.errors import OncelogError
from oncelog.core.limits import SIMULATION_STEPS_PER_MOMENT_COUNT_MAX

__all__ = ["STEPS_COUNT_MAX", "Handle", "LiveLockError", "Owner", "ProcessDied", "Scheduler"]

STEPS_COUNT_MAX: Final = 2_000_000
"""Callbacks of a whole run, before it counts as one that does not end: most need 25,000."""


class ProcessDied(BaseException):
    """The running process died in the middle of a step; only the scheduler catches this."""


class LiveLockError(OncelogError):
    """A process runs callbacks without end."""


class Owner(Protocol):
    """An owner of callbacks: a simulated process."""

    name: str
    alive: bool
    scheduler: Scheduler
    clock_rate: float
    wall_offset_ms: float
    needs_attention: bool
    """Whether the scheduler has to call `may_step`."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop."""
        ...

    def may_step(self, handle: Handle) -> bool:
        """Return whether a callback may run now."""
        ...

    def local_time(self, world_s: float) -> float:
        """Return its monotonic time at a time of the world, in seconds."""
        ...

    def world_time(self, local_s: float) -> float:
        """Return the world's time at a monotonic time of its own, in seconds."""
        ...


class Handle:
    """One scheduled callback. It serves as asyncio's `Handle` and `TimerHandle`."""

    __slots__ = ("args", "callback", "is_cancelled", "process", "when_s")

    def __init__(
        self,
        when_s: float,
        process: Owner | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
    ) -> None:
        self.when_s = when_s
        self.process = process
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.is_cancelled = False

    def cancel(self) -> None:
        """Cancel the callback."""
        self.is_cancelled = True
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.is_cancelled

    def when(self) -> float:
        """Return when it is due, by the clock of its process's loop."""
        process = self.process
        return self.when_s if process is None else process.local_time(self.when_s)


_Entry = tuple[float, int, Handle]


class Scheduler:
    """The queue and the time of a run. `run_until` runs the callbacks."""

    __slots__ = ("_end_s", "_heap", "_ready", "_serial", "current", "now_s", "step_count")

    def __init__(self) -> None:
        self.now_s: float = 0.0
        """Seconds of virtual time since the run began."""
        self.current: Owner | None = None
        """The owner of the running callback; None for the world."""
        self.step_count = 0
        """The count of callbacks that have run."""
        self._heap: list[_Entry] = []
        self._ready: deque[Handle] = deque()
        self._serial = 0
        self._end_s = -1.0

    def call_at(
        self,
        when_s: float,
        process: Owner | None,
        callback: Callable[..., object],
        *args: Any,
    ) -> Handle:
        """Run the callback at that time, or as soon as possible if it is in the past.

        It is dropped if the process is dead by then, and delayed while the process is frozen.
        """
        handle = Handle(when_s, process, callback, args)
        if when_s <= self.now_s:
            self._ready.append(handle)
        else:
            self._serial += 1
            heapq.heappush(self._heap, (when_s, self._serial, handle))
        return handle

    def call_after(
        self,
        delay_s: float,
        process: Owner | None,
        callback: Callable[..., object],
        *args: Any,
    ) -> Handle:
        """Run the callback after so many seconds."""
        return self.call_at(self.now_s + delay_s, process, callback, *args)

    def call_soon(
        self, process: Owner | None, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> Handle:
        """Run the callback at the current time, after those that are already due."""
        handle = Handle(self.now_s, process, callback, args)
        self._ready.append(handle)
        return handle

    def release(self, handles: list[Handle]) -> None:
        """Queue the callbacks that a frozen process kept."""
        self._ready.extend(handles)

    def stop(self) -> None:
        """End `run_until` after the running callback."""
        self._end_s = -1.0

    def run_until(self, end_s: float) -> None:
        """Run everything that is due up to that time, or until `stop`.

        The time is `end_s` afterwards, unless `stop` was called. Raises `LiveLockError`, also
        once the run has taken `STEPS_COUNT_MAX` steps.
        """
        self._end_s = end_s
        outer = asyncio._get_running_loop()  # noqa: SLF001 - asyncio offers it to loops
        try:
            self._run()
        finally:
            self.current = None
            asyncio._set_running_loop(outer)  # noqa: SLF001
        if self._end_s >= 0:
            self.now_s = max(self.now_s, end_s)

    def _run(self) -> None:
        ready = self._ready
        heap = self._heap
        while self._end_s >= 0:
            steps_left = SIMULATION_STEPS_PER_MOMENT_COUNT_MAX
            if self.step_count > STEPS_COUNT_MAX:
                raise LiveLockError(f"the run does not end: {self.step_count:,} steps by now")
            while ready:
                self._step(ready.popleft())
                steps_left -= 1
                if self._end_s < 0:
                    return
                if not steps_left:
                    raise LiveLockError(f"no time passes any more at {self.now_s:.3f} s")
            if not heap or heap[0][0] > self._end_s:
                return
            self.now_s = now_s = heap[0][0]
            while heap and heap[0][0] <= now_s:
                ready.append(heapq.heappop(heap)[2])

    def _step(self, handle: Handle) -> None:
        callback = handle.callback
        if callback is None:
            return
        process = handle.process
        if process is not self.current:
            self.current = process
            asyncio._set_running_loop(None if process is None else process.loop)  # noqa: SLF001
        if process is not None and process.needs_attention and not process.may_step(handle):
            return
        self.step_count += 1
        try:
            callback(*handle.args)
        except ProcessDied:
            pass
        except Exception as error:
            if process is None:
                raise
            # A task boundary, as in asyncio: an exception of a callback goes to the loop's handler.
            process.loop.call_exception_handler(
                {"message": "a callback failed", "exception": error, "handle": None}
            )
