"""A partition keeps high watermark, LSO and markers in step with its log."""

from pathlib import Path

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ErrorCode, InvariantViolation
from tests.unit.broker.support import ME, NOW_MS, HandLoop, batch, make_partition

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
