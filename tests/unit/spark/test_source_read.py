"""A task's range: what it reads where records are gone, and how long it waits for brokers."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType, TimestampType

from oncelog.client.errors import (
    ConnectionLostError,
    FatalError,
    OffsetOutOfRangeError,
    RetriableError,
)
from oncelog.client.values import FetchedPartition
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.protocol.record import Record, build_batch
from oncelog.spark import source_read
from oncelog.spark.background import StoppableLoop
from oncelog.spark.errors import DataLossError, PipelineError
from oncelog.spark.source_offsets import Places
from oncelog.spark.source_options import SourceOptions
from oncelog.spark.source_read import OffsetRange, read_range
from tests.support.logged import said_by

SCHEMA = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
TP = TopicPartition("t", 0)
TOPIC = UUID(int=7)


class Log:
    """One batch of ten records at offset 0. `first` is the log's start; `answers` come first."""

    def __init__(self, first: int = 0, answers: list[Exception | None] | None = None) -> None:
        self.first = first
        self.answers = list(answers or [])
        self.asked: list[int] = []
        self.sizes: list[int] = []
        records = [Record(offset, 5, None, b"%d" % offset, ()) for offset in range(10)]
        self.batches = bytes(build_batch(records, base_offset=0))

    async def fetch_batches(
        self, _tp: TopicPartition, offset: int, size: int, *, topic_id: TopicId | None
    ) -> FetchedPartition:
        assert topic_id == TOPIC
        self.asked.append(offset)
        self.sizes.append(size)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        if offset < self.first:
            raise OffsetOutOfRangeError(ErrorCode.offset_out_of_range)
        return FetchedPartition(TP, self.batches, 10, 10, 10, self.first)

    def beginnings(self, _partitions: object) -> Places:
        return {TP: self.first}

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def loop() -> Iterator[StoppableLoop]:
    loop = StoppableLoop()
    yield loop
    loop.close()


class Clock:
    """Each look at it is five seconds later."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += 5
        return self.now_s


@pytest.fixture
def read(loop: StoppableLoop, monkeypatch: pytest.MonkeyPatch) -> "Reading":
    return Reading(loop, monkeypatch)


class Reading:
    """Reads a range of a `Log`."""

    def __init__(self, loop: StoppableLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = loop
        self._patch = monkeypatch

    def __call__(self, log: Log, start: int = 0, end: int = 10, **given: str) -> list[int]:
        self._patch.setattr(source_read, "_shared_consumer", lambda _options: (self._loop, log))
        self._patch.setattr(source_read, "SourceCluster", lambda _options: log)
        self._patch.setattr(source_read, "time", Clock())
        options = SourceOptions.parse({"bootstrapServers": "h:1", "subscribe": "t"} | given)
        batches = read_range(options, SCHEMA, OffsetRange("t", 0, start, end, TOPIC))
        return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def test_a_range_is_read_exactly(read: Reading) -> None:
    assert read(Log(), 3, 7) == [3, 4, 5, 6]


def test_an_arrow_batch_is_bounded_by_what_its_records_take_when_decompressed(
    monkeypatch: pytest.MonkeyPatch, loop: StoppableLoop
) -> None:
    record = bytes(100_000)
    log = Log()
    log.batches = b"".join(
        build_batch(
            [Record(base + n, 5, None, record, ()) for n in range(5)],
            base_offset=base,
            codec="zstd",
        )
        for base in (0, 5)
    )
    assert len(log.batches) < 10_000
    monkeypatch.setattr(source_read, "_shared_consumer", lambda _options: (loop, log))
    monkeypatch.setattr(source_read, "ARROW_SIZE_BYTES_MAX", 400_000)
    monkeypatch.setattr("oncelog.spark.codecs.DECODE_SIZE_MAX", 600_000)
    options = SourceOptions.parse({"bootstrapServers": "h:1", "subscribe": "t"})
    read = list(read_range(options, SCHEMA, OffsetRange("t", 0, 0, 10, TOPIC)))
    assert [batch.num_rows for batch in read] == [5, 5]


class Ahead(Log):
    """Ten records; a fetch of the next ones has no answer."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way, self.cancelled = threading.Event(), threading.Event()

    async def fetch_batches(
        self, tp: TopicPartition, offset: int, size: int, *, topic_id: TopicId | None
    ) -> FetchedPartition:
        if offset == 0:
            return await super().fetch_batches(tp, offset, size, topic_id=topic_id)
        self.under_way.set()
        try:
            return await asyncio.Future()
        finally:
            self.cancelled.set()


def test_the_next_fetch_is_under_way_while_records_are_taken_and_ends_with_the_task(
    monkeypatch: pytest.MonkeyPatch, loop: StoppableLoop
) -> None:
    log = Ahead()
    monkeypatch.setattr(source_read, "_shared_consumer", lambda _options: (loop, log))
    monkeypatch.setattr(source_read, "ARROW_ROWS_MIN", 1)
    options = SourceOptions.parse({"bootstrapServers": "h:1", "subscribe": "t"})
    batches: Any = read_range(options, SCHEMA, OffsetRange("t", 0, 0, 20, TOPIC))
    assert next(batches).num_rows == 10
    assert log.under_way.wait(5)
    batches.close()
    assert log.cancelled.wait(5)


