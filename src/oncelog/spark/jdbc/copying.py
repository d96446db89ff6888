"""Copies rows into the staging table on executors, under a number per attempt.

Everything here is pickled to the executors. Spark may run a task again, or twice at a time: each
attempt has its own number, and the driver moves only the rows of those that Spark accepted.
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
from pyspark import TaskContext

from oncelog.spark.errors import WriteStageError
from oncelog.spark.jdbc.database import Database, quoted, translated
from oncelog.spark.progress import ProgressLog

__all__ = ["REPORT_DDL", "CopyTask", "as_csv"]

REPORT_DDL: Final = "task int, task_attempt_id long, rows long"
REPORT_SCHEMA: Final = pa.schema(
    [("task", pa.int32()), ("task_attempt_id", pa.int64()), ("rows", pa.int64())]
)
_CSV: Final = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")


@dataclass(frozen=True, slots=True)
class CopyTask:
    """The function of the write stage (`mapInArrow`). Rows in, one report row out. Picklable."""

    database: Database
    staging: str
    columns: tuple[str, ...]
    attempt: int
    batch_id: int
    progress_path: str | None = None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Copy all rows; yield the report once the server has them."""
        context = TaskContext.get()
        if context is None:
            raise WriteStageError("the write task runs outside Spark")
        iterator = iter(batches)
        first = next((batch for batch in iterator if batch.num_rows), None)
        if first is None:
            return
        task, task_attempt_id = context.partitionId(), context.taskAttemptId()
        ProgressLog(self.progress_path).step("mid_task", self.batch_id, task=task)
        rows = self.copy(task_attempt_id, _chain(first, iterator))
        report = {"task": task, "task_attempt_id": task_attempt_id, "rows": rows}
        yield pa.RecordBatch.from_pylist([report], schema=REPORT_SCHEMA)

    def copy(self, task_attempt_id: int, batches: Iterable[Any]) -> int:
        """Run one COPY, which is one transaction: all of these rows, or none.

        Return their count.
        """
        columns = ", ".join(map(quoted, ("oncelog_attempt", "oncelog_task", *self.columns)))
        statement = f"COPY {self.staging} ({columns}) FROM STDIN (FORMAT csv)"
        rows = 0
        with (
            self.database.connect() as connection,
            translated(),
            connection.cursor().copy(statement) as copy,
        ):
            for batch in batches:
                copy.write(as_csv(batch, self.attempt, task_attempt_id))
                rows += batch.num_rows
        return rows


def as_csv(batch: Any, attempt: int, task_attempt_id: int) -> bytes:
    """The rows as PostgreSQL's COPY reads CSV.

    A null is an empty field and a string always has quotes, the empty one too. Timestamps with a
    zone are written in UTC, with a Z.
    """
    count = batch.num_rows
    columns = [pa.repeat(attempt, count), pa.repeat(task_attempt_id, count)]
    columns += [_spelled(column) for column in batch.columns]
    names = [str(index) for index in range(len(columns))]
    output = io.BytesIO()
    pyarrow.csv.write_csv(pa.RecordBatch.from_arrays(columns, names=names), output, _CSV)
    return output.getvalue()


def _spelled(column: Any) -> Any:
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.timestamp("us", "UTC"))
    return column


def _chain(first: Any, rest: Iterable[Any]) -> Iterator[Any]:
    yield first
    yield from rest
