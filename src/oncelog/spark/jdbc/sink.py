"""The sink for PostgreSQL: `exactly_once_jdbc`, a run of its query, and a micro-batch."""

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from oncelog.client.errors import ClientError, RetriableError
from oncelog.core.ids import TopicPartition
from oncelog.spark.batch_protocol import BatchProtocol
from oncelog.spark.checks import refuse_connect, refuse_state
from oncelog.spark.dead_workers import replace_dead_workers
from oncelog.spark.errors import PipelineError, StoppedError, UsageError, WriteStageError
from oncelog.spark.jdbc.copying import REPORT_DDL, CopyTask
from oncelog.spark.jdbc.database import Database, parse_url
from oncelog.spark.jdbc.runner import DirectRunner, StoppableRunner
from oncelog.spark.jdbc.target import Target, describe, projected
from oncelog.spark.jdbc.transaction import MARKER_PARTITION, PostgresTransaction, StagedRows
from oncelog.spark.jdbc.types import TargetColumn
from oncelog.spark.marker import Marker, check_query
from oncelog.spark.parties import MicroBatch, ProducerIdentity, TaskReport
from oncelog.spark.progress import ProgressLog
from oncelog.spark.protocol_options import ProtocolOptions
from oncelog.spark.query import ForeachBatch, Query, QueryRun, SparkMicroBatch, described
from oncelog.spark.write_stage import check_one_attempt, failure_of, tagged
from oncelog.spark.writer import ExactlyOnceWriter

__all__ = ["exactly_once_jdbc"]


def exactly_once_jdbc(
    df: DataFrame,
    *,
    url: str,
    table: str,
    application_id: str,
    user: str | None = None,
    password: str | None = None,
    key_columns: Sequence[str] = (),
    marker_table: str = "oncelog_markers",
    accept: Collection[str] = (),
    replaces_query: str | None = None,
    write_attempts: int = 3,
    progress_path: str | None = None,
) -> Any:
    """Write a streaming DataFrame to a PostgreSQL table, every row exactly once.

    Returns a `DataStreamWriter` to add trigger, output mode and checkpoint to, and start.

    A micro-batch's rows and its marker become visible in one transaction of the database, whatever
    the source. Columns go to the table's columns of the same names.

    - `url`: ``jdbc:postgresql://host:5432/database``, or the same without ``jdbc:``; `user` and
      `password` beside it, so that they stand in no log.
    - `table`: ``table`` or ``schema.table``; double quotes keep capitals, as in SQL.
    - `key_columns`: a row replaces the one with the same key (INSERT ... ON CONFLICT DO UPDATE);
      without them rows are appended.
    - `application_id`: the row of the marker table. One active query per id; `start()` refuses a
      second one, and a query whose checkpoint is lost, and does not fence the first.
    - `marker_table`: made at the start where it is missing; staging tables stand in its schema.
    - `accept`, `replaces_query`, `write_attempts`, `progress_path`: as for `exactly_once`. Where a
      query ended in its Kafka sources stands beside its marker: one that replaces it has to start
      there.

    Raises `UsageError` at once for a table that is missing or does not fit.
    """
    refuse_connect(df)
    if not df.isStreaming:
        raise UsageError("exactly_once_jdbc needs a streaming DataFrame (spark.readStream)")
    if replaces_query is not None:
        refuse_state(df)
    protocol = ProtocolOptions(
        application_id=application_id,
        marker_partition=MARKER_PARTITION,
        has_group_markers=False,
        accept=frozenset(accept),
        replaces_query=replaces_query,
        write_attempts=write_attempts,
    )
    database = parse_url(url, user, password)
    try:
        target, columns = describe(database, table, df.schema, key_columns)
    except RetriableError as error:
        raise UsageError(f"the database of url cannot be used now: {error.message}") from None
    options = JdbcOptions(
        database=database,
        target=target,
        columns=columns,
        marker_table=marker_table,
        protocol=protocol,
        progress_path=progress_path,
    )

    def start(query: Query, context: Any) -> JdbcRun:
        return JdbcRun(query, context, options)

    def examine(query_id: str | None, is_known: bool) -> None:
        """Refuse another query; `exactly_once_jdbc` has checked the table."""
        if is_known:
            refuse_another_query(options, query_id)

    def committed() -> Marker | None:
        return committed_marker(options)

    return ExactlyOnceWriter(
        df, ForeachBatch(df.sparkSession, start, JdbcMicroBatch), examine, committed
    )


@dataclass(frozen=True, slots=True)
class JdbcOptions:
    """The options of `exactly_once_jdbc`, and the properties of its database."""

    database: Database
    target: Target
    columns: tuple[TargetColumn, ...]
    marker_table: str
    protocol: ProtocolOptions
    progress_path: str | None


