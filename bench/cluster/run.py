"""Runs the rows about clusters: fresh ones, warm ones, then those whose leaders are killed."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from bench import gauges
from bench.cluster.failover import FAULTS
from bench.cluster.rows import (
    BULK_MB,
    CLUSTER_ROWS,
    IDLE,
    OURS,
    START,
    TUNED,
    WARM_S_MAX,
    ClusterRow,
)
from bench.cluster.systems import ClusterSystem
from bench.fresh import IDLE_S, SETTLE_S
from bench.results import Results
from bench.run import FAILURES, Kind, drive_until_warm, folder, in_turns, one_window
from bench.stats import Figures
from bench.systems import NO_SETTINGS, Kafka
from bench.work import Work


class ClusterRun:
    """One run. `on_row` is called after each row."""

    def __init__(
        self,
        kinds: Sequence[Kind],
        rounds: int,
        results: Results,
        tell: Callable[[str], None],
        on_row: Callable[[], None],
        warm_s_max: float,
    ) -> None:
        self.failed: list[str] = []
        self._kinds = kinds
        self._rounds = rounds
        self._results = results
        self._tell = tell
        self._on_row = on_row
        self._warm_s_max = min(warm_s_max, WARM_S_MAX)

    def all(self, rows: Mapping[str, ClusterRow]) -> None:
        """Measure these."""
        for key in rows:
            self._results.forget(key)
        self._guarded([key for key in (START, IDLE) if key in rows], self._fresh)
        loads = [key for key, row in rows.items() if row.load is not None]
        faults = [key for key, row in rows.items() if row.fault and not row.is_tuned]
        self._guarded([*loads, *faults], self._warm)
        self._guarded([key for key, row in rows.items() if row.is_tuned], self._tuned)

    def _guarded(self, keys: Sequence[str], measure: Callable[[Sequence[str]], None]) -> None:
        if not keys:
            return
        try:
            measure(keys)
        except FAILURES as failure:
            for key in keys:
                self._results.forget(key)
            self.failed.extend(keys)
            self._tell(f"[red]{', '.join(keys)} failed[/red]: {str(failure)[-500:]}")
        self._on_row()

    def _fresh(self, keys: Sequence[str]) -> None:
        for number in range(self._rounds):
            for kind in in_turns(self._kinds, number):
                with folder() as home, ClusterSystem(kind, home / "0", {}) as system:
                    seconds = system.start()
                    started = system.cpu_time()
                    self._add(START, system, {"seconds": seconds, "CPU s": started.total_s})
                    if IDLE in keys:
                        self._add(IDLE, system, _idle(system))

    def _warm(self, keys: Sequence[str]) -> None:
        with self._systems({}) as systems:
            loads = [key for key in keys if CLUSTER_ROWS[key].load is not None]
            works = {
                (key, system.name): self._warmed(key, system) for key in loads for system in systems
            }
            for number in range(self._rounds):
                for key in in_turns(loads, number):
                    for system in in_turns(systems, number):
                        self._window(key, system, works[key, system.name])
            for work in works.values():
                work.close()
            for key in keys:
                if key not in loads:
                    self._guarded([key], lambda found: self._strike(found[0], systems))

    def _tuned(self, keys: Sequence[str]) -> None:
        with self._systems(TUNED) as systems:
            for key in keys:
                self._strike(key, systems)

    def _strike(self, key: str, systems: Sequence[ClusterSystem]) -> None:
        for number in range(self._rounds):
            for system in in_turns(systems, number):
                self._add(key, system, FAULTS[CLUSTER_ROWS[key].fault](system))

    @contextmanager
    def _systems(self, settings: Mapping[str, Mapping[str, str]]) -> Iterator[list[ClusterSystem]]:
        with folder() as home, ExitStack() as stack:
            systems = []
            for number, kind in enumerate(self._kinds):
                name = Kafka.name if kind is Kafka else OURS
                system = ClusterSystem(kind, home / str(number), settings.get(name, NO_SETTINGS))
                systems.append(stack.enter_context(system))
                system.start()
            time.sleep(SETTLE_S)
            yield systems

    def _warmed(self, key: str, system: ClusterSystem) -> Work:
        load = CLUSTER_ROWS[key].load
        assert load is not None
        work = load(system)
        found = drive_until_warm(lambda: one_window(work).rate, time.monotonic, self._warm_s_max)
        self._results.warm_ups[key][system.name] = found
        return work

    def _window(self, key: str, system: ClusterSystem, work: Work) -> None:
        row = CLUSTER_ROWS[key]
        # The memory of all three copies, as `freshen` does for one.
        gauges.touch(system.folder, 2 * BULK_MB)
        work.prepare()
        before = system.cpu_time()
        window = work.run()
        used = system.cpu_time().since(before)
        work.settle()
        cpu = {row.cpu: used.total_s / window.amount * row.cpu_scale}
        self._add(key, system, window.figures | cpu)

    def _add(self, key: str, system: ClusterSystem, figures: Figures) -> None:
        self._results.add(key, system.name, figures)
        told = ", ".join(f"{value:,.2f} {figure}" for figure, value in figures.items())
        self._tell(f"  {system.name:8} {key}: {told}")


def _idle(system: ClusterSystem) -> Figures:
    """Memory, and CPU time without any request."""
    time.sleep(SETTLE_S)
    before = system.cpu_time()
    time.sleep(IDLE_S)
    used = system.cpu_time().since(before)
    return {"memory MB": system.memory_mb(), "CPU ms/s": used.total_s / IDLE_S * 1000}
