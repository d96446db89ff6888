"""What executors do.

Pick each row's target partition, encode rows as record batches, and send them under the driver's
producer identity.

Everything here is pickled to the executors. A task never begins or ends a transaction. It refuses
to run as a second attempt: that would restart at sequence 0 under the same (producer id, epoch),
and the broker would take its batches for duplicates of the first attempt's and drop them (INV-2,
INV-10).
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from oncelog.client.producer import Producer
from oncelog.core.ids import TopicPartition
from oncelog.spark.codecs import HEADERS_TYPE, encode_batches
from oncelog.spark.errors import UsageError, WriteStageError
from oncelog.spark.hashing import partitions_for_keys
from oncelog.spark.progress import CrashPoint, Progress

__all__ = ["TARGET_COLUMN", "Targets", "WriteTask"]

TARGET_COLUMN: Final = "__oncelog_target"

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

IN_FLIGHT_COUNT_MAX: Final = 16
"""Encoded batches of one task that wait for their acknowledgement before it encodes more."""


@dataclass(frozen=True, slots=True)
class Targets:
    """All partitions a batch may write to, numbered.

    Partition p of the i-th topic has number ``starts[i] + p``.
    """

    topics: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        """Number of each topic's partition 0."""
        return tuple(int(start) for start in np.cumsum((0, *self.counts[:-1])))

    @property
    def total(self) -> int:
        """How many partitions there are."""
        return sum(self.counts)

    def topic_partition(self, number: int) -> TopicPartition:
        """The partition with this number."""
        for topic, start, count in zip(self.topics, self.starts, self.counts, strict=True):
            if start <= number < start + count:
                return TopicPartition(topic, number - start)
        raise UsageError(f"target number {number} is out of range")

    def choose(self, topic: Any, partition: Any, key: Any, spread: Any) -> Any:
        """The number of each row's target, as an int32 array.

        `topic`: string array, or None with one topic only. `partition`: int32 array or None; where
        it is null the key decides as in Java's default partitioner, and where that is null too
        `spread` (an int64 hash of the row) does: the same row goes to the same partition when the
        batch runs again.
        """
        rows = len(spread)
        which = self._topic_indexes(topic, rows)
        counts = np.asarray(self.counts, np.int64)[which]
        chosen = np.asarray(spread).astype(np.int64) % counts
        if key is not None:
            by_key = partitions_for_keys(key, counts)
            chosen = np.where(_is_valid(key), by_key, chosen)
        if partition is not None and partition.null_count < rows:
            given = np.asarray(pc.fill_null(partition, 0)).astype(np.int64)
            is_given = _is_valid(partition)
            bad = np.flatnonzero(is_given & ((given < 0) | (given >= counts)))
            if len(bad):
                row = int(bad[0])
                raise UsageError(
                    f"partition {given[row]} does not exist: topic {self.topics[which[row]]!r} "
                    f"has {counts[row]} partitions"
                )
            chosen = np.where(is_given, given, chosen)
        return pa.array((np.asarray(self.starts, np.int64)[which] + chosen).astype(np.int32))

    def _topic_indexes(self, topic: Any, rows: int) -> npt.NDArray[np.int64]:
        if topic is None:
            return np.zeros(rows, np.int64)
        if topic.null_count:
            raise UsageError(
                "a row's topic is null: give every row a topic, or pass topic=... to exactly_once"
            )
        found = pc.index_in(topic.cast(pa.string()), value_set=pa.array(self.topics, pa.string()))
        if found.null_count:
            unknown = topic.filter(pc.is_null(found))[0].as_py()
            raise UsageError(
                f"topic {unknown!r} does not exist or is not among topics=...; create it before "
                f"the query starts"
            )
        return np.asarray(found).astype(np.int64)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """The function of the write stage (`mapInArrow`).

    Rows in, one report row per partition out. Picklable.
    """

    bootstrap_servers: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    batch_id: int
    targets: Targets
    batch_size: int
    compression_type: str
    producer_options: dict[str, Any] = field(default_factory=dict)
    progress_path: str | None = None
    crash_point: CrashPoint | None = None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Write all rows; yields when everything is acknowledged."""
        context = TaskContext.get()
        if context is None:
            raise WriteStageError("the write task runs outside Spark")
        if context.attemptNumber() > 0:
            raise WriteStageError(
                f"task {context.partitionId()} runs a second time: refused, since its records "
                f"would be "
                "dropped as duplicates of the first attempt's"
            )
        iterator = iter(batches)
        first = next((batch for batch in iterator if batch.num_rows), None)
        if first is None:
            return
        with asyncio.Runner() as runner:
            written = runner.run(self._write(context.partitionId(), first, iterator))
        yield pa.RecordBatch.from_pylist(written, schema=REPORT_SCHEMA)

    async def _write(self, task: int, first: Any, rest: Iterator[Any]) -> list[dict[str, Any]]:
        written: dict[int, _Written] = {}
        pending: list[tuple[int, int, asyncio.Future[Any]]] = []
        producer = Producer.attach(
            self.bootstrap_servers,
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            **self.producer_options,
        )
        async with producer:
            Progress(self.progress_path).step("mid_task", self.batch_id, task=task)
            batch: Any = first
            while batch is not None:
                # Blocks the loop for as long as Spark takes to deliver; the producer's requests
                # wait meanwhile, and nothing else runs here.
                for number, data, count in self._encode(batch):
                    topic_partition = self.targets.topic_partition(number)
                    future = producer.send_batch(
                        topic_partition.topic, topic_partition.partition, data, count
                    )
                    pending.append((number, count, future))
                    if len(pending) >= IN_FLIGHT_COUNT_MAX:
                        await _settle(pending, written, len(pending) // 2)
                batch = next(rest, None)
                await asyncio.sleep(0)
            await producer.flush()
            await _settle(pending, written, len(pending))
            if self.crash_point is not None and self.crash_point.is_at("mid_task", self.batch_id):
                self.crash_point.kill()
        return [
            {
                "task": task,
                "topic": self.targets.topic_partition(number).topic,
                "partition": self.targets.topic_partition(number).partition,
                "records": entry.record_count,
                "first_offset": entry.first_offset,
                "last_offset": entry.last_offset,
            }
            for number, entry in sorted(written.items())
        ]

    def _encode(self, batch: Any) -> Iterator[tuple[int, bytearray, int]]:
        numbers = np.asarray(batch.column(TARGET_COLUMN)).astype(np.int64)
        now_ms = time.time_ns() // 1_000_000
        for number in np.unique(numbers).tolist():
            rows = (
                batch
                if (numbers == number).all()
                else batch.take(pa.array(np.flatnonzero(numbers == number)))
            )
            count = rows.num_rows
            names = rows.schema.names
            timestamps = _timestamps_ms(rows, now_ms)
            keys = rows.column("key") if "key" in names else pa.nulls(count, pa.binary())
            headers = rows.column("headers").cast(HEADERS_TYPE) if "headers" in names else None
            encoded = encode_batches(
                keys,
                rows.column("value"),
                headers,
                timestamps,
                batch_size=self.batch_size,
                codec=self.compression_type,
            )
            for one in encoded:
                yield number, one.data, one.record_count


@dataclass(slots=True)
class _Written:
    record_count: int
    first_offset: int
    last_offset: int


async def _settle(
    pending: list[tuple[int, int, asyncio.Future[Any]]], written: dict[int, _Written], count: int
) -> None:
    """Wait for the oldest `count` batches and note where their records stand."""
    for number, records, future in pending[:count]:
        metadata = await future
        first = metadata.offset
        entry = written.setdefault(number, _Written(0, first, first))
        entry.record_count += records
        entry.first_offset = min(entry.first_offset, first)
        entry.last_offset = max(entry.last_offset, first + records - 1)
    del pending[:count]


def _timestamps_ms(rows: Any, now_ms: int) -> npt.NDArray[np.int64]:
    if "timestamp" not in rows.schema.names:
        return np.full(rows.num_rows, now_ms, np.int64)
    microseconds = pc.cast(rows.column("timestamp"), pa.timestamp("us", "UTC")).cast(pa.int64())
    return np.asarray(pc.fill_null(microseconds, now_ms * 1000)).astype(np.int64) // 1000


def _is_valid(column: Any) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), np.bool_)
