"""The exactly-once sink.

`exactly_once(df, ...)` gives a DataStreamWriter whose every micro-batch is one Kafka transaction
(INV-10, D8).

This module is the part that knows Spark's driver: it reads the query's checkpoint, shapes the
DataFrame, runs the write stage and checks that it ran once. The protocol itself is
`oncelog.spark.driver`, what the executors do is `oncelog.spark.tasks`.
"""

import dataclasses
import os
import re
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlparse

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import TimestampType

from oncelog.client.admin import Admin
from oncelog.client.transactions import TransactionDriver
from oncelog.core.ids import TopicPartition
from oncelog.spark.background import BackgroundLoop
from oncelog.spark.checks import (
    HEADERS_DDL,
    check_columns,
    check_configuration,
    refuse_connect,
    refuse_execution,
)
from oncelog.spark.driver import BatchDriver, DriverOptions, ProducerIdentity, TaskReport
from oncelog.spark.errors import UsageError, WriteStageError
from oncelog.spark.offsets_log import parse
from oncelog.spark.progress import CrashPoint, Progress
from oncelog.spark.tasks import REPORT_DDL, TARGET_COLUMN, Targets, WriteTask

__all__ = ["exactly_once"]

TRANSACTION_TIMEOUT_MS: Final = 300_000
BATCH_SIZE_BYTES: Final = 512 * 1024
METADATA_AGE_S_MAX: Final = 30.0
"""Partition counts of the target topics are asked for again after this time."""

_CAUSE: Final = re.compile(r"^([\w.]*(?:Error|Exception|Violation): .+)$", re.MULTILINE)
"""The last line of a Python traceback within Spark's message."""

