"""A loop in a thread: what it is given runs there, and ends before the thread does."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from oncelog.core.limits import BACKGROUND_CLOSE_MS_MAX
from oncelog.runtime.background_loop import BackgroundLoop, Calls, called, require_threads

WAIT_S = 30


def test_results_and_errors_come_back() -> None:
    async def where() -> threading.Thread:
        return threading.current_thread()

    async def fail() -> None:
        raise LookupError("not here")

    loop = BackgroundLoop()
    assert loop.run(where()) is not threading.current_thread()
    with pytest.raises(LookupError, match="not here"):
        loop.run(fail())
    loop.close()
    loop.close()
    assert loop.is_closed


def test_what_still_runs_is_cancelled_and_waited_for() -> None:
    ended = []
    kept = []

    async def stay() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            ended.append("in order")

    async def begin() -> None:
        kept.append(asyncio.create_task(stay()))
        await asyncio.sleep(0)

    loop = BackgroundLoop()
    loop.run(begin())
    loop.close()
    assert ended == ["in order"]


async def test_it_can_be_closed_where_another_loop_runs() -> None:
    # As in a notebook, whose cells run in a loop.
    ended: list[str] = []
    kept: list[AsyncIterator[int]] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            ended.append("in order")

    async def begin() -> int:
        kept.append(numbers())
        return await anext(kept[0])

    loop = BackgroundLoop()
    assert loop.run(begin()) == 1
    loop.close()
    assert loop.is_closed
    assert ended == ["in order"]


def test_a_closed_loop_refuses_work_in_one_sentence() -> None:
    loop = BackgroundLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed already"):
        loop.run(asyncio.sleep(0))


async def exit_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 7)
    await asyncio.get_running_loop().create_future()


def test_an_exit_in_a_callback_fails_the_calls_and_close_returns() -> None:
    ended: list[str] = []

    async def last() -> None:
        ended.append("in order")

    loop = BackgroundLoop(last)
    unsettled: Future[None] = Future()
    loop.guard(unsettled)
    with pytest.raises(RuntimeError, match="closed while this call waited"):
        loop.run(exit_in_a_callback())
    with pytest.raises(RuntimeError, match=r"ended by SystemExit\(7\)"):
        loop.run(asyncio.sleep(0))
    with pytest.raises(RuntimeError, match=r"ended by SystemExit\(7\)"):
        unsettled.result(WAIT_S)
    loop.close()
    assert loop.is_closed
    assert ended == ["in order"]


def test_its_own_thread_may_close_it_and_not_wait_for_itself() -> None:
    loop = BackgroundLoop()

    async def call_itself() -> None:
        loop.run(asyncio.sleep(0))

    async def close() -> str:
        loop.close()
        return "went on"

    with pytest.raises(RuntimeError, match="would wait for itself"):
        loop.run(call_itself())
    assert loop.run(close()) == "went on"
    loop._thread.join(WAIT_S)
    assert loop.is_closed


def test_a_call_that_waits_fails_when_another_thread_closes_the_loop() -> None:
    loop = BackgroundLoop()
    waits = threading.Event()

    async def wait() -> None:
        waits.set()
        await asyncio.get_running_loop().create_future()

    with ThreadPoolExecutor(1) as others:
        call = others.submit(loop.run, wait())
        assert waits.wait(WAIT_S)
        loop.close()
        with pytest.raises(RuntimeError, match="closed while this call waited"):
            call.result(WAIT_S)


async def stay() -> None:
    await asyncio.get_running_loop().create_future()


def test_a_signal_handler_may_close_it_in_the_middle_of_a_look_at_a_future() -> None:
    """The thread of the loop cannot end before: it settles the future, whose lock is taken."""
    loop = BackgroundLoop()
    call = loop.start(stay())
    begun_s = time.monotonic()
    with call._condition:
        loop.close()
    assert time.monotonic() - begun_s < BACKGROUND_CLOSE_MS_MAX / 2000
    with pytest.raises(CancelledError):
        call.result(WAIT_S)
    loop.close()
    assert loop.is_closed


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_what_the_loop_asks_its_caller_to_call_may_close_it(error: type[BaseException]) -> None:
    loop, calls = BackgroundLoop(), Calls()

    def close() -> None:
        loop.close()
        if error is SystemExit:
            sys.exit(7)

    with pytest.raises(error, match=r"closed while this call waited|7"):
        loop.run(called(calls, close), calls)
    assert loop.is_closed


def test_closing_raises_what_the_last_work_raised_and_ends_the_thread() -> None:
    async def fail() -> None:
        raise LookupError("not here")

    loop = BackgroundLoop(fail)
    with pytest.raises(LookupError, match="not here"):
        loop.close()
    loop.close()
    assert loop.is_closed


@pytest.mark.parametrize("is_patched", [True, False])
def test_a_process_whose_threads_were_replaced_is_told_so(is_patched: bool) -> None:
    gevent = SimpleNamespace(is_module_patched=lambda name: is_patched and name == "threading")
    eventlet = SimpleNamespace(is_monkey_patched=lambda name: is_patched and name == "thread")
    for name, module in {"gevent.monkey": gevent, "eventlet.patcher": eventlet}.items():
        if is_patched:
            with pytest.raises(
                RuntimeError, match=f"{name.split('.')[0]} has replaced the threads"
            ):
                require_threads({name: module})
        else:
            require_threads({name: module})
