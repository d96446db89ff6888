"""A partition keeps high watermark, LSO and markers in step with its log."""

from pathlib import Path

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.storage import Origin
from tests.unit.broker.support import ME, NOW_MS, HandLoop, assignment, batch, make_partition

OTHER = 2
PRODUCER = 5


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return make_partition(tmp_path, HandLoop())


def transactional(sequence: int = 0, epoch: int = 0) -> bytearray:
    return batch(producer_id=PRODUCER, epoch=epoch, sequence=sequence, transactional=True)


def mark(partition: Partition, *, commit: bool, epoch: int = 0) -> ErrorCode:
    return partition.append_marker(
        PRODUCER, epoch, 0, commit=commit, now_ms=NOW_MS, transaction_version=0
    ).error


def test_an_append_is_committed_at_once_on_a_lone_replica(partition: Partition) -> None:
    result = partition.append(batch(4), now_ms=NOW_MS)
    outcomes: list[ErrorCode] = []
    partition.on_committed(result.last_offset + 1, outcomes.append)
    assert outcomes == [ErrorCode.none]
    assert partition.readable_end(read_committed=False) == 4


def test_the_meter_counts_each_record_of_an_append_once(partition: Partition) -> None:
    given = batch(4, producer_id=7, epoch=0, sequence=0)
    for _ in range(2):
        partition.append(bytearray(given), now_ms=NOW_MS)
    partition.append(batch(2), now_ms=NOW_MS)
    meter = partition.meter
    assert (meter.produces, meter.messages_in) == (3, 6)
    assert meter.bytes_in == partition.log.size_bytes


def test_a_duplicate_moves_nothing_and_has_its_first_offset(partition: Partition) -> None:
    """INV-2."""
    first = partition.append(batch(producer_id=7, epoch=0, sequence=0), now_ms=NOW_MS)
    again = partition.append(batch(producer_id=7, epoch=0, sequence=0), now_ms=NOW_MS)
    assert again.duplicate
    assert again.base_offset == first.base_offset
    assert partition.log.log_end_offset == 1


def test_inv7_the_lso_stays_below_an_open_transaction(partition: Partition) -> None:
    partition.append(batch(2), now_ms=NOW_MS)
    partition.append(transactional(), now_ms=NOW_MS)
    partition.append(batch(), now_ms=NOW_MS)
    assert partition.readable_end(read_committed=True) == 2
    assert partition.readable_end(read_committed=False) == 4
    assert mark(partition, commit=True) is ErrorCode.none
    assert partition.readable_end(read_committed=True) == 5


def test_a_marker_above_the_high_watermark_still_holds_the_lso(tmp_path: Path) -> None:
    partition = make_partition(tmp_path, HandLoop(), (ME, OTHER))
    partition.append(transactional(), now_ms=NOW_MS)
    mark(partition, commit=True)
    partition.follower_fetched(OTHER, 1, 0)
    assert partition.readable_end(read_committed=True) == 0
    partition.follower_fetched(OTHER, 2, 0)
    assert partition.readable_end(read_committed=True) == 2


def test_a_follower_ahead_of_the_log_gets_an_error_and_nobody_stops(tmp_path: Path) -> None:
    partition = make_partition(tmp_path, HandLoop(), (ME, OTHER))
    partition.append(batch(2), now_ms=NOW_MS)
    assert partition.follower_fetched(OTHER, 3, 0) is ErrorCode.offset_out_of_range
    assert partition.follower_fetched(9, 1, 0) is ErrorCode.unknown_leader_epoch
    assert partition.readable_end(read_committed=False) == 0
    assert partition.follower_fetched(OTHER, 2, 0) is ErrorCode.none
    assert partition.readable_end(read_committed=False) == 2


def test_a_follower_of_a_partition_without_others_is_unknown(partition: Partition) -> None:
    assert partition.follower_fetched(OTHER, 0, 0) is ErrorCode.unknown_leader_epoch
    partition.resign(ErrorCode.not_leader_or_follower)
    assert partition.follower_fetched(OTHER, 0, 0) is ErrorCode.not_leader_or_follower


