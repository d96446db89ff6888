"""The order of a micro-batch's steps, of which a crash leaves the first few (INV-10)."""

import logging
from functools import partial

import pytest

from oncelog.client.errors import ConnectionLostError, FencedError
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import WriteStageError
from oncelog.spark.parties import ProducerIdentity, TaskReport
from oncelog.spark.progress import ProgressLog
from tests.unit.spark.protocol_fakes import HOUR_S, MARKERS, SOURCE, Batch, Coordinator, Start

LOST = ConnectionLostError("no answer")


class Told(ProgressLog):
    """Steps among the calls that the cluster got."""

    def __init__(self, cluster: Coordinator) -> None:
        super().__init__(None)
        self._log = cluster.log

    def step(self, name: str, batch_id: int, **details: object) -> None:
        self._log.append(name.upper())
        super().step(name, batch_id, **details)


class ToldBatch(Batch):
    """A batch whose own part is among the calls too."""

    def write(self, identity: ProducerIdentity) -> list[TaskReport]:
        self.cluster.log.append("write")
        return super().write(identity)

    def drain(self) -> None:
        self.cluster.log.append("drain")
        super().drain()


def test_each_step_is_told_before_or_after_what_it_names(
    cluster: Coordinator, start: Start
) -> None:
    driver = start(marker_partition=MARKERS, progress=Told(cluster))
    driver.prepare("q")
    cluster.log.clear()
    driver.process(ToldBatch(cluster, 0))
    assert cluster.log == [
        *("WAL_WRITTEN", "epoch", "AFTER_INIT", "write", "TASKS_DONE"),
        *("append", "add_offsets", "offsets", "OFFSETS_COMMITTED"),
        *("ENDING", "end", "TXN_ENDED"),
    ]


def test_a_batch_found_committed_is_drained_between_two_steps(
    cluster: Coordinator, start: Start
) -> None:
    start().process(Batch(cluster, 0))
    cluster.log.clear()
    start(progress=Told(cluster)).process(ToldBatch(cluster, 0))
    assert cluster.log == ["WAL_WRITTEN", "open", "DRAIN", "drain", "DRAINED"]


def test_a_renewal_has_an_epoch_of_its_own(cluster: Coordinator, start: Start) -> None:
    driver = start(marker_partition=MARKERS)
    driver.process(Batch(cluster, 0))
    cluster.log.clear()
    cluster.now_s += HOUR_S
    driver.renew()
    assert cluster.log == ["epoch", "append", "add_offsets", "offsets", "end"]


def test_a_failed_attempt_is_told_by_its_number_and_the_first_line_of_its_error(
    cluster: Coordinator, start: Start
) -> None:
    progress = ProgressLog(None)
    failures = [WriteStageError("a task failed\nTraceback"), WriteStageError("another one")]
    start(progress=progress).process(Batch(cluster, 0, failures=failures))
    failed = [step for step in progress.steps_of(0) if step["step"] == "failed"]
    told = [(step["attempt"], step["error"]) for step in failed]
    assert told == [(1, "a task failed"), (2, "another one")]


def test_a_closed_driver_opens_its_transaction_again(cluster: Coordinator, start: Start) -> None:
    driver = start()
    driver.process(Batch(cluster, 0))
    driver.close()
    driver.process(Batch(cluster, 1))
    assert cluster.log.count("open") == 2


def test_a_query_that_was_opened_at_its_start_is_not_opened_by_its_first_batch(
    cluster: Coordinator, start: Start
) -> None:
    driver = start(marker_partition=MARKERS)
    driver.prepare("q")
    driver.process(Batch(cluster, 0))
    assert cluster.log.count("append") == 2


@pytest.mark.parametrize("renews", [False, True], ids=["opening", "renewal"])
def test_after_a_commit_alone_that_failed_the_next_batch_opens_again(
    cluster: Coordinator, start: Start, renews: bool
) -> None:
    """The epoch of the failed one may be fenced: a new one has to be asked for."""
    if renews:
        start(marker_partition=MARKERS).process(Batch(cluster, 0))
    driver = start({"before append": LOST}, marker_partition=MARKERS)
    if renews:
        driver.prepare()
        cluster.now_s += HOUR_S
    commit_alone = driver.renew if renews else partial(driver.prepare, "q")
    with pytest.raises(ConnectionLostError):
        commit_alone()
    cluster.log.clear()
    driver.process(Batch(cluster, int(renews)))
    assert cluster.log.count("open") == 1
    assert cluster.committed_rows[-1] == f"row {int(renews)}"


def test_a_marker_that_was_found_at_the_start_is_trusted_when_it_is_deleted(
    cluster: Coordinator, start: Start
) -> None:
    start().process(Batch(cluster, 0))
    driver = start({"before end": LOST})
    driver.prepare()
    cluster.expire()
    driver.process(Batch(cluster, 1))
    assert cluster.committed_rows == ["row 0", "row 1"]


def test_a_commit_that_failed_is_not_remembered_as_the_last_one(
    cluster: Coordinator, start: Start
) -> None:
    """Without a marker in the cluster the run trusts its memory, which must not be ahead."""
    driver = start({"before end": LOST})
    driver.prepare()
    cluster.now_s += 1.0
    driver.process(Batch(cluster, 0))
    driver = start({"before end": LOST})
    driver.prepare()
    cluster.expire()
    driver.process(Batch(cluster, 1))
    assert cluster.committed_rows == ["row 0", "row 1"]


def test_a_batch_that_another_driver_committed_meanwhile_is_not_taken_for_computed_here(
    cluster: Coordinator, start: Start
) -> None:
    """The state of this run is that of its last write, and that one failed."""

    class Overtaken(Batch):
        def write(self, identity: ProducerIdentity) -> list[TaskReport]:
            if self.epochs:
                start().process(Batch(cluster, 0))
                self.failures = [WriteStageError("fenced")]
            return super().write(identity)

    fenced = FencedError(ErrorCode.producer_fenced, "another driver")
    with pytest.raises(WriteStageError, match="fenced"):
        start({"before end": fenced}, write_attempts=2).process(Overtaken(cluster, 0))


def test_each_deleted_partition_is_named_once(
    cluster: Coordinator, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    gone = [TopicPartition("in", 1), TopicPartition("in", 2)]
    cluster.missing = {*gone}
    batch = Batch(cluster, 0)
    batch.lines = ('{"in":{"0":10,"1":5,"2":5}}',)
    batch.begins = dict.fromkeys([SOURCE, *gone], 0)
    with caplog.at_level(logging.WARNING, "oncelog.spark"):
        start().process(batch)
    named = [record.getMessage().split(" is gone")[0] for record in caplog.records]
    assert named == [f"partition {tp}" for tp in gone]
