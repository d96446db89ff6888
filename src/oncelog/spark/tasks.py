"""Encodes rows as record batches and sends them to their partitions, on executors.

Between the two Spark shuffles the record batches, so that each target partition has one sender.
Spark may run an `EncodeTask` any number of times, since it sends nothing. A `WriteTask` runs once
per producer epoch: a second attempt would begin at sequence 0 under the same (producer id, epoch),
and the broker would take its batches for duplicates of the first attempt's and drop them (INV-2,
INV-10). So a second attempt raises an error. A task does not know whether its stage has a second
attempt; `oncelog.spark.write_stage.check_one_attempt` does. Neither task begins or ends a
transaction. Both are pickled.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext

from oncelog.client.producer import Producer
from oncelog.core.ids import TopicPartition
from oncelog.runtime.loop import new_event_loop
from oncelog.spark.encoder import Blob, Encoder, from_arrow, to_arrow
from oncelog.spark.errors import WriteStageError
from oncelog.spark.parties import ProducerIdentity, TaskReport
from oncelog.spark.progress import ProgressLog
from oncelog.spark.sending import Deliveries
from oncelog.spark.targets import Targets
from oncelog.spark.worker import spare_collections

__all__ = [
    "REPORT_DDL",
    "REPORT_SCHEMA",
    "EncodeTask",
    "WriteTask",
    "first_attempt",
    "report_of",
    "row_of",
]

REPORT_SCHEMA: Final = pa.schema(
    [
        ("task", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
    ]
)
REPORT_DDL: Final = (
    "task int, topic string, partition int, records long, first_offset long, last_offset long"
)


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """The function of the stage before the shuffle (`mapInArrow`): turns rows into blobs."""

    encoder: Encoder
    task_keys: Sequence[int]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Encode the rows of one source partition."""
        spare_collections()
        for blobs in self.encoder.encode(_context().partitionId(), batches):
            yield to_arrow(blobs, self.task_keys)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """The function of the write stage (`mapInArrow`): sends blobs, returns reports."""

    bootstrap_servers: str
    transactional_id: str
    identity: ProducerIdentity
    batch_id: int
    targets: Targets
    producer_options: dict[str, Any] = field(default_factory=dict)
    progress_path: str | None = None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Send all blobs, and yield the reports once all are acknowledged."""
        spare_collections()
        task = first_attempt()
        blobs = (list(from_arrow(batch)) for batch in batches if batch.num_rows)
        first = next(blobs, None)
        if first is None:
            return
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            reports = runner.run(self._write(task, first, blobs))
        yield pa.RecordBatch.from_pylist([row_of(r) for r in reports], schema=REPORT_SCHEMA)

    async def _write(
        self, task: int, first: list[Blob], rest: Iterator[list[Blob]]
    ) -> list[TaskReport]:
        producer = Producer.attach(
            self.bootstrap_servers,
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            **self.producer_options,
        )
        async with producer:
            ProgressLog(self.progress_path).step("mid_task", self.batch_id, task=task)
            deliveries = Deliveries(producer, self.targets)
            blobs: list[Blob] | None = first
            while blobs is not None:
                await deliveries.send(blobs)
                # Spark's rows come from a socket that blocks; the producer goes on meanwhile.
                blobs = await asyncio.to_thread(next, rest, None)
            return await deliveries.finish(task)


def report_of(row: Any) -> TaskReport:
    """Return a row of `REPORT_DDL`."""
    return TaskReport(
        row["task"],
        TopicPartition(row["topic"], row["partition"]),
        row["records"],
        row["first_offset"],
        row["last_offset"],
    )


def row_of(report: TaskReport) -> dict[str, Any]:
    """Return a report as a row of `REPORT_DDL`."""
    topic, partition = report.topic_partition
    return {
        "task": report.task,
        "topic": topic,
        "partition": partition,
        "records": report.record_count,
        "first_offset": report.first_offset,
        "last_offset": report.last_offset,
    }


def first_attempt() -> int:
    """Return the task's number. Raises `WriteStageError` for a second attempt."""
    context = _context()
    task: int = context.partitionId()
    if context.attemptNumber() > 0:
        raise WriteStageError(
            f"task {task} runs a second time: refused, since its records would be dropped as "
            f"duplicates of the first attempt's, or follow them"
        )
    return task


def _context() -> Any:
    context = TaskContext.get()
    if context is None:
        raise WriteStageError("the task runs outside Spark")
    return context
