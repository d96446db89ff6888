"""A clock that tells whether somebody spins."""

from __future__ import annotations

from oncelog.runtime.clock import SystemClock

__all__ = ["CountedClock"]


class CountedClock(SystemClock):
    """Real time; it counts how often it is read."""

    def __init__(self) -> None:
        self.reads_count = 0

    def monotonic_ms(self) -> float:
        self.reads_count += 1
        return super().monotonic_ms()
