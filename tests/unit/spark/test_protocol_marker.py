"""Markers that expire, are deleted, committed again, or stand in a topic of their own (INV-10)."""

import pytest

from oncelog.client.errors import (
    AbortableError,
    ClientError,
    ConnectionLostError,
    FatalError,
    FencedError,
)
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import FailClosedError, StoppedError, UsageError, WriteStageError
from oncelog.spark.marker import BatchIdentity, Marker, sources_hash
from oncelog.spark.parties import ProducerIdentity, TaskReport
from tests.support.logged import said_by
from tests.unit.spark.protocol_fakes import (
    HOUR_S,
    MARKERS,
    SOURCE,
    WEEK_S,
    Batch,
    Coordinator,
    Start,
)

FORGOTTEN = FatalError(ErrorCode.invalid_producer_id_mapping, "the id expired")
FENCED = FencedError(ErrorCode.producer_fenced, "another driver")
SUPERSEDED = FatalError(ErrorCode.invalid_producer_epoch, "another driver")
LOST = ConnectionLostError("no answer")


# --- expiry ------------------------------------------------------------------------------


def test_a_live_query_outlives_the_deletion_of_its_groups_offsets(
    cluster: Coordinator, start: Start
) -> None:
    driver = start({"before epoch": FORGOTTEN})
    driver.process(Batch(cluster, 0))
    cluster.expire()
    cluster.now_s += HOUR_S
    driver.process(Batch(cluster, 1))
    assert cluster.committed_rows == ["row 0", "row 1"]


def test_a_driver_that_slept_longer_than_offsets_live_does_not_trust_its_memory(
    cluster: Coordinator, start: Start
) -> None:
    zombie = start({"before epoch": FORGOTTEN})
    zombie.process(Batch(cluster, 0))
    start().process(Batch(cluster, 1))
    cluster.expire()
    cluster.now_s += WEEK_S
    with pytest.raises(FailClosedError, match="missing-marker"):
        zombie.process(Batch(cluster, 1))
    assert cluster.committed_rows == ["row 0", "row 1"]


def test_a_new_process_does_not_run_batch_0_again_once_its_marker_may_have_expired(
    cluster: Coordinator, start: Start
) -> None:
    planned = Batch(cluster, 0)
    start().process(planned)
    cluster.expire()
    cluster.now_s += WEEK_S
    with pytest.raises(FailClosedError, match="batch 0 was planned more than a day ago"):
        start().process(planned)
    planned.planned_s = None
    with pytest.raises(FailClosedError, match="missing-marker"):
        start().process(planned)
    assert cluster.committed_rows == ["row 0"]


def test_batch_0_that_was_planned_just_now_runs_without_a_marker(
    cluster: Coordinator, start: Start
) -> None:
    planned = Batch(cluster, 0)
    cluster.now_s += HOUR_S
    start().process(planned)
    assert cluster.committed_rows == ["row 0"]


def test_with_a_marker_topic_a_batch_0_that_was_opened_runs_if_it_was_never_committed_and_only_then(
    cluster: Coordinator, start: Start
) -> None:
    start(marker_partition=MARKERS).prepare("q")
    planned = Batch(cluster, 0)
    cluster.now_s += WEEK_S
    start(marker_partition=MARKERS).process(planned)
    cluster.expire()
    cluster.now_s += WEEK_S
    start(marker_partition=MARKERS).process(planned)
    assert (cluster.committed_rows, planned.drains) == (["row 0"], 1)


# --- two carriers ------------------------------------------------------------------------


@pytest.mark.parametrize("carrier", ["topic", "group"])
def test_either_carrier_of_the_marker_is_enough(
    cluster: Coordinator, start: Start, carrier: str
) -> None:
    start(marker_partition=MARKERS).process(Batch(cluster, 0))
    (cluster.records if carrier == "group" else cluster.offsets).clear()
    again = Batch(cluster, 0)
    start(marker_partition=MARKERS).process(again)
    start(marker_partition=MARKERS).process(Batch(cluster, 1))
    assert (cluster.committed_rows, again.drains) == (["row 0", "row 1"], 1)


