"""Runs rows against two brokers: warms each up, then measures them in turns.

Both are started once for all rows, which gives the virtual machine the longest time to compile what
it runs. Only one is under load at a time. The other one is left running: stopping it (SIGSTOP)
would let its sessions with itself expire, for a KRaft broker is its own controller's client, and
what it does when idle is measured in a row of its own and is small.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from confluent_kafka import KafkaException
from rich.progress import Progress, TaskID

from bench import fresh, gauges
from bench.results import Results, WarmUp
from bench.rows import COMPARED, Row
from bench.stats import WARM_S_MAX, is_warm
from bench.storage.rows import STORAGE_ROUNDS_MAX, StorageRow
from bench.systems import Endpoint, Mock, System
from bench.work import Window, Work

T = TypeVar("T")
Kind = Callable[..., System]
"""Makes a system on a folder; `settings` are what it gets on top of its own."""
FAILURES = (KafkaException, RuntimeError, OSError)
SETTLE_S = 2.0
PEAK = "peak memory MB"
FRESH_STEPS = 10
"""How long a fresh life takes beside a round of one row, for the progress shown."""


def tell_failure(progress: Progress, what: str, failure: BaseException) -> None:
    progress.console.print(f"[red]{what} failed[/red]: {type(failure).__name__}: {failure}")


class Run:
    """One run: what it measures, and where it puts it. `on_row` is called after each row."""

    def __init__(
        self,
        kinds: Sequence[Kind],
        rounds: int,
        results: Results,
        progress: Progress,
        on_row: Callable[[], None],
        warm_s_max: float = WARM_S_MAX,
    ) -> None:
        self.failed: list[str] = []
        self._kinds = kinds
        self._rounds = rounds
        self._results = results
        self._progress = progress
        self._on_row = on_row
        self._warm_s_max = warm_s_max
        self._tool = gauges.system_call_tool()
        self._task: TaskID | None = None
        self._under_way: list[str] = []
        results.facts["system calls"] = self._tool or "not counted"
        results.facts["dirty background MB"] = f"{gauges.dirty_background_mb():,.0f}"
        results.facts["dirty limit MB"] = f"{gauges.dirty_limit_mb():,.0f}"

    def all(
        self,
        fresh_keys: Sequence[str],
        rows: Sequence[Row],
        storage: Mapping[str, StorageRow],
        alone: bool,
    ) -> None:
        """Measure fresh processes, then warm ones, then the log."""
        steps = sum(self._rounds_of(row) + 2 for row in rows)
        steps += FRESH_STEPS * self._rounds if fresh_keys else 0
        steps += FRESH_STEPS * self._storage_rounds * len(storage)
        self._task = self._progress.add_task("measuring", total=steps)
        if fresh_keys:
            self._fresh(fresh_keys)
        if rows:
            self._warm(rows, Mock() if alone and any(row.alone for row in rows) else None)
        for key, storage_row in storage.items():
            self._storage(key, storage_row)

    # --- fresh processes

    def _fresh(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._results.forget(key)
        for number in range(self._rounds):
            self._show(f"fresh processes, round {number + 1} of {self._rounds}")
            for kind in in_turns(self._kinds, number):
                with folder() as home:
                    system = kind(home)
                    try:
                        with ExitStack() as stack:
                            stack.push(system.__exit__)
                            fresh.live(system, self._results, keys.__contains__)
                    except FAILURES as failure:
                        tell_failure(self._progress, f"a fresh {system.name}", failure)
                        self.failed.extend(keys)
                        return
            self._advance(FRESH_STEPS)
            self._on_row()

    # --- the log

    @property
    def _storage_rounds(self) -> int:
        return min(self._rounds, STORAGE_ROUNDS_MAX)

    def _storage(self, key: str, row: StorageRow) -> None:
        gauges.raise_file_limit()
        self._results.forget(key)
        for number in range(self._storage_rounds):
            self._show(f"{key}: round {number + 1} of {self._storage_rounds}")
            for kind in in_turns(self._kinds, number):
                with folder() as home, ExitStack() as stack:
                    system = kind(home, settings=row.settings)
                    stack.push(system.__exit__)
                    try:
                        figures = row.measure(system)
                    except FAILURES as failure:
                        tell_failure(self._progress, f"{key} of {system.name}", failure)
                        self._results.forget(key)
                        self.failed.append(key)
                        return
                self._results.add(key, system.name, figures)
                told = ", ".join(f"{value:,.2f} {figure}" for figure, value in figures.items())
                self._tell(f"  {system.name:8} {key}: {told}")
            self._advance(FRESH_STEPS)
            self._on_row()

    # --- warm processes

    def _warm(self, rows: Sequence[Row], mock: Mock | None) -> None:
        pending = list(rows)
        while pending:
            try:
                with self._brokers() as systems:
                    while pending:
                        group = taken_together(pending)
                        self._rows(group, systems, mock if group[0].alone else None)
                        self._on_row()
            except FAILURES as failure:
                # The brokers may be in any state now: the next row gets fresh ones.
                failed, self._under_way = self._under_way, []
                if not failed:
                    raise
                tell_failure(self._progress, ", ".join(failed), failure)
                self.failed.extend(failed)
                self._on_row()

    @contextmanager
    def _brokers(self) -> Iterator[list[System]]:
        with folder() as home, ExitStack() as stack:
            systems = started(self._kinds, home, stack)
            settle(home)
            yield systems

    def _rows(self, rows: Sequence[Row], systems: Sequence[System], mock: Mock | None) -> None:
        """Warm the rows up, then measure them in turns, so that each round has all of them."""
        self._under_way = [row.key for row in rows]
        everybody: list[Endpoint] = [*systems, *([mock] if mock is not None else [])]
        works: dict[tuple[str, str], Work] = {}
        try:
            for row in rows:
                self._results.forget(row.key)
                for endpoint in everybody:
                    self._show(f"{row.key}: warming {endpoint.name}")
                    work = works[row.key, endpoint.name] = row.load(endpoint)
                    self._warm_up(row, endpoint, work)
                self._advance(1)
            for number in range(max(map(self._rounds_of, rows))):
                for row in in_turns(rows, number):
                    if number < self._rounds_of(row):
                        self._round(number, row, systems, mock, works)
            for row in rows:
                if row.counted and self._tool is not None:
                    self._show(f"{row.key}: counting system calls")
                    for system in systems:
                        self._count(row, system, works[row.key, system.name], self._tool)
                self._advance(1)
        finally:
            for work in works.values():
                work.close()
        self._under_way = []

    def _round(
        self,
        number: int,
        row: Row,
        systems: Sequence[System],
        mock: Mock | None,
        works: Mapping[tuple[str, str], Work],
    ) -> None:
        self._show(f"{row.key}: round {number + 1} of {self._rounds_of(row)}")
        for system in in_turns(systems, number):
            self._measure(row, system, works[row.key, system.name])
        if mock is not None:
            window = one_window(works[row.key, mock.name])
            self._results.add(row.key, mock.name, window.figures)
        self._advance(1)

    def _warm_up(self, row: Row, endpoint: Endpoint, work: Work) -> None:
        s_max = min(row.warm_s_max, self._warm_s_max)
        found = drive_until_warm(lambda: one_window(work).rate, time.monotonic, s_max)
        self._results.warm_ups[row.key][endpoint.name] = found

    def _measure(self, row: Row, system: System, work: Work) -> None:
        work.prepare()
        if row.heavy:
            gauges.forget_peak(system.pid)
        before = gauges.cpu_time(system.pid)
        window = work.run()
        used = gauges.cpu_time(system.pid).since(before)
        if row.heavy:
            self._results.add(row.key, system.name, {PEAK: gauges.peak_mb(system.pid)})
        work.settle()
        self._results.add(row.key, system.name, window.figures)
        self._results.add_cpu(row.key, system.name, used, window.amount)
        told = ", ".join(f"{value:,.2f} {figure}" for figure, value in window.figures.items())
        cpu = used.total_s / window.amount * row.unit.cpu_scale
        self._tell(
            f"  {system.name:8} {row.key}: {told}, {cpu:,.2f} CPU {row.unit.cpu}/{row.unit.name}"
        )

    def _count(self, row: Row, system: System, work: Work, tool: str) -> None:
        window: list[Window] = []
        work.prepare()
        calls = gauges.count_system_calls(system.pid, lambda: window.append(work.run()), tool)
        work.settle()
        if calls is not None:
            self._results.system_calls[row.key][system.name] = calls / window[0].amount

    # --- small things

    def _rounds_of(self, row: Row) -> int:
        return min(self._rounds, row.rounds_max or self._rounds)

    def _tell(self, line: str) -> None:
        self._progress.console.print(line, soft_wrap=True)

    def _show(self, what: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=what)

    def _advance(self, steps: int) -> None:
        if self._task is not None:
            self._progress.advance(self._task, steps)


def drive_until_warm(
    window: Callable[[], float], now_s: Callable[[], float], s_max: float
) -> WarmUp:
    """Let a broker do windows of work, each at some rate, until it is warm or time is up."""
    rates: list[float] = []
    begun = now_s()
    while True:
        rates.append(window())
        elapsed_s = now_s() - begun
        steady = is_warm(rates, elapsed_s)
        if steady or elapsed_s >= s_max:
            return WarmUp(elapsed_s, rates[0], rates[-1], steady)


def one_window(work: Work) -> Window:
    """A window with what belongs before and after it."""
    work.prepare()
    try:
        return work.run()
    finally:
        work.settle()


def in_turns(things: Sequence[T], number: int) -> Sequence[T]:
    """The order alternates from round to round."""
    return things if number % 2 == 0 else things[::-1]


def taken_together(pending: list[Row]) -> list[Row]:
    """Take the next row, and with it those that it is compared with in one system (`COSTS`)."""
    group = [pending.pop(0)]
    while pending and {group[0].key, pending[0].key} <= COMPARED:
        group.append(pending.pop(0))
    return group


def started(kinds: Sequence[Kind], home: Path, stack: ExitStack) -> list[System]:
    """A started system of each kind, with a folder of its own; `stack` ends them."""
    systems = []
    for number, kind in enumerate(kinds):
        system = kind(home / str(number))
        stack.push(system.__exit__)
        systems.append(system)
        system.start()
    return systems


def settle(home: Path) -> None:
    """Let what was started come to rest, and touch the memory that it will write to."""
    time.sleep(SETTLE_S)
    gauges.touch(home, gauges.dirty_background_mb() / 2)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for brokers' files, which goes with what is in it."""
    home = Path(tempfile.mkdtemp(prefix="oncelog-bench-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
