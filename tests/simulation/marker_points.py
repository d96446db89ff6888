"""Batch 0 of a query whose driver dies at each step of it, and rests for a week (INV-10).

A step is one callback of the driver's process: between two of them lie every request and every
reply of the start, the opening, the batch and its end. The driver is the shipped `BatchProtocol` on
the shipped `TransactionDriver`, the broker the shipped one: a week after the death it has expired
the group's offsets and the transactional id. The last life has no death. Its batch is written once,
or refused where nothing can tell whether it was; then the operator looks at the output.

`python -m tests.simulation.marker_points` runs every step of every case and writes
a row of docs/evidence.md; part of `make test-full`.
"""

import argparse
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any, Final, cast

from oncelog.client import Admin, NewTopic, TransactionDriver
from oncelog.core.ids import TopicPartition
from oncelog.simulation.context import ClientContext
from oncelog.simulation.final import FinalState
from oncelog.simulation.plan import Plan
from oncelog.simulation.process import Process
from oncelog.simulation.reading import read_final_state
from oncelog.simulation.run import undisturbed
from oncelog.simulation.world import World
from oncelog.spark.batch_protocol import BatchProtocol
from oncelog.spark.errors import FailClosedError
from oncelog.spark.parties import ProducerIdentity, TaskReport
from oncelog.spark.progress import ProgressLog
from oncelog.spark.protocol_options import ProtocolOptions
from tests.simulation.lockstep import Lockstep
from tests.simulation.spark_checkpoint import Checkpoint
from tests.support import evidence

__all__ = ["CASES", "Case", "Outcome", "live_through", "steps"]

APPLICATION_ID: Final = "app"
SOURCE: Final = TopicPartition("source", 0)
OUTPUT: Final = TopicPartition("output", 0)
MARKERS: Final = TopicPartition("markers", 0)
WEEK_S: Final = 8 * 24 * 3600.0
BOUND_S: Final = 60.0
SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.retention.check.interval.ms": "500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}


@dataclass(frozen=True, slots=True)
class Case:
    """How the drivers of one query live. All but the last die."""

    version: int
    """Of the transactions' protocol."""
    has_topic: bool
    """Whether the drivers that die keep their marker in a topic, too. The last one does."""
    rests: bool
    """Whether a week passes after each death."""
    deaths: int = 1

    def __str__(self) -> str:
        carrier = "topic" if self.has_topic else "group"
        return f"{carrier}-{'week' if self.rests else 'soon'}-{self.deaths}-tv{self.version}"


CASES: Final = tuple(
    Case(version, has_topic, rests, deaths)
    for version, has_topic, rests, deaths in product((1, 2), (True, False), (True, False), (1, 2))
)


@dataclass(slots=True)
class Outcome:
    """What became of a query. `met` says whether its first driver died before it was done."""

    met: bool = False
    is_refused: bool = False
    is_known: bool = False
    """Whether the topic had an opening or a marker when the last driver came."""
    row_count: int = 0
    findings: list[str] = field(default_factory=list)


def live_through(case: Case, step: int) -> Outcome:
    """One query, whose drivers die at this step of their lives; the second one at another."""
    world = World(Plan(1, "markers", 0.0, SETTINGS, (), (), ()))
    query = _Query(world, case)
    with undisturbed(world), warnings.catch_warnings():
        # Processes die with coroutines that had not begun.
        warnings.simplefilter("ignore", RuntimeWarning)
        query.play(step)
    query.outcome.findings += [f"bug in {who}: {error!r}" for who, error in world.bugs]
    return query.outcome


def steps(case: Case, stride: int = 1, first: int = 1) -> Iterator[tuple[int, Outcome]]:
    """Every step of a case, one query each, until the driver is done before it comes."""
    for step in count(first, stride):
        outcome = live_through(case, step)
        if not outcome.met:
            return
        yield step, outcome


