"""The Spark micro-batch protocol under simulation: INV-10, searched (DESIGN.md D8).

A run has one application: a driver, sometimes a rival over the same checkpoint, executors, and
clients that write into the source in transactions, some of which abort. Broker, network and
processes are struck by the faults of a profile of `oncelog.simulation.faults`; besides, drivers die
at the crash points, and executors die, freeze and are run twice. The shipped code is
`BatchProtocol`, `TransactionDriver`, the write task, the reading task and the sink's check that a
stage ran once; in about half of the plans also the tasks that send in turns, with their turn
server.
Some applications keep their marker in a compacted topic as well; then the group's offsets and the
transactional id may expire.

``python -m tests.simulation.spark_model --runs N [--seed S] [--profile P] [--jobs J]``

Power is only lost with every message flushed: without, a finished batch may be gone, and then
refusing to go on is right. The broker's clock jumps by an hour at most: without a marker topic a
query rightly fails closed once the group's offsets have expired.
"""

import argparse
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from oncelog.client import TransactionDriver
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.ids import TopicPartition
from oncelog.simulation.campaign import judge_run
from oncelog.simulation.checkers import judge
from oncelog.simulation.client import ClientNode
from oncelog.simulation.context import ClientContext
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.faults import PROFILES, draw_faults
from oncelog.simulation.final import FinalState
from oncelog.simulation.plan import Plan, PlannedClient, PlannedFault, PlannedTopic, part_rng
from oncelog.simulation.process import Process
from oncelog.simulation.run import SimulationRun, undisturbed
from oncelog.simulation.workloads import WORKLOADS
from oncelog.spark.progress import CrashRow
from oncelog.spark.targets import Targets
from tests.simulation.spark_application import TAKE_OVER_STEPS, Application
from tests.simulation.spark_executor import shipped_tasks
from tests.simulation.spark_faults import Faults
from tests.simulation.spark_judge import judge_batches
from tests.simulation.spark_query import run_driver
from tests.simulation.spark_stage import StageOptions

__all__ = ["SparkResult", "draw_spark_plan", "run_spark"]