def test_inv6_a_listener_for_markers_is_called_when_they_are_committed(tmp_path: Path) -> None:
    partition = make_partition(tmp_path, HandLoop(), (ME, OTHER))
    heard: list[tuple[int, int, bool, int]] = []
    partition.on_marker = lambda *marker: heard.append(marker)
    partition.append(transactional(), now_ms=NOW_MS)
    mark(partition, commit=False)
    assert heard == []
    partition.follower_fetched(OTHER, 2, 0)
    assert heard == [(PRODUCER, 0, False, 1)]


def test_the_end_of_leadership_voids_verifications(partition: Partition) -> None:
    verification = partition.log.producers.verifications.begin(
        PRODUCER, 0, 0, bumps_epoch=False, now_ms=NOW_MS
    )
    partition.stop(ErrorCode.not_leader_or_follower)
    assert not partition.log.producers.verifications.end(verification)


def test_a_deleted_partition_answers_everybody_who_waits(tmp_path: Path) -> None:
    partition = make_partition(tmp_path, HandLoop(), (ME, OTHER))
    outcomes: list[ErrorCode] = []
    result = partition.append(batch(), now_ms=NOW_MS)
    partition.on_committed(result.last_offset + 1, outcomes.append)
    partition.resign(ErrorCode.unknown_topic_or_partition)
    assert outcomes == [ErrorCode.unknown_topic_or_partition]


def waiting_for(partition: Partition, end_offset: int) -> dict[str, list[ErrorCode]]:
    """What an acks=all produce and a coordinator are told, which wait for the same append."""
    told: dict[str, list[ErrorCode]] = {"produce": [], "coordinator": []}
    partition.on_replicated(end_offset, told["produce"].append)
    partition.on_committed(end_offset, told["coordinator"].append)
    return told


def test_a_produce_learns_that_too_few_replicas_are_left(tmp_path: Path) -> None:
    """A coordinator's record is not given up: it may be committed when there are enough again."""
    partition = make_partition(tmp_path, HandLoop(), (ME, OTHER))
    both = (ME, OTHER)
    partition.assign(assignment(both, both, min_isr=2), 0)
    partition.append(batch(2), now_ms=NOW_MS)
    told = waiting_for(partition, 2)
    partition.assign(assignment((ME,), both, min_isr=2), 0)
    assert told == {"produce": [ErrorCode.not_enough_replicas_after_append], "coordinator": []}
    assert partition.readable_end(read_committed=False) == 0
    partition.follower_fetched(OTHER, 2, 0)
    partition.assign(assignment(both, both, min_isr=2), 0)
    assert told["coordinator"] == [ErrorCode.none]


def test_a_leader_that_follows_answers_all_that_wait_for_replicas(tmp_path: Path) -> None:
    partition = make_partition(tmp_path, HandLoop(), (ME, OTHER))
    partition.append(batch(2), now_ms=NOW_MS)
    told = waiting_for(partition, 2)
    deleted: list[ErrorCode] = []
    partition.on_started(lambda: {ME, OTHER}, 1, deleted.append)
    assert partition.waiting_count == 2
    partition.assign(assignment((ME, OTHER), leader=OTHER, epoch=1), 0)
    lost = [ErrorCode.not_leader_or_follower]
    assert (told, deleted) == ({"produce": lost, "coordinator": lost}, lost)
    assert partition.waiting_count == 0


def test_a_deletion_is_done_when_all_live_replicas_have_deleted(tmp_path: Path) -> None:
    partition = make_partition(tmp_path, HandLoop(), (ME, OTHER, 3))
    partition.append(batch(4), now_ms=NOW_MS)
    for follower in (OTHER, 3):
        partition.follower_fetched(follower, 4, 0, log_start_offset=0)
    alive = {ME, OTHER, 3}
    done: list[ErrorCode] = []
    partition.on_started(lambda: alive, partition.delete_records(2), done.append)
    partition.follower_fetched(OTHER, 4, 0, log_start_offset=1)
    assert partition.low_watermark(lambda: alive) == 0
    alive.discard(3)
    assert done == []
    partition.follower_fetched(OTHER, 4, 0, log_start_offset=2)
    assert done == [ErrorCode.none]
    partition.on_started(lambda: {ME}, 2, done.append)
    assert done == [ErrorCode.none] * 2


