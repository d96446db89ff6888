"""The roles of one partition: high watermark, leader epochs, who is told what."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.replication import PartitionState, ReplicaRole

TOPIC_ID = UUID(int=7)
ME = 1


def partition(*, end: int = 0, high_watermark: int = 0, min_isr: int = 1) -> PartitionState:
    return PartitionState(
        ME,
        TOPIC_ID,
        log_end_offset=end,
        high_watermark=high_watermark,
        min_insync_replicas=min_isr,
    )


def leader(isr: tuple[int, ...] = (ME,), **options: int) -> PartitionState:
    state = partition(**options)
    state.assign(leader=ME, leader_epoch=0, isr=isr, replicas=isr)
    return state


def test_a_lone_replica_commits_what_it_appends() -> None:
    state = leader()
    assert state.local_end_moved(5) is True
    assert state.high_watermark == 5


def test_a_lone_leader_commits_its_whole_log_at_election() -> None:
    state = leader(end=9, high_watermark=4)
    assert state.high_watermark == 9


def test_the_high_watermark_is_the_smallest_end_of_the_isr() -> None:
    state = leader((ME, 2, 3))
    assert state.local_end_moved(10) is False
    assert state.follower_end_moved(2, 8) is False
    assert state.follower_end_moved(3, 6) is True
    assert state.high_watermark == 6


def test_followers_outside_the_isr_do_not_hold_it_back() -> None:
    state = leader((ME, 2))
    state.local_end_moved(10)
    assert state.follower_end_moved(3, 1) is False
    assert state.follower_end_moved(2, 10) is True
    assert state.high_watermark == 10


def test_the_high_watermark_waits_while_the_isr_is_too_small() -> None:
    state = leader(min_isr=2)
    assert state.local_end_moved(10) is False
    assert state.high_watermark == 0
    assert not state.has_enough_replicas


def test_no_more_replicas_have_to_be_in_sync_than_there_are() -> None:
    state = partition(end=10)
    state.assign(leader=ME, leader_epoch=0, isr=(ME,), replicas=(ME,), min_insync_replicas=2)
    assert state.has_enough_replicas
    assert state.high_watermark == 10
    state = partition(end=10)
    state.assign(leader=ME, leader_epoch=0, isr=(ME,), replicas=(ME, 2), min_insync_replicas=3)
    assert not state.has_enough_replicas
    state = partition(end=10)
    state.assign(leader=ME, leader_epoch=0, isr=(ME, 2), replicas=(ME, 2), min_insync_replicas=3)
    assert state.has_enough_replicas


def test_a_shrinking_isr_releases_the_high_watermark() -> None:
    state = leader((ME, 2))
    state.local_end_moved(10)
    assert state.high_watermark == 0
    state.assign(leader=ME, leader_epoch=0, isr=(ME,), replicas=(ME, 2))
    assert state.high_watermark == 10


def test_a_new_leader_keeps_its_high_watermark_until_followers_fetch() -> None:
    state = partition(end=10, high_watermark=7)
    state.assign(leader=ME, leader_epoch=3, isr=(ME, 2), replicas=(ME, 2))
    assert state.high_watermark == 7
    assert state.follower_end_moved(2, 10) is True
    assert state.high_watermark == 10


def test_a_leader_of_a_new_epoch_forgets_what_followers_held_in_the_old_one() -> None:
    state = leader((ME, 2, 3))
    state.local_end_moved(10)
    state.follower_end_moved(2, 8)
    state.assign(leader=ME, leader_epoch=1, isr=(ME, 2), replicas=(ME, 2, 3))
    assert state.high_watermark == 0
    assert state.follower_end_moved(2, 5) is True
    assert state.high_watermark == 5


def test_an_older_assignment_is_ignored() -> None:
    state = leader()
    state.assign(leader=2, leader_epoch=4, isr=(2,), replicas=(ME, 2))
    assert state.assign(leader=ME, leader_epoch=3, isr=(ME,), replicas=(ME,)) is False
    assert state.role is ReplicaRole.FOLLOWER
    assert state.leader_epoch == 4


def test_a_follower_takes_the_high_watermark_of_its_leader_up_to_its_own_end() -> None:
    state = partition(end=5)
    state.assign(leader=2, leader_epoch=1, isr=(2, ME), replicas=(2, ME))
    assert state.leader_high_watermark(8) is True
    assert state.high_watermark == 5
    assert state.leader_high_watermark(3) is False
    assert state.high_watermark == 5


def test_a_checkpoint_beyond_the_log_is_cut_to_its_end() -> None:
    assert partition(end=3, high_watermark=9).high_watermark == 3


def test_inv1_a_leader_never_truncates() -> None:
    with pytest.raises(InvariantViolation, match="INV-1"):
        leader(end=3).truncated(1)


def test_a_follower_cannot_be_ahead_of_its_leader() -> None:
    with pytest.raises(InvariantViolation):
        leader((ME, 2)).follower_end_moved(2, 1)


@pytest.mark.parametrize(
    ("request_epoch", "expected"),
    [
        (-1, ErrorCode.none),
        (5, ErrorCode.none),
        (4, ErrorCode.fenced_leader_epoch),
        (6, ErrorCode.unknown_leader_epoch),
    ],
)
def test_a_leader_compares_epochs(request_epoch: int, expected: ErrorCode) -> None:
    state = partition()
    state.assign(leader=ME, leader_epoch=5, isr=(ME,), replicas=(ME,))
    assert state.leader_error(request_epoch) is expected


def test_who_does_not_lead_says_so() -> None:
    state = partition()
    assert state.leader_error() is ErrorCode.not_leader_or_follower
    state.assign(leader=2, leader_epoch=0, isr=(2,), replicas=(2, ME))
    assert state.leader_error() is ErrorCode.not_leader_or_follower
    assert not state.is_leader


def test_a_resigned_partition_serves_no_request() -> None:
    state = leader()
    state.resign()
    assert state.leader_error() is ErrorCode.not_leader_or_follower
    assert state.local_end_moved(4) is False


@given(
    st.lists(
        st.tuples(st.sampled_from([ME, 2, 3]), st.integers(min_value=0, max_value=50)), max_size=40
    )
)
def test_inv7_the_high_watermark_never_moves_back_nor_beyond_any_isr_member(
    moves: list[tuple[int, int]],
) -> None:
    state = leader((ME, 2, 3))
    ends = {ME: 0, 2: 0, 3: 0}
    for who, step in moves:
        before = state.high_watermark
        if who == ME:
            ends[ME] += step
            state.local_end_moved(ends[ME])
        else:
            ends[who] = min(ends[ME], ends[who] + step)
            state.follower_end_moved(who, ends[who])
        assert state.high_watermark >= before
        assert state.high_watermark == min(ends.values())


def test_inv7_a_high_watermark_above_the_log_stops_the_broker() -> None:
    state = leader(end=3)
    state._end_offsets[ME] = 4
    with pytest.raises(InvariantViolation, match="INV-7"):
        state._advance()
    assert state.high_watermark == 3
