"""The clocks of a simulated process: monotonic time from the scheduler, wall time that may jump."""

from __future__ import annotations

import asyncio
from typing import Final

from oncelog.simulation.scheduler import Owner

__all__ = ["WALL_START_MS", "SimulatedClock"]

WALL_START_MS: Final = 1_767_225_600_000
"""Wall time at the start of every run: 2026-01-01 00:00 UTC."""


class SimulatedClock:
    """An `oncelog.runtime.clock.Clock`. The process's `wall_offset_ms` is added to wall time."""

    __slots__ = ("_process",)

    def __init__(self, process: Owner) -> None:
        self._process = process

    def now_ms(self) -> int:
        """Return wall time in ms: the world's time at this process's rate, plus its offset."""
        process = self._process
        run_ms = process.scheduler.now_s * process.clock_rate * 1000.0
        return WALL_START_MS + int(run_ms + process.wall_offset_ms)

    def monotonic_ms(self) -> float:
        """Return the loop's time in ms."""
        return self._process.loop.time() * 1000.0

    async def sleep(self, delay_ms: float) -> None:
        """Sleep on the process's loop."""
        await asyncio.sleep(delay_ms / 1000.0)
