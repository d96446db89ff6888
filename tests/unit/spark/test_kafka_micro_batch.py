"""What a failed write of a micro-batch means, with a made-up run and no Spark."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

import oncelog.spark.kafka_micro_batch as micro_batch_module
from oncelog.spark.collected_rows import CollectedRows
from oncelog.spark.errors import (
    AdjustedError,
    PipelineError,
    StoppedError,
    UnknownTargetError,
    WriteStageError,
)
from oncelog.spark.kafka_micro_batch import KafkaMicroBatch
from oncelog.spark.parties import ProducerIdentity
from oncelog.spark.targets import Targets

IDENTITY = ProducerIdentity(7, 1)


class FailingBatch(KafkaMicroBatch):
    """Its rows fail to be written, with one error after the other."""

    def __init__(self, *errors: PipelineError, is_stopping: bool = False) -> None:
        self.forgotten = 0
        run: Any = SimpleNamespace(
            context=None,
            query_id="q",
            targets=lambda: Targets(("out",), (1,)),
            forget_targets=self._forget,
        )
        super().__init__(run, SimpleNamespace(), 5)  # type: ignore[arg-type]
        self._errors = list(errors)
        self._stops = is_stopping

    def _forget(self) -> None:
        self.forgotten += 1

    def is_stopping(self) -> bool:
        return self._stops

    def _write(self, identity: ProducerIdentity, targets: Targets) -> Any:
        raise self._errors.pop(0)


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The looks for dead workers; nothing is described."""
    found: list[Any] = []
    monkeypatch.setattr(micro_batch_module, "described", lambda *_: nullcontext())
    monkeypatch.setattr(micro_batch_module, "replace_dead_workers", lambda *_: found.append(_))
    return found


def test_dead_workers_are_replaced_before_the_next_attempt(looks: list[Any]) -> None:
    batch = FailingBatch(WriteStageError("the write stage failed: java.io.EOFException"))
    with pytest.raises(WriteStageError):
        batch.write(IDENTITY)
    assert len(looks) == 1
    with pytest.raises(StoppedError):
        FailingBatch(WriteStageError("cancelled"), is_stopping=True).write(IDENTITY)
    assert len(looks) == 1


def test_a_row_that_names_a_new_partition_is_tried_again_and_a_second_time_ends_the_query() -> None:
    unknown = UnknownTargetError("partition 3 does not exist")
    batch = FailingBatch(unknown, unknown)
    with pytest.raises(AdjustedError, match="the metadata is read again"):
        batch.write(IDENTITY)
    assert batch.forgotten == 1
    with pytest.raises(UnknownTargetError):
        batch.write(IDENTITY)


def test_a_stage_that_ends_because_the_query_is_stopped_says_so() -> None:
    interrupted = WriteStageError("the write stage failed: java.lang.InterruptedException")
    with pytest.raises(StoppedError, match="stopped while it wrote batch 5; nothing of it"):
        FailingBatch(interrupted, is_stopping=True).write(IDENTITY)
    with pytest.raises(WriteStageError, match="Interrupted"):
        FailingBatch(interrupted).write(IDENTITY)


@pytest.mark.parametrize(
    ("task_count", "on_one_machine", "max_tasks", "shares"),
    [
        (2, True, None, True),
        (8, True, None, True),
        (9, True, None, False),
        (2, False, None, False),
        (2, True, 2, False),
        (None, True, None, False),
    ],
)
def test_tasks_send_themselves_where_they_are_few_and_reach_the_driver(
    monkeypatch: pytest.MonkeyPatch,
    task_count: int | None,
    on_one_machine: bool,
    max_tasks: int | None,
    shares: bool,
) -> None:
    """INV-2: elsewhere each partition has one sender, behind a shuffle."""
    ways: list[str] = []

    class Batch(FailingBatch):
        def _collected(self, *_: Any) -> None:
            return None

        def _run_shared(self, *_: Any) -> list[Any]:
            ways.append("shared")
            return []

        def _run_stage(self, *_: Any) -> list[Any]:
            ways.append("stage")
            return []

    monkeypatch.setattr(micro_batch_module, "partition_count", lambda df: task_count)
    monkeypatch.setattr(micro_batch_module, "record_columns", lambda *_: {})
    monkeypatch.setattr(micro_batch_module, "slots_of", lambda context: 2)
    batch = Batch()
    batch._run.shares_machine = on_one_machine
    batch._run.options = SimpleNamespace(  # type: ignore[assignment]
        topic="out", batch_size=9, compression_type="none", max_tasks=max_tasks
    )
    KafkaMicroBatch._write(batch, IDENTITY, Targets(("out",), (1,)))
    assert ways == ["shared" if shares else "stage"]


def test_rows_whose_collecting_failed_are_not_collected_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may be more than Spark's driver takes (`spark.driver.maxResultSize`)."""
    tries: list[Any] = []

    class Batch(FailingBatch):
        def source_lines(self) -> tuple[str, ...]:
            return ()

        def _run_stage(self, *_: Any) -> list[Any]:
            return []

    def collect(*_: Any) -> Any:
        tries.append(_)
        raise PySparkException("Total size of serialized results is bigger than")

    monkeypatch.setattr(micro_batch_module, "partition_count", lambda df: 2)
    monkeypatch.setattr(micro_batch_module, "record_columns", lambda *_: {})
    monkeypatch.setattr(micro_batch_module, "stage_settings", lambda session: nullcontext())
    monkeypatch.setattr(micro_batch_module, "job_tag", lambda *_: nullcontext())
    monkeypatch.setattr(micro_batch_module, "collect_few", collect)
    batch = Batch()
    batch._df.sparkSession = None  # type: ignore[misc, assignment]
    batch._run.run_id = "run"
    batch._run.shares_machine = False
    batch._run.driver_rows = CollectedRows(10)
    batch._run.records_since = lambda read_to: 7  # type: ignore[method-assign]
    batch._run.options = SimpleNamespace(  # type: ignore[assignment]
        topic="out", batch_size=9, compression_type="none", max_tasks=None
    )
    with pytest.raises(WriteStageError, match="Total size"):
        KafkaMicroBatch._write(batch, IDENTITY, Targets(("out",), (1,)))
    assert KafkaMicroBatch._write(batch, IDENTITY, Targets(("out",), (1,))) == []
    assert len(tries) == 1
    assert batch._run.driver_rows.limit(7) == 0, "nor are those of the next batch"
