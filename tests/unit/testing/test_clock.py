"""A clock that is moved wakes who sleeps on it."""

import asyncio

from oncelog.testing.clock import ControlledClock

HOUR_MS = 3_600_000


async def test_a_sleep_ends_when_the_clock_is_moved_beyond_it() -> None:
    clock = ControlledClock()
    wall_ms, monotonic_ms = clock.now_ms(), clock.monotonic_ms()
    sleeps = [asyncio.create_task(clock.sleep(hours * HOUR_MS)) for hours in (1, 2)]
    await asyncio.sleep(0)
    clock.advance(HOUR_MS)
    await sleeps[0]
    assert not sleeps[1].done()
    clock.advance(HOUR_MS)
    await sleeps[1]
    assert clock.now_ms() - wall_ms >= 2 * HOUR_MS
    assert clock.monotonic_ms() - monotonic_ms >= 2 * HOUR_MS


async def test_a_sleep_ends_by_itself() -> None:
    await ControlledClock().sleep(1)
    await ControlledClock().sleep(-1)


def test_a_clock_serves_one_loop_after_another() -> None:
    clock = ControlledClock()

    async def sleep_and_advance() -> None:
        sleep = asyncio.create_task(clock.sleep(HOUR_MS))
        await asyncio.sleep(0)
        clock.advance(HOUR_MS)
        await sleep

    async def leave_a_sleeper() -> None:
        sleeper = asyncio.create_task(clock.sleep(HOUR_MS))
        await asyncio.sleep(0)
        sleeper.cancel()

    asyncio.run(leave_a_sleeper())
    asyncio.run(sleep_and_advance())
