"""Blocking code under virtual time."""

import asyncio
import random
import threading

import pytest

from oncelog.simulation.process import Process, ProcessDied
from oncelog.simulation.scheduler import Scheduler
from tests.simulation.lockstep import Lockstep, current


def new_process(scheduler: Scheduler, name: str = "p") -> Process:
    return Process(scheduler, name, "10.0.0.1", random.Random(1))


async def slowly(value: str, delay_s: float = 1.0) -> str:
    await asyncio.sleep(delay_s)
    return value


async def fail() -> None:
    raise ValueError("no")


def test_virtual_time_passes_while_a_call_blocks() -> None:
    scheduler = Scheduler()
    lockstep = Lockstep(new_process(scheduler))
    seen: list[tuple[float, str]] = []

    def work() -> None:
        for name in ("a", "b"):
            seen.append((scheduler.now_s, current().call(slowly(name))))
        seen.append((scheduler.now_s, "end"))

    lockstep.process.spawn(lockstep.run(work))
    scheduler.run_until(10)
    assert seen == [(0.0, "a"), (1.0, "b"), (2.0, "end")]


def test_what_a_coroutine_raises_is_raised_where_the_thread_blocks() -> None:
    scheduler = Scheduler()
    lockstep = Lockstep(new_process(scheduler))
    seen: list[object] = []

    def work() -> str:
        with pytest.raises(ValueError, match="no"):
            lockstep.call(fail())
        return "done"

    async def main() -> None:
        seen.append(await lockstep.run(work))

    lockstep.process.spawn(main())
    scheduler.run_until(1)
    assert seen == ["done"]


def test_what_was_started_runs_while_the_thread_does_something_else() -> None:
    scheduler = Scheduler()
    lockstep = Lockstep(new_process(scheduler))
    seen: list[tuple[float, str]] = []

    def work() -> None:
        slow, failing, unwanted = (
            lockstep.start(slowly("a", 3.0)),
            lockstep.start(fail()),
            lockstep.start(slowly("unwanted", 9.0)),
        )
        seen.append((scheduler.now_s, lockstep.call(slowly("b"))))
        seen.append((scheduler.now_s, slow.result()))
        with pytest.raises(ValueError, match="no"):
            failing.result()
        unwanted.cancel()
        seen.append((scheduler.now_s, "end"))

    lockstep.process.spawn(lockstep.run(work))
    scheduler.run_until(20)
    assert seen == [(0.0, "b"), (1.0, "a"), (3.0, "end")]


def test_what_was_started_ends_with_its_process() -> None:
    scheduler = Scheduler()
    lockstep = Lockstep(new_process(scheduler))
    seen: list[str] = []

    async def work_on() -> None:
        await slowly("a")
        seen.append("went on")

    def work() -> None:
        started = lockstep.start(work_on())
        try:
            lockstep.die("itself")
        finally:
            started.cancel()
            with pytest.raises(ProcessDied):
                started.result()
            with pytest.raises(ProcessDied):
                lockstep.start(work_on())

    lockstep.process.spawn(lockstep.run(work))
    scheduler.run_until(20)
    assert seen == []


def test_two_processes_take_turns_in_the_order_of_virtual_time() -> None:
    scheduler = Scheduler()
    seen: list[str] = []
    for name, delay_s in (("a", 0.3), ("b", 0.5)):
        lockstep = Lockstep(new_process(scheduler, name))

        def work(lockstep: Lockstep = lockstep, name: str = name, delay_s: float = delay_s) -> None:
            for turn in range(3):
                seen.append(lockstep.call(slowly(f"{name}{turn}", delay_s)))

        lockstep.process.spawn(lockstep.run(work))
    scheduler.run_until(10)
    assert seen == ["a0", "b0", "a1", "a2", "b1", "b2"]


@pytest.mark.parametrize("own", [False, True])
def test_a_dead_process_runs_no_further_and_leaves_no_thread(own: bool) -> None:
    scheduler = Scheduler()
    lockstep = Lockstep(new_process(scheduler))
    seen: list[str] = []
    before = threading.active_count()

    def work() -> None:
        try:
            if own:
                lockstep.die("itself")
            lockstep.call(slowly("never"))
            seen.append("went on")
        finally:
            with pytest.raises(ProcessDied):
                lockstep.call(slowly("a dead process asks for nothing"))

    lockstep.process.spawn(lockstep.run(work))
    scheduler.call_at(0.5, None, lockstep.process.kill, "kill")
    scheduler.run_until(10)
    assert seen == []
    assert lockstep.process.died_because == ("itself" if own else "kill")
    assert threading.active_count() == before
