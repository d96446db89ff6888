"""An event loop in its own thread, for callers without one: scripts, notebooks, tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import TypeVar

from oncelog.runtime.loop import new_event_loop

__all__ = ["BackgroundLoop"]

T = TypeVar("T")


class BackgroundLoop:
    """Runs work from any other thread, until it is closed."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="oncelog-background", daemon=True
        )
        self._thread.start()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Run `awaitable` in the thread and return its result; Ctrl-C cancels it.

        Raises `RuntimeError` once it is closed.
        """
        if self._loop.is_closed():
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            raise RuntimeError("it is closed already: make another one")

        async def wait() -> T:
            return await awaitable

        future = asyncio.run_coroutine_threadsafe(wait(), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    @property
    def is_closed(self) -> bool:
        """Whether the thread has ended."""
        return self._loop.is_closed()

    def close(self) -> None:
        """Cancel the tasks that still run in the loop, then end the thread.

        A second call does nothing.
        """
        if self._loop.is_closed():
            return
        self.run(_end_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    """Cancel all other tasks and close generators, as `asyncio.run` does at its end.

    It runs in the loop: a thread that runs another loop, as a notebook's does, cannot run this one.
    """
    mine = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not mine]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
