"""Writes one micro-batch from Spark's driver, in the cheapest way.

A batch without partitions needs no write. The driver itself writes a few rows. In a local Spark the
query's own last stage encodes and sends, and its tasks take turns at the target partitions
(`oncelog.spark.sharing`). Elsewhere one stage encodes, Spark shuffles, and another stage sends: a
barrier stage, unless Spark cannot run one. The rows come from one Spark job, none of whose stages
had a second attempt: two jobs, or two attempts, may see different rows of a query that is not
deterministic (INV-10).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from oncelog.spark.collected_rows import collect_few
from oncelog.spark.dead_workers import replace_dead_workers
from oncelog.spark.encoder import BLOB_DDL, TASK_COLUMN, Encoder
from oncelog.spark.errors import (
    AdjustedError,
    TooLargeError,
    UnknownTargetError,
    WriteStageError,
)
from oncelog.spark.kafka_run import KafkaRun
from oncelog.spark.offsets_log import kafka_offsets
from oncelog.spark.parties import ProducerIdentity, TaskReport
from oncelog.spark.query import SparkMicroBatch, described
from oncelog.spark.sharing import ShareTask, merged
from oncelog.spark.slots import slots_of, waiting_reported
from oncelog.spark.spark_hash import partition_keys
from oncelog.spark.targets import Targets
from oncelog.spark.tasks import REPORT_DDL, EncodeTask, WriteTask, report_of
from oncelog.spark.turn_server import TurnsAddress
from oncelog.spark.write_stage import (
    check_one_attempt,
    failure_of,
    job_tag,
    partition_count,
    record_columns,
    stage_settings,
    tagged,
    with_columns,
)

SHARING_TASKS_PER_SLOT_COUNT_MAX: Final = 4
"""So many tasks with rows for each slot send them themselves; more have them shuffled."""


class KafkaMicroBatch(SparkMicroBatch):
    """One micro-batch, as an `oncelog.spark.batch_protocol.MicroBatch`."""

    def __init__(self, run: KafkaRun, df: DataFrame, batch_id: int) -> None:
        super().__init__(run, df, batch_id)
        self._run = run
        self._lines: tuple[str, ...] | None = None
        self._has_fresh_targets = False
        self._is_large = False

    def source_lines(self) -> tuple[str, ...]:
        """The sources' lines of `offsets/N`. The file is read once."""
        if self._lines is None:
            self._lines = super().source_lines()
        return self._lines

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        """Write the rows once; return the offsets of each task and partition."""
        run = self._run
        targets = run.targets()
        number = f"{identity.producer_id}/{identity.producer_epoch}"
        text = f"batch {self.batch_id}: write {targets.total} partitions under producer {number}"
        try:
            with described(run.context, text):
                reports = self._write(identity, targets)
        except UnknownTargetError as error:
            if self._has_fresh_targets:
                raise
            # A topic or partition may have been made a moment ago. Some rows may be sent already,
            # so this costs the epoch.
            self._has_fresh_targets = True
            run.forget_targets()
            raise AdjustedError(f"{error}; the metadata is read again") from error
        except TooLargeError as error:
            run.limit_size(error)
            raise
        except WriteStageError:
            run.forget_targets()
            self.raise_if_stopped()
            replace_dead_workers(self._df, self.is_stopping)
            raise
        run.wrote(kafka_offsets(self.source_lines()), sum(r.record_count for r in reports))
        return reports

    def _write(self, identity: ProducerIdentity, targets: Targets) -> list[TaskReport]:
        run = self._run
        task_count = partition_count(self._df)
        if task_count == 0:
            return []
        columns = record_columns(self._df, run.options.topic)
        encoder = Encoder(
            targets, self.batch_id, run.options.batch_size, run.options.compression_type
        )
        rows = self._collected(identity, columns, task_count)
        if rows is not None:
            few = list(encoder.encode(0, rows))
            return run.direct.write(identity, self.batch_id, targets, few) if few else []
        if self._may_share(task_count):
            return self._run_shared(identity, encoder, columns)
        return self._run_stage(identity, encoder, columns)

    def _collected(
        self, identity: ProducerIdentity, columns: Mapping[str, str], task_count: int | None
    ) -> list[Any] | None:
        """Return all rows, if they are few. The first guess comes from the sources' offsets.

        A batch that could not be collected is not collected again: not one that has too many rows,
        and not one whose job failed, maybe for its size (`spark.driver.maxResultSize`).
        """
        if self._is_large:
            return None
        run = self._run
        expected_count = run.records_since(kafka_offsets(self.source_lines()))
        limit = run.driver_rows.limit(expected_count)
        if limit == 0:
            return None
        context, tag = run.context, f"{self._tag(identity)}-few"
        rows = None
        try:
            with _one_message(), job_tag(context, tag):
                rows = collect_few(self._df, columns, limit, task_count)
        finally:
            self._is_large = rows is None
            run.driver_rows.collected(is_whole=rows is not None)
        if rows is not None:
            check_one_attempt(context, tag, sends=False)
        return rows

    def _may_share(self, task_count: int | None) -> bool:
        """Whether the tasks that have the rows may send them.

        They reach the driver in a local Spark only. Each connects to the cluster, so many small
        tasks would take longer than a shuffle; and `max_tasks` bounds those that connect.
        """
        run = self._run
        if task_count is None or not run.shares_machine or run.options.max_tasks is not None:
            return False
        return task_count <= SHARING_TASKS_PER_SLOT_COUNT_MAX * slots_of(run.context)

    def _run_shared(
        self, identity: ProducerIdentity, encoder: Encoder, columns: Mapping[str, str]
    ) -> list[TaskReport]:
        """Encode and send in one stage, whose tasks take turns at the target partitions."""
        run = self._run
        tag = self._tag(identity)
        records = with_columns(self._df, columns)
        with run.serving_turns() as server:
            task = self._share_task(identity, encoder, server.address)
            stage = records.mapInArrow(task, REPORT_DDL)
            with _one_message(), stage_settings(self._df.sparkSession):
                rows = tagged(run.context, tag, stage)
            check_one_attempt(run.context, tag)
            reports = merged(report_of(row) for row in rows)
            server.check(reports, encoder.targets)
        return reports

    def _run_stage(
        self, identity: ProducerIdentity, encoder: Encoder, columns: Mapping[str, str]
    ) -> list[TaskReport]:
        """Encode, shuffle, and send from one barrier task per group of target partitions."""
        run = self._run
        task_count = self._task_count(encoder.targets)
        task = self._write_task(identity, encoder.targets)
        records = with_columns(self._df, columns)
        blobs = records.mapInArrow(EncodeTask(encoder, partition_keys(task_count)), BLOB_DDL)
        shuffled = blobs.repartition(task_count, TASK_COLUMN)
        # Without barriers a task that fails, or whose executor is taken away, runs again while the
        # others go on: it refuses to send, and `check_one_attempt` refuses a second stage attempt.
        stage = shuffled.mapInArrow(task, REPORT_DDL, barrier=run.has_barriers)
        tag = self._tag(identity)
        # A plain stage begins with as many tasks as there are free slots.
        waiting = (
            waiting_reported(run.context, tag, batch_id=self.batch_id, task_count=task_count)
            if run.has_barriers
            else nullcontext()
        )
        with _one_message(), stage_settings(self._df.sparkSession), waiting:
            rows = tagged(run.context, tag, stage)
        check_one_attempt(run.context, tag)
        return [report_of(row) for row in rows]

    def _share_task(
        self, identity: ProducerIdentity, encoder: Encoder, turns: TurnsAddress
    ) -> ShareTask:
        options = self._run.options
        return ShareTask(
            encoder=encoder,
            turns=turns,
            bootstrap_servers=options.bootstrap_servers,
            transactional_id=options.protocol.application_id,
            identity=identity,
            producer_options=options.producer_options(),
            progress_path=options.progress_path,
        )

    def _write_task(self, identity: ProducerIdentity, targets: Targets) -> WriteTask:
        run, options = self._run, self._run.options
        return WriteTask(
            bootstrap_servers=options.bootstrap_servers,
            transactional_id=options.protocol.application_id,
            identity=identity,
            batch_id=self.batch_id,
            targets=targets,
            producer_options=options.producer_options(),
            progress_path=options.progress_path if run.is_local else None,
        )

    def _task_count(self, targets: Targets) -> int:
        """Return the count of sending tasks, at most one per target partition.

        A barrier stage needs a free slot for each at the same time. Executors come and go, so slots
        are counted at each attempt. Tasks of another stage may wait, and dynamic allocation starts
        executors for them.
        """
        run = self._run
        count = slots_of(run.context)
        if not run.has_barriers:
            shuffle_count = self._df.sparkSession.conf.get("spark.sql.shuffle.partitions")
            count = max(count, int(shuffle_count or 1))
        return max(min(count, targets.total, run.options.max_tasks or count), 1)

    def _tag(self, identity: ProducerIdentity) -> str:
        return f"oncelog-{self._run.run_id}-{self.batch_id}-{identity.producer_epoch}"


@contextmanager
def _one_message() -> Iterator[None]:
    """Return in one sentence why a job failed."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise failure_of(error) from None
