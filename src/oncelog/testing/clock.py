"""A clock that tests advance: the system's clock plus an offset."""

from __future__ import annotations

import asyncio

from oncelog.runtime.clock import SystemClock

__all__ = ["ControlledClock"]


class ControlledClock:
    """A `oncelog.runtime.clock.Clock`. Call `advance` in the loop whose tasks sleep on it."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._ahead_ms = 0.0
        self._moved: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of `_moved`: a broker that is entered again runs in another one."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970 (UTC), plus the offset."""
        return self._system.now_ms() + round(self._ahead_ms)

    def monotonic_ms(self) -> float:
        """Milliseconds of the monotonic clock, plus the offset."""
        return self._system.monotonic_ms() + self._ahead_ms

    async def sleep(self, delay_ms: float) -> None:
        """Sleep until that much time has passed, in real time or by `advance`."""
        end_ms = self.monotonic_ms() + delay_ms
        while (left_ms := end_ms - self.monotonic_ms()) > 0:
            try:
                async with asyncio.timeout(left_ms / 1000):
                    await self._next_move().wait()
            except TimeoutError:
                continue

    def advance(self, ms: float) -> None:
        """Advance the clock and wake the tasks whose sleep is over."""
        self._ahead_ms += ms
        moved, self._moved = self._moved, None
        if moved is not None:
            moved.set()

    def _next_move(self) -> asyncio.Event:
        """Return the event that the next `advance` sets."""
        loop = asyncio.get_running_loop()
        if self._moved is None or self._loop is not loop:
            self._moved, self._loop = asyncio.Event(), loop
        return self._moved
