"""Follows the job through its progress file and kills at the planned moments.

The kills are asynchronous: a moment is aimed at, and the row of the crash table that was really
hit is read afterwards from what the job had managed to write. A broker that was the only one is
started again at once; one of several once the job has committed a micro-batch without it, and
nothing else is killed before all replicas are in sync again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from oncelog.cli.demo.plan import KillTarget, PlannedKill
from oncelog.cli.demo.processes import DemoFailed, SparkJob, log_tail
from oncelog.spark.progress import CrashRow, crash_row, read_progress

POLL_S = 0.004
RESTARTS_MAX = 5
"""Restarts of the job beyond the planned kills: it may end itself when its broker dies under it."""

FAILOVER_S_MAX: Final = 120.0
"""Within this time after the death of one broker of several a micro-batch is committed."""

SYNC_LOOK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: its planned and its actual moment."""

    moment: PlannedKill
    batch: int
    row: CrashRow
    broker_id: int | None = None
    """The broker that was killed, where there are several."""

    @property
    def victim(self) -> str:
        """What was killed, as a person calls it."""
        if self.broker_id is not None:
            return f"{self.moment.target}, broker {self.broker_id}"
        return "Spark job" if self.moment.target is KillTarget.SPARK else str(self.moment.target)


class Brokers(Protocol):
    """See `oncelog.cli.demo.brokers.DemoBrokers`."""

    @property
    def count(self) -> int:
        """How many there are."""

    def kill(self, target: KillTarget) -> int:
        """Kill the broker that is the target now; returns its id."""

    def restart(self) -> None:
        """Start the one that was killed."""

    def is_whole(self) -> bool:
        """Whether all replicas are in sync."""


class Steps:
    """The progress file, read on from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[dict[str, Any]] = []
        self.size_bytes = 0

    def look(self) -> list[dict[str, Any]]:
        """The steps that came since the last look."""
        size_bytes = self.path.stat().st_size if self.path.exists() else 0
        if size_bytes == self.size_bytes:
            return []
        self.size_bytes = size_bytes
        known = len(self.all)
        self.all = read_progress(str(self.path))
        return self.all[known:]


@dataclass(slots=True)
class _Outage:
    """One broker of several is down, or not yet in sync again."""

    broker_id: int
    batch: int
    begun_s: float
    is_over: bool = False
    """Whether it was started again."""
    look_at_s: float = 0.0
    """When to look next whether it is in sync."""


class WatchedJob:
    """Runs the job to its end through the planned kills."""

    def __init__(
        self,
        job: SparkJob,
        brokers: Brokers | None,
        steps: Steps,
        checkpoint: Path,
        on_batch: Callable[[int], None],
        on_kill: Callable[[Kill], None],
        failover_s_max: float = FAILOVER_S_MAX,
        sync_look_s: float = SYNC_LOOK_S,
    ) -> None:
        self.job = job
        self.brokers = brokers
        self.steps = steps
        self.checkpoint = checkpoint
        self.on_batch = on_batch
        self.on_kill = on_kill
        self.failover_s_max = failover_s_max
        self.sync_look_s = sync_look_s
        self.restarts = 0
        self._outage: _Outage | None = None

    def run(self, plan: list[PlannedKill]) -> list[Kill]:
        """Returns what each kill hit. Raises `DemoFailed` when the job cannot reach its end."""
        kills = []
        self.job.start()
        for moment in plan:
            if not self.reach(moment):
                break
            time.sleep(moment.delay_ms / 1000)
            kills.append(self.strike(moment))
            self.on_kill(kills[-1])
        while not self.ended():
            self.look()
            time.sleep(POLL_S)
        self.look()
        if self.brokers is not None and self._outage is not None and not self._outage.is_over:
            self.brokers.restart()
        return kills

    def reach(self, moment: PlannedKill) -> bool:
        """Wait for the moment's step; False if the job ended before it came."""
        while True:
            fresh = self.look()
            is_there = any(s["batch"] >= moment.batch and s["step"] == moment.step for s in fresh)
            if is_there and self._outage is None:
                return True
            if self.ended():
                return False
            time.sleep(POLL_S)

    def look(self) -> list[dict[str, Any]]:
        """The steps that came since the last look; what they allow to be started is started."""
        fresh = self.steps.look()
        self.report(fresh)
        outage, brokers = self._outage, self.brokers
        if outage is None or brokers is None:
            return fresh
        now_s = time.monotonic()
        if outage.is_over:
            if now_s >= outage.look_at_s:
                outage.look_at_s = now_s + self.sync_look_s
                self._outage = None if brokers.is_whole() else outage
        elif any(s["step"] == "txn_ended" and s["batch"] > outage.batch for s in fresh):
            brokers.restart()
            outage.is_over = True
        elif now_s > outage.begun_s + self.failover_s_max:
            text = f"while broker {outage.broker_id} was away no micro-batch was committed in"
            raise DemoFailed(f"{text} {self.failover_s_max:g} s:\n{log_tail(self.job.log)}")
        return fresh

    def strike(self, moment: PlannedKill) -> Kill:
        """Kill the target, see what was hit, start it again or have `look` do so."""
        if moment.target is KillTarget.SPARK or self.brokers is None:
            self.job.kill()
            kill = self.what_was_hit(moment)
            self.job.start()
            return kill
        broker_id = self.brokers.kill(moment.target)
        if self.brokers.count == 1:
            kill = self.what_was_hit(moment)
            self.brokers.restart()
            return kill
        kill = self.what_was_hit(moment, broker_id)
        self._outage = _Outage(broker_id, kill.batch, time.monotonic())
        return kill

    def what_was_hit(self, moment: PlannedKill, broker_id: int | None = None) -> Kill:
        """The row of the crash table, from the job's last steps and Spark's own logs."""
        self.report(self.steps.look())
        batch = self.steps.all[-1]["batch"] if self.steps.all else 0
        row = crash_row(self.steps.all, str(self.checkpoint))
        return Kill(moment, batch, row, broker_id)

    def ended(self) -> bool:
        """Whether the job reached the end of its input. One that failed is started again."""
        code = self.job.exit_code
        if code is None:
            return False
        if code == 0:
            return True
        self.restarts += 1
        if self.restarts > RESTARTS_MAX:
            raise DemoFailed(f"the Spark job keeps failing:\n{log_tail(self.job.log)}")
        self.job.start()
        return False

    def report(self, fresh: list[dict[str, Any]]) -> None:
        """Tell how far the job is."""
        if fresh:
            self.on_batch(max(step["batch"] for step in fresh))
