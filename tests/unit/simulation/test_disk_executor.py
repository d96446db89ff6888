import asyncio
from collections.abc import Callable

from oncelog.core.limits import DISK_EXECUTOR_THREAD_COUNT
from oncelog.runtime.disk import StorageFailure
from tests.support.machine import Machine


def run(machine: Machine, *works: Callable[[], object]) -> list[tuple[float, object]]:
    """Start all works at once; (time, result or error) of each that ended, in that order."""
    ended: list[tuple[float, object]] = []

    async def one(each: Callable[[], object]) -> None:
        try:
            result = await machine.disk.run(each)
        except (StorageFailure, ValueError) as error:
            result = error
        ended.append((machine.scheduler.now_s, result))

    for each in works:
        machine.process.spawn(one(each))
    machine.scheduler.run_until(60.0)
    return ended


def test_work_takes_virtual_time() -> None:
    machine = Machine()
    ended = run(machine, *[lambda: 1] * 20)
    assert all(0.0001 <= at <= 0.02 for at, _ in ended)
    assert len({at for at, _ in ended}) == 20


def test_on_a_slow_disk_work_takes_seconds() -> None:
    machine = Machine()
    machine.whole.faults.slow = True
    assert 0.5 <= run(machine, lambda: 1)[0][0] <= 4.0


def test_a_few_works_run_at_a_time_and_the_others_wait_in_line() -> None:
    machine = Machine()
    order: list[int] = []
    started: list[int] = []

    def delays() -> float:
        started.append(len(order))
        return 1.0

    machine.disk._executor._delay_s = delays
    ended = run(machine, *[lambda i=i: order.append(i) for i in range(10)])
    assert order == list(range(10))
    assert started == [0] * DISK_EXECUTOR_THREAD_COUNT + [4] * 4 + [8] * 2
    assert [at for at, _ in ended] == [1.0] * 4 + [2.0] * 4 + [3.0] * 2


def test_the_loop_runs_between_work_and_the_news_of_its_end() -> None:
    """Else no append would follow what an fsync has covered, before it is acknowledged."""
    machine = Machine()
    machine.disk._executor._delay_s = lambda: 1.0
    written: list[str] = []
    machine.scheduler.call_at(0.75, machine.process, written.append, "by the loop")
    ended = run(machine, lambda: list(written))
    assert ended == [(1.0, [])]
    assert written


def test_a_failure_reaches_the_waiting_caller() -> None:
    machine = Machine()
    ended = run(machine, lambda: machine.disk.list("/missing"), lambda: int("x"), lambda: 3)
    results = {str(type(result).__name__) for _, result in ended}
    assert results == {"StorageFailure", "ValueError", "int"}


def test_nothing_of_a_process_that_dies_in_its_work_goes_on() -> None:
    machine = Machine()
    machine.whole.arm_kill(machine.process, after_operations=3)
    done: list[str] = []

    def dying() -> None:
        for name in "abcdef":
            machine.disk.open(f"/{name}", create=True)

    machine.disk._executor._delay_s = lambda: 1.0
    assert run(machine, dying, *[lambda: done.append("later")] * 10) == []
    assert machine.paths() == ["/a", "/b", "/c"]
    assert machine.deaths == ["killed just after create /c"]
    assert done == []


def test_work_of_a_killed_process_does_not_run() -> None:
    machine = Machine()
    machine.scheduler.call_at(0.00005, None, machine.process.kill, "killed")
    assert run(machine, lambda: machine.disk.open("/f", create=True)) == []
    assert machine.paths() == []


def test_cancelled_work_that_waits_in_line_never_begins() -> None:
    machine = Machine()
    done: list[int] = []

    async def main() -> None:
        disk = machine.disk
        tasks = [
            asyncio.ensure_future(disk.run(lambda i=i: done.append(i)))  # type: ignore[misc]
            for i in range(6)
        ]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[5].cancel()
        await asyncio.wait(tasks)

    machine.process.spawn(main())
    machine.scheduler.run_until(1.0)
    assert sorted(done) == [0, 1, 2, 3, 4]