_USAGE_ERROR: Final = re.compile(r"UsageError: (.+)")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Everything `exactly_once` was given."""

    bootstrap_servers: str
    driver: DriverOptions
    topic: str | None
    topics: tuple[str, ...] | None
    max_tasks: int | None
    batch_size: int
    compression_type: str
    transaction_timeout_ms: int
    progress_path: str | None
    crash_point: CrashPoint | None
    client_options: dict[str, Any] = field(default_factory=dict)


def exactly_once(
    df: DataFrame,
    *,
    bootstrap_servers: str,
    application_id: str,
    topic: str | None = None,
    topics: Sequence[str] | None = None,
    marker_topic: str | None = None,
    commit_source_offsets: bool = True,
    accept: Collection[str] = (),
    replaces_query: str | None = None,
    write_attempts: int = 3,
    max_tasks: int | None = None,
    batch_size: int = BATCH_SIZE_BYTES,
    compression_type: str = "none",
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    progress_path: str | None = None,
    crash_point: CrashPoint | None = None,
    client_options: dict[str, Any] | None = None,
) -> Any:
    """Write a streaming DataFrame to Kafka topics, every row exactly once.

    Returns a `DataStreamWriter` to add trigger, output mode and checkpoint to, and start.

    Output, source offsets and a marker of the micro-batch become visible in one transaction;
    readers use ``isolation.level=read_committed``. All output modes work; within one target
    partition, rows that came from one source partition keep their order in a query without a
    shuffle.

    After a crash between the end of a transaction and Spark's commit log, the batch's output is
    that of the first run and its state that of the second: they agree for deterministic operators.

    Columns, as in Spark's own Kafka sink: ``value`` (string or binary), and optionally ``key``
    (string or binary), ``topic`` (string), ``partition`` (int), ``headers``
    (array<struct<key:string,value:binary>>), and ``timestamp`` for the records' time. Without a
    partition the key's murmur2 decides, as in Java's default partitioner; without a key, a hash of
    the value.

    - `application_id`: the transactional id and the group id. One active query per id; a second one
      is fenced or fails closed.
    - `topic`: the topic of all rows (wins over the column). `topics`: those the column may name;
      default all topics of the cluster.
    - `marker_topic`: a one-partition topic whose offset carries the marker; needed when no source
      is a Kafka topic of this cluster. With sources of another cluster also set
      `commit_source_offsets` to False.
    - `accept`, `replaces_query`: overrides for the cases in which the sink refuses to go on, named
      by the error itself.
    - `write_attempts`: how often a batch is tried within one call, each under a new epoch.
    - `max_tasks`: tasks of the write stage, at most the free slots and the number of target
      partitions.
    - `batch_size` in bytes of a record batch; `transaction_timeout_ms` of a write stage, at most
      the broker's ``transaction.max.timeout.ms``.
    - `progress_path`: a file for one JSON line per step (`oncelog.spark.progress`).

    Raises `UsageError` or `UnsupportedModeError` at once for what can be seen now, and from the
    query for the rest. Continuous, asynchronous-progress and real-time modes, Spark Connect,
    speculation and dynamic allocation are refused: none of them can keep one clean attempt per
    batch.
    """
    refuse_connect(df)
    if not application_id:
        raise UsageError("application_id is empty")
    if not df.isStreaming:
        raise UsageError("exactly_once needs a streaming DataFrame (spark.readStream)")
    if write_attempts < 1:
        raise UsageError(f"write_attempts={write_attempts} must be at least 1")
    check_columns(df, topic)
    check_configuration(df)
    options = SinkOptions(
        bootstrap_servers=bootstrap_servers,
        driver=DriverOptions(
            application_id=application_id,
            marker_partition=TopicPartition(marker_topic, 0) if marker_topic else None,
            commit_source_offsets=commit_source_offsets,
            accept=frozenset(accept),
            replaces_query=replaces_query,
            write_attempts=write_attempts,
        ),
        topic=topic,
        topics=tuple(topics) if topics is not None else None,
        max_tasks=max_tasks,
        batch_size=batch_size,
        compression_type=compression_type,
        transaction_timeout_ms=transaction_timeout_ms,
        progress_path=progress_path,
        crash_point=crash_point or CrashPoint.from_environment(),
        client_options=dict(client_options or {}),
    )
    return df.writeStream.foreachBatch(_Sink(df.sparkSession, options))


class _Sink:
    """What Spark calls per micro-batch.

    Holds one `_Run` at a time: the writer may be started again after its query ended.
    """

    def __init__(self, spark: Any, options: SinkOptions) -> None:
        self._spark = spark
        self._options = options
        self._run: _Run | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        context = df.sparkSession.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        query = self._spark.streams.get(query_id)
        if self._run is None or self._run.run_id != str(query.runId):
            if self._run is not None:
                self._run.close()
            self._run = _Run(query, context, self._options)
        self._run.process(df, batch_id)


class _Run:
    """One run of one query.

    Its connections, its driver, and what does not change between micro-batches.
    """

    def __init__(self, query: Any, context: Any, options: SinkOptions) -> None:
        self.query = query
        self.run_id = str(query.runId)
        self.query_id = str(query.id)
        self.context = context
        self.options = options
        execution = query._jsq.streamingQuery()  # noqa: SLF001 - Spark offers no public way to the checkpoint
        refuse_execution(execution)
        self.checkpoint = str(execution.resolvedCheckpointRoot())
        self.slots = _slots(context)
        self.is_local = str(context.master).startswith("local")
        self.crash_point = _with_pids(options.crash_point, context)
        self._targets: Targets | None = None
        self._targets_at = 0.0
        self._loop = BackgroundLoop(f"oncelog-{options.driver.application_id}")
        self._admin, transaction = self._loop.call(self._connect())
        self._transaction = transaction
        self._driver = BatchDriver(
            options.driver,
            transaction,
            self._loop,
            Progress(options.progress_path),
            self.crash_point,
        )
        self._is_closed = False
        threading.Thread(target=self._close_at_end, name="oncelog-watch", daemon=True).start()

    def process(self, df: DataFrame, batch_id: int) -> None:
        self._driver.process(_SparkBatch(self, df, batch_id))

    def targets(self) -> Targets:
        """The partitions that may be written to, asked for anew when the answer is old."""
        now = time.monotonic()
        if self._targets is None or now - self._targets_at > METADATA_AGE_S_MAX:
            self._targets = self._loop.call(self._ask_targets())
            self._targets_at = now
        return self._targets

    def forget_targets(self) -> None:
        """A write failed: perhaps because topics changed."""
        self._targets = None

    def close(self) -> None:
        """Close the connections and the loop. No transaction is open between batches."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.call(self._disconnect())
            self._loop.close()

    def _close_at_end(self) -> None:
        try:
            self.query._jsq.awaitTermination()  # noqa: SLF001 - the Python method would raise the query's failure here
        except (Py4JError, PySparkException, OSError):
            # The query failed, or the JVM is gone; its user is told elsewhere.
            pass
        finally:
            self.close()

    async def _connect(self) -> tuple[Admin, TransactionDriver]:
        options = self.options
        admin = Admin(options.bootstrap_servers, **options.client_options)
        transaction = TransactionDriver(
            options.bootstrap_servers,
            options.driver.application_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            **options.client_options,
        )
        return admin, transaction

    async def _disconnect(self) -> None:
        await self._transaction.close()
        await self._admin.close()

    async def _ask_targets(self) -> Targets:
        topics = await self._admin.list_topics()
        options = self.options
        wanted = (options.topic,) if options.topic is not None else options.topics
        if wanted is None:
            wanted = tuple(sorted(name for name, topic in topics.items() if not topic.is_internal))
        missing = [name for name in wanted if name not in topics]
        if missing:
            raise UsageError(
                f"topic {missing[0]!r} does not exist; create it before the query starts"
            )
        return Targets(wanted, tuple(len(topics[name].partitions) for name in wanted))


