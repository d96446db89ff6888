"""An event loop on its own thread, for code that must block.

Spark chooses the threads that call the sink. Connections live as long as the loop, so a micro-batch
opens none.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from typing import Any, Final, TypeVar

from oncelog.runtime.background_loop import BackgroundLoop
from oncelog.spark.errors import StoppedError

__all__ = ["StoppableLoop"]

PATIENCE_S: Final = 1.0

T = TypeVar("T")


class StoppableLoop(BackgroundLoop):
    """Runs coroutines for synchronous callers, one loop for all of them.

    A daemon thread: it never keeps a process alive.
    """

    def __init__(self, name: str = "oncelog") -> None:
        super().__init__(name=name, new_loop=asyncio.new_event_loop)

    def call(
        self, coroutine: Coroutine[Any, Any, T], is_stopping: Callable[[], bool] | None = None
    ) -> T:
        """Run a coroutine to its end and return its result, or raise its exception.

        Ctrl-C in the caller cancels it. `is_stopping` is called once a second: when it is true the
        call ends with `StoppedError`. Raises `RuntimeError` as `BackgroundLoop.start`.
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
