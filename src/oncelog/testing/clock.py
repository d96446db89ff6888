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
            if self._moved is None:
                self._moved = asyncio.Event()
            try:
                async with asyncio.timeout(left_ms / 1000):
                    await self._moved.wait()
            except TimeoutError:
                continue

    def advance(self, ms: float) -> None:
        """Advance the clock and wake the tasks whose sleep is over."""
        self._ahead_ms += ms
        moved, self._moved = self._moved, None
        if moved is not None:
            moved.set()
