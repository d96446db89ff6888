"""Starts, kills and restarts a simulated client.

Each start is a process with its own name ("c3.0", "c3.1"), so that records and transactions of two
processes are never confused. The client's role defines its work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import Progress
from oncelog.simulation.plan import PlannedClient
from oncelog.simulation.process import Process
from oncelog.simulation.world import World

__all__ = ["ClientNode", "RoleRun"]

RoleRun = Callable[[ClientContext], Awaitable[None]]

RESTART_S: Final = (0.05, 4.0)
"""Bounds of the time, in seconds, after which a killed client is started again."""


class ClientNode:
    """One client of a run."""

    def __init__(
        self,
        world: World,
        planned: PlannedClient,
        run: RoleRun,
        phase: int,
        phase_now: Callable[[], int],
    ) -> None:
        self.id = planned.id
        self.host = f"10.0.1.{int(planned.id[1:]) + 1}"
        self.process: Process | None = None
        self.is_settled = False
        self._is_dismissed = False
        self._world = world
        self._planned = planned
        self._run = run
        self.phase = phase
        self._stopping = lambda: phase_now() >= phase
        self._incarnation = -1
        rng = world.plan.rng(f"machine of {planned.id}")
        self._clock_rate = 1.0 + rng.uniform(-2e-4, 2e-4)
        self._wall_offset_ms = rng.choice([0.0, 0.0, -1500.0, 700.0, 60_000.0])
        self._rng = rng

    def start(self) -> None:
        """Start the next process, unless the client was dismissed."""
        world = self._world
        if self._is_dismissed:
            return
        self._incarnation += 1
        self.is_settled = False
        name = f"{self.id}.{self._incarnation}"
        process = world.new_process(name, self.host, clock_rate=self._clock_rate)
        process.wall_offset_ms = self._wall_offset_ms
        self.process = process
        process.spawn(self._live(process))

    def kill(self) -> None:
        """Kill the process; it is started again after a random time."""
        process = self.process
        if process is None or not process.alive:
            return
        process.kill("kill")
        self._world.scheduler.call_after(self._rng.uniform(*RESTART_S), None, self.start)

    def dismiss(self) -> None:
        """Kill the process and never start it again."""
        self._is_dismissed = True
        if self.process is not None:
            self.process.kill("dismissed")

    def jump_wall_clock(self, by_ms: float) -> None:
        """Set the wall clock of the client's machine forward or back."""
        self._wall_offset_ms += by_ms
        if self.process is not None:
            self.process.wall_offset_ms = self._wall_offset_ms

    async def _live(self, process: Process) -> None:
        world = self._world
        parameters = self._planned.parameters
        context = world.context(process, stopping=self._stopping, parameters=parameters)
        try:
            await self._run(context)
        except Exception as error:  # noqa: BLE001 - a task boundary: a role never raises
            text = f"stuck: {type(error).__name__}: {error}"
            context.history.record(Progress(world.now_s, process.name, text))
            world.bugs.append((process.name, error))
        if process is self.process:
            self.is_settled = True
