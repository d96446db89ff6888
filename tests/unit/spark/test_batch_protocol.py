"""The protocol of a micro-batch, step by step, with a made-up coordinator and Spark (INV-10)."""

import pytest

from oncelog.client.errors import AbortableError, ClientError, ConnectionLostError, FencedError
from oncelog.core.errors import ErrorCode
from oncelog.spark.batch_progress import describe_batch
from oncelog.spark.batch_protocol import ADJUSTMENTS_COUNT_MAX
from oncelog.spark.errors import (
    AdjustedError,
    FailClosedError,
    StoppedError,
    TooLargeError,
    UsageError,
    WriteStageError,
)
from oncelog.spark.parties import TaskReport
from oncelog.spark.progress import ProgressLog
from tests.unit.spark.protocol_fakes import (
    MARKERS,
    OUT,
    SOURCE,
    Batch,
    Coordinator,
    Start,
)

FENCED = FencedError(ErrorCode.producer_fenced, "another driver")
LOST = ConnectionLostError("no answer")


def test_batches_commit_their_row_their_offset_and_their_marker_together(
    cluster: Coordinator, start: Start
) -> None:
    driver = start()
    driver.process(Batch(cluster, 0))
    driver.process(Batch(cluster, 1))
    assert cluster.committed_rows == ["row 0", "row 1"]
    assert cluster.offsets[SOURCE].offset == 20
    assert driver.marker is not None
    assert driver.marker.encode() == cluster.offsets[SOURCE].metadata
    assert (driver.marker.sequence, driver.marker.batch.batch_id) == (2, 1)


def test_each_batch_writes_under_an_epoch_of_its_own(cluster: Coordinator, start: Start) -> None:
    driver = start()
    batches = [Batch(cluster, n) for n in range(3)]
    for batch in batches:
        driver.process(batch)
    assert [batch.epochs for batch in batches] == [[0], [1], [2]]
    assert cluster.log.count("open") == 1


def test_a_batch_found_committed_after_a_restart_is_drained_and_not_written(
    cluster: Coordinator, start: Start
) -> None:
    start().process(Batch(cluster, 0))
    again = Batch(cluster, 0)
    driver = start()
    driver.process(again)
    driver.process(Batch(cluster, 1))
    assert (again.drains, again.epochs) == (1, [])
    assert cluster.committed_rows == ["row 0", "row 1"]