def test_a_query_with_its_marker_in_group_offsets_goes_on_with_a_marker_topic(
    cluster: Coordinator, start: Start
) -> None:
    start().process(Batch(cluster, 0))
    driver = start(marker_partition=MARKERS)
    driver.process(Batch(cluster, 1))
    assert driver.marker is not None
    assert cluster.records[MARKERS, b"app"].decode() == driver.marker.encode()
    assert cluster.offsets[SOURCE].metadata == driver.marker.encode()
    assert cluster.committed_rows == ["row 0", "row 1"]


def test_a_marker_that_an_older_version_put_beside_an_offset_of_the_marker_topic_counts(
    cluster: Coordinator, start: Start
) -> None:
    old = Batch(cluster, 4)
    identity = BatchIdentity("q", 4, sources_hash(old.lines))
    cluster.offsets[MARKERS] = OffsetAndMetadata(5, Marker(5, identity).encode())
    start(marker_partition=MARKERS).process(Batch(cluster, 5))
    assert cluster.committed_rows == ["row 5"]


def test_the_marker_record_is_lost_with_its_transaction(cluster: Coordinator, start: Start) -> None:
    start(marker_partition=MARKERS).prepare("q")
    appends = cluster.log.count("append")
    start({"before end": LOST}, marker_partition=MARKERS).process(Batch(cluster, 0))
    assert cluster.committed_rows == ["row 0"]
    assert cluster.log.count("append") == appends + 2


def test_without_source_offsets_the_group_stays_empty(cluster: Coordinator, start: Start) -> None:
    driver = start(marker_partition=MARKERS, commit_source_offsets=False)
    driver.process(Batch(cluster, 0))
    assert cluster.offsets == {}
    start(marker_partition=MARKERS, commit_source_offsets=False).process(Batch(cluster, 0))
    assert cluster.committed_rows == ["row 0"]


# --- another cluster ---------------------------------------------------------------------


def test_offsets_of_another_cluster_are_never_committed(cluster: Coordinator, start: Start) -> None:
    batch = Batch(cluster, 0)
    batch.lines = ('{"in":{"0":10},"@oncelog":{"cluster":"theirs"}}',)
    with pytest.raises(UsageError, match=r"reads from cluster theirs.*commit_source_offsets=False"):
        start(cluster_id="ours", marker_partition=MARKERS).process(batch)
    assert cluster.log == []
    start(cluster_id="ours", marker_partition=MARKERS, commit_source_offsets=False).process(batch)
    assert (cluster.committed_rows, cluster.offsets) == (["row 0"], {})
    start(cluster_id="theirs", marker_partition=MARKERS).process(batch)


# --- a query that replaces another one ---------------------------------------------------


@pytest.mark.parametrize("begins", [{SOURCE: 0}, {SOURCE: 11}, None])
def test_a_query_that_replaces_another_one_begins_where_that_one_ended(
    cluster: Coordinator, start: Start, begins: dict[TopicPartition, int] | None
) -> None:
    start().process(Batch(cluster, 0, query_id="old"))
    late = Batch(cluster, 0, query_id="new", offset=20)
    late.begins = begins
    with pytest.raises(FailClosedError, match="other-start"):
        start(replaces_query="old").process(late)
    start(replaces_query="old", accept=frozenset({"other-start"})).process(late)


def test_only_the_first_batch_of_a_query_replaces_another_one(
    cluster: Coordinator, start: Start
) -> None:
    start().process(Batch(cluster, 0, query_id="old"))
    with pytest.raises(FailClosedError, match="other-query"):
        start(replaces_query="old").process(Batch(cluster, 1, query_id="new", offset=20))


@pytest.mark.parametrize("renewed", [False, True])
def test_offsets_that_the_last_batch_did_not_commit_are_no_place_to_begin(
    cluster: Coordinator, start: Start, renewed: bool
) -> None:
    start(marker_partition=MARKERS).process(Batch(cluster, 0, query_id="old"))
    without = start(marker_partition=MARKERS, commit_source_offsets=False)
    without.process(Batch(cluster, 1, query_id="old", offset=500))
    if renewed:
        idle = start(marker_partition=MARKERS)
        idle.prepare()
        idle.renew()
    new = Batch(cluster, 0, query_id="new", offset=600)
    new.begins = {SOURCE: 10}
    with pytest.raises(FailClosedError, match="it committed none"):
        start(marker_partition=MARKERS, replaces_query="old").process(new)
    accept = frozenset({"other-start"})
    start(marker_partition=MARKERS, replaces_query="old", accept=accept).process(new)
    assert cluster.offsets[SOURCE].offset == 600


