"""An event loop in its own thread, for callers without one: scripts, notebooks, tests.

The thread ends by itself: whatever ends its loop (`close`, an exit that a callback raises), it runs
the last work that it was given, cancels what still runs, and fails the calls that wait. So no call
waits for a thread that is gone, and `close` returns from wherever it is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import queue
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, TypeVar

from oncelog.core.limits import BACKGROUND_CLOSE_MS_MAX
from oncelog.runtime.loop import new_event_loop

__all__ = ["BackgroundLoop", "Calls", "called", "require_threads"]

T = TypeVar("T")

Calls = queue.SimpleQueue[Callable[[], None] | None]
"""What the loop asks the thread of a caller to call; None is the end."""

CLOSED = "it is closed already: make another one"
CLOSED_MEANWHILE = "it was closed while this call waited"
FORKED = "it was made before this process was forked: make another one in the child"
SIGNAL_DELAY_S_MAX = 1.0
"""After this time a thread that waits looks whether a signal has come."""
OWN_THREAD = "a call from its own thread would wait for itself: call it from another thread"


async def called(calls: Calls, function: Callable[[], object]) -> None:
    """Have the thread that waits in `BackgroundLoop.run` call a function, and await its end."""
    outcome: Future[None] = Future()

    def settle(error: Exception | None) -> None:
        # It is cancelled where the loop was closed meanwhile, which the function may do.
        with contextlib.suppress(InvalidStateError):
            outcome.set_exception(error) if error is not None else outcome.set_result(None)

    def call() -> None:
        try:
            function()
        except BaseException as error:
            settle(error if isinstance(error, Exception) else RuntimeError(error))
            if not isinstance(error, Exception):
                raise
        else:
            settle(None)

    calls.put(call)
    await asyncio.wrap_future(outcome)


class BackgroundLoop:
    """Runs work from any other thread, until it is closed.

    `last` is awaited in the thread at its end. Raises `RuntimeError` where threads were replaced.
    """

    def __init__(
        self,
        last: Callable[[], Awaitable[None]] | None = None,
        *,
        name: str = "oncelog-background",
        new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
    ) -> None:
        require_threads()
        self._last = last
        self._pid = os.getpid()
        self._loop = new_loop()
        self._calls: set[Future[Any]] = set()
        self._is_ending = False
        self._has_ended = False
        self._died_of: BaseException | None = None
        self._last_error: BaseException | None = None
        _loops.add(self)
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def start(self, awaitable: Awaitable[T]) -> Future[T]:
        """Begin to run `awaitable` in the thread.

        Raises `RuntimeError` once it is closed, in a forked child and in its own thread.
        """
        refusal = self.refusal
        if refusal is not None:
            _drop(awaitable)
            raise RuntimeError(refusal)

        async def wait() -> T:
            return await awaitable

        work = wait()
        try:
            call = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            _drop(work)
            _drop(awaitable)
            raise RuntimeError(CLOSED) from None
        self.guard(call)
        if self._has_ended:
            _drop(work)
            _drop(awaitable)
        return call

    def guard(self, call: Future[Any]) -> None:
        """Have `call` fail, if nothing settles it, with the thread, and in a forked child."""
        # The thread sets `_has_ended` before it looks at the calls: one of the two fails this one.
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        if self._has_ended:
            self._fail(call)

    def run(self, awaitable: Awaitable[T], calls: Calls | None = None) -> T:
        """Run `awaitable` in the thread and return its result; Ctrl-C cancels it.

        Meanwhile this thread calls what comes through `calls` (`called`), a queue for this run.
        Raises as `start`, and `RuntimeError` when it is closed meanwhile.
        """
        call = self.start(awaitable)
        # A thread that waits in `Future.result` may be interrupted while it has the future's lock.
        wishes = Calls() if calls is None else calls
        try:
            call.add_done_callback(lambda _: wishes.put(None))
            while (wanted := _next(wishes)) is not None:
                wanted()
            return call.result()
        except CancelledError:
            if self._is_ending:
                raise RuntimeError(CLOSED_MEANWHILE) from None
            raise
        except KeyboardInterrupt:
            call.cancel()
            raise

    @property
    def is_closed(self) -> bool:
        """Whether the thread has ended; a forked child has none."""
        return self._has_ended or self._pid != os.getpid()

    def close(self) -> None:
        """Run the last work, cancel the tasks that still run in the loop, and end the thread.

        Raises what the last work raised. A second call does nothing, and nor does one in a forked
        child. In the loop's own thread, and where `is_waited_for`, it returns at once, and the
        thread ends afterwards. It waits for at most `BACKGROUND_CLOSE_MS_MAX` of tasks that do not
        let themselves be cancelled.
        """
        if self.is_closed:
            return
        self.request_close()
        if threading.current_thread() is not self._thread and not self.is_waited_for:
            self._thread.join(BACKGROUND_CLOSE_MS_MAX / 1000)
        error, self._last_error = self._last_error, None
        if error is not None:
            raise error

    def request_close(self) -> None:
        """`close` without waiting, for a caller that must not block."""
        # Its loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop)

    @property
    def is_waited_for(self) -> bool:
        """Whether the loop's thread may wait for this one, which has the lock of a call.

        So it is in a signal handler that came while this thread looked at a future.
        """
        return any(call._condition._is_owned() for call in list(self._calls))  # type: ignore[attr-defined]  # noqa: SLF001

    @property
    def refusal(self) -> str | None:
        """Why nothing can be run, if so."""
        if self._pid != os.getpid():
            return FORKED
        if self._died_of is not None:
            return f"its thread was ended by {self._died_of!r}: make another one"
        if self._is_ending:
            return CLOSED
        return OWN_THREAD if threading.current_thread() is self._thread else None

    def _fail(self, call: Future[Any]) -> None:
        with contextlib.suppress(InvalidStateError):
            call.set_exception(RuntimeError(self.refusal or CLOSED))

    def _let_go_in_child(self) -> None:
        """After a fork: fail the calls, and keep the loop for ever.

        To collect it would close descriptors that the parent's loop uses, and crash in uvloop.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        for call in list(self._calls):
            # A thread of the parent may have held the old one.
            call._condition = threading.Condition()  # noqa: SLF001
            self._fail(call)

    # In the thread.

    def _stop(self) -> None:
        """Once only: a second stop would stop the end as well."""
        if not self._is_ending:
            self._is_ending = True
            self._loop.stop()

    def _live(self) -> None:
        try:
            self._loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - a callback's exit ends this thread only
            self._died_of = error
        self._is_ending = True
        try:
            self._loop.run_until_complete(self._end())
        except BaseException as error:  # noqa: BLE001 - as above
            self._died_of = error
        finally:
            self._has_ended = True
            self._loop.close()
            for call in list(self._calls):
                self._fail(call)

    async def _end(self) -> None:
        """Do the last work, cancel all other tasks, close generators, as `asyncio.run` does.

        It runs in the loop: a thread that runs another loop, as a notebook's does, cannot run this
        one.
        """
        if self._last is not None:
            try:
                await self._last()
            except Exception as error:  # noqa: BLE001 - `close` raises it
                self._last_error = error
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_asyncgens()


