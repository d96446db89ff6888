"""A simulated operating-system process: its loop, clock, randomness, and its death.

The asyncio code of brokers and clients runs in it unchanged. It can die between any two callbacks
(so between any two awaits), or at a file operation; nothing of it runs afterwards, neither
``finally`` nor ``except``, as far as the outside can tell: its loop, disk and network are inert.
Frozen, it keeps its callbacks and runs them all when it thaws: a zombie.
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
    """One process. `clock_rate` is how fast its clocks run beside the world's (1.0: exactly)."""

    network: Network
    """Given by who starts it."""

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
        """Its machine's, for a process that has one; given by who starts it."""
        self.died_because = ""
        self._kept: list[Handle] = []
        self._unstarted: list[Coroutine[Any, Any, object]] = []
        self._steps_left = -1
        self._armed_cause = ""

    def __repr__(self) -> str:
        return self.name

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine as a task of this process, from the next moment on."""
        self._unstarted.append(work)
        self.scheduler.call_at(self.scheduler.now_s, self, self._start, work)

    def _start(self, work: Coroutine[Any, Any, object]) -> None:
        self._unstarted.remove(work)
        self.loop.keep(work)

    # --- time

    def local_time(self, world_s: float) -> float:
        """The reading of this process's monotonic clock at that moment of the world."""
        return world_s * self.clock_rate

    def world_time(self, local_s: float) -> float:
        """The moment at which this process's monotonic clock reads that."""
        return local_s / self.clock_rate

    # --- death and sleep

    def kill(self, cause: str) -> None:
        """End it now, as SIGKILL does. What it has not written or sent is gone."""
        if not self.alive:
            return
        self.alive = False
        self.needs_attention = True
        self.died_because = cause
        self._kept.clear()
        for work in self._unstarted:
            work.close()
        for tell in self.on_death:
            tell()

    def kill_after_steps(self, step_count: int, cause: str) -> None:
        """End it when it has run so many more callbacks."""
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
        """Run what was kept, and go on."""
        if not self.frozen:
            return
        self.frozen = False
        self.needs_attention = not self.alive or self._steps_left >= 0
        kept, self._kept = self._kept, []
        if self.alive:
            self.scheduler.release(kept)

    def may_step(self, handle: Handle) -> bool:
        """Whether the callback may run now. Called only while `needs_attention`."""
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
