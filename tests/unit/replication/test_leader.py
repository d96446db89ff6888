"""A leader with followers: high watermark, who may join the ISR, who has to leave it."""

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.replication.leader import LeaderState
from oncelog.replication.roles import assign
from tests.unit.replication.support import ME, given, lead, replica, take


def fetched(state: LeaderState, who: int, offset: int, now_ms: int = 0) -> ErrorCode:
    """A follower fetches from a log that ends where what counts as appended ends."""
    return state.follower_fetched(who, offset, log_end_offset=state.log_end_offset, now_ms=now_ms)


def leader(isr: tuple[int, ...], replicas: tuple[int, ...] | None = None) -> LeaderState:
    return lead(replica(), given(isr, replicas=replicas))


def test_the_high_watermark_is_the_smallest_end_of_the_isr() -> None:
    state = leader((ME, 2, 3))
    assert state.local_end_moved(10) is False
    fetched(state, 2, 8)
    assert state.high_watermark == 0
    fetched(state, 3, 6)
    assert state.high_watermark == 6


def test_followers_outside_the_isr_do_not_hold_it_back() -> None:
    state = leader((ME, 2), (ME, 2, 3))
    state.local_end_moved(10)
    assert fetched(state, 3, 1) is ErrorCode.none
    assert state.high_watermark == 0
    fetched(state, 2, 10)
    assert state.high_watermark == 10


def test_the_high_watermark_waits_while_the_isr_is_too_small() -> None:
    state = lead(replica(), given((ME,), replicas=(ME, 2), min_isr=2))
    assert state.local_end_moved(10) is False
    assert state.high_watermark == 0
    assert not state.has_enough_replicas


def test_a_shrinking_isr_releases_the_high_watermark() -> None:
    state = leader((ME, 2))
    state.local_end_moved(10)
    assert state.high_watermark == 0
    assert take(state, given((ME,), replicas=(ME, 2))).high_watermark == 10


def test_a_new_leader_keeps_its_high_watermark_until_followers_fetch() -> None:
    state = lead(replica(end=10, high_watermark=7), given((ME, 2), epoch=3))
    assert state.high_watermark == 7
    fetched(state, 2, 10)
    assert state.high_watermark == 10


def test_a_leader_of_a_new_epoch_forgets_what_followers_held_in_the_old_one() -> None:
    state = leader((ME, 2, 3))
    state.local_end_moved(10)
    fetched(state, 2, 8)
    state = lead(state, given((ME, 2), replicas=(ME, 2, 3), epoch=1))
    assert state.high_watermark == 0
    fetched(state, 2, 5)
    assert state.high_watermark == 5


def test_a_follower_ahead_of_its_leader_is_told_so_and_nobody_stops() -> None:
    state = leader((ME, 2))
    state.local_end_moved(3)
    assert fetched(state, 2, 4) is ErrorCode.offset_out_of_range
    assert state.high_watermark == 0
    assert fetched(state, 2, 3) is ErrorCode.none
    assert state.high_watermark == 3


def test_inv7_a_follower_ahead_of_the_leaders_sync_commits_nothing_more() -> None:
    """It has synced what its leader is still syncing."""
    state = leader((ME, 2))
    state.local_end_moved(3)
    error = state.follower_fetched(2, 5, log_end_offset=5, now_ms=0)
    assert error is ErrorCode.none
    assert state.high_watermark == 3
    assert state.local_end_moved(5) is True
    assert state.high_watermark == 5


def test_who_is_no_replica_has_to_ask_again() -> None:
    state = leader((ME, 2))
    assert fetched(state, 9, 0) is ErrorCode.unknown_leader_epoch
    assert not state.may_join(9, 0)
    with pytest.raises(InvariantViolation, match="INV-1"):
        state.join(9)


def test_inv1_a_follower_joins_with_all_that_is_committed() -> None:
    state = leader((ME, 2), (ME, 2, 3))
    state.local_end_moved(10)
    fetched(state, 2, 6)
    assert not state.may_join(3, 5)
    assert state.may_join(3, 6)
    assert not state.may_join(2, 10)


def test_inv1_a_follower_joins_with_all_from_before_the_leaders_epoch() -> None:
    """The leader may know less than is committed: its high watermark is that of a checkpoint.

    In the epoch that it led before its restart as well.
    """
    for epoch in (0, 1):
        before = replica(end=10, high_watermark=2)
        state = lead(before, given((ME, 2), replicas=(ME, 2, 3), epoch=epoch))
        assert state.high_watermark == 2
        assert not state.may_join(3, 9)
        assert state.may_join(3, 10)
        state.local_end_moved(12)
        again = lead(state, given((ME, 2), replicas=(ME, 2, 3), epoch=epoch, partition_epoch=1))
        assert again.may_join(3, 10)


def test_an_epoch_begins_where_the_log_ends_though_a_sync_is_due() -> None:
    begun = replica(end=4)
    state = assign(begun, given((ME, 2), replicas=(ME, 2, 3)), log_end_offset=9, now_ms=0)
    assert isinstance(state, LeaderState)
    assert not state.may_join(3, 8)
    assert state.may_join(3, 9)


def test_inv1_who_is_asked_into_the_isr_counts_at_once() -> None:
    """The controller may have added it, though the answer is late or lost, and elect it."""
    state = leader((ME,), (ME, 2))
    state.local_end_moved(10)
    assert state.high_watermark == 10
    fetched(state, 2, 10)
    state.join(2)
    assert not state.may_join(2, 10)
    state.local_end_moved(15)
    assert state.high_watermark == 10
    fetched(state, 2, 12)
    assert state.high_watermark == 12


def test_an_addition_counts_until_a_newer_state_of_the_partition() -> None:
    state = leader((ME,), (ME, 2))
    state.join(2)
    same = lead(state, given((ME,), replicas=(ME, 2), min_isr=2))
    assert same.joining == {2}
    same.local_end_moved(5)
    assert same.high_watermark == 0
    refused = lead(same, given((ME,), replicas=(ME, 2), partition_epoch=1))
    assert refused.joining == frozenset()
    assert refused.high_watermark == 5
    added = lead(same, given((ME, 2), partition_epoch=1))
    assert added.joining == frozenset()
    assert added.high_watermark == 0


def test_what_is_known_of_a_follower_outlives_another_state_of_the_same_epoch() -> None:
    state = leader((ME, 2, 3))
    state.local_end_moved(9)
    fetched(state, 2, 9)
    state = lead(state, given((ME, 2), replicas=(ME, 2, 3), partition_epoch=1))
    assert state.high_watermark == 9


def test_who_was_not_caught_up_for_too_long_lags() -> None:
    state = lead(replica(), given((ME, 2, 3)), now_ms=100)
    assert state.lagging(now_ms=130, lag_max_ms=30) == frozenset()
    assert state.lagging(now_ms=131, lag_max_ms=30) == {2, 3}
    fetched(state, 2, 0, now_ms=120)
    assert state.lagging(now_ms=131, lag_max_ms=30) == {3}


def test_who_is_outside_the_isr_cannot_lag() -> None:
    state = leader((ME, 2), (ME, 2, 3))
    assert state.lagging(now_ms=99, lag_max_ms=30) == {2}


@hypothesis_given(
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
            fetched(state, who, ends[who])
        assert state.high_watermark >= before
        assert state.high_watermark == min(ends.values())