def _next(calls: Calls) -> Callable[[], None] | None:
    """Wait for what comes next, and let signal handlers run meanwhile.

    A signal that comes just before a wait does not interrupt it: Python would run the handler after
    the wait.
    """
    while True:
        with contextlib.suppress(queue.Empty):
            return calls.get(timeout=SIGNAL_DELAY_S_MAX)


def require_threads(modules: Mapping[str, Any] = sys.modules) -> None:
    """Raise `RuntimeError` if gevent or eventlet has replaced threads by turns in one thread.

    An event loop would block all of them for good.
    """
    gevent, eventlet = modules.get("gevent.monkey"), modules.get("eventlet.patcher")
    name = None
    if gevent is not None and gevent.is_module_patched("threading"):
        name = "gevent"
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        name = "eventlet"
    if name is not None:
        raise RuntimeError(
            f"{name} has replaced the threads of this process, and an event loop needs a real one: "
            "leave threads out of its monkey patching"
        )


def _drop(awaitable: Awaitable[object]) -> None:
    """Close a coroutine that will not be run, so that Python does not warn of it."""
    if asyncio.iscoroutine(awaitable):
        awaitable.close()


_loops: weakref.WeakSet[BackgroundLoop] = weakref.WeakSet()


def _forked() -> None:
    for each in list(_loops):
        each._let_go_in_child()  # noqa: SLF001 - a function of this class


os.register_at_fork(after_in_child=_forked)
