"""The protocol of a micro-batch, step by step, with a made-up coordinator and Spark (INV-10)."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from oncelog.client.errors import AbortableError, ClientError, ConnectionLostError, FencedError
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.spark.driver import BatchDriver, DriverOptions, ProducerIdentity, TaskReport
from oncelog.spark.errors import FailClosedError, UsageError, WriteStageError
from oncelog.spark.progress import Progress

SOURCE = TopicPartition("in", 0)
OUT = TopicPartition("out", 0)
FENCED = FencedError(ErrorCode.producer_fenced, "another driver")
LOST = ConnectionLostError("no answer")
T = TypeVar("T")


class Runner:
    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(coroutine)


@dataclass
class Coordinator:
    """The cluster.

    What is committed, and one open transaction. Outlives the drivers, as a cluster does.
    """

    epoch: int = -1
    log: list[str] = field(default_factory=list)
    committed_rows: list[str] = field(default_factory=list)
    open_rows: list[str] = field(default_factory=list)
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    open_offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)

    def abort(self) -> None:
        self.open_rows, self.open_offsets = [], {}

    def commit(self) -> None:
        self.committed_rows += self.open_rows
        self.offsets |= self.open_offsets
        self.abort()


class Transaction:
    """A `TransactionDriver` on that cluster.

    `faults` maps a call to what it raises, once, before or after it took effect.
    """

    producer_id = 7

    def __init__(self, cluster: Coordinator, faults: dict[str, ClientError] | None = None) -> None:
        self.cluster = cluster
        self.faults = faults or {}
        self.producer_epoch = -1
        self.is_used = True

    def fault(self, when: str) -> None:
        if when in self.faults:
            raise self.faults.pop(when)

    async def open(self) -> None:
        self.cluster.log.append("open")
        self.fault("before open")
        self.cluster.abort()
        self.cluster.epoch += 1
        self.producer_epoch = self.cluster.epoch
        self.is_used = False

    async def new_epoch(self) -> None:
        if self.is_used:
            self.cluster.log.append("epoch")
            self.fault("before epoch")
            self.cluster.epoch += 1
            self.producer_epoch = self.cluster.epoch
        self.is_used = True

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        assert require_stable
        return dict(self.cluster.offsets)

    async def add_offsets(self, group_id: str) -> None:
        self.cluster.log.append("add_offsets")
        self.fault("before add_offsets")

    async def txn_offset_commit(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        self.cluster.log.append("offsets")
        self.fault("before offsets")
        self.cluster.open_offsets = dict(offsets)

    async def end(self, commit: bool) -> None:
        self.cluster.log.append("end")
        self.fault("before end")
        assert commit
        self.cluster.commit()
        self.fault("after end")


class Batch:
    """A micro-batch of one row. `failures` are raised by the first writes, the row being sent."""

    def __init__(
        self,
        cluster: Coordinator,
        batch_id: int,
        *,
        query_id: str = "q",
        offset: int | None = None,
        failures: Iterable[Exception] = (),
        stopping: bool = False,
    ) -> None:
        self.cluster = cluster
        self.batch_id = batch_id
        self.query_id = query_id
        self.offset = 10 * (batch_id + 1) if offset is None else offset
        self.failures = list(failures)
        self.stopping = stopping
        self.epochs: list[int] = []
        self.drains = 0
        self.reports = [TaskReport(0, OUT, 1, 0, 0)]
        self.lines: tuple[str, ...] = (f'{{"in":{{"0":{self.offset}}}}}',)

    def source_lines(self) -> tuple[str, ...]:
        return self.lines

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        self.epochs.append(identity.producer_epoch)
        self.cluster.open_rows.append(f"row {self.batch_id}")
        if self.failures:
            raise self.failures.pop(0)
        return self.reports

    def drain(self) -> None:
        self.drains += 1

    def is_stopping(self) -> bool:
        return self.stopping


Start = Callable[..., BatchDriver]


@pytest.fixture
def cluster() -> Coordinator:
    return Coordinator()


@pytest.fixture
def start(cluster: Coordinator) -> Start:
    """A new driver process: its memory is empty, the cluster is what it was."""

    def new_driver(faults: dict[str, ClientError] | None = None, **options: Any) -> BatchDriver:
        transaction = Transaction(cluster, faults)
        return BatchDriver(DriverOptions("app", **options), transaction, Runner(), Progress(None))

    return new_driver


def test_batches_commit_their_row_their_offset_and_their_marker_together(
    cluster: Coordinator, start: Start
) -> None:
    driver = start()
    driver.process(Batch(cluster, 0))
    driver.process(Batch(cluster, 1))
    assert cluster.committed_rows == ["row 0", "row 1"]
    assert cluster.offsets[SOURCE].offset == 20
    assert driver.marker is not None
    assert driver.marker.encode() == cluster.offsets[SOURCE].metadata
    assert (driver.marker.sequence, driver.marker.batch.batch_id) == (2, 1)


def test_each_batch_writes_under_an_epoch_of_its_own(cluster: Coordinator, start: Start) -> None:
    driver = start()
    batches = [Batch(cluster, n) for n in range(3)]
    for batch in batches:
        driver.process(batch)
    assert [batch.epochs for batch in batches] == [[0], [1], [2]]
    assert cluster.log.count("open") == 1


def test_a_batch_found_committed_after_a_restart_is_drained_and_not_written(
    cluster: Coordinator, start: Start
) -> None:
    start().process(Batch(cluster, 0))
    again = Batch(cluster, 0)
    driver = start()
    driver.process(again)
    driver.process(Batch(cluster, 1))
    assert (again.drains, again.epochs) == (1, [])
    assert cluster.committed_rows == ["row 0", "row 1"]


@pytest.mark.parametrize("point", ["after_init", "tasks_done", "offsets_committed"])
def test_a_driver_that_died_before_the_end_leaves_nothing_and_the_batch_runs_again(
    cluster: Coordinator, start: Start, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DiedError(BaseException):
        pass

    def die(self: Progress, name: str, batch_id: int, **details: object) -> None:
        if name == point:
            raise DiedError

    victim = start()
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "step", die)
        with pytest.raises(DiedError):
            victim.process(Batch(cluster, 0))
    assert cluster.committed_rows == []
    start().process(Batch(cluster, 0))
    assert cluster.committed_rows == ["row 0"]


def test_a_failed_write_stage_runs_again_under_a_new_epoch(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0, failures=[WriteStageError("a task failed")])
    start().process(batch)
    assert batch.epochs == [0, 1]
    assert cluster.committed_rows == ["row 0"]


def test_when_the_attempts_are_used_up_the_failure_is_raised_and_nothing_stays_open(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0, failures=[WriteStageError(f"failure {n}") for n in range(3)])
    with pytest.raises(WriteStageError, match="failure 2"):
        start(write_attempts=3).process(batch)
    assert cluster.committed_rows == cluster.open_rows == []
    assert cluster.log[-1] == "open"


def test_a_query_being_stopped_gets_no_second_attempt(cluster: Coordinator, start: Start) -> None:
    batch = Batch(cluster, 0, failures=[WriteStageError("cancelled")], stopping=True)
    with pytest.raises(WriteStageError, match="cancelled"):
        start().process(batch)
    assert batch.epochs == [0]
    assert cluster.open_rows == []


def test_a_mistake_of_the_user_is_not_tried_again_and_leaves_nothing_open(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0, failures=[UsageError("topic is null")])
    with pytest.raises(UsageError, match="topic is null"):
        start().process(batch)
    assert batch.epochs == [0]
    assert cluster.open_rows == []


@pytest.mark.parametrize("error", [LOST, FENCED])
def test_a_commit_in_doubt_that_went_through_is_success_without_a_second_write(
    cluster: Coordinator, start: Start, error: ClientError
) -> None:
    batch = Batch(cluster, 0)
    start({"after end": error}).process(batch)
    assert cluster.committed_rows == ["row 0"]
    assert (batch.epochs, batch.drains) == ([0], 0)


def test_a_commit_in_doubt_in_the_last_attempt_is_settled_too(
    cluster: Coordinator, start: Start
) -> None:
    start({"after end": LOST}, write_attempts=1).process(Batch(cluster, 0))
    assert cluster.committed_rows == ["row 0"]


@pytest.mark.parametrize("call", ["before end", "before offsets", "before add_offsets"])
@pytest.mark.parametrize("error", [LOST, FENCED, AbortableError(ErrorCode.transaction_abortable)])
def test_a_commit_that_did_not_go_through_is_rerun_once_more(
    cluster: Coordinator, start: Start, call: str, error: ClientError
) -> None:
    batch = Batch(cluster, 0)
    start({call: error}).process(batch)
    assert cluster.committed_rows == ["row 0"]
    assert len(batch.epochs) == 2


def test_a_driver_fenced_before_it_writes_reads_the_marker_again(
    cluster: Coordinator, start: Start
) -> None:
    zombie = start({"before epoch": FENCED})
    zombie.process(Batch(cluster, 0))
    other = start()
    other.process(Batch(cluster, 1))
    late = Batch(cluster, 1)
    zombie.process(late)
    assert cluster.committed_rows == ["row 0", "row 1"]
    assert (late.epochs, late.drains) == ([], 1)


def test_a_zombie_whose_application_went_on_fails_closed(
    cluster: Coordinator, start: Start
) -> None:
    zombie = start({"before epoch": FENCED})
    zombie.process(Batch(cluster, 0))
    other = start()
    other.process(Batch(cluster, 1))
    other.process(Batch(cluster, 2))
    with pytest.raises(FailClosedError, match="older"):
        zombie.process(Batch(cluster, 1))
    assert cluster.committed_rows == ["row 0", "row 1", "row 2"]


def test_two_tasks_on_one_partition_are_never_committed(cluster: Coordinator, start: Start) -> None:
    batch = Batch(cluster, 0)
    batch.reports = [TaskReport(0, OUT, 1, 0, 0), TaskReport(1, OUT, 1, 1, 1)]
    with pytest.raises(WriteStageError, match="tasks 0 and 1 both wrote to out-0"):
        start().process(batch)
    assert cluster.committed_rows == []


def test_an_empty_batch_commits_a_marker_too(cluster: Coordinator, start: Start) -> None:
    driver = start()
    empty = Batch(cluster, 0)
    empty.reports = []
    driver.process(empty)
    assert driver.marker is not None
    assert cluster.offsets[SOURCE].metadata == driver.marker.encode()


def test_a_source_that_is_not_kafka_needs_a_marker_topic_and_then_carries_it_there(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0)
    batch.lines = ('{"offset":5}',)
    with pytest.raises(UsageError, match="marker_topic"):
        start().process(batch)
    assert cluster.log == []
    driver = start(marker_partition=TopicPartition("markers", 0))
    driver.process(batch)
    assert list(cluster.offsets) == [TopicPartition("markers", 0)]
    start(marker_partition=TopicPartition("markers", 0)).process(batch)
    assert cluster.committed_rows == ["row 0"]


def test_another_query_fails_closed_until_it_is_told_which_one_it_replaces(
    cluster: Coordinator, start: Start
) -> None:
    start().process(Batch(cluster, 0, query_id="old"))
    with pytest.raises(FailClosedError, match="replaces_query='old'"):
        start().process(Batch(cluster, 0, query_id="new", offset=20))
    with pytest.raises(FailClosedError):
        start(replaces_query="older").process(Batch(cluster, 0, query_id="new", offset=20))
    driver = start(replaces_query="old")
    driver.process(Batch(cluster, 0, query_id="new", offset=20))
    driver.process(Batch(cluster, 1, query_id="new", offset=30))
    assert cluster.committed_rows == ["row 0", "row 0", "row 1"]
    with pytest.raises(FailClosedError):
        start(replaces_query="old").process(Batch(cluster, 1, query_id="old"))


def test_a_cluster_that_does_not_answer_at_first_is_asked_again(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0)
    start({"before open": LOST}).process(batch)
    assert cluster.committed_rows == ["row 0"]
