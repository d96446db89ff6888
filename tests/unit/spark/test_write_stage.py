"""What needs no Spark: how failures and the status of a write stage are read."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import oncelog.spark.write_stage as write_stage
from oncelog.spark.checks import HEADERS_DDL
from oncelog.spark.errors import DataLossError, TooLargeError, UsageError, WriteStageError
from oncelog.spark.write_stage import (
    check_one_attempt,
    failure_of,
    record_columns,
    with_columns,
)


def test_a_failed_job_is_told_by_the_last_line_of_the_python_traceback() -> None:
    error = RuntimeError(
        "Job aborted.\nTraceback\n  File x\nValueError: first\n\nOSError: disk full\nat java"
    )
    failure = failure_of(error)
    assert isinstance(failure, WriteStageError)
    assert "OSError: disk full" in str(failure)
    assert "Job aborted" in str(failure_of(RuntimeError("Job aborted.\nat java")))


def test_a_mistake_of_the_user_is_told_as_one() -> None:
    text = "Traceback\noncelog.spark.errors.UsageError: topic 'x' does not exist\nmore"
    failure = failure_of(RuntimeError(text))
    assert isinstance(failure, UsageError)
    assert str(failure) == "topic 'x' does not exist"


def test_the_jvms_innermost_cause_is_told_in_one_short_sentence() -> None:
    text = (
        "An error occurred while calling o215.collectToPython.\n"
        ": org.apache.spark.SparkException: Job 3 cancelled\n"
        + "\tat org.apache.spark.Some.method(Some.scala:1)\n" * 1000
        + "Caused by: java.io.IOException: No space left on device\n\tat java.base\n"
    )
    failure = failure_of(RuntimeError(text))
    assert str(failure) == ("the write stage failed: java.io.IOException: No space left on device")
    stopped = text.split("Caused by")[0]
    assert str(failure_of(RuntimeError(stopped))).endswith("SparkException: Job 3 cancelled")
    assert len(str(failure_of(RuntimeError("ValueError: " + "x" * 5000)))) < 1000


def test_of_several_lines_of_pythons_own_the_first_is_told() -> None:
    """The JVM's lines that follow a traceback repeat it, or say less."""
    text = (
        "org.apache.spark.SparkException: Job aborted\n"
        "Traceback (most recent call last):\n  File 'x', line 1\n"
        "ValueError: the first cause\n"
        "Caused by: java.io.IOException: broken pipe\n"
    )
    assert str(failure_of(RuntimeError(text))) == (
        "the write stage failed: ValueError: the first cause"
    )


def test_where_a_traceback_names_no_error_the_jvms_innermost_cause_is_told() -> None:
    text = (
        "org.apache.spark.SparkException: Job aborted\n"
        "Caused by: java.io.IOException: No space left on device\n"
        "Traceback (most recent call last):\n  File 'x', line 1\nboom\n"
    )
    told = str(failure_of(RuntimeError(text)))
    assert told == "the write stage failed: java.io.IOException: No space left on device"


def test_a_cluster_with_too_few_slots_is_told_as_the_cause() -> None:
    """The scheduler's class has no usual name."""
    cause = "org.apache.spark.scheduler.BarrierJobSlotsNumberCheckFailed: [SPARK-24819]: Barrier"
    text = f"An error occurred while calling o880.collectToPython.\n: {cause}\n\tat org.apache.Some"
    assert str(failure_of(RuntimeError(text))) == f"the write stage failed: {cause}"


def test_lost_data_and_a_batch_that_is_too_large_are_told_apart_from_a_failed_write() -> None:
    text = "Traceback (most recent call last):\noncelog.spark.errors.{}\n\tat java\n"
    loss = failure_of(RuntimeError(text.format("DataLossError: offset 7 is gone")))
    assert isinstance(loss, DataLossError)
    assert str(loss) == "offset 7 is gone"
    refusal = TooLargeError("a", 900, 12)
    large = failure_of(RuntimeError(text.format(f"TooLargeError: {refusal}")))
    assert isinstance(large, TooLargeError)
    assert (large.topic, large.size, large.record_count) == ("a", 900, 12)


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(2, id="both are given"),
        pytest.param(1, id="one that is not, as on a PySpark that has no such setting"),
    ],
)
def test_a_write_stages_settings_are_those_of_before_once_it_has_ended(known: int) -> None:
    names = ("spark.sql.adaptive.enabled", "spark.sql.execution.arrow.maxBytesPerBatch")
    before = dict.fromkeys(names[:known], "as given")
    given = dict(before)
    conf = SimpleNamespace(get=given.get, set=given.__setitem__, unset=given.__delitem__)
    session = SimpleNamespace(conf=conf)
    with write_stage.stage_settings(session):
        assert given == dict(zip(names, ("false", "1048576"), strict=True))
    assert given == before


class Tracker:
    """Spark's status: jobs that have ended, each with a stage that encodes and one that sends."""

    def __init__(
        self, jobs: tuple[int, ...] = (4,), attempts: tuple[int, int] = (0, 0), failed: int = 0
    ) -> None:
        self.jobs, self.statuses, self.waits = jobs, ["SUCCEEDED"], 0
        self.stages_of = {job: [1, 2] for job in jobs}
        self.stages: dict[int, Any] = {
            1: SimpleNamespace(currentAttemptId=attempts[0], numFailedTasks=0),
            2: SimpleNamespace(currentAttemptId=attempts[1], numFailedTasks=failed),
        }

    def getJobIdsForTag(self, tag: str) -> tuple[int, ...]:  # noqa: N802
        return self.jobs

    def getJobInfo(self, job: int) -> SimpleNamespace:  # noqa: N802
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return SimpleNamespace(stageIds=self.stages_of[job], status=status)

    def getStageInfo(self, stage: int) -> SimpleNamespace | None:  # noqa: N802
        return self.stages.get(stage)

    def waitUntilEmpty(self, timeout_ms: int) -> None:  # noqa: N802
        self.waits += 1
        if self.waits == 1:
            raise Py4JError("events are waiting")


