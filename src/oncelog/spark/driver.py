"""The protocol of one micro-batch: output, source offsets and marker in one transaction (INV-10).

`BatchDriver.process` is called once per micro-batch, on Spark's driver. It knows neither Spark nor
sockets: the batch is a `MicroBatch`, the transaction a `Transaction`, and both have fakes in the
tests. Theory of operation, with N the batch and the marker that of the last committed one:

1. At the start InitProducerId ends what a former run left open; after it the group's stable offsets
   tell the marker for certain.
2. marker = N: compute the batch and write nothing. marker = N - 1: go on. Anything else fails
   closed (`marker.compare`).
3. A new epoch, so that a zombie is fenced (INV-5) and sequences restart at 0.
4. The write stage, every record acknowledged, each partition by exactly one task, in its first
   attempt.
5. Source offsets and the marker join the transaction; EndTxn(commit).
6. An outcome in doubt is settled by 1 and 2: InitProducerId either waits for a commit that is under
   way or aborts, and the marker says which.
7. A failed stage goes back to 3, a few times. At the end the transaction is never left open: it
   would hold the last stable offset for all readers.
"""

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from oncelog.client.errors import ClientError, RetriableError
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UsageError, WriteStageError
from oncelog.spark.marker import BatchIdentity, Marker, Verdict, compare, latest, sources_hash
from oncelog.spark.offsets_log import kafka_offsets
from oncelog.spark.progress import CrashPoint, Progress

