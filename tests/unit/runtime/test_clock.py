import asyncio
import importlib.util
import sys
import time

import freezegun
import pytest

from oncelog.runtime import SystemClock
from oncelog.runtime.clock import SteadyClock, stopwatch
from oncelog.runtime.loop import new_event_loop
from tests.support.frozen import FREEZERS, PAST, Freezer


class HandClock:
    """Two clocks that a test sets."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.running_ms = 5_000.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> float:
        return self.running_ms

    async def sleep(self, delay_ms: float) -> None:
        raise NotImplementedError


async def test_the_system_clock_moves_forward() -> None:
    clock = SystemClock()
    before = clock.monotonic_ms()
    await clock.sleep(0)
    assert clock.monotonic_ms() >= before
    assert clock.now_ms() > 1_600_000_000_000


def test_a_steady_clock_passes_over_jumps_of_the_wall_clock() -> None:
    clock = HandClock()
    steady = SteadyClock(clock)
    before_ms = steady.now_ms()
    assert abs(before_ms - clock.wall_ms) <= 1
    for jump_ms in (3_600_000, -86_400_000):
        clock.wall_ms += jump_ms
        assert steady.now_ms() == before_ms
    clock.running_ms += 250
    assert abs(steady.now_ms() - before_ms - 250) <= 1


def test_a_stopwatch_shows_the_seconds_of_the_monotonic_clock() -> None:
    clock = HandClock()
    watch = stopwatch(clock)
    begun_s = watch()
    clock.running_ms += 1500
    clock.wall_ms -= 9999
    assert watch() - begun_s == 1.5
    assert stopwatch(SystemClock())() > 0


@pytest.mark.parametrize("freezer", FREEZERS.values(), ids=FREEZERS)
def test_a_frozen_process_does_not_freeze_the_system_clock(freezer: Freezer) -> None:
    clock = SystemClock()
    watch = stopwatch(clock)
    before_ms, since_s = clock.now_ms(), watch()
    with freezer(PAST):
        assert time.time() == PAST.timestamp()
        assert 0 <= clock.now_ms() - before_ms < 60_000
        monotonic_ms = clock.monotonic_ms()
        while clock.monotonic_ms() == monotonic_ms:
            pass
        assert watch() > since_s
        assert SteadyClock(clock).now_ms() >= before_ms - 1


def test_a_clock_that_is_imported_while_time_is_frozen_is_the_systems() -> None:
    name, real_s = "oncelog.runtime.clock", time.time()
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    with freezegun.freeze_time(PAST):
        again = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(again)
        assert again.SystemClock().now_ms() / 1000 > real_s - 1


@pytest.mark.parametrize("freezer", FREEZERS.values(), ids=FREEZERS)
@pytest.mark.parametrize("installed", [{}, {"uvloop": None}], ids=["uvloop", "asyncio"])
def test_a_loop_of_ours_sleeps_while_time_is_frozen(
    freezer: Freezer, installed: dict[str, None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, module in installed.items():
        monkeypatch.setitem(sys.modules, name, module)
    with freezer(PAST), asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(SystemClock().sleep(1))
