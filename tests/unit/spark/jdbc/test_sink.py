"""What a write stage that did not run once means, with a made-up run and no Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

import oncelog.spark.jdbc.sink as sink_module
from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import StoppedError, WriteStageError
from oncelog.spark.jdbc.sink import JdbcMicroBatch
from oncelog.spark.jdbc.transaction import StagedRows
from oncelog.spark.parties import ProducerIdentity, TaskReport

IDENTITY = ProducerIdentity(7, 1)


class Status:
    """Spark's status: one job, whose stages had so many attempts and failed tasks."""

    def __init__(self, attempt: int = 0, failed_count: int = 0) -> None:
        self.stage = SimpleNamespace(currentAttemptId=attempt, numFailedTasks=failed_count)

    def getJobIdsForTag(self, tag: str) -> tuple[int, ...]:  # noqa: N802 - Spark's names
        return (4,)

    def getJobInfo(self, job: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(stageIds=[1, 2], status="SUCCEEDED")

    def getStageInfo(self, stage: int) -> SimpleNamespace:  # noqa: N802
        return self.stage


class CopiedBatch(JdbcMicroBatch):
    """Its one task has copied three rows."""

    def __init__(self, status: Status, *, is_stopping: bool = False) -> None:
        java = SimpleNamespace(statusTracker=lambda: status)
        context = SimpleNamespace(
            addJobTag=lambda tag: None,
            removeJobTag=lambda tag: None,
            getLocalProperty=lambda name: None,
            setLocalProperty=lambda name, value: None,
            statusTracker=lambda: status,
            _jsc=SimpleNamespace(sc=lambda: java),
        )
        self.transaction = SimpleNamespace(staged=())
        run: Any = SimpleNamespace(
            context=context,
            query_id="q",
            run_id="r",
            options=SimpleNamespace(target=SimpleNamespace(name=("orders",))),
            transaction=self.transaction,
            is_stopping=lambda: is_stopping,
        )
        frame: Any = None
        super().__init__(run, frame, 5)

    def _stage(self, identity: ProducerIdentity) -> Any:
        rows = [{"task": 0, "task_attempt_id": 9, "rows": 3}]
        return SimpleNamespace(collect=lambda: rows)


def test_the_rows_of_a_stage_that_ran_once_are_moved_though_a_task_of_it_failed() -> None:
    batch = CopiedBatch(Status(failed_count=1))
    assert batch.write(IDENTITY) == [TaskReport(0, TopicPartition("orders", 0), 3, 0, 0)]
    assert batch.transaction.staged == [StagedRows(9, 3)]


def test_rows_of_a_stage_that_ran_twice_are_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-10: those of the first run may be other ones."""
    looks: list[Any] = []
    monkeypatch.setattr(sink_module, "replace_dead_workers", lambda *_: looks.append(_))
    batch = CopiedBatch(Status(attempt=1))
    with pytest.raises(WriteStageError, match="attempted 2 times"):
        batch.write(IDENTITY)
    assert batch.transaction.staged == ()
    assert len(looks) == 1


def test_a_stage_that_ends_because_the_query_is_stopped_says_so() -> None:
    with pytest.raises(StoppedError, match="stopped while it wrote batch 5"):
        CopiedBatch(Status(attempt=1), is_stopping=True).write(IDENTITY)
