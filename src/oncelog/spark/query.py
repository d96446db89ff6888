"""Common parts of the exactly-once sinks, all of them in Spark's driver.

`ForeachBatch` is the function that Spark calls; it has a `QueryRun` for as long as the query runs,
and makes a `SparkMicroBatch` per call, which `oncelog.spark.batch_protocol` takes through its
transaction. Each sink writes the rows itself: `oncelog.spark.kafka_run` and
`oncelog.spark.kafka_micro_batch` to Kafka, `oncelog.spark.jdbc` to PostgreSQL.
"""

import logging
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from oncelog.client.errors import ClientError
from oncelog.core.ids import TopicPartition
from oncelog.spark.checks import refuse_execution
from oncelog.spark.commit_log import text_of, watermark_after
from oncelog.spark.errors import DrainError, PipelineError, StoppedError
from oncelog.spark.offsets_log import LoggedOffsets, initial_offsets, parse
from oncelog.spark.parties import MicroBatch
from oncelog.spark.progress import ProgressLog
from oncelog.spark.write_stage import failure_of

__all__ = [
    "ForeachBatch",
    "Query",
    "QueryRun",
    "SparkMicroBatch",
    "SparkQuery",
    "described",
    "exists",
    "read_matching",
    "read_text",
    "run_of",
]


log = logging.getLogger(__name__)

INTERRUPTED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the sink.\n"
    ": java.lang.InterruptedException"
)
"""A text by which Spark knows that its own `stop` ended the function, so that the query did not
fail (`StreamExecution.isInterruptionException`, SPARK-39218); that of Spark 3.5 has to
find the new line. Later ones overflow the JVM's stack on the traceback of a cancelled job, which is
much longer."""

DESCRIPTION: Final = "spark.job.description"

STARTING_OFFSETS: Final = ("oncelog-starting-offsets-*.json", "sources/*/0")
"""The folder within a checkpoint where sources record the beginning of a query."""

_LOCAL: Final = re.compile(r"(?:file:(?://(?=/))?)?(/.*)", re.DOTALL)
"""Matches a path on the local disk as Hadoop prints it: nothing in it is escaped."""


class Query(Protocol):
    """The part of a streaming query that a run uses."""

    run_id: str
    query_id: str
    checkpoint: str

    def is_active(self) -> bool:
        """Whether it runs, and is not being stopped."""

    def wait(self) -> None:
        """Return when it has ended."""

    def next_watermark_ms(self) -> int | None:
        """Return the watermark after the batch that was computed last, None if unknown."""


class SparkQuery:
    """A streaming query of this process.

    Raises `UnsupportedModeError` for a mode without plain micro-batches.
    """

    def __init__(self, query: Any) -> None:
        self._query = query
        self.run_id = str(query.runId)
        self.query_id = str(query.id)
        self._execution = query._jsq.streamingQuery()  # noqa: SLF001 - Spark offers no public way to the checkpoint
        refuse_execution(self._execution)
        self.checkpoint = str(self._execution.resolvedCheckpointRoot())

    def is_active(self) -> bool:
        """Whether it runs, and is not being stopped; not without its JVM."""
        try:
            return bool(self._query.isActive)
        except (Py4JError, OSError):
            return False

    def wait(self) -> None:
        """Wait until it has ended, with or without an error."""
        # The query failed, or the JVM has ended; Spark reports that itself.
        with suppress(Py4JError, PySparkException, OSError):
            self._query._jsq.awaitTermination()  # noqa: SLF001 - the Python method would raise the query's failure here

    def next_watermark_ms(self) -> int | None:
        """Return the watermark after the batch that was computed last, None if Spark has none."""
        try:
            return watermark_after(self._execution)
        except Py4JError:
            # No public API of Spark. Without the watermark a restart computes the batch again.
            return None


class QueryRun(ABC):
    """One run of one query into a sink, from its start to its stop: Spark's ``runId``.

    It lives in Spark's driver. `KafkaRun` and `JdbcRun` hold the connections of their sinks.
    """

    def __init__(
        self,
        query: Query,
        context: Any,
        progress_path: str | None,
    ) -> None:
        self._query = query
        self.run_id = query.run_id
        self.query_id = query.query_id
        self.checkpoint = query.checkpoint
        self.context = context
        # Whether executors are on this machine, with its files.
        self.is_local = str(context.master).startswith(("local", "spark://127.0.0.1:"))
        # Whether tasks run in this process's JVM, so that they reach this process on loopback.
        self.shares_machine = re.fullmatch(r"local(\[.*\])?", str(context.master)) is not None
        self.progress = ProgressLog(progress_path)
        _RUNS[self.run_id] = self

    @abstractmethod
    def prepare(self) -> None:
        """Fence other runs and read the marker, before the first batch."""

    @abstractmethod
    def process(self, batch: MicroBatch) -> None:
        """Write one micro-batch, in one transaction."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections. No transaction is open between batches."""

    def is_stopping(self) -> bool:
        """Whether the query is being stopped, or its JVM is gone."""
        return not self._query.is_active()

    def next_watermark_ms(self) -> int | None:
        """The watermark after the batch that was computed last, for Spark's commit log."""
        return self._query.next_watermark_ms()

    def call_at_end(self, close: Callable[[], None]) -> None:
        """Call `close` once the query has ended, on a separate thread."""

        def wait_and_call() -> None:
            try:
                self._query.wait()
            finally:
                close()

        threading.Thread(target=wait_and_call, name="oncelog-watch", daemon=True).start()


_RUNS: Final[WeakValueDictionary[str, QueryRun]] = WeakValueDictionary()


