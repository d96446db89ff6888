"""Reads one range of a partition in a task, as large Arrow batches.

A connection stays open until Spark ends the worker process. Arrow batches of 500 rows cost nine
times as much CPU per row as batches of 10,000.
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from oncelog.client.consumer import Consumer
from oncelog.client.errors import FatalError, OffsetOutOfRangeError, RetriableError
from oncelog.client.settings import Role
from oncelog.client.values import FetchedPartition
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.spark.background import StoppableLoop
from oncelog.spark.codecs import DecodedRecords, decode_batches
from oncelog.spark.errors import DataLossError, PipelineError, loss_message
from oncelog.spark.source_cluster import SourceCluster
from oncelog.spark.source_options import SourceOptions
from oncelog.spark.worker import spare_collections

__all__ = ["OffsetRange", "read_range"]

logger = logging.getLogger(__name__)

ARROW_ROWS_MIN: Final = 10_000
ARROW_SIZE_BYTES_MAX: Final = 32 * 1024 * 1024
"""An Arrow batch ends after the record batch with which it has this many rows or bytes.

The bytes are those of keys, values and headers, not compressed.
"""

TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
"""Spark's timestamps are microseconds in 64 bits."""

FETCH_SIZE_BYTES: Final = 4 * 1024 * 1024
"""Bytes per fetch, unless ``max.partition.fetch.bytes`` is set."""

FETCH_SIZE_BYTES_MIN: Final = 64 * 1024
LIKELY_RECORD_SIZE_BYTES: Final = 1024
"""Bytes of the first fetch of a range with few records."""

RETRY_TIMEOUT_MS: Final = 2_000
"""The consumer retries a fetch for this time; then the task looks for the cause."""

GONE_TIMEOUT_S: Final = 10.0
"""A topic that the brokers do not know for this time counts as deleted.

A broker that has just started may not know its topics yet.
"""

UNKNOWN_TOPIC: Final = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


@dataclass
class OffsetRange(InputPartition):
    """The offsets [start, end) of a partition that one task reads.

    `topic_id` identifies the topic.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: TopicId | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


_connections: dict[tuple[Any, ...], tuple[StoppableLoop, Consumer]] = {}
"""One consumer per worker process and settings.