__all__ = [
    "BatchDriver",
    "DriverOptions",
    "MicroBatch",
    "ProducerIdentity",
    "TaskReport",
    "Transaction",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What the tasks write under."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task wrote to one partition.

    All of it is acknowledged. Offsets are those of the first and last record.
    """

    task: int
    topic_partition: TopicPartition
    record_count: int
    first_offset: int
    last_offset: int


class MicroBatch(Protocol):
    """One micro-batch as Spark hands it over."""

    query_id: str
    batch_id: int

    def source_lines(self) -> tuple[str, ...]:
        """The sources' lines of the checkpoint's ``offsets/N``."""

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        """Run the write stage.

        Raises `WriteStageError` when it was not one clean attempt; then nothing of it may be
        committed.
        """

    def drain(self) -> None:
        """Compute the batch and drop its rows, so that state stores commit."""

    def is_stopping(self) -> bool:
        """Whether the query is being stopped: then a failure is not worth another attempt."""


class Transaction(Protocol):
    """What is needed of `oncelog.client.TransactionDriver`."""

    @property
    def producer_id(self) -> int: ...  # noqa: D102

    @property
    def producer_epoch(self) -> int: ...  # noqa: D102

    async def open(self) -> object:
        """InitProducerId without an expected epoch.

        Fences every other holder and aborts what is open.
        """

    async def new_epoch(self) -> object:
        """An epoch that no batch was written under, asked for only when the current one was.

        Raises when another driver took over.
        """

    async def fetch_offsets(
        self, group_id: str, partitions: None = None, *, require_stable: bool = True
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Committed offsets; `require_stable` waits for transactions that are still ending."""

    async def add_offsets(self, group_id: str) -> None:
        """AddOffsetsToTxn (nothing to send under TV2)."""

    async def txn_offset_commit(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """TxnOffsetCommit with generation -1."""

    async def end(self, commit: bool) -> None:
        """EndTxn, retried while the outcome is unknown and the error retriable."""


class Runner(Protocol):
    """Runs a coroutine to its end; `BackgroundLoop` is the real one."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T: ...


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """Settings of the protocol; `oncelog.spark.sink.exactly_once` documents them."""

    application_id: str
    marker_partition: TopicPartition | None = None
    commit_source_offsets: bool = True
    accept: frozenset[str] = frozenset()
    replaces_query: str | None = None
    write_attempts: int = 3


class _InDoubtError(Exception):
    """The transaction's outcome is unknown, or it is lost; the marker decides."""

    def __init__(self, reason: ClientError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class BatchDriver:
    """Drives the micro-batches of one run of one query.

    Not thread-safe: Spark runs one micro-batch at a time.
    """

    def __init__(
        self,
        options: DriverOptions,
        transaction: Transaction,
        runner: Runner,
        progress: Progress,
        crash_point: CrashPoint | None = None,
    ) -> None:
        self._options = options
        self._transaction = transaction
        self._runner = runner
        self._progress = progress
        self._crash_point = crash_point
        self._marker: Marker | None = None
        self._is_open = False
        self._is_computed = False

    @property
    def marker(self) -> Marker | None:
        """The last committed batch, as far as this driver knows."""
        return self._marker

    def process(self, batch: MicroBatch) -> None:
        """Bring one micro-batch to its end: committed by this call, or found committed and drained.

        Raises `FailClosedError` when neither is safe, `WriteStageError` or a `ClientError` when the
        attempts are used up; nothing is committed then.
        """
        lines = batch.source_lines()
        self._step("wal_written", batch)
        identity = BatchIdentity(batch.query_id, batch.batch_id, sources_hash(lines))
        offsets = self._offsets_to_commit(lines)
        self._is_computed = False
        failure: Exception = WriteStageError("no attempt was made")
        for attempt in range(1, self._options.write_attempts + 1):
            try:
                self._attempt(batch, identity, offsets)
                return
            except (UsageError, WriteStageError, RetriableError) as error:
                failure = error
            except _InDoubtError as error:
                failure = error.reason
            # The next `_open` leaves nothing of this attempt open, and the marker it reads settles
            # what is in doubt.
            self._is_open = False
            self._progress.step("failed", batch.batch_id, attempt=attempt, error=_one_line(failure))
            if isinstance(failure, UsageError) or batch.is_stopping():
                break
        self._settle_last(identity, failure)

    def close(self) -> None:
        """Forget the transaction. None is open between two batches, so nothing is sent."""
        self._is_open = False

    def _attempt(
        self, batch: MicroBatch, identity: BatchIdentity, offsets: Mapping[TopicPartition, int]
    ) -> None:
        if not self._is_open:
            self._open()
        options = self._options
        verdict = compare(
            self._marker, identity, accept=options.accept, replaces_query=options.replaces_query
        )
        if verdict is Verdict.DRAIN and self._is_computed:
            # An EndTxn of this very call, in doubt until now, went through: the state of that run
            # stands.
            self._progress.step("txn_ended", batch.batch_id)
            return
        if verdict is Verdict.DRAIN:
            self._progress.step("drain", batch.batch_id)
            batch.drain()
            self._progress.step("drained", batch.batch_id)
            return
        self._guarded(self._transaction.new_epoch())
        transaction = self._transaction
        producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
        self._step("after_init", batch, epoch=producer.producer_epoch)
        self._is_computed = False
        reports = batch.write(producer)
        self._is_computed = True
        _check_reports(reports)
        records = sum(report.record_count for report in reports)
        self._step("tasks_done", batch, records=records, partitions=len(reports))
        self._commit(batch, identity, offsets)

    def _commit(
        self, batch: MicroBatch, identity: BatchIdentity, offsets: Mapping[TopicPartition, int]
    ) -> None:
        sequence = 1 if self._marker is None else self._marker.sequence + 1
        marker = Marker(sequence, identity)
        committed = self._with_marker(marker, offsets)
        group_id = self._options.application_id
        self._guarded(self._transaction.add_offsets(group_id))
        self._guarded(self._transaction.txn_offset_commit(group_id, committed))
        self._step("offsets_committed", batch)
        self._progress.step("ending", batch.batch_id)
        self._guarded(self._transaction.end(commit=True))
        self._marker = marker
        self._step("txn_ended", batch)

    def _open(self) -> None:
        """InitProducerId, then the marker.

        Not guarded: a cluster that cannot even do this ends the query.
        """
        self._runner.call(self._transaction.open())
        group_id = self._options.application_id
        stable = self._runner.call(
            self._transaction.fetch_offsets(group_id, None, require_stable=True)
        )
        self._marker = latest(committed.metadata for committed in stable.values())
        self._is_open = True

    def _settle_last(self, identity: BatchIdentity, failure: Exception) -> None:
        """After the last attempt.

        Leave nothing open, and raise unless the batch turns out to be committed and computed.
        """
        try:
            self._open()
        except ClientError:
            # The coordinator's timeout will abort what is open; the reason the batch failed is what
            # the user needs.
            raise failure from None
        committed = self._marker is not None and self._marker.batch == identity
        if not (committed and self._is_computed):
            raise failure

    def _guarded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.call(coroutine)
        except ClientError as error:
            raise _InDoubtError(error) from error

    def _offsets_to_commit(self, lines: tuple[str, ...]) -> Mapping[TopicPartition, int]:
        offsets = kafka_offsets(lines) if self._options.commit_source_offsets else {}
        if not offsets and self._options.marker_partition is None:
            raise UsageError(
                "no source of this query is a Kafka topic, so no partition can carry the batch "
                "marker: name a one-partition topic with"
                " marker_topic=..."
            )
        return offsets

    def _with_marker(
        self, marker: Marker, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        committed = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
        carrier = self._options.marker_partition or min(committed)
        offset = committed[carrier].offset if carrier in committed else marker.sequence
        committed[carrier] = OffsetAndMetadata(offset, marker.encode())
        return committed

    def _step(self, name: str, batch: MicroBatch, **details: object) -> None:
        self._progress.step(name, batch.batch_id, **details)
        if self._crash_point is not None and self._crash_point.is_at(name, batch.batch_id):
            self._crash_point.kill()


def _check_reports(reports: list[TaskReport]) -> None:
    """Each target partition belongs to exactly one task (INV-2.

    Two tasks would both start at sequence 0).
    """
    seen: dict[TopicPartition, int] = {}
    for report in reports:
        if report.topic_partition in seen:
            raise WriteStageError(
                f"tasks {seen[report.topic_partition]} and {report.task} both wrote to "
                f"{report.topic_partition}"
            )
        seen[report.topic_partition] = report.task


def _one_line(error: BaseException | None) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
