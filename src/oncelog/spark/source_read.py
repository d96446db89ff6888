"""What the source's tasks do: fetch one range of a partition, and make large Arrow batches of it.

A connection lasts as long as Spark keeps the worker process. 500 rows per Arrow batch cost nine
times as much as 10,000.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from oncelog.client.consumer import Consumer
from oncelog.client.errors import OffsetOutOfRangeError
from oncelog.core.ids import TopicPartition
from oncelog.spark.background import BackgroundLoop
from oncelog.spark.codecs import DecodedRecords, decode_batches
from oncelog.spark.errors import DataLossError
from oncelog.spark.source_cluster import SourceCluster, loss_message
from oncelog.spark.source_options import SourceOptions

__all__ = ["OffsetRange", "read_range"]

FETCH_SIZE_BYTES: Final = 4 * 1024 * 1024
ARROW_ROWS_MIN: Final = 10_000
ARROW_SIZE_BYTES_MAX: Final = 32 * 1024 * 1024
"""An Arrow batch ends when it has the rows, or when the record batches it came from have this size.
"""

STALLED_FETCHES_COUNT_MAX: Final = 60
"""Fetches of half a second each that may bring nothing where the plan saw readable offsets."""


@dataclass
class OffsetRange(InputPartition):
    """What one task reads: [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int


_connections: dict[tuple[int, str, str], tuple[BackgroundLoop, Consumer]] = {}
"""One consumer per worker process and cluster.

Spark keeps workers, so a micro-batch pays for no connection. The key holds the pid because workers
are forked.
"""


def _shared_consumer(options: SourceOptions) -> tuple[BackgroundLoop, Consumer]:
    name = (os.getpid(), options.bootstrap_servers, options.isolation_level)
    if name not in _connections:
        loop = BackgroundLoop("oncelog-read")

        async def connect() -> Consumer:
            consumer = Consumer(options.bootstrap_servers, isolation_level=options.isolation_level)
            await consumer.start()
            return consumer

        _connections[name] = (loop, loop.call(connect()))
    return _connections[name]


def read_range(options: SourceOptions, schema: StructType, wanted: OffsetRange) -> Iterator[Any]:
    """The records of one range as Arrow batches of `schema`.

    Raises `DataLossError` when some are gone and that matters.
    """
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    parts: list[DecodedRecords] = []
    rows = size = 0
    for batches in _fetch(options, wanted):
        for records in decode_batches(batches, wanted.start, wanted.end):
            if len(records):
                parts.append(records)
                rows += len(records)
        size += len(batches)
        if rows >= ARROW_ROWS_MIN or size >= ARROW_SIZE_BYTES_MAX:
            if parts:
                yield _to_arrow(parts, arrow_schema, wanted)
            parts, rows, size = [], 0, 0
    if parts:
        yield _to_arrow(parts, arrow_schema, wanted)


def _fetch(options: SourceOptions, wanted: OffsetRange) -> Iterator[Any]:
    loop, consumer = _shared_consumer(options)
    topic_partition = TopicPartition(wanted.topic, wanted.partition)
    offset, stalled = wanted.start, 0
    while offset < wanted.end:
        try:
            fetched = loop.call(consumer.fetch_batches(topic_partition, offset, FETCH_SIZE_BYTES))
        except OffsetOutOfRangeError as error:
            if options.fail_on_data_loss:
                raise DataLossError(
                    loss_message(
                        f"{topic_partition} no longer has offset {offset} (needed up to "
                        f"{wanted.end})"
                    )
                ) from error
            offset = _skip_to(options, topic_partition, offset, wanted.end)
            continue
        if fetched.next_offset <= offset:
            stalled += 1
            if stalled > STALLED_FETCHES_COUNT_MAX:
                raise DataLossError(
                    loss_message(
                        f"{topic_partition} brings nothing at offset {offset}, though it was "
                        f"readable up to {wanted.end}"
                    )
                )
            continue
        stalled = 0
        if len(fetched.batches):
            yield fetched.batches
        offset = fetched.next_offset


def _skip_to(options: SourceOptions, topic_partition: TopicPartition, offset: int, end: int) -> int:
    cluster = SourceCluster(options)
    try:
        earliest = cluster.offsets([topic_partition], "earliest")[topic_partition]
    finally:
        cluster.close()
    return earliest if offset < earliest < end else end


def _to_arrow(parts: Sequence[DecodedRecords], schema: Any, wanted: OffsetRange) -> Any:
    rows = sum(len(part) for part in parts)
    timestamps = np.concatenate([part.timestamps_ms for part in parts]) * 1000
    columns = {
        "key": _joined([part.keys for part in parts]),
        "value": _joined([part.values for part in parts]),
        "topic": pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(rows, np.int32)), [wanted.topic]
        ).cast(pa.string()),
        "partition": pa.array(np.full(rows, wanted.partition, np.int32)),
        "offset": pa.array(np.concatenate([part.offsets for part in parts])),
        "timestamp": pa.array(timestamps).cast(pa.timestamp("us", "UTC")),
        "timestampType": pa.array(np.concatenate([part.timestamp_types for part in parts])),
        "headers": _joined([part.headers for part in parts]),
    }
    arrays = [columns[name].cast(schema.field(name).type) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _joined(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
