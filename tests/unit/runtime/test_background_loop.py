"""A loop in a thread: what it is given runs there, and ends before the thread does."""

from __future__ import annotations

import asyncio
import threading

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
