"""Simulates the machines of one run: their processes, network, store, and what they record."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from oncelog.simulation.coverage import Coverage
from oncelog.simulation.crashes import CrashContext
from oncelog.simulation.history import Event, History, LateRequest, Logged
from oncelog.simulation.network import SimulatedNetwork
from oncelog.simulation.plan import Plan, part_rng
from oncelog.simulation.process import Process
from oncelog.simulation.reach import Reach
from oncelog.simulation.replaced import CoordinatorEpochs
from oncelog.simulation.scheduler import Scheduler
from oncelog.simulation.store import POLL_PAUSES_S
from oncelog.simulation.trace import Trace
from oncelog.simulation.watched_store import WatchedStore

__all__ = ["Machines"]


class Machines:
    """The state of one run, without its brokers and clients."""

    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        self.plan = plan
        self.reach = Reach(lambda: self.scheduler.now_s)
        self.coverage = Coverage(self.reach.move)
        self.crashes: list[CrashContext] = []
        """The deaths of brokers, as their watches saw them."""
        self.scheduler = Scheduler()
        self.trace = Trace(lambda: self.scheduler.now_s, keep=keep_trace)
        self.history = History(self._happened)
        self.network = SimulatedNetwork(self.scheduler, plan.rng("network"), self.trace)
        self.network.on_late.append(
            lambda client: self.record(LateRequest(self.now_s, client.name))
        )
        self.store = WatchedStore(
            plan.rng("store"), self.trace, lambda: self.scheduler.now_s, self.record
        )
        if plan.brokers > 1:
            self.store.poll_pause_s = plan.rng("poll of the store").choice(POLL_PAUSES_S)
        self.coordinator_epochs: CoordinatorEpochs = {}
        self.is_over = False
        """Whether all that is judged by the history has been seen."""
        self._processes: list[Process] = []
        self._watchers: list[tuple[str, Callable[[Process, Event], None]]] = []
        self.bugs: list[tuple[str, BaseException | None]] = []
        """The errors that asyncio would log: failed callbacks and tasks of living processes."""

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self.scheduler.now_s

    def record(self, event: Event) -> None:
        """Add an event to the history."""
        self.history.record(event)

    def _happened(self, event: Event) -> None:
        self.trace.event(event)
        self.reach.event(event)

    def history_of(self, process: Process) -> History:
        """Return the history for a process, which can add no event once it is dead."""
        return _HistoryOf(self, process)

    def watch(self, event: str, strike: Callable[[Process, Event], None]) -> None:
        """Call `strike` once, when a process records an event of that class."""
        self._watchers.append((event, strike))

    def recorded(self, event: Event, process: Process) -> None:
        """Call the functions that wait for a recorded event."""
        if not self._watchers:
            return
        name = type(event).__name__
        for watcher in list(self._watchers):
            if watcher[0] == name:
                self._watchers.remove(watcher)
                watcher[1](process, event)

    def end(self) -> None:
        """Kill all processes and close their coroutines: nothing of the world runs later."""
        for process in self._processes:
            process.kill("the end")
        for process in self._processes:
            process.loop.close()

    def new_process(self, name: str, host: str, *, clock_rate: float = 1.0) -> Process:
        """Return a process on a machine, with a network. The caller sets its disk."""
        rng = part_rng(self.plan.seed, name)
        if clock_rate != 1.0:
            self.coverage.count("fault/drift")
        process = Process(
            self.scheduler, name, host, rng, clock_rate=clock_rate, on_error=self._failed
        )
        process.network = self.network.of(process)
        self._processes.append(process)
        return process

    def run_until(self, condition: Callable[[], bool], bound_s: float) -> bool:
        """Run until the condition holds or the time is over; return whether it holds."""
        end_s = self.now_s + bound_s
        while not condition():
            if self.now_s >= end_s:
                return False
            self.scheduler.run_until(min(self.now_s + 0.05, end_s))
        return True

    def run_to_end(self, process: Process, work: Coroutine[Any, Any, Any], bound_s: float) -> Any:
        """Run a coroutine in a process and return its result.

        Raises `TimeoutError` when it takes longer than that.
        """
        done: list[Any] = []

        async def keep_result() -> None:
            done.append(await work)

        process.spawn(keep_result())
        if not self.run_until(lambda: bool(done), bound_s):
            raise TimeoutError(f"{process.name} did not finish within {bound_s} s")
        return done[0]

    def _failed(self, process: Process, message: str, error: BaseException | None) -> None:
        self.bugs.append((process.name, error))
        text = f"{message}: {type(error).__name__}: {error}"
        self.record(Logged(self.now_s, process.name, "ASYNCIO", text))


class _HistoryOf(History):
    """The history for one process; a dead process adds no event."""

    def __init__(self, machines: Machines, process: Process) -> None:
        super().__init__()
        self.events = machines.history.events
        self._machines = machines
        self._history = machines.history
        self._process = process

    def record(self, event: Event) -> None:
        if self._process.alive:
            self._history.record(event)
            self._machines.recorded(event, self._process)