@pytest.mark.parametrize("point", ["after_init", "tasks_done", "offsets_committed"])
def test_a_driver_that_died_before_the_end_leaves_nothing_and_the_batch_runs_again(
    cluster: Coordinator, start: Start, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DiedError(BaseException):
        pass

    def die(self: ProgressLog, name: str, batch_id: int, **details: object) -> None:
        if name == point:
            raise DiedError

    victim = start()
    with monkeypatch.context() as patch:
        patch.setattr(ProgressLog, "step", die)
        with pytest.raises(DiedError):
            victim.process(Batch(cluster, 0))
    assert cluster.committed_rows == []
    start().process(Batch(cluster, 0))
    assert cluster.committed_rows == ["row 0"]


def test_a_failed_write_stage_runs_again_under_a_new_epoch(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0, failures=[WriteStageError("a task failed")])
    start().process(batch)
    assert batch.epochs == [0, 1]
    assert cluster.committed_rows == ["row 0"]


def test_when_the_attempts_are_used_up_the_failure_is_raised_and_nothing_stays_open(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0, failures=[WriteStageError(f"failure {n}") for n in range(3)])
    with pytest.raises(WriteStageError, match="failure 2"):
        start(write_attempts=3).process(batch)
    assert cluster.committed_rows == cluster.open_rows == []
    assert cluster.log[-1] == "open"


def test_an_attempt_that_found_out_how_to_write_does_not_count_as_failed(
    cluster: Coordinator, start: Start
) -> None:
    smaller = [TooLargeError("out", size, 12) for size in (512, 256, 128, 64)]
    batch = Batch(cluster, 0, failures=[*smaller, AdjustedError("the metadata is read again")])
    start(write_attempts=1).process(batch)
    assert cluster.committed_rows == ["row 0"]
    assert len(batch.epochs) == 6


def test_attempts_that_only_adjust_come_to_an_end(cluster: Coordinator, start: Start) -> None:
    endless = [AdjustedError("once more")] * (ADJUSTMENTS_COUNT_MAX + 9)
    batch = Batch(cluster, 0, failures=endless)
    with pytest.raises(AdjustedError):
        start(write_attempts=2).process(batch)
    assert len(batch.epochs) == ADJUSTMENTS_COUNT_MAX + 2
    assert cluster.open_rows == []


def test_a_query_being_stopped_gets_no_second_attempt(cluster: Coordinator, start: Start) -> None:
    batch = Batch(cluster, 0, failures=[WriteStageError("cancelled")], stopping=True)
    with pytest.raises(WriteStageError, match="cancelled"):
        start().process(batch)
    assert batch.epochs == [0]
    assert cluster.open_rows == []


@pytest.mark.parametrize("faults", [{}, {"before open": LOST}])
def test_a_lost_connection_does_not_fail_a_query_that_is_being_stopped(
    cluster: Coordinator, start: Start, faults: dict[str, ClientError]
) -> None:
    driver = start()
    driver.process(Batch(cluster, 0))
    driver._transaction.faults = {"before offsets": LOST, **faults}  # type: ignore[attr-defined]
    with pytest.raises(StoppedError, match=r"stopped while batch 1 was written \(.*NETWORK"):
        driver.process(Batch(cluster, 1, stopping=True))
    assert cluster.committed_rows == ["row 0"]


def test_a_commit_in_doubt_of_a_query_that_is_being_stopped_is_settled_if_it_can_be(
    cluster: Coordinator, start: Start
) -> None:
    start({"after end": LOST}).process(Batch(cluster, 0, stopping=True))
    assert cluster.committed_rows == ["row 0"]


def test_a_mistake_of_the_user_is_not_tried_again_and_leaves_nothing_open(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0, failures=[UsageError("topic is null")])
    with pytest.raises(UsageError, match="topic is null"):
        start().process(batch)
    assert batch.epochs == [0]
    assert cluster.open_rows == []


@pytest.mark.parametrize("error", [LOST, FENCED])
def test_a_commit_in_doubt_that_went_through_is_success_without_a_second_write(
    cluster: Coordinator, start: Start, error: ClientError
) -> None:
    batch = Batch(cluster, 0)
    start({"after end": error}).process(batch)
    assert cluster.committed_rows == ["row 0"]
    assert (batch.epochs, batch.drains) == ([0], 0)


def test_a_commit_in_doubt_in_the_last_attempt_is_settled_too(
    cluster: Coordinator, start: Start
) -> None:
    progress = ProgressLog(None)
    start({"after end": LOST}, progress, write_attempts=1).process(Batch(cluster, 0))
    assert cluster.committed_rows == ["row 0"]
    # `write_once` and `last_progress` say what came of it by the last step.
    assert describe_batch(progress.steps_of(0))["outcome"] == "committed"


@pytest.mark.parametrize("call", ["before end", "before offsets", "before add_offsets"])
@pytest.mark.parametrize("error", [LOST, FENCED, AbortableError(ErrorCode.transaction_abortable)])
def test_a_commit_that_did_not_go_through_is_rerun_once_more(
    cluster: Coordinator, start: Start, call: str, error: ClientError
) -> None:
    batch = Batch(cluster, 0)
    start({call: error}).process(batch)
    assert cluster.committed_rows == ["row 0"]
    assert len(batch.epochs) == 2


def test_a_driver_fenced_before_it_writes_reads_the_marker_again(
    cluster: Coordinator, start: Start
) -> None:
    zombie = start({"before epoch": FENCED})
    zombie.process(Batch(cluster, 0))
    other = start()
    other.process(Batch(cluster, 1))
    late = Batch(cluster, 1)
    zombie.process(late)
    assert cluster.committed_rows == ["row 0", "row 1"]
    assert (late.epochs, late.drains) == ([], 1)


def test_a_zombie_whose_application_went_on_fails_closed(
    cluster: Coordinator, start: Start
) -> None:
    zombie = start({"before epoch": FENCED})
    zombie.process(Batch(cluster, 0))
    other = start()
    other.process(Batch(cluster, 1))
    other.process(Batch(cluster, 2))
    with pytest.raises(FailClosedError, match="older"):
        zombie.process(Batch(cluster, 1))
    assert cluster.committed_rows == ["row 0", "row 1", "row 2"]


def test_two_tasks_on_one_partition_are_never_committed(cluster: Coordinator, start: Start) -> None:
    batch = Batch(cluster, 0)
    batch.reports = [TaskReport(0, OUT, 1, 0, 0), TaskReport(1, OUT, 1, 1, 1)]
    with pytest.raises(WriteStageError, match="tasks 0 and 1 both wrote to out-0"):
        start().process(batch)
    assert cluster.committed_rows == []


def test_an_empty_batch_commits_a_marker_too(cluster: Coordinator, start: Start) -> None:
    driver = start()
    empty = Batch(cluster, 0)
    empty.reports = []
    driver.process(empty)
    assert driver.marker is not None
    assert cluster.offsets[SOURCE].metadata == driver.marker.encode()


def test_a_source_that_is_not_kafka_needs_a_marker_topic_and_then_carries_it_there(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0)
    batch.lines = ('{"offset":5}',)
    with pytest.raises(UsageError, match="marker_topic"):
        start().process(batch)
    assert cluster.log == []
    start(marker_partition=MARKERS).process(batch)
    assert (list(cluster.records), cluster.offsets) == ([(MARKERS, b"app")], {})
    start(marker_partition=MARKERS).process(batch)
    assert cluster.committed_rows == ["row 0"]


def test_another_query_fails_closed_until_it_is_told_which_one_it_replaces(
    cluster: Coordinator, start: Start
) -> None:
    start().process(Batch(cluster, 0, query_id="old"))
    with pytest.raises(FailClosedError, match="replaces_query='old'"):
        start().process(Batch(cluster, 0, query_id="new", offset=20))
    with pytest.raises(FailClosedError):
        start(replaces_query="older").process(Batch(cluster, 0, query_id="new", offset=20))
    driver = start(replaces_query="old")
    driver.process(Batch(cluster, 0, query_id="new", offset=20))
    driver.process(Batch(cluster, 1, query_id="new", offset=30))
    assert cluster.committed_rows == ["row 0", "row 0", "row 1"]
    with pytest.raises(FailClosedError):
        start(replaces_query="old").process(Batch(cluster, 1, query_id="old"))


def test_a_cluster_that_does_not_answer_at_first_is_asked_again(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0)
    start({"before open": LOST}).process(batch)
    assert cluster.committed_rows == ["row 0"]
