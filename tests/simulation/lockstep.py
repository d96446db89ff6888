"""Synchronous code inside a simulated process: it blocks, and virtual time passes.

Spark calls our code on threads, and our code blocks there until a coroutine has run on a loop
(`oncelog.spark.background`). Here such a thread is a real one, so that it may block at any depth,
but it runs in lockstep with the simulation: one baton goes to and fro, and whoever does not hold it
waits at a lock. Exactly one of all threads ever runs, and where the baton changes hands is
decided by the code alone, never by the system's scheduler. So a run is as deterministic as without
threads.

While the thread holds the baton no virtual time passes: to the simulation, what it does between two
blocking calls is part of one step of its process. A process that dies while its thread blocks hands
the thread `ProcessDied`, which nothing there may catch, and waits for its end.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from oncelog.simulation.loop import AWAITS_AT_CLOSE_MAX
from oncelog.simulation.process import Process, ProcessDied

__all__ = ["Lockstep", "current"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Ended(Generic[T]):
    """The thread is over; what it returned or raised."""

    value: T | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class _Dies:
    """The thread asks that its process die now."""

    cause: str


_Wish = Coroutine[Any, Any, Any] | _Dies | _Ended[Any]


class Lockstep:
    """Runs one function of one process on a thread. It is an `oncelog.spark.parties.Runner`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.about: object = None
        """Whatever the code on the thread has to find."""
        self._go = _closed_gate()
        self._back = _closed_gate()
        self._wish: _Wish = _Ended()
        self._answer: Any = None
        self._error: BaseException | None = None
        self._is_blocked = False

    # --- the simulation's side

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` to its end; raises what it raises. Called once, in the process's loop."""
        thread = threading.Thread(target=self._body, args=(work,), name="lockstep", daemon=True)
        thread.start()
        self.process.on_death.append(self._abandon)
        wish = self._step(None, None)
        while not isinstance(wish, _Ended):
            if isinstance(wish, _Dies):
                self.process.kill(wish.cause)
                raise ProcessDied
            try:
                # A step of its own: the process may die, or freeze, before anything is done.
                await asyncio.sleep(0)
                answer, error = await wish, None
            except Exception as raised:  # noqa: BLE001 - a task boundary: it is raised in the thread
                answer, error = None, raised
            if not self.process.alive:
                # This coroutine is being thrown away, and the thread has ended.
                _close(wish)
                raise ProcessDied
            wish = self._step(answer, error)
        self.process.on_death.remove(self._abandon)
        thread.join()
        if wish.error is not None:
            raise wish.error
        return wish.value  # type: ignore[return-value]

    def _step(self, answer: Any, error: BaseException | None) -> _Wish:
        """Pass the baton, and wait until it comes back with what the thread wants next."""
        self._answer, self._error = answer, error
        self._is_blocked = False
        self._go.release()
        self._back.acquire()
        wish: _Wish = self._wish
        self._is_blocked = not isinstance(wish, _Ended)
        return wish

    def _abandon(self) -> None:
        wish = self._wish
        if inspect.iscoroutine(wish) and inspect.getcoroutinestate(wish) == inspect.CORO_CREATED:
            wish.close()
        while self._is_blocked:
            self._step(None, ProcessDied())

    # --- the thread's side

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Block until the process's loop has run the coroutine. Raises what it raises."""
        if not self.process.alive:
            coroutine.close()
            raise ProcessDied
        value: T = self._block(coroutine)
        return value

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Started[T]":
        """Begin to run a coroutine in the process's loop, beside the thread."""

        async def begin() -> asyncio.Task[T]:
            task = asyncio.get_running_loop().create_task(coroutine)
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            return task

        try:
            return Started(self, self.call(begin()))
        except ProcessDied:
            coroutine.close()
            raise

    def sleep(self, delay_ms: float) -> None:
        """Block for a while of the process's clock."""
        self.call(self._sleep(delay_ms))

    def die(self, cause: str) -> NoReturn:
        """End the process here and now."""
        self._block(_Dies(cause))
        raise ProcessDied

    async def _sleep(self, delay_ms: float) -> None:
        await self.process.clock.sleep(delay_ms)

    def _block(self, wish: _Wish) -> Any:
        self._wish = wish
        self._back.release()
        self._go.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._answer

    def _body(self, work: Callable[[], Any]) -> None:
        _here.lockstep = self
        self._go.acquire()
        try:
            ended = _Ended(self._start(work))
        except BaseException as error:  # noqa: BLE001 - a task boundary: `run` raises it
            ended = _Ended(error=error)
        self._wish = ended
        self._back.release()

    def _start(self, work: Callable[[], Any]) -> Any:
        if self._error is not None:
            raise self._error
        return work()


@dataclass(frozen=True, slots=True)
class Started(Generic[T]):
    """What `Lockstep.start` began, as a `concurrent.futures.Future`."""

    lockstep: Lockstep
    task: asyncio.Task[T]

    def result(self) -> T:
        """Block until it has ended. Raises what it raised."""
        return self.lockstep.call(self._outcome())

    def cancel(self) -> None:
        """End it, unless it has ended; nothing does in a dead process."""
        if self.lockstep.process.alive:
            self.task.cancel()

    async def _outcome(self) -> T:
        return await self.task


def _close(wish: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine of a dead process, although its ``finally`` blocks fail or await.

    What is left would be closed when Python collects it, and its failure reported then.
    """
    for _ in range(AWAITS_AT_CLOSE_MAX):
        if inspect.getcoroutinestate(wish) != inspect.CORO_SUSPENDED:
            return
        with suppress(Exception, BaseExceptionGroup, asyncio.CancelledError, ProcessDied):
            wish.close()


def _closed_gate() -> threading.Lock:
    """A lock that lets one `acquire` through for each `release` by the other side."""
    lock = threading.Lock()
    lock.acquire()
    return lock


_here = threading.local()


def current() -> Lockstep:
    """The one whose thread this is."""
    found: Lockstep = _here.lockstep
    return found