def test_a_deletion_on_a_replica_that_leads_no_more_is_not_done(tmp_path: Path) -> None:
    """The role can go while the new start is synced; the next leader has the records still."""
    partition = make_partition(tmp_path, HandLoop(), (ME, OTHER))
    partition.append(batch(4), now_ms=NOW_MS)
    partition.follower_fetched(OTHER, 4, 0, log_start_offset=0)
    partition.delete_records(2)
    partition.assign(assignment((ME, OTHER), leader=OTHER, epoch=1), 0)
    done: list[ErrorCode] = []
    partition.on_started(lambda: {ME, OTHER}, 2, done.append)
    partition.fail()
    partition.on_started(lambda: {ME, OTHER}, 2, done.append)
    assert done == [ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error]
    assert not partition.start_waiters.waiting


def test_nothing_waits_for_a_commit_on_a_replica_that_does_not_lead(tmp_path: Path) -> None:
    """Its log may be cut, and grow again by other records than those that were meant."""
    partition = make_partition(tmp_path, HandLoop(), (ME, OTHER))
    partition.append(batch(2), now_ms=NOW_MS)
    partition.append(batch(2), now_ms=NOW_MS)
    partition.follower_fetched(OTHER, 2, 0)
    partition.assign(assignment((ME, OTHER), leader=OTHER, epoch=1), 0)
    outcomes: list[ErrorCode] = []
    for wait in (partition.on_committed, partition.on_replicated):
        wait(2, outcomes.append)
        wait(4, outcomes.append)
    assert outcomes == [ErrorCode.none, ErrorCode.not_leader_or_follower] * 2
    assert partition.waiting_count == 0


def replicate(partition: Partition, records: bytearray, offset: int, epoch: int) -> None:
    """Append to the log what another leader wrote in its epoch."""
    records[0:8] = offset.to_bytes(8, "big")
    records[12:16] = epoch.to_bytes(4, "big")
    partition.log.append(records, leader_epoch=epoch, now_ms=NOW_MS, origin=Origin.REPLICATION)


def test_inv3_a_new_leader_holds_the_lso_at_a_transaction_of_the_old_one(tmp_path: Path) -> None:
    partition = make_partition(tmp_path, HandLoop(), (ME, OTHER))
    both = (ME, OTHER)
    partition.assign(assignment(both, leader=OTHER, epoch=1), 0)
    replicate(partition, batch(2), 0, 1)
    replicate(partition, transactional(), 2, 1)
    replicate(partition, batch(), 3, 1)
    partition.state.local_end_moved(4)
    partition.assign(assignment(both, epoch=2), 0)
    partition.follower_fetched(OTHER, 4, 0)
    assert partition.readable_end(read_committed=False) == 4
    assert partition.readable_end(read_committed=True) == 2
    mark(partition, commit=False)
    assert partition.readable_end(read_committed=True) == 2
    partition.follower_fetched(OTHER, 5, 0)
    assert partition.readable_end(read_committed=True) == 5


def test_a_new_leader_begins_its_epoch_where_the_log_ends(tmp_path: Path) -> None:
    partition = make_partition(tmp_path, HandLoop(), (ME, OTHER))
    partition.append(batch(3), now_ms=NOW_MS)
    partition.assign(assignment((ME, OTHER), epoch=2), 0)
    assert partition.log.end_offset_for_epoch(0) == (0, 3)
    assert partition.log.end_offset_for_epoch(2) == (2, 3)


def test_internal_topics_are_known(tmp_path: Path) -> None:
    assert make_partition(tmp_path, HandLoop(), topic="__consumer_offsets").is_internal
    assert not make_partition(tmp_path, HandLoop(), topic="plain").is_internal


def test_inv7_a_last_stable_offset_above_the_high_watermark_stops_the_broker(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition.log, "last_stable_offset", lambda end: end + 1)
    with pytest.raises(InvariantViolation, match="INV-7"):
        partition.append(batch(), now_ms=NOW_MS)
    assert partition.last_stable_offset == 0