def test_offsets_that_were_reset_by_hand_are_no_place_to_begin(
    cluster: Coordinator, start: Start
) -> None:
    start(marker_partition=MARKERS).process(Batch(cluster, 0, query_id="old"))
    cluster.offsets[SOURCE] = OffsetAndMetadata(5)
    new = Batch(cluster, 0, query_id="new", offset=20)
    new.begins = {SOURCE: 5}
    with pytest.raises(FailClosedError, match="were reset"):
        start(marker_partition=MARKERS, replaces_query="old").process(new)


# --- renewal -----------------------------------------------------------------------------


def test_an_idle_query_commits_its_marker_and_offsets_again_in_time(
    cluster: Coordinator, start: Start
) -> None:
    driver = start(marker_partition=MARKERS)
    driver.process(Batch(cluster, 0))
    before = (dict(cluster.offsets), dict(cluster.records))
    ends = cluster.log.count("end")
    driver.renew()
    assert cluster.log.count("end") == ends
    cluster.expire()
    cluster.now_s += HOUR_S
    driver.renew()
    driver.renew()
    assert cluster.log.count("end") == ends + 1
    assert (cluster.offsets, cluster.records) == before
    driver.process(Batch(cluster, 1))
    assert cluster.committed_rows == ["row 0", "row 1"]


def test_a_query_that_only_just_started_renews_what_it_found(
    cluster: Coordinator, start: Start
) -> None:
    start().process(Batch(cluster, 0))
    before = dict(cluster.offsets)
    idle = start()
    idle.renew()
    assert cluster.log.count("end") == 1
    idle.prepare()
    idle.renew()
    assert cluster.log.count("end") == 2
    assert cluster.offsets == before


def test_nothing_is_renewed_in_the_middle_of_a_batch(cluster: Coordinator, start: Start) -> None:
    driver = start()
    driver.process(Batch(cluster, 0))
    cluster.now_s += HOUR_S

    class Renewing(Batch):
        def write(self, identity: ProducerIdentity) -> list[TaskReport]:
            driver.renew()
            return super().write(identity)

    driver.process(Renewing(cluster, 1))
    assert cluster.log.count("end") == 2
    assert cluster.committed_rows == ["row 0", "row 1"]


@pytest.mark.parametrize("error", [FENCED, SUPERSEDED])
def test_a_renewal_never_fences_the_driver_that_took_over(
    cluster: Coordinator, start: Start, error: ClientError
) -> None:
    driver = start({"before epoch": error})
    driver.process(Batch(cluster, 0))
    cluster.now_s += HOUR_S
    with pytest.raises(ClientError):
        driver.renew()
    opened = cluster.log.count("open")
    driver.renew()
    assert cluster.log.count("open") == opened


def test_a_renewal_that_failed_leaves_the_next_batch_and_the_next_renewal_whole(
    cluster: Coordinator, start: Start
) -> None:
    driver = start({"before epoch": FORGOTTEN, "after end": LOST})
    with pytest.raises(WriteStageError):
        driver.process(Batch(cluster, 0, failures=[WriteStageError("x")], stopping=True))
    driver.process(Batch(cluster, 0))
    cluster.now_s += HOUR_S
    driver.renew()
    driver.process(Batch(cluster, 1))
    assert cluster.committed_rows == ["row 0", "row 1"]


def test_a_renewal_goes_on_when_the_coordinator_forgot_the_id(
    cluster: Coordinator, start: Start
) -> None:
    driver = start({"before epoch": FORGOTTEN})
    driver.process(Batch(cluster, 0))
    cluster.now_s += HOUR_S
    with pytest.raises(FatalError):
        driver.renew()
    cluster.expire()
    driver.renew()
    assert cluster.offsets[SOURCE].offset == 10


