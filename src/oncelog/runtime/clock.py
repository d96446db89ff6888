"""Defines the clock that the rest of the program uses.

Wall time stamps records and ages them; monotonic time measures waits. Other modules must not
call `time` or `asyncio.sleep`, so that the same code runs on virtual time in the simulation (D3).

Tests replace the time of their process (freezegun, time-machine) while a broker and clients run in
it. Ours keep the machine's, because confluent-kafka and clients in other processes do.
"""

import asyncio
import sys
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Protocol

__all__ = ["Clock", "SteadyClock", "SystemClock", "monotonic_s", "stopwatch"]


def _copy_of_time() -> ModuleType:
    """Return a second instance of the module `time`, with functions of its own.

    freezegun replaces the functions in the first one, and all names of loaded modules that refer to
    them. It does not find these, even if time was frozen before this module was imported.
    """
    spec = find_spec("time")
    assert spec is not None
    assert spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


_time = _copy_of_time()
monotonic_s: Callable[[], float] = _time.monotonic
"""Seconds of the machine's monotonic clock."""
_time_ns: Callable[[], int] = _time.time_ns


def _now_beside_time_machine_ns() -> int:
    """Nanoseconds since 1970 (UTC).

    time-machine replaces the C code of all instances, and lets others around it in this way.
    """
    hatch = getattr(sys.modules["time_machine"], "escape_hatch", None)
    try:
        # An import that is under way has none yet.
        return _time_ns() if hatch is None else hatch.time.time_ns()
    except ValueError:
        # Time is not replaced now.
        return _time_ns()


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970 (UTC). It may jump, also backwards."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds since an arbitrary moment; never goes backwards.

        For timeouts and measuring.
        """
        ...

    async def sleep(self, delay_ms: float) -> None:
        """Return after at least `delay_ms` milliseconds of monotonic time."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970 (UTC)."""
        if "time_machine" in sys.modules:
            return _now_beside_time_machine_ns() // 1_000_000
        return _time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Milliseconds of the monotonic clock."""
        return monotonic_s() * 1000.0

    async def sleep(self, delay_ms: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(delay_ms / 1000.0)


def stopwatch(clock: Clock) -> Callable[[], float]:
    """Return a function that returns monotonic seconds of `clock`, for short durations.

    For a `SystemClock` it is `monotonic_s` itself, so that timing a request calls no Python
    function.
    """
    if type(clock) is SystemClock:
        return monotonic_s
    return lambda: clock.monotonic_ms() / 1000.0


class SteadyClock:
    """Wall time at creation, advanced by the monotonic clock: it never jumps.

    For intervals between times that are also stored. Code that writes wall time for others to read
    takes it from the clock itself.
    """

    __slots__ = ("_base_s", "_elapsed")

    def __init__(self, clock: Clock) -> None:
        self._elapsed = stopwatch(clock)
        self._base_s = clock.now_ms() / 1000.0 - self._elapsed()

    def now_ms(self) -> int:
        """Milliseconds since 1970 (UTC), as if the wall clock had not been set since."""
        return int((self._base_s + self._elapsed()) * 1000.0)