class _Query:
    """One query over one checkpoint, in a world of its own."""

    def __init__(self, world: World, case: Case) -> None:
        self.world = world
        self.case = case
        self.checkpoint = Checkpoint("query", {SOURCE: 0})
        self.outcome = Outcome()
        self.rested_s = 0.0
        self._lives = 0

    def play(self, step: int) -> None:
        """The deaths, the last life, and the judgement."""
        world, case, outcome = self.world, self.case, self.outcome
        world.broker.start()
        world.run_until(lambda: world.broker.is_serving, BOUND_S)
        self._ask(_make_topics(self._context("setup")))
        for death in range(case.deaths):
            process = self._live(case.has_topic, frozenset(), step if death == 0 else step * 7 % 97)
            outcome.met |= death == 0 and not process.alive
            self._rest()
        outcome.is_known = self._ask(_is_known(self._context("reader")))
        self._live(True, frozenset())
        self._judge()
        if outcome.is_refused and not outcome.row_count:
            self._live(True, frozenset({"missing-marker"}))
            outcome.is_refused = True
            row_count = self._count_rows()
            if row_count != 1:
                outcome.findings.append(f"accepted, and {row_count} rows are there")

    def _judge(self) -> None:
        outcome, case = self.outcome, self.case
        outcome.row_count = self._count_rows()
        if outcome.is_refused:
            if not case.rests or outcome.is_known:
                outcome.findings.append("refused without need")
            if outcome.row_count > 1:
                outcome.findings.append(f"{outcome.row_count} rows are there")
        elif outcome.row_count != 1:
            outcome.findings.append(f"{outcome.row_count} rows are there")

    def _rest(self) -> None:
        broker = self.world.broker
        if self.case.rests:
            self.rested_s += WEEK_S
            broker.jump_wall_clock(WEEK_S * 1000)
            # Coordinators follow no jump of the clock: what is old expires after a start.
            broker.kill()
            self.world.run_until(lambda: broker.is_serving, BOUND_S)
        # Transactions that were left open are aborted meanwhile.
        self.world.run_until(lambda: False, 3.0)

    def _live(self, has_topic: bool, accept: frozenset[str], step: int | None = None) -> Process:
        """One life of a driver, until it is done or dead."""
        self._lives += 1
        process = self.world.new_process(f"d{self._lives}", f"10.0.1.{self._lives}")
        driver = _Driver(self, process, has_topic, accept)
        process.spawn(driver.run())
        if step is not None:
            process.kill_after_steps(step, "crash")
        if not self.world.run_until(lambda: driver.is_done or not process.alive, BOUND_S):
            self.outcome.findings.append("a driver did not come to its end")
        process.disarm()
        return process

    def _count_rows(self) -> int:
        context = self._context("stock")
        reading = read_final_state(context, [OUTPUT.topic], [], self.world.broker.archive)
        final = cast(FinalState, self._ask(reading))
        return len(final.partitions[OUTPUT].committed)

    def _context(self, name: str) -> ClientContext:
        self._lives += 1
        process = self.world.new_process(f"{name}{self._lives}", f"10.0.2.{self._lives}")
        self._asking = process
        return self.world.context(process)

    def _ask(self, work: Any) -> Any:
        return self.world.run_to_end(self._asking, work, BOUND_S)


