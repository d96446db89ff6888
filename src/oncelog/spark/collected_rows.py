"""Collects the rows of a small micro-batch in Spark's driver, which then sends them itself.

A write stage has a fixed cost that a small micro-batch feels most: workers, tasks, their results.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from oncelog.spark.codecs import HEADERS_TYPE
from oncelog.spark.versions import collected_batches

__all__ = ["CollectedRows", "collect_few"]

FEW_ROWS_COUNT_MAX: Final = 500
"""At most so many rows are collected as Python objects, which is quicker than Arrow for a few."""

FEW_ROWS_SIZE_MAX: Final = 16 * 1024
"""Largest size in bytes of the first `FEW_ROWS_COUNT_MAX` rows of a partition."""

COLLECTED_SIZE_MAX: Final = 2 * 1024 * 1024
"""Bytes of all rows, if there are more and they have the same size. A write stage is as quick for
3 MB, and quicker for more."""

PAUSE_COUNT_MAX: Final = 64
"""Most micro-batches that have a write stage at once because earlier ones were too large."""

_INDEX: Final = f"(monotonically_increasing_id() & {(1 << 33) - 1})"
"""The number of a row within its partition. Each mention counts by itself, the rows for which it is
evaluated; so each one stands where Spark evaluates it for every row."""

_OVER: Final = "__oncelog_over"


class CollectedRows:
    """Decides whether the driver collects a micro-batch, from its expected size and the past."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._pause_count = 0
        self._vain_count = 0

    def limit(self, expected_count: int | None) -> int:
        """Return the most rows of a partition to collect; 0 for a write stage at once."""
        if expected_count is None or expected_count > self._max_rows:
            return 0
        if self._pause_count:
            self._pause_count -= 1
            return 0
        if expected_count <= FEW_ROWS_COUNT_MAX:
            return min(self._max_rows, FEW_ROWS_COUNT_MAX)
        return self._max_rows

    def collected(self, is_whole: bool) -> None:
        """Record whether the rows of a micro-batch were within the limits.

        After each one in a row that was not, twice as many have a write stage at once: a job that
        collects in vain takes time.
        """
        if is_whole:
            self._vain_count = 0
            return
        self._pause_count = min(1 << self._vain_count, PAUSE_COUNT_MAX)
        self._vain_count += 1


def collect_few(
    df: DataFrame, columns: Mapping[str, str], limit: int, task_count: int | None
) -> list[Any] | None:
    """Return the rows as Arrow batches of these columns, or None if there are too many.

    At most `limit` rows of each partition, and no larger ones than the driver's memory should hold:
    a row whose size would be too much for all before it ends the collecting. Every partition is
    computed to its end, because only then its state stores commit.

    Spark plans as few steps as can be: each takes milliseconds of a micro-batch.
    """
    size = " + ".join(_sizes(columns))
    excesses = [f"{_INDEX} - {limit - 1}", f"{size} - {FEW_ROWS_SIZE_MAX}"]
    if limit > FEW_ROWS_COUNT_MAX:
        share = COLLECTED_SIZE_MAX // max(task_count or 1, 1)
        excesses.append(
            f"least({_INDEX} - {FEW_ROWS_COUNT_MAX - 1}, ({size}) * {_INDEX} - {share})"
        )
    # Unlike `or` and `if`, these functions evaluate all that they are given.
    over = f"greatest({', '.join(excesses)}) > 0"
    rows = df.where(f"{_INDEX} <= {limit}")
    return (_in_arrow if limit > FEW_ROWS_COUNT_MAX else _in_rows)(rows, columns, over)


def _sizes(columns: Mapping[str, str]) -> list[str]:
    """Return expressions of the sizes of a row's parts, in bytes."""
    sizes = [
        f"coalesce(octet_length({columns[name]}), 0)"
        for name in ("value", "key")
        if name in columns
    ]
    if "headers" in columns:
        sizes.append(
            f"coalesce(aggregate({columns['headers']}, 0, (sum, h) -> sum + "
            "coalesce(octet_length(h.key), 0) + coalesce(octet_length(h.value), 0)), 0)"
        )
    return sizes


def _in_arrow(rows: DataFrame, columns: Mapping[str, str], over: str) -> list[Any] | None:
    parts = (f"if({over}, null, {expression}) as {name}" for name, expression in columns.items())
    batches = collected_batches(rows.selectExpr(f"{over} as {_OVER}", *parts))
    if any(batch.column(_OVER).true_count for batch in batches):
        return None
    return [batch.drop_columns([_OVER]) for batch in batches]


def _in_rows(rows: DataFrame, columns: Mapping[str, str], over: str) -> list[Any] | None:
    # One column is planned faster. Arrow refuses a null record whose columns cannot be null.
    parts = ", ".join(f"'{name}', {expression}" for name, expression in columns.items())
    collected = rows.selectExpr(f"if({over}, null, named_struct({parts})) as record").collect()
    records = [row[0] for row in collected]
    if any(record is None for record in records):
        return None
    arrays = [
        pa.array([_plain(record[at]) for record in records], _TYPES[name])
        for at, name in enumerate(columns)
    ]
    return [pa.RecordBatch.from_arrays(arrays, names=list(columns))]


_TYPES: Final = {
    "value": pa.binary(),
    "key": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": HEADERS_TYPE,
    "timestamp_us": pa.int64(),
}


def _plain(value: Any) -> Any:
    """Return a collected value as Arrow accepts it: headers are lists of rows."""
    if isinstance(value, list):
        return [None if entry is None else entry.asDict() for entry in value]
    return value