class _SparkBatch:
    """One micro-batch, as `oncelog.spark.driver.MicroBatch` wants it."""

    def __init__(self, run: _Run, df: DataFrame, batch_id: int) -> None:
        self._run = run
        self._df = df
        self.query_id = run.query_id
        self.batch_id = int(batch_id)

    def source_lines(self) -> tuple[str, ...]:
        path = f"{self._run.checkpoint}/offsets/{self.batch_id}"
        return parse(self.batch_id, _read_text(self._run.context, path)).source_lines

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        run = self._run
        targets = run.targets()
        tasks = min(run.slots, targets.total, run.options.max_tasks or run.slots)
        tag = f"oncelog-{run.run_id}-{self.batch_id}-{identity.producer_epoch}"
        try:
            rows = _tagged(run.context, tag, self._stage(identity, targets, max(tasks, 1)))
        except (Py4JError, PySparkException) as error:
            run.forget_targets()
            raise _failure_of(error) from error
        _check_one_attempt(run.context, tag)
        return [
            TaskReport(
                row["task"],
                TopicPartition(row["topic"], row["partition"]),
                row["records"],
                row["first_offset"],
                row["last_offset"],
            )
            for row in rows
        ]

    def drain(self) -> None:
        self._df.write.format("noop").mode("overwrite").save()

    def is_stopping(self) -> bool:
        try:
            return not self._run.query.isActive
        except (Py4JError, OSError):
            return True

    def _stage(self, identity: ProducerIdentity, targets: Targets, tasks: int) -> DataFrame:
        run = self._run
        options = run.options
        task = WriteTask(
            bootstrap_servers=options.bootstrap_servers,
            transactional_id=options.driver.application_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            batch_id=self.batch_id,
            targets=targets,
            batch_size=options.batch_size,
            compression_type=options.compression_type,
            producer_options=options.client_options,
            progress_path=options.progress_path if run.is_local else None,
            crash_point=run.crash_point if run.is_local else None,
        )
        rows = _with_targets(self._df, targets, options.topic)
        return rows.repartitionById(tasks, TARGET_COLUMN).mapInArrow(task, REPORT_DDL, barrier=True)