class _Driver:
    """One process: what Spark does around batch 0, and the shipped driver."""

    def __init__(
        self, query: _Query, process: Process, has_topic: bool, accept: frozenset[str]
    ) -> None:
        self.query = query
        self.is_done = False
        self._lockstep = Lockstep(process)
        host, port = query.world.broker.address
        self._inner = TransactionDriver(
            f"{host}:{port}",
            APPLICATION_ID,
            transaction_timeout_ms=2_000,
            network=process.network,
            clock=process.clock,
            rng=process.rng,
            transaction_version_max=query.case.version,
        )
        options = ProtocolOptions(
            APPLICATION_ID, marker_partition=MARKERS if has_topic else None, accept=accept
        )
        self._driver = BatchProtocol(
            options, self._inner, self._lockstep, ProgressLog(None), now_s=self._now_s
        )

    async def run(self) -> None:
        """Until batch 0 is committed, or refused."""
        await self._lockstep.run(self._work)
        await self._inner.close()
        self.is_done = True

    def _now_s(self) -> float:
        return 1_000_000.0 + self.query.world.now_s + self.query.rested_s

    def _work(self) -> None:
        checkpoint, outcome = self.query.checkpoint, self.query.outcome
        is_planned = checkpoint.last_batch == 0
        self._driver.prepare(None if is_planned else checkpoint.query_id)
        self._lockstep.sleep(0.0)
        if not is_planned:
            checkpoint.log_offsets(0, {SOURCE: 1}, self._now_s())
            self._lockstep.sleep(0.0)
        if 0 in checkpoint.commits:
            return
        try:
            self._driver.process(_Batch(self.query, self._lockstep, self._inner))
        except FailClosedError:
            outcome.is_refused = True
            return
        outcome.is_refused = False
        self._lockstep.sleep(0.0)
        checkpoint.log_commit(0)
        self._lockstep.sleep(0.0)


class _Batch:
    """Batch 0, of one row."""

    batch_id = 0

    def __init__(self, query: _Query, lockstep: Lockstep, inner: TransactionDriver) -> None:
        self._checkpoint = query.checkpoint
        self._lockstep = lockstep
        self._inner = inner
        self.query_id = query.checkpoint.query_id

    def source_lines(self) -> tuple[str, ...]:
        return self._checkpoint.lines(0)

    def planned_at_s(self) -> float | None:
        return self._checkpoint.planned_at_s(0)

    def initial_offsets(self) -> dict[TopicPartition, int]:
        return self._checkpoint.initial

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        self._lockstep.call(self._inner.append(OUTPUT, b"key", b"row"))
        return [TaskReport(0, OUTPUT, 1, 0, 0)]

    def next_watermark_ms(self) -> None:
        return None

    def drain(self) -> None:
        """It has no state."""

    def is_stopping(self) -> bool:
        return False


async def _make_topics(context: ClientContext) -> None:
    host, port = context.bootstrap
    async with Admin(
        f"{host}:{port}", network=context.network, clock=context.clock, rng=context.rng
    ) as admin:
        topics = [NewTopic(place.topic, 1, 1) for place in (SOURCE, OUTPUT)]
        compacted = NewTopic(MARKERS.topic, 1, 1, {"cleanup.policy": "compact"})
        await admin.create_topics([*topics, compacted])


async def _is_known(context: ClientContext) -> bool:
    host, port = context.bootstrap
    async with TransactionDriver(
        f"{host}:{port}", "reader", network=context.network, clock=context.clock, rng=context.rng
    ) as driver:
        value = await driver.committed_value(MARKERS, APPLICATION_ID.encode(), is_final=False)
        return value is not None


def main() -> int:
    """Exit code 0 if nothing was found at any step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stride", type=int, default=1)
    stride = parser.parse_args().stride
    counts: dict[str, dict[str, int]] = {}
    broken: list[str] = []
    for case in CASES:
        outcomes = list(steps(case, stride))
        refused = sum(outcome.is_refused for _, outcome in outcomes)
        counts[str(case)] = {"steps": len(outcomes), "refused": refused}
        print(f"{case}: {len(outcomes)} steps, {refused} refused", flush=True)
        for step, outcome in outcomes:
            broken += [f"{case}, step {step}: {finding}" for finding in outcome.findings]
    print("\n".join(broken))
    done = sum(case["steps"] for case in counts.values())
    count = f"a death at {done:,} steps of {len(counts)} cases"
    how = f"python -m tests.simulation.marker_points --stride {stride}"
    evidence.note("marker-points", "broken" if broken else "nothing found", count, how)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
