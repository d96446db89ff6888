"""An event loop on virtual time, and a disk without threads, so that waits cost nothing.

When nothing is ready the loop does not sleep: its clock jumps to the next timer. So a fetch that
waits half a second, a rebalance of a minute or a hang are all seen at once.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any, TypeVar

from oncelog.runtime.disk import Lane, SystemDisk

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Never sleeps; tells the loop how long it would have."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen in this loop any more")
        if timeout > 0:
            self.slept_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop on virtual time. It has no sockets and takes no calls from threads."""

    def __init__(self) -> None:
        self._virtual_selector = _Selector()
        super().__init__(self._virtual_selector)

    def time(self) -> float:
        """Seconds that were slept."""
        return self._virtual_selector.slept_s


class VirtualClock:
    """`Clock` on the loop's time; wall time begins at now."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._start_ms = time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._start_ms + int(self._loop.time() * 1000)

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1000

    async def sleep(self, delay_ms: float) -> None:
        await asyncio.sleep(delay_ms / 1000)


class InlineDisk(SystemDisk):
    """The machine's files, with blocking work done in the loop."""

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        return work()
