"""`Waiters`: the callers that wait for a store's next write, each in its own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Waiters"]


class Waiters:
    """Wakes all callers that wait; any thread may do so."""

    def __init__(self) -> None:
        # Brokers of one process wait and write in threads of their own.
        self._lock = threading.Lock()
        self._waiting: set[asyncio.Future[None]] = set()

    @contextmanager
    def joined(self) -> Iterator[asyncio.Future[None]]:
        """A future that is done with the next write.

        Enter before looking for changes: a write that comes in between is not missed.
        """
        future = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.add(future)
        try:
            yield future
        finally:
            with self._lock:
                self._waiting.discard(future)

    def wake(self) -> None:
        """Wake all that wait now."""
        here = asyncio._get_running_loop()  # noqa: SLF001 - a thread may have none
        with self._lock:
            waiting = list(self._waiting)
        for future in waiting:
            loop = future.get_loop()
            if loop is here:
                _set(future)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(_set, future)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def wait_for(future: asyncio.Future[None], timeout_s: float) -> bool:
    """Wait for a future of `joined`; False when the time was over first.

    In Python 3.11 `asyncio.wait_for` forgets a cancellation that comes with the result.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await future
    except TimeoutError:
        return False
    return True