# --- what is tried once ------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        FatalError(ErrorCode.transactional_id_authorization_failed, "app"),
        FatalError(ErrorCode.offset_metadata_too_large, "app"),
        AbortableError(ErrorCode.group_authorization_failed, "app"),
        AbortableError(ErrorCode.topic_authorization_failed, "app"),
    ],
    ids=lambda failure: failure.code.name,
)
def test_what_no_attempt_can_mend_is_tried_once(
    cluster: Coordinator, start: Start, failure: ClientError
) -> None:
    batch = Batch(cluster, 0)
    with pytest.raises(ClientError, match=failure.code.name.upper()):
        start({"before offsets": failure}).process(batch)
    assert (len(batch.epochs), cluster.open_rows) == (1, [])


def test_a_query_that_is_stopped_while_the_cluster_is_silent_ends_at_once(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0, failures=[StoppedError("stopped")])
    with pytest.raises(StoppedError):
        start().process(batch)
    assert (len(batch.epochs), cluster.open_rows) == (1, [])


# --- Spark's commit log ---------------------------------------------------------------------


def test_the_marker_carries_what_sparks_commit_log_would_hold(
    cluster: Coordinator, start: Start
) -> None:
    batch = Batch(cluster, 0)
    batch.watermark_ms = 12_000
    start().process(batch)
    marker = Marker.decode(cluster.offsets[SOURCE].metadata)
    assert marker is not None
    assert marker.watermark_ms == 12_000


# --- source partitions that were deleted ----------------------------------------------------

OTHER = TopicPartition("a", 0)


def batch_of_two(cluster: Coordinator, batch_id: int) -> Batch:
    """It reads `OTHER`, which comes first in order, and `SOURCE`."""
    batch = Batch(cluster, batch_id)
    batch.lines = (f'{{"a":{{"0":7}},"in":{{"0":{batch.offset}}}}}',)
    return batch


def test_offsets_of_a_deleted_partition_are_left_out_and_another_one_carries_the_marker(
    cluster: Coordinator, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start(marker_partition=None).process(batch_of_two(cluster, 0))
    assert cluster.offsets[OTHER].metadata
    cluster.missing = {OTHER}
    driver = start(marker_partition=None, write_attempts=1)
    driver.process(batch_of_two(cluster, 1))
    driver.process(batch_of_two(cluster, 2))
    assert cluster.offsets[SOURCE].offset == 30
    assert driver.marker == Marker.decode(cluster.offsets[SOURCE].metadata)
    start(marker_partition=None).process(batch_of_two(cluster, 3))
    assert cluster.committed_rows == [f"row {batch}" for batch in range(4)]
    warnings = {record.message for record in said_by(caplog) if record.levelname == "WARNING"}
    assert warnings == {"partition a-0 is gone; its offset is not committed to the group"}


def test_a_partition_that_is_deleted_between_two_batches_costs_at_most_one_attempt(
    cluster: Coordinator, start: Start
) -> None:
    driver = start()
    driver.process(batch_of_two(cluster, 0))
    cluster.missing = {OTHER}
    late = batch_of_two(cluster, 1)
    driver.process(late)
    assert len(late.epochs) == 2
    cluster.missing = set()
    cluster.now_s += 60
    driver.process(batch_of_two(cluster, 2))
    assert cluster.offsets.keys() == {SOURCE, OTHER}
    assert cluster.committed_rows == ["row 0", "row 1", "row 2"]


def test_a_query_whose_partition_was_deleted_is_renewed(cluster: Coordinator, start: Start) -> None:
    driver = start()
    driver.process(batch_of_two(cluster, 0))
    cluster.missing = {OTHER}
    cluster.expire()
    cluster.now_s += HOUR_S
    driver.renew()
    assert cluster.offsets.keys() == {SOURCE}


def test_a_query_whose_partitions_were_all_deleted_keeps_its_marker_in_the_topic(
    cluster: Coordinator, start: Start
) -> None:
    cluster.missing = {SOURCE}
    start(marker_partition=MARKERS).process(Batch(cluster, 0))
    assert cluster.offsets == {}
    assert cluster.records.keys() == {(MARKERS, b"app")}


def test_a_batch_without_any_place_for_its_marker_is_not_committed(
    cluster: Coordinator, start: Start
) -> None:
    cluster.missing = {SOURCE}
    with pytest.raises(ClientError, match="UNKNOWN_TOPIC"):
        start(marker_partition=None).process(Batch(cluster, 0))
    assert cluster.committed_rows == []