Spark keeps worker processes, so most micro-batches open no connection. The key contains the pid
because workers are forked.
"""


def _shared_consumer(options: SourceOptions) -> tuple[StoppableLoop, Consumer]:
    # The secrets themselves are compared: another user's connection has another user's rights.
    settings = frozenset(options.kafka.items())
    name = (os.getpid(), options.bootstrap_servers, options.isolation_level, settings)
    if name not in _connections:
        loop = StoppableLoop("oncelog-read")

        async def make() -> Consumer:
            keywords = options.client_settings(Role.CONSUMER)
            keywords["retry_timeout_ms"] = RETRY_TIMEOUT_MS
            # A broker may restart whenever a process of Spark's begins.
            keywords.setdefault("first_contact_ms", None)
            level = options.isolation_level
            return Consumer(options.bootstrap_servers, isolation_level=level, **keywords)

        _connections[name] = (loop, loop.call(make()))
    return _connections[name]


def read_range(options: SourceOptions, schema: StructType, wanted: OffsetRange) -> Iterator[Any]:
    """Yield the records of one range as Arrow batches of `schema`.

    Raises `DataLossError` when records are missing and ``failOnDataLoss`` is set.
    """
    spare_collections()
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    parts: list[DecodedRecords] = []
    rows = size = 0
    for offset, batches in _RangeFetcher(options, wanted).fetches():
        # A batch may begin below the requested offset with deleted records.
        for records in _decoded(wanted, offset, batches):
            if not len(records):
                continue
            parts.append(records)
            rows += len(records)
            size += records.keys.nbytes + records.values.nbytes + records.headers.nbytes
            if rows >= ARROW_ROWS_MIN or size >= ARROW_SIZE_BYTES_MAX:
                yield _to_arrow(parts, arrow_schema, wanted)
                parts, rows, size = [], 0, 0
    if parts:
        yield _to_arrow(parts, arrow_schema, wanted)


def _decoded(wanted: OffsetRange, offset: int, batches: Any) -> Iterator[DecodedRecords]:
    try:
        yield from decode_batches(batches, offset, wanted.end)
    except ProtocolError as error:
        text = f"{wanted.topic_partition} cannot be read from offset {offset} on: {error.message}"
        raise PipelineError(text) from error


class _RangeFetcher:
    """Fetches one range, and retries while brokers are unavailable.

    While Spark takes the records of a fetch, the next one is under way.
    """

    def __init__(self, options: SourceOptions, wanted: OffsetRange) -> None:
        self._options = options
        self._wanted = wanted
        self._loop, self._consumer = _shared_consumer(options)
        settings = options.client_settings(Role.CONSUMER)
        self._fetch_size_max = settings.get("max_partition_fetch_bytes", FETCH_SIZE_BYTES)
        likely = (wanted.end - wanted.start) * LIKELY_RECORD_SIZE_BYTES
        self._fetch_size = min(max(likely, FETCH_SIZE_BYTES_MIN), self._fetch_size_max)
        self._waits_since_s: float | None = None
        self._ahead: Future[FetchedPartition] | None = None

    def fetches(self) -> Iterator[tuple[int, Any]]:
        """Yield each fetch's result and the offset that it requested."""
        try:
            yield from self._fetches()
        finally:
            if self._ahead is not None:
                self._ahead.cancel()

    def _fetches(self) -> Iterator[tuple[int, Any]]:
        offset = self._wanted.start
        while offset < self._wanted.end:
            try:
                fetched = self._fetch(offset)
            except OffsetOutOfRangeError:
                needed = f"{offset} (needed up to {self._wanted.end})"
                self._lost(f"{self._wanted.topic_partition} no longer has offset {needed}")
                offset = self._after_the_gap(offset)
                continue
            except _TopicGoneError as error:
                self._lost(str(error))
                return
            if fetched is None or fetched.next_offset <= offset:
                continue
            self._waits_since_s = None
            self._fetch_size = min(self._fetch_size * 4, self._fetch_size_max)
            if fetched.next_offset < self._wanted.end:
                self._ahead = self._start(fetched.next_offset)
            if len(fetched.batches):
                yield offset, fetched.batches
            offset = fetched.next_offset

    def _fetch(self, offset: int) -> FetchedPartition | None:
        wanted = self._wanted
        fetch, self._ahead = self._ahead or self._start(offset), None
        try:
            fetched = fetch.result()
        except RetriableError as error:
            if error.code in UNKNOWN_TOPIC and self._waited_s() > GONE_TIMEOUT_S:
                raise _TopicGoneError(f"topic {wanted.topic!r} is gone") from None
            self._check_patience(f"cannot be read at offset {offset}: {error}")
            return None
        except FatalError as error:
            if error.code is ErrorCode.inconsistent_topic_id:
                what = f"topic {wanted.topic!r} was deleted and made again"
                raise _TopicGoneError(what) from None
            raise
        if fetched.next_offset <= offset:
            self._check_patience(
                f"brings nothing at offset {offset}, though it was readable up to {wanted.end}"
            )
        return fetched

    def _start(self, offset: int) -> Future[FetchedPartition]:
        wanted = self._wanted
        fetch = self._consumer.fetch_batches(
            wanted.topic_partition, offset, self._fetch_size, topic_id=wanted.topic_id
        )
        return self._loop.start(fetch)

    def _waited_s(self) -> float:
        """Return the seconds since the last progress."""
        now_s = time.monotonic()
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        return now_s - self._waits_since_s

    def _check_patience(self, what: str) -> None:
        timeout_ms = self._options.poll_timeout_ms
        if self._waits_since_s is None:
            logger.warning("%s %s; trying again", self._wanted.topic_partition, what)
        if self._waited_s() * 1000 >= timeout_ms:
            raise PipelineError(
                f"{self._wanted.topic_partition} {what}; waited {timeout_ms} ms "
                "(kafkaConsumer.pollTimeoutMs)"
            ) from None

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(loss_message(what)) from None
        logger.warning("%s; going on without those records (failOnDataLoss=false)", what)

    def _after_the_gap(self, offset: int) -> int:
        partition = self._wanted.topic_partition
        cluster = SourceCluster(self._options)
        try:
            earliest = cluster.beginnings([partition])[partition]
        finally:
            cluster.close()
        end = self._wanted.end
        return earliest if offset < earliest < end else end


class _TopicGoneError(Exception):
    """The topic of the range no longer exists."""


def _to_arrow(parts: Sequence[DecodedRecords], schema: Any, wanted: OffsetRange) -> Any:
    rows = sum(len(part) for part in parts)
    times_ms = np.concatenate([part.timestamps_ms for part in parts])
    is_beyond = (times_ms > TIMESTAMP_MS_MAX) | (times_ms < -TIMESTAMP_MS_MAX)
    timestamps = pa.array(np.where(is_beyond, 0, times_ms) * 1000, mask=is_beyond)
    columns = {
        "key": _joined([part.keys for part in parts]),
        "value": _joined([part.values for part in parts]),
        "topic": pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(rows, np.int32)), [wanted.topic]
        ).cast(pa.string()),
        "partition": pa.array(np.full(rows, wanted.partition, np.int32)),
        "offset": pa.array(np.concatenate([part.offsets for part in parts])),
        "timestamp": timestamps.cast(pa.timestamp("us", "UTC")),
        "timestampType": pa.array(np.concatenate([part.timestamp_types for part in parts])),
        "headers": _joined([part.headers for part in parts]),
    }
    arrays = [columns[name].cast(schema.field(name).type) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _joined(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
