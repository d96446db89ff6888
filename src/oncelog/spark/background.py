"""An event loop on its own thread, for code that must block.

Spark chooses the threads that call the sink. Connections live as long as the loop, so a micro-batch
opens none.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, Final, TypeVar

from oncelog.spark.errors import StoppedError

__all__ = ["StoppableLoop"]

PATIENCE_S: Final = 1.0

T = TypeVar("T")


class StoppableLoop:
    """Runs coroutines for synchronous callers, one loop for all of them.

    A daemon thread: it never keeps a process alive.
    """

    def __init__(self, name: str = "oncelog") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to run a coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(
        self, coroutine: Coroutine[Any, Any, T], is_stopping: Callable[[], bool] | None = None
    ) -> T:
        """Run a coroutine to its end and return its result, or raise its exception.

        Ctrl-C in the caller cancels it. `is_stopping` is called once a second: when it is true the
        call ends with `StoppedError`.
        """
        future = self.start(coroutine)
        try:
            while True:
                wait([future], PATIENCE_S if is_stopping is not None else None)
                if future.done():
                    return future.result()
                if is_stopping is not None and is_stopping():
                    raise StoppedError("the query was stopped while the cluster did not answer")
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and cancel the tasks that still run on it."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
