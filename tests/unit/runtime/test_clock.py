from oncelog.runtime import SystemClock
from oncelog.runtime.clock import SteadyClock, stopwatch


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
