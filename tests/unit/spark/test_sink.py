"""The parts of the sink that need no Spark: what it refuses, and how it reads Spark's failures."""

from types import SimpleNamespace

import pytest

from oncelog.spark import sink
from oncelog.spark.errors import UnsupportedModeError, UsageError, WriteStageError


def frame_with(**settings):
    configuration = {name.replace("_", "."): value for name, value in settings.items()}
    context = SimpleNamespace(getConf=lambda: configuration)
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))


def test_speculation_and_dynamic_allocation_are_refused():
    with pytest.raises(UnsupportedModeError, match=r"spark\.speculation"):
        sink._check_configuration(frame_with(spark_speculation="true"))
    with pytest.raises(UnsupportedModeError, match="dynamicAllocation"):
        sink._check_configuration(frame_with(spark_dynamicAllocation_enabled="TRUE"))
    assert sink._check_configuration(frame_with(spark_speculation="false")) is None


class Named:
    def __init__(self, name, trigger=""):
        self.name, self._trigger = name, trigger

    def getClass(self):  # noqa: N802
        return self

    def getSimpleName(self):  # noqa: N802
        return self.name

    def trigger(self):
        return Named(self._trigger)


@pytest.mark.parametrize(
    ("execution", "trigger"),
    [
        ("AsyncProgressTrackingMicroBatchExecution", "ProcessingTimeTrigger"),
        ("ContinuousExecution", "ContinuousTrigger"),
        ("MicroBatchExecution", "RealTimeTrigger"),
    ],
)
def test_modes_without_plain_micro_batches_are_refused_by_name(execution, trigger):
    with pytest.raises(UnsupportedModeError, match=execution):
        sink._refuse_execution(Named(execution, trigger))
    assert sink._refuse_execution(Named("MicroBatchExecution", "ProcessingTimeTrigger")) is None


def test_a_failed_job_is_told_by_the_last_line_of_the_python_traceback():
    error = RuntimeError(
        "Job aborted.\nTraceback\n  File x\nValueError: first\n\nOSError: disk full\nat java"
    )
    failure = sink._failure_of(error)
    assert isinstance(failure, WriteStageError)
    assert "OSError: disk full" in str(failure)
    assert "Job aborted" in str(sink._failure_of(RuntimeError("Job aborted.\nat java")))


def test_a_mistake_of_the_user_is_told_as_one():
    text = "Traceback\noncelog.spark.errors.UsageError: topic 'x' does not exist\nmore"
    failure = sink._failure_of(RuntimeError(text))
    assert isinstance(failure, UsageError)
    assert str(failure) == "topic 'x' does not exist"


class Tracker:
    """Spark's status: one job, one stage."""

    def __init__(self, jobs=(4,), attempt=0, failed=0):
        self.jobs, self.stage = (
            jobs,
            SimpleNamespace(currentAttemptId=attempt, numFailedTasks=failed),
        )

    def getJobIdsForTag(self, tag):  # noqa: N802
        return self.jobs

    def getJobInfo(self, job):  # noqa: N802
        return SimpleNamespace(stageIds=[1, 2])

    def getStageInfo(self, stage):  # noqa: N802
        return self.stage if stage == 2 else None


def context_with(tracker):
    java = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
    return SimpleNamespace(_jsc=java, statusTracker=lambda: tracker)


@pytest.mark.parametrize(("attempt", "failed"), [(1, 0), (0, 1)])
def test_a_stage_that_did_not_run_once_and_cleanly_is_not_committed(attempt, failed):
    with pytest.raises(WriteStageError, match="attempted"):
        sink._check_one_attempt(context_with(Tracker(attempt=attempt, failed=failed)), "tag")


def test_a_clean_stage_passes_and_so_does_one_that_spark_does_not_know_yet():
    assert sink._check_one_attempt(context_with(Tracker()), "tag") is None
    assert sink._check_one_attempt(context_with(Tracker(jobs=())), "tag") is None


def test_a_checkpoint_path_with_spaces_is_read(tmp_path):
    folder = tmp_path / "check point"
    folder.mkdir()
    (folder / "0").write_text("v1")
    assert sink._read_text(None, (folder / "0").as_uri()) == "v1"
    assert sink._read_text(None, str(folder / "0")) == "v1"
