"""Follows the job through its progress file and kills at the planned moments.

The kills are asynchronous: a moment is aimed at, and the row of the crash table that was really
hit is read afterwards from what the job had managed to write.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncelog.cli.demo.plan import PlannedKill
from oncelog.cli.demo.processes import DemoBroker, DemoFailed, SparkJob, log_tail
from oncelog.spark.progress import CrashRow, crash_row, read_progress

POLL_S = 0.004
RESTARTS_MAX = 5
"""Restarts of the job beyond the planned kills: it may end itself when its broker dies under it."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: its planned and its actual moment."""

    moment: PlannedKill
    batch: int
    row: CrashRow


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


class WatchedJob:
    """Runs the job to its end through the planned kills."""

    def __init__(
        self,
        job: SparkJob,
        broker: DemoBroker | None,
        steps: Steps,
        checkpoint: Path,
        on_batch: Callable[[int], None],
        on_kill: Callable[[Kill], None],
    ) -> None:
        self.job = job
        self.broker = broker
        self.steps = steps
        self.checkpoint = checkpoint
        self.on_batch = on_batch
        self.on_kill = on_kill
        self.restarts = 0

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
            self.report(self.steps.look())
            time.sleep(POLL_S)
        self.report(self.steps.look())
        return kills

    def reach(self, moment: PlannedKill) -> bool:
        """Wait for the moment's step; False if the job ended before it came."""
        while True:
            fresh = self.steps.look()
            self.report(fresh)
            if any(s["batch"] >= moment.batch and s["step"] == moment.step for s in fresh):
                return True
            if self.ended():
                return False
            time.sleep(POLL_S)

    def strike(self, moment: PlannedKill) -> Kill:
        """Kill the target, see what was hit, start it again."""
        if moment.target == "spark" or self.broker is None:
            self.job.kill()
            kill = self.what_was_hit(moment)
            self.job.start()
            return kill
        self.broker.kill()
        kill = self.what_was_hit(moment)
        self.broker.start()
        return kill

    def what_was_hit(self, moment: PlannedKill) -> Kill:
        """The row of the crash table, from the job's last steps and Spark's own logs."""
        self.report(self.steps.look())
        batch = self.steps.all[-1]["batch"] if self.steps.all else 0
        return Kill(moment, batch, crash_row(self.steps.all, str(self.checkpoint)))

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
