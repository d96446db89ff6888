"""The loop on a thread: results, failures, closing."""

import asyncio

import pytest

from oncelog.spark import background
from oncelog.spark.background import StoppableLoop
from oncelog.spark.errors import StoppedError


async def answer(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def fail() -> None:
    raise ValueError("no")


def test_calls_return_and_raise_and_share_one_loop() -> None:
    loop = StoppableLoop()
    assert loop.call(answer(5)) == 5
    with pytest.raises(ValueError, match="no"):
        loop.call(fail())
    assert loop.call(answer(6)) == 6
    loop.close()
    loop.close()


def test_closing_cancels_what_still_runs() -> None:
    loop = StoppableLoop()
    events: list[object] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            events.append("cancelled")

    async def begin() -> None:
        events.append(asyncio.ensure_future(forever()))
        await asyncio.sleep(0)

    loop.call(begin())
    loop.close()
    assert events[-1] == "cancelled"


def test_a_call_ends_with_the_query_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "PATIENCE_S", 0.01)
    loop = StoppableLoop()
    asked: list[None] = []

    def is_stopping() -> bool:
        asked.append(None)
        return len(asked) > 1

    try:
        with pytest.raises(StoppedError):
            loop.call(asyncio.sleep(60), is_stopping)
        assert len(asked) == 2
        assert loop.call(asyncio.sleep(0, "done"), is_stopping) == "done"
    finally:
        loop.close()
