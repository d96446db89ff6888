"""Interfaces that `oncelog.spark.batch_protocol` uses: a micro-batch, a transaction, a runner.

The protocol knows neither Spark nor sockets. Each sink has its own implementations, and the tests
have fakes.
"""

from collections.abc import Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from oncelog.client.values import OffsetAndMetadata
from oncelog.core.ids import TopicPartition

__all__ = ["MicroBatch", "ProducerIdentity", "Runner", "TaskReport", "Transaction"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The producer id and epoch of the tasks."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The records that one task wrote to one partition, or tasks that took turns there.

    All of them are acknowledged. Offsets are those of the first and last record.
    """

    task: int
    topic_partition: TopicPartition
    record_count: int
    first_offset: int
    last_offset: int


class MicroBatch(Protocol):
    """One micro-batch of Spark."""

    query_id: str
    batch_id: int

    def source_lines(self) -> tuple[str, ...]:
        """The sources' lines of the checkpoint's ``offsets/N``."""

    def planned_at_s(self) -> float | None:
        """When the batch was planned, in seconds since 1970; None if unknown."""

    def initial_offsets(self) -> Mapping[TopicPartition, int] | None:
        """The start offsets of batch 0 of this query, if its sources report them."""

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        """Run the write stage.

        Raises `WriteStageError` when it was not one clean attempt; then none of its records may be
        committed.
        """

    def next_watermark_ms(self) -> int | None:
        """Return the watermark after the batch, once it is written; None if Spark has none."""

    def drain(self) -> None:
        """Compute the batch and drop its rows, so that state stores commit."""

    def is_stopping(self) -> bool:
        """Whether the query is being stopped: then a failed attempt is not repeated."""


class Transaction(Protocol):
    """The part of `oncelog.client.TransactionDriver` that the protocol uses."""

    @property
    def producer_id(self) -> int: ...  # noqa: D102

    @property
    def producer_epoch(self) -> int: ...  # noqa: D102

    async def open(self) -> object:
        """InitProducerId without an expected epoch.

        Fences every other holder and aborts what is open.
        """

    async def new_epoch(self) -> object:
        """Return an epoch that no batch was written under; the current one if it is unused.

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

    async def missing(
        self, partitions: Iterable[TopicPartition], known: Collection[TopicPartition] = ()
    ) -> set[TopicPartition]:
        """The source partitions that were deleted; `known` are those found before."""

    async def append(self, topic_partition: TopicPartition, key: bytes, value: bytes) -> None:
        """Append one record of the transaction to a partition that no task writes to."""

    async def committed_value(self, topic_partition: TopicPartition, key: bytes) -> bytes | None:
        """The last committed value of `key`; definitive after `open`."""

    async def end(self, commit: bool) -> None:
        """EndTxn, retried while the outcome is unknown and the error retriable."""


class Runner(Protocol):
    """Runs a coroutine to its end; `StoppableLoop` is the real one."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result, or raise its exception."""
