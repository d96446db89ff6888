"""Defines the clock that the rest of the program uses.

Wall time stamps records and ages them; monotonic time measures waits. Other modules must not
call `time` or `asyncio.sleep`, so that the same code runs on virtual time in the simulation (D3).
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "SteadyClock", "SystemClock", "stopwatch"]


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
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Milliseconds of the monotonic clock."""
        return time.monotonic() * 1000.0

    async def sleep(self, delay_ms: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(delay_ms / 1000.0)


def stopwatch(clock: Clock) -> Callable[[], float]:
    """Return a function that returns monotonic seconds of `clock`, for short durations.

    For a `SystemClock` it is `time.monotonic` itself, so that timing a request calls no Python
    function.
    """
    if type(clock) is SystemClock:
        return time.monotonic
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
