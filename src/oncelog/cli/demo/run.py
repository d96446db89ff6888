"""The demo from its options to its result. Each act is a method; `run` is the whole story."""

import math
import random
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from oncelog.cli.demo import expected, flights, report, topics
from oncelog.cli.demo.brokers import DemoBrokers
from oncelog.cli.demo.options import JobOptions
from oncelog.cli.demo.plan import KillTarget, PlannedKill, draw, targets_of
from oncelog.cli.demo.processes import SparkJob
from oncelog.cli.demo.watch import Kill, Steps, WatchedJob
from oncelog.core.ids import TopicPartition

BATCHES = 32
"""Micro-batches that the input makes: at least 30 are promised."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What `oncelog demo` was asked for."""

    seed: int
    kills: int
    brokers: int
    keep: bool
    offline: bool
    bootstrap_server: str | None


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What came of it: which rows the kills hit, what was compared, and how long it took."""

    kills: list[Kill]
    verdict: expected.Comparison
    uncommitted: dict[str, int]
    seconds: float


class Demo:
    """One run: its folder, its brokers (None when the cluster is the user's) and its job."""

    def __init__(self, options: DemoOptions, console: Console) -> None:
        self.options = options
        self.console = console
        self.folder = Path(tempfile.mkdtemp(prefix="oncelog-demo-"))
        # On a cluster of the user's, names must not meet those of an earlier run.
        run = f"-{random.SystemRandom().randrange(16**6):06x}" if options.bootstrap_server else ""
        self.topics = topics.DemoTopics(f"flights{run}", f"delayed{run}", f"daily{run}")
        self.application_id = f"oncelog-demo{run}"
        self.brokers: DemoBrokers | None = None
        if options.bootstrap_server is None:
            output = TopicPartition(self.topics.delayed, 0)
            self.brokers = DemoBrokers(self.folder, options.brokers, output, self.application_id)
        own = self.brokers.bootstrap_servers if self.brokers else ""
        self.bootstrap_servers = options.bootstrap_server or own
        self.job: SparkJob | None = None

    def load(self) -> list[flights.Flight]:
        """Act 1: the flights into their topic."""
        options = self.options
        rows = flights.generated(options.seed) if options.offline else flights.packaged()
        topics.create(self.bootstrap_servers, self.topics, options.brokers)
        with report.bar(self.console) as bar:
            task = bar.add_task("loading flights", total=len(rows))
            topics.load(
                self.bootstrap_servers,
                self.topics.flights,
                rows,
                lambda count: bar.update(task, completed=count),
            )
        return rows

    def process(self, flight_count: int, plan: list[PlannedKill]) -> list[Kill]:
        """Act 2: the Spark job, through its kills."""
        per_batch = math.ceil(flight_count / BATCHES)
        progress_path = self.folder / "progress.jsonl"
        checkpoint = self.folder / "checkpoint"
        job_options = JobOptions(
            self.bootstrap_servers,
            self.application_id,
            self.topics.flights,
            self.topics.delayed,
            self.topics.daily,
            str(checkpoint),
            str(progress_path),
            per_batch,
        )
        self.job = SparkJob(job_options, self.folder)
        kills: list[Kill] = []
        victim_width = 9 if self.options.brokers == 1 else 21
        with report.bar(self.console) as bar:
            task = bar.add_task("exactly-once Spark job, batches", total=BATCHES)

            def on_kill(kill: Kill) -> None:
                kills.append(kill)
                bar.console.print(report.kill_line(len(kills), kill, victim_width))

            watch = WatchedJob(
                self.job,
                self.brokers,
                Steps(progress_path),
                checkpoint,
                lambda batch: bar.update(task, completed=batch + 1, total=max(BATCHES, batch + 1)),
                on_kill,
            )
            return watch.run(plan)

    def compare(self, rows: list[flights.Flight]) -> tuple[expected.Comparison, dict[str, int]]:
        """Act 3: what stock consumers see beside the plain computation."""
        servers = self.bootstrap_servers
        with self.console.status("reading the results with confluent-kafka, and comparing"):
            verdict = expected.compare(
                expected.compute(rows),
                topics.read_delayed(servers, self.topics.delayed),
                topics.read_daily(servers, self.topics.daily),
            )
            uncommitted = {
                "delayed": topics.count_uncommitted(servers, self.topics.delayed),
                "daily": topics.count_uncommitted(servers, self.topics.daily),
            }
        return verdict, uncommitted

    def close(self) -> None:
        """Stop what was started; the folder stays if asked for."""
        if self.job is not None:
            self.job.kill()
        if self.brokers is not None:
            self.brokers.stop()
        if self.options.keep:
            self.console.print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def run(options: DemoOptions, console: Console) -> DemoResult:
    """The whole demo; exact only if every record is there once and every aggregate is right.

    Raises `DemoFailed` or `FlightsMissing` with a text for the user.
    """
    begun = time.monotonic()
    demo = Demo(options, console)
    try:
        if demo.brokers is not None:
            demo.brokers.start()
        targets = targets_of(options.kills, demo.brokers.count if demo.brokers else 0)
        broker_kills = sum(target is not KillTarget.SPARK for target in targets)
        plan = draw(options.seed, BATCHES, targets)
        console.print(
            f"seed {options.seed}: {options.kills} kills of the Spark job,"
            f" {broker_kills} of the broker, at {demo.bootstrap_servers}"
        )
        rows = demo.load()
        kills = demo.process(len(rows), plan)
        verdict, uncommitted = demo.compare(rows)
        missed = len(plan) - len(kills)
        if missed:
            verdict.findings.append(f"the job ended before {missed} of the planned kills")
        if kills:
            console.print(report.kill_table(kills))
        console.print(report.verdict_table(verdict, uncommitted))
        result = DemoResult(kills, verdict, uncommitted, time.monotonic() - begun)
        report.end(console, verdict, result.seconds)
        return result
    finally:
        demo.close()
