"""Encodes rows as compressed record batches, one target partition per batch.

This happens before the shuffle, so that Spark shuffles a few large byte strings (`Blob`) instead of
rows, and the sending task only writes the producer's fields. It must not know Spark, and does no
I/O.

Rows of one source partition that have the same target keep their order: batches of a (source,
target) are numbered from 0, and the sender refuses a gap or a step back (`BlobOrder`).
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.protocol.batch import HEADER_SIZE, WritableBuffer
from oncelog.spark.codecs import HEADERS_TYPE, RECORD_OVERHEAD_SIZE_MAX, encode_runs
from oncelog.spark.errors import UsageError, WriteStageError
from oncelog.spark.targets import Targets

__all__ = ["BLOB_DDL", "BLOB_SCHEMA", "TASK_COLUMN", "Blob", "BlobOrder", "Encoder"]

TASK_COLUMN: Final = "task"
"""The column of a blob by which the shuffle finds the task that sends it."""

BLOB_SCHEMA: Final = pa.schema(
    [
        (TASK_COLUMN, pa.int32()),
        ("target", pa.int32()),
        ("source", pa.int32()),
        ("number", pa.int32()),
        ("records", pa.int32()),
        ("data", pa.binary()),
    ]
)
BLOB_DDL: Final = f"{TASK_COLUMN} int, target int, source int, number int, records int, data binary"

GATHERED_SIZE_MAX: Final = 32 << 20
"""Bytes of rows that are encoded together, so that each target gets full batches."""

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Blob:
    """One record batch for one target. It is the `number`-th from this source partition."""

    target: int
    source: int
    number: int
    record_count: int
    data: WritableBuffer


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes the rows of one source partition. Picklable.

    `batch_id` is where the rotation of rows without a key begins, so that small micro-batches do
    not all go to the same partition.
    """

    targets: Targets
    batch_id: int
    batch_size: int
    compression_type: str

    def encode(self, source: int, batches: Iterable[Any]) -> Iterator[list[Blob]]:
        """Turn Arrow batches of `oncelog.spark.write_stage.record_columns` into blobs.

        Raises `UsageError` for a row that cannot be a record.
        """
        numbers: Counter[int] = Counter()
        turn = self.batch_id + source
        size = min(self.batch_size * self.targets.total, GATHERED_SIZE_MAX)
        for rows in _gathered(batches, size):
            targets, turn = self._targets_of(rows, turn)
            yield [
                self._blob(source, numbers, target, batch.record_count, batch.data)
                for target, batch in self._encode_rows(rows, targets)
            ]

    def _targets_of(self, rows: Any, turn: int) -> tuple[Int64s, int]:
        """Return the target of each row, and the next state of the rotation."""
        size = rows.nbytes // len(rows) + RECORD_OVERHEAD_SIZE_MAX
        count = max((self.batch_size - HEADER_SIZE) // size, 1)
        spread = turn + np.arange(len(rows), dtype=np.int64) // count
        topic, partition = _column(rows, "topic"), _column(rows, "partition")
        chosen = self.targets.choose(topic, partition, _column(rows, "key"), spread)
        return chosen, int(spread[-1]) + 1

    def _encode_rows(self, rows: Any, targets: Int64s) -> Iterator[tuple[int, Any]]:
        changes = int(np.count_nonzero(np.diff(targets)))
        if changes and (changes + 1) * self.batch_size > 2 * rows.nbytes:
            # Rows without a key fill one batch after the other, and stay where they are. A small
            # type makes numpy sort by radix.
            order = np.argsort(
                targets.astype(np.min_scalar_type(self.targets.total)), kind="stable"
            )
            rows, targets = rows.take(pa.array(order)), targets[order]
        edges = [0, *(np.flatnonzero(np.diff(targets)) + 1).tolist(), len(targets)]
        runs = [
            (first, last, self._batch_size_of(int(targets[first])))
            for first, last in pairwise(edges)
        ]
        key, headers = _column(rows, "key"), _column(rows, "headers")
        if headers is not None:
            headers = headers.cast(HEADERS_TYPE)
            _check_headers(headers)
        encoded = encode_runs(
            pa.nulls(len(rows), pa.binary()) if key is None else key.cast(pa.binary()),
            rows.column("value").cast(pa.binary()),
            headers,
            _timestamps_ms(rows),
            runs,
            codec=self.compression_type,
        )
        for run, batch in encoded:
            yield int(targets[runs[run][0]]), batch

    def _batch_size_of(self, target: int) -> int:
        return min(self.batch_size, self.targets.size_limit(target) or self.batch_size)

    def _blob(
        self, source: int, numbers: Counter[int], target: int, records: int, data: WritableBuffer
    ) -> Blob:
        limit = self.targets.size_limit(target)
        if limit is not None and len(data) > limit:
            topic = self.targets.topic_partition(target).topic
            raise UsageError(
                f"a record takes {len(data)} bytes and topic {topic!r} allows {limit} "
                f"(max.message.bytes); raise the topic's limit or leave the row out"
            )
        number = numbers[target]
        numbers[target] += 1
        return Blob(target, source, number, records, data)


class BlobOrder:
    """Refuses blobs that do not arrive in the order in which they were encoded."""

    def __init__(self) -> None:
        self._next: Counter[tuple[int, int]] = Counter()

    def check(self, blob: Blob) -> None:
        """Raise `WriteStageError` unless this one is the next of its source and target."""
        expected = self._next[blob.source, blob.target]
        if blob.number != expected:
            raise WriteStageError(
                f"the shuffle delivered batch {blob.number} of source partition {blob.source} for "
                f"target {blob.target}, where {expected} was due"
            )
        self._next[blob.source, blob.target] = expected + 1


def to_arrow(blobs: Sequence[Blob], task_keys: Sequence[int]) -> Any:
    """Blobs as an Arrow batch of `BLOB_SCHEMA`. All blobs of one target get the same task.

    `task_keys` are what the column holds for each of the tasks.
    """
    task_count = len(task_keys)
    columns = [
        pa.array([task_keys[blob.target % task_count] for blob in blobs], pa.int32()),
        pa.array([blob.target for blob in blobs], pa.int32()),
        pa.array([blob.source for blob in blobs], pa.int32()),
        pa.array([blob.number for blob in blobs], pa.int32()),
        pa.array([blob.record_count for blob in blobs], pa.int32()),
        pa.array([blob.data for blob in blobs], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BLOB_SCHEMA)


def from_arrow(batch: Any) -> Iterator[Blob]:
    """The blobs of an Arrow batch of `BLOB_SCHEMA`."""
    names = ("target", "source", "number", "records")
    numbers = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    for (target, source, number, records), data in zip(numbers, batch.column("data"), strict=True):
        yield Blob(target, source, number, records, bytearray(data.as_buffer()))


def _gathered(batches: Iterable[Any], size: int) -> Iterator[Any]:
    """Put Arrow batches together until they hold `size` bytes. Empty ones are left out."""
    held: list[Any] = []
    held_size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        held_size += batch.nbytes
        if held_size >= size:
            yield _joined(held)
            held, held_size = [], 0
    if held:
        yield _joined(held)


def _joined(batches: list[Any]) -> Any:
    """Return the rows of Arrow batches as one. PyArrow 18 has no `concat_batches`."""
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _column(rows: Any, name: str) -> Any:
    return rows.column(name) if name in rows.schema.names else None


def _timestamps_ms(rows: Any) -> Int64s:
    now_us = time.time_ns() // 1000
    given = _column(rows, "timestamp_us")
    if given is None:
        return np.full(len(rows), now_us // 1000, np.int64)
    times_ms = np.asarray(pc.fill_null(given, now_us)).astype(np.int64) // 1000
    if (times_ms < 0).any():
        raise UsageError(
            f"a row's timestamp is {int(times_ms.min())} ms, and a record's may not be before 1970"
        )
    return times_ms


def _check_headers(headers: Any) -> None:
    entries = headers.flatten()
    if entries.null_count:
        raise UsageError("a row's headers hold a null entry; leave it out")
    if entries.field("key").null_count:
        raise UsageError("a row's headers hold an entry without a key; Kafka wants one")
