"""Simulated executors: each task is a process of its own, and what it runs is the shipped code.

`WriteTask`, `ShareTask` and `read_range` are called as Spark calls them, on a thread that blocks.
So is the driver's own `DirectWriter`. What they get from their surroundings is exchanged while
`shipped_tasks` is entered: Spark's task context, the loop of the sending tasks (a blocking call of
`Lockstep`), the reader's connection, the streams between a task and the driver's `TurnServer`
(`spark_streams`), how many bytes wait for their turn, and the producer, which also writes down what
is sent. Nothing else of them differs.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

import oncelog.spark.direct as direct_module
import oncelog.spark.sharing as sharing_module
import oncelog.spark.source_read as read_module
import oncelog.spark.tasks as tasks_module
import oncelog.spark.turn_server as turns_module
from oncelog.client import Consumer, Producer
from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import iter_records
from oncelog.runtime.clock import Clock
from oncelog.simulation.history import Acked, Event, SendFailed, Sent, Value
from oncelog.simulation.process import Process
from oncelog.spark.progress import ProgressLog
from oncelog.spark.source_options import SourceOptions
from oncelog.spark.source_read import OffsetRange, read_range
from tests.simulation.lockstep import Lockstep, current
from tests.simulation.spark_streams import here, open_connection, start_server, token_hex

__all__ = ["Journal", "Row", "TaskSurroundings", "read_rows", "row_batches", "shipped_tasks"]

T = TypeVar("T")
Row = tuple[TopicPartition, int]
"""A source record: its partition and offset."""

SOURCE_SCHEMA: Final = StructType(
    [
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
    ]
)
PACE_S: Final = 0.002
"""Mean pause of a write task between two Arrow batches."""

HELD_SIZE_MAX: Final = 600
"""Bytes of one task that wait for their turn: a few small batches."""

Journal = Callable[[Callable[..., Event], tuple[object, ...]], None]
"""Writes down an event of the transaction's owner."""


@dataclass
class TaskSurroundings:
    """What the shipped code finds around it in one task; `Lockstep.about` holds it."""

    process: Process
    task: int
    attempt: int
    bootstrap: str
    client_options: dict[str, Any]
    consumer: Consumer | None = None

    def attemptNumber(self) -> int:  # noqa: N802 - Spark's name
        """As `pyspark.TaskContext`."""
        return self.attempt

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        """As `pyspark.TaskContext`."""
        return self.task


class _TaskContext:
    @staticmethod
    def get() -> TaskSurroundings:
        return _around()


def _around() -> TaskSurroundings:
    found = current().about
    assert isinstance(found, TaskSurroundings)
    return found


class _Runner:
    """In the place of `asyncio.Runner`; it runs coroutines on the process's loop."""

    def __init__(self, *, loop_factory: object) -> None:
        pass

    def __enter__(self) -> "_Runner":
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return current().call(work)


async def _to_thread(function: Callable[..., T], *args: Any) -> T:
    """In the place of `asyncio.to_thread`: Spark delivers the next Arrow batch after a while."""
    await asyncio.sleep(here().rng.expovariate(1 / PACE_S))
    return function(*args)


class JournalingProducer(Producer):
    """A producer that writes down what it is given and what is acknowledged."""

    def __init__(self, *servers: Any, journal: Journal, **options: Any) -> None:
        super().__init__(*servers, **options)
        self._journal = journal

    def send_batch(
        self,
        topic: str,
        partition: int,
        records_bytes: bytes | bytearray | memoryview,
        record_count: int,
    ) -> "asyncio.Future[Any]":
        place = TopicPartition(topic, partition)
        values = _values(bytes(records_bytes))
        assert len(values) == record_count
        for value in values:
            self._journal(Sent, (value, place))
        future = super().send_batch(topic, partition, records_bytes, record_count)
        future.add_done_callback(partial(self._resolved, values, place))
        return future

    def _resolved(
        self, values: list[Value], place: TopicPartition, future: "asyncio.Future[Any]"
    ) -> None:
        if future.cancelled():
            return
        error = future.exception()
        for index, value in enumerate(values):
            if error is not None:
                self._journal(SendFailed, (value, type(error).__name__))
            else:
                offset = future.result().offset
                self._journal(Acked, (value, place, offset + index if offset >= 0 else -1))


def _values(data: bytes) -> list[Value]:
    return [
        Value.decode(record.value or b"")
        for start, header in iter_headers(data)
        for record in iter_records(data, start, header)
    ]


def _progress(path: Any) -> Any:
    """The steps of a simulated query go to an object instead of a file."""
    return ProgressLog(None) if path is None else path


def _connected(options: SourceOptions) -> tuple[Lockstep, Consumer]:
    around = _around()
    if around.consumer is None:
        consumer = Consumer(
            options.bootstrap_servers,
            isolation_level=options.isolation_level,
            **around.client_options,
        )
        current().call(consumer.start())
        around.consumer = consumer
    return current(), around.consumer


def _asyncio(**exchanged: object) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(asyncio), **exchanged})


@contextmanager
def shipped_tasks() -> Iterator[None]:
    """Let the shipped code of tasks run in simulated executors."""
    of_tasks = _asyncio(Runner=_Runner, to_thread=_to_thread)
    exchanged = {
        (tasks_module, "TaskContext"): _TaskContext,
        (tasks_module, "asyncio"): of_tasks,
        (tasks_module, "Producer"): JournalingProducer,
        (tasks_module, "ProgressLog"): _progress,
        (sharing_module, "asyncio"): of_tasks,
        (sharing_module, "Producer"): JournalingProducer,
        (sharing_module, "ProgressLog"): _progress,
        (sharing_module, "HELD_SIZE_MAX"): HELD_SIZE_MAX,
        (turns_module, "asyncio"): _asyncio(
            start_server=start_server, open_connection=open_connection
        ),
        (turns_module, "secrets"): SimpleNamespace(token_hex=token_hex),
        (direct_module, "Producer"): JournalingProducer,
        (direct_module, "ProgressLog"): _progress,
        (read_module, "_shared_consumer"): _connected,
    }
    kept = {(module, name): getattr(module, name) for module, name in exchanged}
    for (module, name), value in exchanged.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name), value in kept.items():
            setattr(module, name, value)


def read_rows(options: SourceOptions, ranges: dict[TopicPartition, tuple[int, int]]) -> list[Row]:
    """What a reading task finds in its ranges, in order of partition and offset."""
    rows: list[Row] = []
    for (topic, partition), (start, end) in ranges.items():
        for batch in read_range(options, SOURCE_SCHEMA, OffsetRange(topic, partition, start, end)):
            place = TopicPartition(topic, partition)
            rows.extend((place, int(offset)) for offset in batch.column("offset").to_pylist())
    return rows


def row_batches(rows: list[tuple[Value, bytes]], clock: Clock, size: int) -> Iterator[Any]:
    """Arrow batches of (value, key) as a source partition gives them to the encoder."""
    for at in range(0, len(rows), size):
        part = rows[at : at + size]
        yield pa.RecordBatch.from_pydict(
            {
                "value": pa.array([value.encode() for value, _ in part], pa.binary()),
                "key": pa.array([key for _, key in part], pa.binary()),
                "timestamp_us": pa.array([clock.now_ms() * 1000] * len(part), pa.int64()),
            }
        )