APPLICATION_ID: Final = "app"
SOURCE: Final = "source"
OUTPUT: Final = "output"
DURATION_S: Final = 8.0
USED_PROFILES: Final = tuple(name for name in PROFILES if name not in ("power", "damage"))
JUMP_MS_MAX: Final = 3_600_000
RIVALS_COUNT_MAX: Final = 2
MARKERS: Final = "markers"
EXPIRY: Final = {
    "offsets.retention.minutes": "30",
    "offsets.retention.check.interval.ms": "200",
    "transactional.id.expiration.ms": "1800000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
"""The group's offsets and the transactional id are gone after each hour that the broker skips."""
EXPIRED: Final = "INV-6: a committed offset is gone"
STRANGER: Final = {
    "topics": {MARKERS: 1},
    "compacted": {MARKERS: 1},
    "think_s": 0.3,
    "burst_max": 3,
}
"""Another application that keeps records of its own in the marker topic."""
COMPLAINTS_MAX: Final = 5
DRIVER: Final = "copy"
"""Role of the drivers: as far as the run is concerned they copy, so they settle after writers."""


@dataclass(frozen=True)
class SparkResult:
    """What came of a run, as plain values."""

    seed: int
    profile: str
    digest: str
    findings: tuple[tuple[str, str], ...]
    """(signature, detail) of everything that is neither allowed nor known."""
    known: tuple[str, ...]
    rows: Counter[str]
    reached: Counter[str]
    batches: int
    records: int
    simulated_s: float
    real_s: float


def draw_spark_plan(seed: int, profile: str | None = None) -> Plan:
    """The plan of a seed."""
    rng = part_rng(seed, "spark")
    profile = profile or rng.choice(USED_PROFILES)
    broker = dict(draw_plan(seed, profile).broker)
    if profile in ("everything", "storage"):
        broker["log.flush.interval.messages"] = "1"
    partitions = rng.randint(1, 3)
    feeder = {
        "topics": {SOURCE: partitions},
        "think_s": rng.choice((0.02, 0.1, 0.3)),
        "burst_max": rng.choice((3, 8)),
    }
    driver = {
        "group_id": APPLICATION_ID,
        "transaction_version_max": rng.choice((1, 2)),
        "tasks": rng.randint(1, 3),
        "crash": rng.choice((0.0, 0.04, 0.12)),
        "lose_checkpoint": rng.choice((0.0, 0.0, 0.15)),
        "lose_answer": rng.choice((0.0, 0.1)),
        "take_over": rng.choice(("", "wal_written", *TAKE_OVER_STEPS)),
        "shares": part_rng(seed, "shares").choice((0.0, 0.0, 0.6, 1.0)),
        "faults": _task_faults(seed, profile),
        "marker_topic": part_rng(seed, "markers").random() < 0.6,
    }
    clients = [
        PlannedClient("c0", DRIVER, rng.uniform(0.0, 0.5), driver),
        PlannedClient("c1", "transactional", 0.0, feeder),
    ]
    if rng.random() < 0.5:
        clients.append(PlannedClient("c2", "transactional", 0.2, feeder))
    for number in range(rng.choice((0, 0, 1))):
        rival = {**driver, "lives_s": rng.choice((0.3, 1.0))}
        start_s = rng.uniform(0.3, 2.0)
        clients.append(PlannedClient(f"c{3 + number}", DRIVER, start_s, rival))
    drivers = [client.id for client in clients if client.role == DRIVER]
    struck = [client.id for client in clients] + drivers
    faults = draw_faults(part_rng(seed, "faults"), profile, DURATION_S, struck)
    for index, fault in enumerate(faults):
        if float(fault.parameters.get("ms", 0)) > JUMP_MS_MAX:
            faults[index] = replace(fault, parameters={**fault.parameters, "ms": JUMP_MS_MAX})
    topics = [PlannedTopic(SOURCE, partitions), PlannedTopic(OUTPUT, rng.randint(1, 4))]
    if driver["marker_topic"]:
        topics.append(_marker_topic(seed))
        clients.append(PlannedClient("c9", "transactional", 0.1, STRANGER))
        if part_rng(seed, "expiry").random() < 0.5:
            broker |= EXPIRY
            faults += _hours(seed)
    return Plan(
        seed,
        profile,
        DURATION_S,
        broker,
        tuple(topics),
        tuple(clients),
        tuple(faults),
        tuple(rng.choice(("stop", "kill")) for _ in range(rng.choice((0, 0, 1)))),
    )


def _marker_topic(seed: int) -> PlannedTopic:
    """Compacted as often as there is something to compact."""
    roll_ms = str(part_rng(seed, "roll").choice((100, 400, 3_000)))
    return PlannedTopic(MARKERS, 1, {"cleanup.policy": "compact", "segment.ms": roll_ms})


def _hours(seed: int) -> list[PlannedFault]:
    """Hours pass for the broker within the run, and with them the life of offsets and ids.

    Its coordinators follow no jump of the clock, so it starts again after each.
    """
    rng = part_rng(seed, "hours")
    faults = []
    for number in range(3):
        at_s = rng.uniform(0.5, DURATION_S)
        jump = {"ms": JUMP_MS_MAX}
        faults.append(PlannedFault(f"hour{number}", "wall-jump-forward", at_s, jump))
        faults.append(PlannedFault(f"start{number}", "kill", at_s + 0.01, {}))
    return faults


def _task_faults(seed: int, profile: str) -> dict[str, float]:
    """How faulty executors and scheduler are. Each kind is absent from many runs."""
    rng = part_rng(seed, "tasks")
    most = {
        "die": 0.15,
        "freeze": 0.05,
        "slow": 0.15,
        "lose_connection": 0.15,
        "retry": 0.8,
        "copy": 0.1,
        "again": 0.1,
        "give_up": 0.1,
        "late_status": 0.8,
    }
    if profile == "calm":
        most |= {"die": 0.03, "freeze": 0.0, "lose_connection": 0.03, "give_up": 0.03}
    return {name: p if rng.random() < 0.8 else 0.0 for name, p in most.items()}


class _SparkRun(SimulationRun):
    """A plan being carried out, with one application in it."""

    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        roles: Any = {**WORKLOADS, DRIVER: self._drive}
        super().__init__(plan, roles, keep_trace=keep_trace)
        chosen = next(c for c in plan.clients if c.role == DRIVER).parameters
        partitions = {topic.name: topic.partitions for topic in plan.topics}
        host, port = self.world.broker.address
        stage = StageOptions(
            world=self.world,
            bootstrap=f"{host}:{port}",
            application_id=APPLICATION_ID,
            targets=Targets((OUTPUT,), (partitions[OUTPUT],)),
            task_count=min(int(chosen["tasks"]), partitions[OUTPUT]),
            shares=float(chosen["shares"]),
            faults=Faults(**chosen["faults"]),
            count=lambda name: self.app.count(name),
            complain=lambda what, text: self.app.complain(what, text),
            is_healed=lambda: self.healed_s > 0,
        )
        self.app = Application(
            application_id=APPLICATION_ID,
            partitions=tuple(TopicPartition(SOURCE, n) for n in range(partitions[SOURCE])),
            stage=stage,
            transaction_version_max=int(chosen["transaction_version_max"]),
            crash=float(chosen["crash"]),
            lose_checkpoint=float(chosen["lose_checkpoint"]),
            lose_answer=float(chosen["lose_answer"]),
            sources_settled=self._sources_settled,
            take_over_step=str(chosen["take_over"]),
            take_over=self._take_over,
            marker_partition=TopicPartition(MARKERS, 0) if MARKERS in partitions else None,
            has_expiry=EXPIRY.items() <= plan.broker.items(),
        )
        self._rivals: list[Process] = []
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.record: str | None = None

    async def _drive(self, context: ClientContext) -> None:
        process = self.world.scheduler.current
        assert isinstance(process, Process)
        node = next(client for client in self.clients if client.process is process)

        def restart() -> None:
            if node.process is process:
                node.start()

        await run_driver(self.app, context, process, restart)

    def _take_over(self) -> bool:
        """Start a rival that nobody planned, in a few milliseconds; whether there is one."""
        alive = [process for process in self._rivals if process.alive and not process.frozen]
        if self.healed_s or len(alive) >= RIVALS_COUNT_MAX:
            return False
        self.app.count("taken over")
        number = len(self._rivals)
        process = self.world.new_process(f"r{number}.0", f"10.0.{4 + number // 250}.{number % 250}")
        self._rivals.append(process)
        context = self.world.context(process, parameters={"lives_s": 0.8})
        process.spawn(self._live_and_end(context, process))
        return True

    async def _live_and_end(self, context: ClientContext, process: Process) -> None:
        await run_driver(self.app, context, process, lambda: None)
        process.kill("exit")

    def _sources_settled(self) -> bool:
        return all(node.is_settled for node in self._nodes(False))

    def _nodes(self, drivers: bool) -> Iterator[ClientNode]:
        for planned, node in zip(self.plan.clients, self.clients, strict=True):
            if (planned.role == DRIVER) is drivers and node.process is not None:
                yield node

    def _take_stock(self) -> FinalState | None:
        final = super()._take_stock()
        context = self._context("marker")
        found: Any = self._ask(_committed(context, self.app.marker_partition), "marker")
        self.committed, self.record = found or ({}, None)
        return final


async def _committed(
    context: ClientContext, place: TopicPartition | None
) -> tuple[dict[TopicPartition, OffsetAndMetadata], str | None]:
    host, port = context.bootstrap
    async with TransactionDriver(
        f"{host}:{port}", "reader", network=context.network, clock=context.clock, rng=context.rng
    ) as driver:
        key = APPLICATION_ID.encode()
        record = None if place is None else await driver.committed_value(place, key)
        text = None if record is None else record.decode()
        return await driver.fetch_offsets(APPLICATION_ID), text


def run_spark(plan: Plan, *, keep_trace: bool = False) -> SparkResult:
    """Carry out a plan and judge it."""
    return run_traced(plan, keep_trace=keep_trace)[0]


def run_traced(plan: Plan, *, keep_trace: bool = False) -> tuple[SparkResult, _SparkRun]:
    """The same, with everything that happened."""
    began = time.perf_counter()
    run = _SparkRun(plan, keep_trace=keep_trace)
    world, app = run.world, run.app
    with shipped_tasks(), warnings.catch_warnings(), undisturbed(world):
        # Processes die with coroutines that had not begun.
        warnings.simplefilter("ignore", RuntimeWarning)
        final = run.play() or FinalState({})
        promise = run.promise()
        anomalies = [
            anomaly
            for anomaly in judge(world.history, final, promise)
            if not (app.has_expiry and anomaly.signature == EXPIRED)
        ]
        if final.partitions and not (promise.power_losses_s and anomalies):
            # What power took from the logs is found by their checkers, and INV-10 falls with it.
            anomalies += judge_batches(app, final, run.committed, OUTPUT, world.now_s, run.record)
    judged = run.result(final, anomalies, time.perf_counter() - began)
    found = judge_run(judged)
    findings = [(f.signature, f.detail) for f in found if not f.known_as]
    findings += [(f"duties: {what}", text) for what, text in app.complaints[:COMPLAINTS_MAX]]
    if app.reached["data loss"] and not promise.power_losses_s:
        findings.append(("data loss", "a reading task said that records were gone"))
    result = SparkResult(
        plan.seed,
        plan.profile,
        judged.digest,
        tuple(findings),
        tuple(f.known_as for f in found if f.known_as),
        app.rows,
        app.reached,
        len(app.finished),
        sum(len(p.committed) for tp, p in final.partitions.items() if tp.topic == OUTPUT),
        world.now_s,
        judged.real_s,
    )
    return result, run


def _run_seed(wanted: tuple[int, str | None]) -> SparkResult:
    return run_spark(draw_spark_plan(*wanted))


def run_many(seeds: range, profile: str | None, jobs: int) -> Iterator[SparkResult]:
    """Many runs, in as many processes."""
    wanted = ((seed, profile) for seed in seeds)
    if jobs == 1:
        yield from map(_run_seed, wanted)
        return
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=50) as pool:
        yield from pool.imap(_run_seed, wanted)


