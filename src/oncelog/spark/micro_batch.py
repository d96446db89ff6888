"""One micro-batch on Spark's driver: runs its write stage."""

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from oncelog.core.ids import TopicPartition
from oncelog.spark.driver import ProducerIdentity, TaskReport
from oncelog.spark.query import QueryBatch, described
from oncelog.spark.run import Run
from oncelog.spark.tasks import REPORT_DDL, TARGET_COLUMN, Targets, WriteTask
from oncelog.spark.write_stage import check_one_attempt, failure_of, tagged, with_targets


class SparkBatch(QueryBatch):
    """One micro-batch, as `oncelog.spark.driver.MicroBatch` wants it."""

    def __init__(self, run: Run, df: DataFrame, batch_id: int) -> None:
        super().__init__(run, df, batch_id)
        self._run = run

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        """Run the write stage once, and tell what its tasks wrote."""
        run = self._run
        targets = run.targets()
        tasks = min(run.slots, targets.total, run.options.max_tasks or run.slots)
        tag = f"oncelog-{run.run_id}-{self.batch_id}-{identity.producer_epoch}"
        number = f"{identity.producer_id}/{identity.producer_epoch}"
        text = f"batch {self.batch_id}: write {targets.total} partitions under producer {number}"
        try:
            with described(run.context, text):
                rows = tagged(run.context, tag, self._stage(identity, targets, max(tasks, 1)))
        except (Py4JError, PySparkException) as error:
            run.forget_targets()
            raise failure_of(error) from error
        check_one_attempt(run.context, tag)
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
        rows = with_targets(self._df, targets, options.topic)
        return rows.repartitionById(tasks, TARGET_COLUMN).mapInArrow(task, REPORT_DDL, barrier=True)
