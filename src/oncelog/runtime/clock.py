"""Time, as the rest of the program sees it.

Wall time stamps records and ages them; monotonic time measures waits. Nothing else in the package
may call `time` or `asyncio.sleep` for a delay, so that virtual time in the simulation drives the
same code (D3).
"""

import asyncio
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where time comes from."""

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
