"""A loop in a thread: what it is given runs there, and ends before the thread does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from oncelog.runtime.background_loop import BackgroundLoop


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