def main() -> int:
    """Exit code 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no run after this time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", choices=USED_PROFILES)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--until",
        nargs="+",
        metavar="KIND",
        help="end with the first finding of such a kind, or of any",
    )
    arguments = parser.parse_args()
    began = time.monotonic()
    rows: Counter[str] = Counter()
    reached: Counter[str] = Counter()
    failed, runs, batches, records = 0, 0, 0, 0
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    for result in run_many(seeds, arguments.profile, arguments.jobs):
        runs += 1
        rows += result.rows
        reached += result.reached
        batches += result.batches
        records += result.records
        for signature, detail in result.findings:
            print(f"seed {result.seed} ({result.profile}): {signature}\n    {detail}", flush=True)
        failed += bool(result.findings)
        kinds = {signature.partition(":")[0] for signature, _ in result.findings}
        until = set(arguments.until or ())
        if kinds & until or (kinds and "any" in until):
            print(f"FOUND after {runs} runs: {', '.join(sorted(kinds))}")
            return 1
        if time.monotonic() - began > arguments.seconds:
            break
    minutes = (time.monotonic() - began) / 60
    print(f"{runs} runs, {failed} with findings, {runs / minutes:.0f} runs per minute")
    print(f"{batches} batches and {records} records committed")
    for row in CrashRow:
        print(f"{rows[row.name]:7}  died {row.value}")
    for name, count in sorted(reached.items()):
        print(f"{count:7}  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
