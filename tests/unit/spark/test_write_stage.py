"""What needs no Spark: how failures and the status of a write stage are read."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.spark.errors import UsageError, WriteStageError
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
