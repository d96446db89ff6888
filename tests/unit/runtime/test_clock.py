from oncelog.runtime import SystemClock


async def test_the_system_clock_moves_forward() -> None:
    clock = SystemClock()
    before = clock.monotonic_ms()
    await clock.sleep(0)
    assert clock.monotonic_ms() >= before
    assert clock.now_ms() > 1_600_000_000_000