def refuse_another_query(options: JdbcOptions, query_id: str | None) -> None:
    """Raise `FailClosedError` for a query that may not follow the marker's; fence no driver.

    `query_id` is that of the checkpoint, None when it is empty.
    """
    runner, transaction = DirectRunner(), _transaction(options)
    with _said():
        marker = Marker.decode(runner.call(transaction.current_marker()))
    if marker is not None:
        check_query(marker, query_id, options.protocol.replaces_query)


def committed_marker(options: JdbcOptions) -> Marker | None:
    """The marker of the last committed batch, before a run begins; fences other drivers."""
    runner, transaction = DirectRunner(), _transaction(options)
    try:
        with _said():
            protocol = BatchProtocol(options.protocol, transaction, runner, ProgressLog(None))
            protocol.prepare()
            return protocol.marker
    finally:
        runner.call(transaction.close())


def _transaction(options: JdbcOptions) -> PostgresTransaction:
    return PostgresTransaction(
        options.database, options.protocol.application_id, options.marker_table, options.target
    )


class JdbcRun(QueryRun):
    """One run of one query: its connection and its protocol."""

    def __init__(self, query: Query, context: Any, options: JdbcOptions) -> None:
        super().__init__(query, context, options.progress_path)
        self.options = options
        self.transaction = _transaction(options)
        self._runner = StoppableRunner(self.transaction, self.is_stopping)
        # A connection is closed only when no call uses it: a query may be stopped during a batch.
        self._in_use = threading.Lock()
        self._is_closed = False
        self._protocol = BatchProtocol(
            options.protocol, self.transaction, self._runner, self.progress
        )
        self.call_at_end(self.close)

    def prepare(self) -> None:
        """Fence other drivers before the first batch."""
        with self._in_use, _said():
            if not self._is_closed:
                # A query that has ended already raises the reason itself.
                with suppress(StoppedError):
                    self._protocol.prepare()

    def process(self, batch: MicroBatch) -> None:
        """Write one micro-batch, in one transaction."""
        with self._in_use, _said():
            self._protocol.process(batch)

    def close(self) -> None:
        """Close the connection. No transaction is open between batches."""
        with self._in_use:
            self._is_closed = True
            self._runner.close()


class JdbcMicroBatch(SparkMicroBatch):
    """One micro-batch, as an `oncelog.spark.batch_protocol.MicroBatch`."""

    def __init__(self, run: JdbcRun, df: DataFrame, batch_id: int) -> None:
        super().__init__(run, df, batch_id)
        self._run = run

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        """Run the write stage once; the transaction gets the attempts that Spark accepted."""
        # Spark has cancelled the query's jobs by now, and not the one that would begin here.
        self.raise_if_stopped()
        run = self._run
        tag = f"oncelog-{run.run_id}-{self.batch_id}-{identity.producer_id}"
        table = ".".join(run.options.target.name)
        text = f"batch {self.batch_id}: copy rows for table {table}, epoch {identity.producer_id}"
        try:
            with described(run.context, text):
                rows = self._copy(tag, identity)
        except WriteStageError:
            self.raise_if_stopped()
            replace_dead_workers(self._df, self.is_stopping)
            raise
        run.transaction.staged = [StagedRows(row["task_attempt_id"], row["rows"]) for row in rows]
        return [
            TaskReport(row["task"], TopicPartition(table, row["task"]), row["rows"], 0, 0)
            for row in rows
        ]

    def _copy(self, tag: str, identity: ProducerIdentity) -> list[Any]:
        """Return the reports of the tasks that Spark accepted.

        A task may fail: it runs again under another number. A stage may not run again: rows of both
        runs would be moved together.
        """
        context = self._run.context
        try:
            rows = tagged(context, tag, self._stage(identity))
        except (Py4JError, PySparkException) as error:
            raise failure_of(error) from None
        check_one_attempt(context, tag, sends=False)
        return rows

    def _stage(self, identity: ProducerIdentity) -> DataFrame:
        columns = self._run.options.columns
        return projected(self._df, columns).mapInArrow(self._copy_task(identity), REPORT_DDL)

    def _copy_task(self, identity: ProducerIdentity) -> CopyTask:
        run = self._run
        options = run.options
        return CopyTask(
            database=options.database,
            staging=run.transaction.staging,
            columns=options.target.columns,
            attempt=identity.producer_epoch,
            batch_id=self.batch_id,
            progress_path=options.progress_path if run.is_local else None,
        )


@contextmanager
def _said() -> Iterator[None]:
    """Raise the database's message, without the code that a Kafka error has."""
    try:
        yield
    except ClientError as error:
        raise PipelineError(error.message) from None
