import asyncio
import gc
import random
import sys
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from oncelog.simulation.clock import WALL_START_MS
from oncelog.simulation.plan import Plan
from oncelog.simulation.process import Process, ProcessDied
from oncelog.simulation.scheduler import STEPS_COUNT_MAX, LiveLockError, Scheduler
from oncelog.simulation.world import World


class Context:
    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.errors: list[tuple[str, BaseException | None]] = []
        self.log: list[Any] = []

    def process(self, name: str = "a", **options: Any) -> Process:
        return Process(
            self.scheduler,
            name,
            "10.0.0.1",
            random.Random(name),
            on_error=lambda process, _text, error: self.errors.append((process.name, error)),
            **options,
        )

    def note(self, what: Any) -> None:
        self.log.append((round(self.scheduler.now_s, 6), what))

    def run(self, work: Coroutine[Any, Any, None], until_s: float = 100.0) -> Process:
        process = self.process()
        process.spawn(work)
        self.scheduler.run_until(until_s)
        return process


def test_asyncio_runs_on_virtual_time() -> None:
    c = Context()

    async def wait(name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        c.note(name)

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wait("later", 5))
            tasks.create_task(wait("sooner", 2))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.sleep(1000)
        c.note("timeout")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 4)
        c.note("another")

    c.run(work())
    assert c.log == [(2, "sooner"), (5, "later"), (8, "timeout"), (12, "another")]
    assert not c.errors


def test_callbacks_of_one_moment_run_in_the_order_of_scheduling() -> None:
    c = Context()
    first, second = c.process("a"), c.process("b")
    c.scheduler.call_at(1.0, second, c.note, 1)
    c.scheduler.call_at(1.0, first, c.note, 2)
    c.scheduler.call_at(1.0, None, c.note, 3)
    c.scheduler.call_at(1.0, first, c.note, 4).cancel()
    c.scheduler.run_until(2.0)
    assert [what for _, what in c.log] == [1, 2, 3]
    assert c.scheduler.now_s == 2.0


def test_a_killed_process_runs_nothing_any_more() -> None:
    c = Context()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(1)
                c.note("alive")
        finally:
            loop.call_soon(c.note, "finally")

    process = c.process()
    told: list[str] = []
    process.on_death.append(lambda: told.append("died"))
    process.spawn(work())
    c.scheduler.call_at(2.5, None, process.kill, "kill")
    c.scheduler.run_until(10)
    process.kill("again")
    assert c.log == [(1, "alive"), (2, "alive")]
    assert (told, process.died_because) == (["died"], "kill")


@pytest.mark.parametrize("steps", range(12))
def test_a_process_dies_between_any_two_callbacks(steps: int) -> None:
    c = Context()

    async def work() -> None:
        for number in range(1000):
            await asyncio.sleep(0)
            c.note(number)

    process = c.process()
    process.spawn(work())
    process.kill_after_steps(steps, "kill")
    c.scheduler.run_until(1)
    assert not process.alive
    # Two callbacks start the task.
    assert len(c.log) == max(0, steps - 2)


def test_a_process_that_dies_in_a_step_affects_no_other() -> None:
    c = Context()
    process = c.process()

    def die() -> None:
        process.kill("kill")
        raise ProcessDied

    async def work() -> None:
        await asyncio.sleep(1)
        die()
        c.note("never")

    process.spawn(work())
    c.scheduler.call_at(1.0, process, die)
    c.scheduler.call_at(2.0, None, c.note, "the world goes on")
    c.scheduler.run_until(3)
    assert c.log == [(2, "the world goes on")]
    assert not c.errors