def context_with(tracker: Tracker) -> Any:
    java = SimpleNamespace(statusTracker=lambda: tracker, listenerBus=lambda: tracker)
    return SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: java), statusTracker=lambda: tracker)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_stage, "STATUS_INTERVAL_S", 0.0)


@pytest.mark.parametrize(
    ("attempts", "failed"),
    [
        pytest.param((0, 1), 0, id="the sending stage ran twice"),
        pytest.param((1, 0), 0, id="a shuffle was lost while the encoding stage read it"),
        pytest.param((0, 0), 1, id="a sending task failed"),
    ],
)
def test_a_stage_that_did_not_run_once_and_cleanly_is_not_committed(
    attempts: tuple[int, int], failed: int
) -> None:
    with pytest.raises(WriteStageError, match="attempted"):
        check_one_attempt(context_with(Tracker(attempts=attempts, failed=failed)), "tag")


def test_a_clean_job_passes_and_a_failed_task_that_sends_nothing_too() -> None:
    check_one_attempt(context_with(Tracker()), "tag")
    check_one_attempt(context_with(Tracker(failed=1)), "tag", sends=False)


def test_a_second_attempt_that_spark_reports_late_is_waited_for() -> None:
    tracker = Tracker(attempts=(0, 1))
    tracker.statuses = ["RUNNING", "RUNNING", "SUCCEEDED"]
    with pytest.raises(WriteStageError, match="stage 2 was attempted 2 times"):
        check_one_attempt(context_with(tracker), "tag")


def test_rows_that_needed_no_job_pass_once_all_of_sparks_events_have_arrived() -> None:
    tracker = Tracker(jobs=())
    check_one_attempt(context_with(tracker), "tag")
    assert tracker.waits == 2


def test_a_stage_whose_attempts_spark_does_not_report_is_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgotten = Tracker()
    del forgotten.stages[1]
    with pytest.raises(WriteStageError, match=r"forgot how often stage 1 ran \(spark.ui"):
        check_one_attempt(context_with(forgotten), "tag")
    monkeypatch.setattr(write_stage, "STATUS_TIMEOUT_S", -1.0)
    running = Tracker()
    running.statuses = ["RUNNING"]
    with pytest.raises(WriteStageError, match="did not report"):
        check_one_attempt(context_with(running), "tag")


def frame_of(*fields: tuple[str, Any]) -> Any:
    schema = StructType([StructField(*field) for field in fields])
    return SimpleNamespace(
        schema=schema, columns=schema.names, selectExpr=lambda *expressions: list(expressions)
    )


def test_rows_that_have_all_columns_are_taken_as_they_are() -> None:
    frame = frame_of(("key", BinaryType()), ("value", BinaryType()))
    assert with_columns(frame, record_columns(frame, "out")) is frame


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([("value", StringType())], "cast(value as binary) as value"),
        ([("value", BinaryType()), ("more", StringType())], "value as value"),
        # Spark refuses to choose one of two columns with the same name.
        ([("value", BinaryType()), ("value", BinaryType())], "value as value"),
    ],
)
def test_rows_with_other_types_or_columns_are_selected_from(fields: Any, expected: str) -> None:
    frame = frame_of(*fields)
    selected: Any = with_columns(frame, record_columns(frame, "out"))
    assert selected == [expected]


def test_each_column_of_a_record_is_taken_in_the_type_that_the_encoder_reads() -> None:
    names = ("value", "key", "topic", "partition", "headers", "timestamp", "more")
    frame = frame_of(*((name, StringType()) for name in names))
    assert record_columns(frame, None) == {
        "value": "cast(value as binary)",
        "key": "cast(key as binary)",
        "topic": "topic",
        "partition": "partition",
        "headers": f"cast(headers as {HEADERS_DDL})",
        "timestamp_us": "unix_micros(timestamp)",
    }
    assert "topic" not in record_columns(frame, "out")


def test_every_job_of_the_tag_is_looked_at() -> None:
    """Rows that Spark computes in two jobs."""
    tracker = Tracker(jobs=(1, 2))
    tracker.stages_of = {1: [1], 2: [2]}
    check_one_attempt(context_with(tracker), "tag")
    tracker.stages[2].currentAttemptId = 1
    with pytest.raises(WriteStageError, match="stage 2 was attempted 2 times"):
        check_one_attempt(context_with(tracker), "tag")


def test_a_job_that_still_runs_is_waited_for_beside_one_that_has_ended() -> None:
    tracker = Tracker(jobs=(1, 2))
    tracker.statuses = ["SUCCEEDED", "RUNNING", "SUCCEEDED", "SUCCEEDED"]
    check_one_attempt(context_with(tracker), "tag")
    assert tracker.statuses == ["SUCCEEDED"]


def test_the_line_that_only_says_where_an_error_occurred_is_not_the_cause() -> None:
    text = "java.lang.RuntimeException: An error occurred while calling o1.collect\nOSError: full\n"
    assert str(failure_of(RuntimeError(text))).endswith("failed: OSError: full")
    swapped = "OSError: full\njava.lang.RuntimeException: An error occurred while calling o1.x\n"
    assert str(failure_of(RuntimeError(swapped))).endswith("failed: OSError: full")


def test_a_failure_without_any_cause_is_told_by_its_first_line_with_text() -> None:
    assert str(failure_of(RuntimeError("\n \n  it stopped \nlater"))).endswith("failed: it stopped")
    assert str(failure_of(RuntimeError(" \n"))).endswith("failed: no reason given")
