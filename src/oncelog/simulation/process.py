"""A simulated operating-system process: its loop, clock, randomness, and its death.

The asyncio code of brokers and clients runs in it unchanged. It can die between any two callbacks
(so between any two awaits), or at a file operation. Afterwards no ``finally`` or ``except`` of it
has an effect, because its loop, disk and network are inert. A frozen process keeps its callbacks
and runs them all when it thaws, as a zombie does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from oncelog.runtime.clock import Clock
from oncelog.runtime.disk import Disk
from oncelog.runtime.network import Network
from oncelog.simulation.clock import SimulatedClock
from oncelog.simulation.loop import ProcessLoop
from oncelog.simulation.scheduler import Handle, ProcessDied, Scheduler

__all__ = ["Process", "ProcessDied"]


class Process:
    """One process.

    `clock_rate` is the speed of its clocks relative to the world's (1.0: the same).
    """

    network: Network
    """The caller that starts it sets these."""

    def __init__(
        self,
        scheduler: Scheduler,
        name: str,
        host: str,
        rng: random.Random,
        *,
        clock_rate: float = 1.0,
        on_error: Callable[[Process, str, BaseException | None], None] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.name = name
        self.host = host
        self.rng = rng
        self.alive = True
        self.frozen = False
        self.needs_attention = False
        """Whether the scheduler must ask `may_step`."""
        self.on_death: list[Callable[[], None]] = []
        self.clock_rate = clock_rate
        self.loop = ProcessLoop(self, None if on_error is None else partial(on_error, self))  # type: ignore[abstract]
        self.clock: Clock = SimulatedClock(self)
        self.wall_offset_ms = 0.0
        self.disk: Disk | None = None
        """The disk of its machine, if it has one; the caller that starts it sets it."""
        self.died_because = ""
        self._kept: list[Handle] = []
        self._unstarted: list[Coroutine[Any, Any, object]] = []
        self._steps_left = -1
        self._armed_cause = ""

    def __repr__(self) -> str:
        return self.name

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine as a task of this process, which begins with the next callback."""
        self._unstarted.append(work)
        self.scheduler.call_at(self.scheduler.now_s, self, self._start, work)

    def _start(self, work: Coroutine[Any, Any, object]) -> None:
        self._unstarted.remove(work)
        self.loop.keep(work)

    # --- time

    def local_time(self, world_s: float) -> float:
        """Return this process's monotonic time at a time of the world, in seconds."""
        return world_s * self.clock_rate

    def world_time(self, local_s: float) -> float:
        """Return the world's time at a monotonic time of this process, in seconds."""
        return local_s / self.clock_rate

    # --- death and sleep

    def kill(self, cause: str) -> None:
        """Kill it now, as SIGKILL does. What it has not written or sent is lost."""
        if not self.alive:
            return
        self.alive = False
        self.needs_attention = True
        self.died_because = cause
        self._kept.clear()
        self.loop.abandon(self._unstarted)
        for tell in self.on_death:
            tell()

    def kill_after_steps(self, step_count: int, cause: str) -> None:
        """Kill it after so many more callbacks."""
        if self.alive:
            self._steps_left = step_count
            self._armed_cause = cause
            self.needs_attention = True

    def disarm(self) -> None:
        """Forget `kill_after_steps`."""
        self._steps_left = -1
        self.needs_attention = self.frozen or not self.alive

    def freeze(self) -> None:
        """Stop running its callbacks; they are kept."""
        if self.alive:
            self.frozen = True
            self.needs_attention = True

    def thaw(self) -> None:
        """Run the kept callbacks, and continue."""
        if not self.frozen:
            return
        self.frozen = False
        self.needs_attention = not self.alive or self._steps_left >= 0
        kept, self._kept = self._kept, []
        if self.alive:
            self.scheduler.release(kept)

    def may_step(self, handle: Handle) -> bool:
        """Return whether a callback may run now. Called only while `needs_attention`."""
        if not self.alive:
            return False
        if self.frozen:
            self._kept.append(handle)
            return False
        if self._steps_left == 0:
            self.kill(self._armed_cause)
            return False
        self._steps_left -= 1
        return True
