"""A made-up cluster, Spark and clock for the tests of the protocol."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from oncelog.client.errors import ClientError, RetriableError
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.spark.batch_protocol import BatchProtocol
from oncelog.spark.parties import ProducerIdentity, TaskReport
from oncelog.spark.progress import ProgressLog
from oncelog.spark.protocol_options import ProtocolOptions

SOURCE = TopicPartition("in", 0)
OUT = TopicPartition("out", 0)
MARKERS = TopicPartition("markers", 0)
HOUR_S = 3600.0
WEEK_S = 7 * 24 * HOUR_S
T = TypeVar("T")


class DiedError(BaseException):
    """The process is killed: nothing of it runs any more, and nothing catches this."""


class Runner:
    """No call of the fakes waits for a loop."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            coroutine.send(None)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
        raise AssertionError("a fake waited")


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
    records: dict[tuple[TopicPartition, bytes], bytes] = field(default_factory=dict)
    open_records: dict[tuple[TopicPartition, bytes], bytes] = field(default_factory=dict)
    now_s: float = 1_000_000.0
    missing: set[TopicPartition] = field(default_factory=set)
    """Partitions that were deleted. The cluster refuses their offsets."""
    moments_left: int = 10**9
    """The process dies when it is at this many moments more of its transaction."""

    def abort(self) -> None:
        self.open_rows, self.open_offsets, self.open_records = [], {}, {}

    def commit(self) -> None:
        self.committed_rows += self.open_rows
        self.offsets |= self.open_offsets
        self.records |= self.open_records
        self.abort()

    def expire(self) -> None:
        """What a week without a commit does to the group."""
        self.offsets.clear()


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
        self.cluster.moments_left -= 1
        if self.cluster.moments_left < 0:
            raise DiedError
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
        if self.cluster.missing & offsets.keys():
            raise RetriableError(ErrorCode.unknown_topic_or_partition, "offset")
        self.cluster.open_offsets = dict(offsets)

    async def missing(
        self, partitions: Iterable[TopicPartition], known: Collection[TopicPartition] = ()
    ) -> set[TopicPartition]:
        return self.cluster.missing & set(partitions)

    async def append(self, topic_partition: TopicPartition, key: bytes, value: bytes) -> None:
        self.cluster.log.append("append")
        self.fault("before append")
        self.cluster.open_records[topic_partition, key] = value

    async def committed_value(self, topic_partition: TopicPartition, key: bytes) -> bytes | None:
        return self.cluster.records.get((topic_partition, key))

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
        self.watermark_ms: int | None = 0
        self.reports = [TaskReport(0, OUT, 1, 0, 0)]
        self.lines: tuple[str, ...] = (f'{{"in":{{"0":{self.offset}}}}}',)
        self.planned_s: float | None = cluster.now_s
        self.begins: dict[TopicPartition, int] | None = {SOURCE: self.offset - 10}

    def source_lines(self) -> tuple[str, ...]:
        return self.lines

    def planned_at_s(self) -> float | None:
        return self.planned_s

    def initial_offsets(self) -> dict[TopicPartition, int] | None:
        return self.begins

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        self.epochs.append(identity.producer_epoch)
        self.cluster.open_rows.append(f"row {self.batch_id}")
        if self.failures:
            raise self.failures.pop(0)
        return self.reports

    def drain(self) -> None:
        self.drains += 1

    def next_watermark_ms(self) -> int | None:
        return self.watermark_ms

    def is_stopping(self) -> bool:
        return self.stopping


Start = Callable[..., BatchProtocol]


def starting(cluster: Coordinator) -> Start:
    """A new driver process: its memory is empty, the cluster is what it was."""

    def new_driver(
        faults: dict[str, ClientError] | None = None,
        progress: ProgressLog | None = None,
        **options: Any,
    ) -> BatchProtocol:
        return BatchProtocol(
            ProtocolOptions("app", **options),
            Transaction(cluster, faults),
            Runner(),
            progress or ProgressLog(None),
            now_s=lambda: cluster.now_s,
        )

    return new_driver
