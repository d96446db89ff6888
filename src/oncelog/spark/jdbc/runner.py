"""Runs the calls to PostgreSQL, which block.

A call cannot be cancelled on the thread that makes it. So while a query runs, each call gets a
thread: when the query is stopped, the caller leaves a call that has no answer behind.
"""

import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, Final, Protocol, TypeVar

from oncelog.spark.background import PATIENCE_S
from oncelog.spark.errors import StoppedError

__all__ = ["DirectRunner", "StoppableRunner"]

T = TypeVar("T")

STOPPED: Final = "the query was stopped while PostgreSQL did not answer"


class Abandonable(Protocol):
    """What the calls work on."""

    def abandon(self) -> None:
        """End the call that runs on another thread, as far as possible; do not wait for it."""

    async def close(self) -> None:
        """Close the connection."""


class DirectRunner:
    """Runs a coroutine that never awaits an event loop."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result, or raise its exception."""
        try:
            coroutine.send(None)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
        raise RuntimeError("a call to PostgreSQL waited for an event loop")


class StoppableRunner:
    """Runs each coroutine on a daemon thread, until the query is stopped.

    One call at a time. After a call was left behind, its thread closes the connection, and no other
    call runs: the next run of the query has a connection of its own.
    """

    def __init__(self, connection: Abandonable, is_stopping: Callable[[], bool]) -> None:
        self._connection = connection
        self._is_stopping = is_stopping
        self._is_abandoned = False

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result, or raise its exception.

        Once a second it asks whether the query is being stopped, and then raises `StoppedError`.
        Ctrl-C leaves the call behind too.
        """
        if self._is_abandoned:
            coroutine.close()
            raise StoppedError(STOPPED)
        future: Future[T] = Future()
        thread = threading.Thread(
            target=_run, args=(coroutine, future), name="oncelog-postgresql", daemon=True
        )
        thread.start()
        try:
            while not wait([future], PATIENCE_S).done:
                if self._is_stopping():
                    raise StoppedError(STOPPED)
        except BaseException:
            self._abandon(future)
            raise
        return future.result()

    def close(self) -> None:
        """Close the connection, unless the thread of a call that was left behind does it."""
        if not self._is_abandoned:
            DirectRunner().call(self._connection.close())

    def _abandon(self, future: "Future[T]") -> None:
        self._is_abandoned = True
        self._connection.abandon()
        # At once, if the call has ended by now.
        future.add_done_callback(lambda _: DirectRunner().call(self._connection.close()))


def _run(coroutine: Coroutine[Any, Any, T], future: "Future[T]") -> None:
    try:
        result = DirectRunner().call(coroutine)
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        future.set_exception(error)
    else:
        future.set_result(result)
