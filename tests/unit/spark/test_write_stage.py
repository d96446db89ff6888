"""What needs no Spark: how failures and the status of a write stage are read."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.spark.errors import DataLossError, TooLargeError, UsageError, WriteStageError
from oncelog.spark.write_stage import check_one_attempt, failure_of


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


def test_lost_data_and_a_batch_that_is_too_large_are_told_apart_from_a_failed_write() -> None:
    text = "Traceback (most recent call last):\noncelog.spark.errors.{}\n\tat java\n"
    loss = failure_of(RuntimeError(text.format("DataLossError: offset 7 is gone")))
    assert isinstance(loss, DataLossError)
    assert str(loss) == "offset 7 is gone"
    refusal = TooLargeError("a", 900, 12)
    large = failure_of(RuntimeError(text.format(f"TooLargeError: {refusal}")))
    assert isinstance(large, TooLargeError)
    assert (large.topic, large.size, large.record_count) == ("a", 900, 12)


class Tracker:
    """Spark's status: one job, one stage."""

    def __init__(self, jobs: tuple[int, ...] = (4,), attempt: int = 0, failed: int = 0) -> None:
        self.jobs, self.stage = (
            jobs,
            SimpleNamespace(currentAttemptId=attempt, numFailedTasks=failed),
        )

    def getJobIdsForTag(self, tag: str) -> tuple[int, ...]:  # noqa: N802
        return self.jobs

    def getJobInfo(self, job: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(stageIds=[1, 2])

    def getStageInfo(self, stage: int) -> SimpleNamespace | None:  # noqa: N802
        return self.stage if stage == 2 else None


def context_with(tracker: Tracker) -> Any:
    java = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
    return SimpleNamespace(_jsc=java, statusTracker=lambda: tracker)


@pytest.mark.parametrize(("attempt", "failed"), [(1, 0), (0, 1)])
def test_a_stage_that_did_not_run_once_and_cleanly_is_not_committed(
    attempt: int, failed: int
) -> None:
    with pytest.raises(WriteStageError, match="attempted"):
        check_one_attempt(context_with(Tracker(attempt=attempt, failed=failed)), "tag")


def test_a_clean_stage_passes_and_so_does_one_that_spark_does_not_know_yet() -> None:
    check_one_attempt(context_with(Tracker()), "tag")
    check_one_attempt(context_with(Tracker(jobs=())), "tag")