def test_no_warning_tells_of_work_that_death_kept_from_beginning() -> None:
    c = Context()

    async def never() -> None:
        pytest.fail("a dead process began something")

    async def then(first: Coroutine[Any, Any, None]) -> None:
        await first

    async def work(process: Process) -> None:
        loop = asyncio.get_running_loop()
        before = loop.create_task(then(never()))
        process.kill("test")
        after = loop.create_task(then(never()))
        await asyncio.wait([before, after])

    def live_and_die() -> None:
        process = c.process()
        process.spawn(work(process))
        c.scheduler.run_until(1.0)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        live_and_die()
        gc.collect()
    assert [str(warning.message) for warning in told] == []


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Python reports of coroutines that it closes itself."""
    found: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: found.append(repr(what.exc_value)))
    return found


def test_a_closed_loop_leaves_nothing_whose_end_could_fail_later(reported: list[str]) -> None:
    c = Context()

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            async with asyncio.TaskGroup():
                pytest.fail("a dead process has a running loop")

    def live_and_die() -> None:
        process = c.run(work(), until_s=1.0)
        process.kill("test")
        process.loop.close()

    live_and_die()
    gc.collect()
    assert reported == []


@pytest.mark.parametrize("at_s", [0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.5])
def test_nothing_of_a_world_runs_after_its_end(reported: list[str], at_s: float) -> None:
    def begin_and_end() -> None:
        world = World(Plan(1, "points", 0.0, {}, (), (), ()))
        world.broker.start()
        world.scheduler.run_until(at_s)
        world.end()

    begin_and_end()
    gc.collect()
    assert reported == []


def test_a_frozen_process_does_everything_late() -> None:
    c = Context()

    async def work() -> None:
        for number in range(4):
            await asyncio.sleep(1)
            c.note(number)

    process = c.process()
    process.spawn(work())
    c.scheduler.call_at(1.5, None, process.freeze)
    c.scheduler.call_at(7.0, None, process.thaw)
    c.scheduler.run_until(20)
    assert c.log == [(1, 0), (7, 1), (8, 2), (9, 3)]


def test_a_process_that_was_killed_while_frozen_stays_dead() -> None:
    c = Context()
    process = c.process()
    c.scheduler.call_at(2.0, process, c.note, "late")
    process.freeze()
    c.scheduler.run_until(3)
    process.kill("kill")
    process.thaw()
    c.scheduler.run_until(4)
    assert not c.log


def test_clocks_drift_and_wall_clocks_jump() -> None:
    c = Context()
    process = c.process(clock_rate=2.0)
    readings: list[tuple[float, int]] = []

    async def work() -> None:
        for _ in range(2):
            await process.clock.sleep(1000)
            readings.append((process.clock.monotonic_ms(), process.clock.now_ms()))

    process.spawn(work())
    c.scheduler.call_at(0.75, None, setattr, process, "wall_offset_ms", -10_000)
    c.scheduler.run_until(5)
    assert readings == [(1000, WALL_START_MS + 1000), (2000, WALL_START_MS + 2000 - 10_000)]
    assert c.scheduler.now_s == 5


def test_a_timer_never_fires_before_its_time() -> None:
    """Whoever finds that it is too early sets it again, and no time would pass any more."""
    c = Context()
    rng = random.Random(1)
    early: list[float] = []
    for _ in range(200):
        process = c.process(clock_rate=1.0 + rng.uniform(-2e-4, 2e-4))
        when = process.loop.time() + rng.uniform(0.0, 100.0)

        def look(process: Process = process, when: float = when) -> None:
            early.extend([when] if process.loop.time() < when else [])

        process.loop.call_at(when, look)
    c.scheduler.run_until(200.0)
    assert early == []


def test_what_fails_in_a_process_is_told() -> None:
    c = Context()

    async def work() -> None:
        raise ValueError("a bug")

    c.run(work())
    ((name, error),) = c.errors
    assert (name, str(error)) == ("a", "a bug")


def test_a_failing_callback_of_the_world_ends_the_run() -> None:
    c = Context()

    def fail() -> None:
        raise ValueError("a bug of the simulation")

    c.scheduler.call_at(1.0, None, fail)
    with pytest.raises(ValueError, match="a bug of the simulation"):
        c.scheduler.run_until(2)


def test_a_live_lock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Context()
    monkeypatch.setattr("oncelog.simulation.scheduler.SIMULATION_STEPS_PER_MOMENT_COUNT_MAX", 1000)

    def again(process: Process, again: Callable[..., None]) -> None:
        process.loop.call_soon(again, process, again)

    process = c.process()
    process.loop.call_soon(again, process, again)
    with pytest.raises(LiveLockError):
        c.scheduler.run_until(1)


def test_a_run_of_too_many_steps_does_not_end() -> None:
    c = Context()
    c.scheduler.step_count = STEPS_COUNT_MAX + 1
    c.process()
    with pytest.raises(LiveLockError, match="does not end"):
        c.scheduler.run_until(1)


def test_a_run_can_be_stopped_and_goes_on() -> None:
    c = Context()
    c.scheduler.call_at(1.0, None, c.scheduler.stop)
    c.scheduler.call_at(2.0, None, c.note, "went on")
    c.scheduler.run_until(10)
    assert (c.scheduler.now_s, c.log) == (1.0, [])
    c.scheduler.run_until(10)
    assert c.log == [(2, "went on")]