class SparkMicroBatch:
    """One micro-batch as Spark plans it, in Spark's driver; subclasses write its rows."""

    def __init__(self, query: QueryRun, df: DataFrame, batch_id: int) -> None:
        self._query = query
        self._df = df
        self.query_id = query.query_id
        self.batch_id = int(batch_id)

    def source_lines(self) -> tuple[str, ...]:
        """The sources' lines of `offsets/N`."""
        return self._logged().source_lines

    def planned_at_s(self) -> float | None:
        """When Spark planned the batch."""
        return self._logged().planned_at_s

    def initial_offsets(self) -> dict[TopicPartition, int] | None:
        """Return where the sources' first batch begins, if they report it."""
        context, root = self._query.context, self._query.checkpoint
        notes = [
            text for pattern in STARTING_OFFSETS for text in read_matching(context, root, pattern)
        ]
        return initial_offsets(self._logged().source_lines, notes)

    def next_watermark_ms(self) -> int | None:
        """The watermark after the batch, for Spark's commit log."""
        return self._query.next_watermark_ms()

    def drain(self) -> None:
        """Run the plan and drop its rows, so that state stores commit; skip it without state.

        Raises `DrainError` when the batch cannot be computed again.
        """
        context, root = self._query.context, self._query.checkpoint
        if not exists(context, f"{root}/state"):
            # Then the source need not have the batch's records either.
            return
        text = f"batch {self.batch_id}: committed before, computed again for its state"
        try:
            with described(context, text):
                self._df.write.format("noop").mode("overwrite").save()
        except (Py4JError, PySparkException) as error:
            if self.is_stopping():
                text = f"the query was stopped while it computed batch {self.batch_id} again"
                raise StoppedError(f"{text} for its state; the batch is committed") from None
            raise DrainError(self.batch_id, str(failure_of(error))) from None

    def _logged(self) -> LoggedOffsets:
        path = f"{self._query.checkpoint}/offsets/{self.batch_id}"
        return parse(self.batch_id, read_text(self._query.context, path))

    def is_stopping(self) -> bool:
        """Whether the query is being stopped, or its JVM is gone."""
        return self._query.is_stopping()

    def raise_if_stopped(self) -> None:
        """Raise `StoppedError` if the query is being stopped: Spark has cancelled its jobs then."""
        if self.is_stopping():
            text = f"the query was stopped while it wrote batch {self.batch_id}"
            raise StoppedError(f"{text}; nothing of it is committed") from None


R = TypeVar("R", bound=QueryRun)


class ForeachBatch(Generic[R]):
    """The function that Spark calls per micro-batch.

    It has one run at a time: the writer may be started again after its query ended.
    """

    def __init__(
        self,
        spark: Any,
        start: Callable[[Query, Any], R],
        batch: Callable[[R, DataFrame, int], MicroBatch],
    ) -> None:
        self._spark = spark
        self._start = start
        self._batch = batch
        self._run: R | None = None
        self._run_id = ""
        # A starting query may run its first batch before the caller of start() has it.
        self._lock = threading.Lock()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Spark's `foreachBatch` function."""
        context = df.sparkSession.sparkContext
        query = self._spark.streams.get(context.getLocalProperty("sql.streaming.queryId"))
        run = self.run_of(query, context)
        try:
            run.process(self._batch(run, df, batch_id))
        except StoppedError as error:
            log.warning("%s", error)
            raise StoppedError(INTERRUPTED) from None
        except (PipelineError, ClientError) as error:
            # Spark makes the traceback part of the query's message.
            log.debug("batch %d failed", batch_id, exc_info=True)
            raise error.with_traceback(None) from None

    def run_of(self, query: Any, context: Any) -> R:
        """Return the run of this query, created on first use."""
        with self._lock:
            if self._run is None or self._run_id != str(query.runId):
                if self._run is not None:
                    self._run.close()
                self._run = self._start(SparkQuery(query), context)
                self._run_id = str(query.runId)
            return self._run


def run_of(run_id: str) -> QueryRun | None:
    """Return the run of a sink in this process, as long as something refers to it."""
    return _RUNS.get(run_id)


@contextmanager
def described(context: Any, text: str) -> Iterator[None]:
    """Set the description of jobs in the Spark UI.

    Only the description: the job group is the query's, by which `stop` cancels.
    """
    before = context.getLocalProperty(DESCRIPTION)
    context.setLocalProperty(DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, before)


def read_text(context: Any, path: str) -> str:
    """A file of a checkpoint, on the local disk or on any of Hadoop's file systems."""
    local = _LOCAL.fullmatch(path)
    if local is not None:
        with open(local[1], encoding="utf-8") as file:
            return file.read()
    jvm = context._jvm  # noqa: SLF001 - Hadoop's file systems are reached through the JVM only
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    system = hadoop_path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
    return text_of(jvm, system.open(hadoop_path))


def exists(context: Any, path: str) -> bool:
    """Whether there is such a file or folder, on any of Hadoop's file systems."""
    hadoop_path = context._jvm.org.apache.hadoop.fs.Path(path)  # noqa: SLF001 - as above
    return bool(
        hadoop_path.getFileSystem(context._jsc.hadoopConfiguration()).exists(hadoop_path)  # noqa: SLF001
    )


def read_matching(context: Any, folder: str, pattern: str) -> list[str]:
    """The texts of the files in a folder that match, on any of Hadoop's file systems."""
    jvm = context._jvm  # noqa: SLF001 - Hadoop's file systems are reached through the JVM only
    exact = re.sub(r"([\[\]{}*?\\])", r"\\\1", folder)
    hadoop_path = jvm.org.apache.hadoop.fs.Path(f"{exact}/{pattern}")
    system = hadoop_path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
    found = system.globStatus(hadoop_path) or ()
    return [text_of(jvm, system.open(status.getPath())) for status in found]