def test_a_timestamp_that_spark_cannot_hold_is_null(
    monkeypatch: pytest.MonkeyPatch, loop: StoppableLoop
) -> None:
    log = Log()
    nanoseconds = 1_700_000_000_000_000_000
    times = [5, nanoseconds, -nanoseconds, *[1_700_000_000_000] * 7]
    records = [Record(offset, time, None, b"", ()) for offset, time in enumerate(times)]
    log.batches = bytes(build_batch(records, base_offset=0))
    monkeypatch.setattr(source_read, "_shared_consumer", lambda _options: (loop, log))
    options = SourceOptions.parse({"bootstrapServers": "h:1", "subscribe": "t"})
    schema = StructType([StructField("timestamp", TimestampType())])
    (batch,) = read_range(options, schema, OffsetRange("t", 0, 0, 4, TOPIC))
    found = batch.column(0).cast("int64").to_pylist()
    assert found == [5_000, None, None, 1_700_000_000_000_000]


def test_few_records_are_not_fetched_with_megabytes(read: Reading) -> None:
    log = Log()
    read(log, 3, 7)
    read(log, 0, 10, **{"kafka.max.partition.fetch.bytes": "1000"})
    assert log.sizes == [64 * 1024, 1000]


def test_deleted_records_of_a_batch_that_is_still_there_are_not_delivered(
    read: Reading, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLossError, match=r"t-0 no longer has offset 0 \(needed up to 10\)"):
        read(Log(first=4))
    with caplog.at_level(logging.WARNING):
        assert read(Log(first=4), failOnDataLoss="false") == [4, 5, 6, 7, 8, 9]
    assert "no longer has offset 0" in caplog.text
    assert read(Log(first=9), 0, 8, failOnDataLoss="false") == []


@pytest.mark.parametrize(
    ("answers", "what"),
    [
        ([FatalError(ErrorCode.inconsistent_topic_id)], "topic 't' was deleted and made again"),
        ([RetriableError(ErrorCode.unknown_topic_id)] * 5, "topic 't' is gone"),
        ([RetriableError(ErrorCode.unknown_topic_or_partition)] * 5, "topic 't' is gone"),
    ],
)
def test_a_topic_that_is_gone_is_a_loss(
    read: Reading, answers: list[Exception | None], what: str
) -> None:
    with pytest.raises(DataLossError, match=what):
        read(Log(answers=answers))
    assert read(Log(answers=answers), failOnDataLoss="false") == []


def test_a_broker_that_is_away_for_seconds_fails_no_task(read: Reading) -> None:
    away: list[Exception | None] = [ConnectionLostError("no broker answers")] * 10
    assert read(Log(answers=away)) == list(range(10))
    just_started = RetriableError(ErrorCode.unknown_topic_id)
    assert read(Log(answers=[just_started, just_started])) == list(range(10))


def test_a_broker_that_stays_away_is_an_error_that_names_the_timeout(read: Reading) -> None:
    away: list[Exception | None] = [ConnectionLostError("no broker answers")] * 100
    log = Log(answers=away)
    with pytest.raises(PipelineError, match=r"waited 30000 ms \(kafkaConsumer.pollTimeoutMs\)"):
        read(log, 0, 10, **{"kafkaConsumer.pollTimeoutMs": "30000"})
    assert len(log.asked) == 7


def test_records_that_are_none_are_an_error_that_names_their_place(read: Reading) -> None:
    log = Log()
    changed = bytearray(log.batches)
    changed[57:61] = (9).to_bytes(4, "big")
    log.batches = bytes(changed)
    with pytest.raises(PipelineError, match="t-0 cannot be read from offset 3 on: "):
        read(log, 3)


def test_a_retry_is_said_once(read: Reading, caplog: pytest.LogCaptureFixture) -> None:
    refused = RetriableError(ErrorCode.kafka_storage_error, "t-0 at offset 0")
    assert read(Log(answers=[refused, refused, refused])) == list(range(10))
    (said,) = [each for each in said_by(caplog) if each.levelno == logging.WARNING]
    assert "t-0 cannot be read at offset 0: KAFKA_STORAGE_ERROR" in said.getMessage()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[Any, Any]]:
    """The connections of a worker process that has none yet."""
    connections: dict[Any, Any] = {}
    monkeypatch.setattr(source_read, "_connections", connections)
    yield connections
    for loop, consumer in connections.values():
        loop.call(consumer.close())
        loop.close()


def of_user(name: str, password: str) -> SourceOptions:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = f'{module} required username="{name}" password="{password}";'
    return SourceOptions.parse(
        {
            "bootstrapServers": "127.0.0.1:1",
            "subscribe": "t",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": login,
        }
    )


def test_queries_of_two_users_in_one_worker_share_no_connection(
    connections: dict[Any, Any],
) -> None:
    users = [("alice", "hunter1"), ("bob", "hunter2"), ("bob", "hunter3"), ("bob", "hunter3")]
    given = [source_read._shared_consumer(of_user(*user))[1] for user in users]
    assert len(connections) == 3
    assert given[2] is given[3]
    assert "hunter" not in repr(connections)
