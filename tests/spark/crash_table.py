"""One case of the crash table: a fault at a row, the rest of the work, and what is visible then."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.faults import (
    ANSWER_LOST,
    BETWEEN,
    KILLING_THE_DRIVER,
    ROW_OF,
    Fault,
    Victim,
)
from tests.spark.hanging import end_hanging
from tests.spark.striking import MID_TASK
from tests.spark.support import Job, topics_of
from tests.support.broker import BrokerProcess
from tests.support.peer import KafkaPeer

KILLED = -9
SMALL, LARGE = 700, 1200
"""Records of a batch that the driver writes itself, and of one that has a write stage."""
LAST_BATCH = 1
"""Of those that are there before the fault; both are full."""


LOSING_THE_TASK = (Victim.WORKER, Victim.DAEMON, Victim.TASK, Victim.EXECUTOR)
"""The write stage fails, and the driver lives to see it."""

Restartable = BrokerProcess | KafkaPeer


@dataclass(frozen=True, slots=True)
class Case:
    """What is hit at which row, in which query."""

    row: str
    victim: Victim
    query: str
    batch: int = 1
    per_batch: int = LARGE

    @property
    def kills_the_driver(self) -> bool:
        return self.victim in KILLING_THE_DRIVER

    @property
    def orders_count(self) -> int:
        """A full batch more than there is before the fault."""
        return self.per_batch * (LAST_BATCH + 2)

    def __str__(self) -> str:
        size = f"batch {self.batch} of {self.per_batch} records"
        return f"{self.query}, {self.victim} at {self.row} of {size}"


class Keeper:
    """Starts a broker again whenever a fault has killed it, and keeps its process id in a file."""

    def __init__(self, broker: Restartable, pid_file: Path) -> None:
        self.broker = broker
        self.pid_file = pid_file
        self.ended: list[str] = []
        """Partitions of transactions that an administrator had to end, since the last `take`."""
        self._is_over = False
        self._starting = threading.Lock()
        self._write()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def take(self) -> list[str]:
        """Return what was ended by hand, and forget it."""
        ended, self.ended = self.ended, []
        return ended

    def close(self) -> None:
        """Stop the broker; it stays down."""
        with self._starting:
            self._is_over = True
        self.broker.stop()
        self._thread.join()

    def _write(self) -> None:
        self.pid_file.write_text(str(self.broker.pid))

    def _keep(self) -> None:
        while True:
            self.broker.child.wait()
            with self._starting:
                if self._is_over:
                    return
                self.broker.start()
                self._write()


@contextmanager
def kept(broker: Restartable, folder: Path) -> Iterator[Keeper]:
    keeper = Keeper(broker, folder / "broker.pid")
    try:
        yield keeper
    finally:
        keeper.close()


def run_case(case: Case, spark: SparkSession, keeper: Keeper, folder: Path) -> list[str]:
    """Run one case from its first record to its last; returns what is wrong, nothing if exact."""
    folder.mkdir(parents=True, exist_ok=True)
    servers = keeper.broker.bootstrap_servers
    master = str(spark.sparkContext.master)
    job = Job(servers, folder, f"job-{uuid.uuid4().hex[:8]}", case.query, case.per_batch, master)
    struck = folder / "struck"
    fault = Fault.at(case.row, case.victim, case.batch, struck, keeper.pid_file)
    if case.kills_the_driver:
        found = _kill_and_go_on(case, job, fault, spark)
    else:
        job.load_orders(0, case.orders_count)
        _run_past_hanging(job, fault, spark, keeper)
        found = []
    if not struck.exists():
        found.append("the fault never struck")
    if keeper.ended:
        # It may be that the batch was written again.
        return found or job.findings(case.orders_count)
    return found or job.findings(case.orders_count) + what_the_driver_did(case, job)


def _run_past_hanging(job: Job, fault: Fault, spark: SparkSession, keeper: Keeper) -> None:
    """Run the job; once more, if Apache Kafka had lost the end of its transaction."""
    try:
        job.run_here(spark, fault=fault)
    except StreamingQueryException as error:
        if isinstance(keeper.broker, BrokerProcess) or "find-hanging" not in str(error):
            raise
        keeper.ended = end_hanging(keeper.broker.bootstrap_servers, topics_of(job.name))
        if not keeper.ended:
            raise
        job.run_here(spark)


def _kill_and_go_on(case: Case, job: Job, fault: Fault, spark: SparkSession) -> list[str]:
    """Kill a driver in a process of its own; another one, here, finds more to do than it left."""
    first = case.per_batch * (LAST_BATCH + 1)
    job.load_orders(0, first)
    code = job.run(fault=fault)
    if code != KILLED:
        return [f"the driver ended with {code}: {job.text()[-2000:]}"]
    if job.crash_row() is not ROW_OF[case.row]:
        return [f"hit {job.crash_row()} instead of {case.row}"]
    job.load_orders(first, case.orders_count - first)
    job.run_here(spark)
    return []


def what_the_driver_did(case: Case, job: Job) -> list[str]:
    """The fault had the effect that its row promises, not none at all."""
    steps = [(step["step"], step["batch"]) for step in job.steps()]
    attempts = steps.count(("after_init", case.batch))
    went_through = case.row in (ANSWER_LOST, "txn_ended", BETWEEN)
    if went_through and attempts > 1:
        return [f"batch {case.batch} was written {attempts} times after its transaction ended"]
    failed = case.row == MID_TASK and case.victim in LOSING_THE_TASK
    if failed and ("failed", case.batch) not in steps:
        return ["the write stage did not fail"]
    return []