def _with_targets(df: DataFrame, targets: Targets, topic: str | None) -> DataFrame:
    """The columns that go into records, and the number of each row's target partition."""
    names = df.columns
    value = F.col("value").cast("binary")
    key = F.col("key").cast("binary") if "key" in names else None
    spread = F.xxhash64(value)
    if key is None and "partition" not in names and topic is not None:
        target = F.pmod(spread, F.lit(targets.total)).cast("int")
    else:
        target = _target_function(targets, topic is None)(
            F.lit(None).cast("string") if topic is not None else F.col("topic"),
            F.col("partition") if "partition" in names else F.lit(None).cast("int"),
            F.lit(None).cast("binary") if key is None else key,
            spread,
        )
    columns = [value.alias("value"), target.alias(TARGET_COLUMN)]
    if key is not None:
        columns.append(key.alias("key"))
    if "headers" in names:
        columns.append(F.col("headers").cast(HEADERS_DDL).alias("headers"))
    if "timestamp" in names and isinstance(df.schema["timestamp"].dataType, TimestampType):
        columns.append(F.col("timestamp"))
    return df.select(*columns)


def _target_function(targets: Targets, has_topic: bool) -> Any:
    import pyarrow as pa

    def choose(topic: pa.Array, partition: pa.Array, key: pa.Array, spread: pa.Array) -> pa.Array:
        return targets.choose(topic if has_topic else None, partition, key, spread)

    # PySpark's overloads for this function name a type that a plain function never has.
    make: Any = arrow_udf
    return make(choose, "int")


def _tagged(context: Any, tag: str, stage: DataFrame) -> list[Any]:
    """Run the stage's job under a tag of its own.

    The job group is the query's and must stay: it is how `stop` cancels.
    """
    context.addJobTag(tag)
    try:
        return stage.collect()
    finally:
        context.removeJobTag(tag)


def _check_one_attempt(context: Any, tag: str) -> None:
    """The second look at what the tasks already refuse.

    The write stage ran once and none of its tasks failed.

    Spark's status arrives with a delay, so what is not known yet is not held against the stage.
    """
    tracker = context._jsc.sc().statusTracker()  # noqa: SLF001 - the Python tracker cannot ask by tag
    jobs = list(tracker.getJobIdsForTag(tag))
    if not jobs:
        return
    job = context.statusTracker().getJobInfo(max(jobs))
    stage = (
        context.statusTracker().getStageInfo(max(job.stageIds)) if job and job.stageIds else None
    )
    if stage is not None and (stage.currentAttemptId > 0 or stage.numFailedTasks > 0):
        raise WriteStageError(
            f"the write stage was attempted {stage.currentAttemptId + 1} times, with "
            f"{stage.numFailedTasks} failed tasks"
        )


def _failure_of(error: Exception) -> Exception:
    """What a failed job means: a mistake of the user's, which no retry mends, or a failed stage."""
    match = _USAGE_ERROR.search(str(error))
    if match is not None:
        return UsageError(match[1].strip())
    causes = _CAUSE.findall(str(error))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = causes[-1] if causes else (lines or [type(error).__name__])[0]
    return WriteStageError(f"the write stage failed: {cause}")


def _slots(context: Any) -> int:
    """Tasks that can run at the same time.

    A barrier stage with more tasks than that would wait for ever.
    """
    java = context._jsc.sc()  # noqa: SLF001 - no public call counts the slots
    try:
        profile = java.resourceProfileManager().defaultResourceProfile()
        return max(int(java.maxNumConcurrentTasks(profile)), 1)
    except Py4JError:
        return max(int(context.defaultParallelism), 1)


def _read_text(context: Any, path: str) -> str:
    location = urlparse(path)
    if location.scheme in ("", "file"):
        with open(unquote(location.path), encoding="utf-8") as file:
            return file.read()
    jvm = context._jvm  # noqa: SLF001 - Hadoop's file systems are reached through the JVM only
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    stream = hadoop_path.getFileSystem(context._jsc.hadoopConfiguration()).open(hadoop_path)  # noqa: SLF001
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def _with_pids(point: CrashPoint | None, context: Any) -> CrashPoint | None:
    if point is None:
        return None
    process = getattr(context._gateway, "proc", None)  # noqa: SLF001 - the JVM has to die with us
    pids = (os.getpid(),) if process is None else (process.pid, os.getpid())
    return dataclasses.replace(point, pids=pids)
