"""A leader with followers: high watermark, who may join the ISR, who has to leave it."""

from collections.abc import Callable

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.replication.leader import LeaderState
from oncelog.replication.replica import IsrMembers, OfflineState, ReplicaState
from oncelog.replication.roles import assign, resign
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
        state.ask(((ME, 0), (9, 0)))


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
    state.ask(((ME, 0), (2, 0)))
    assert not state.may_join(2, 10)
    state.local_end_moved(15)
    assert state.high_watermark == 10
    fetched(state, 2, 12)
    assert state.high_watermark == 12


def test_an_addition_counts_until_a_newer_state_of_the_partition() -> None:
    state = leader((ME,), (ME, 2))
    state.ask(((ME, 0), (2, 0)))
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


def moved(state: ReplicaState) -> ReplicaState:
    resigned = resign(state)
    assert isinstance(resigned, OfflineState)
    return resigned.with_log(10)


@pytest.mark.parametrize("given_up", [resign, moved])
def test_inv1_what_was_asked_outlives_a_role_given_up(
    given_up: Callable[[ReplicaState], ReplicaState],
) -> None:
    """The log moved to another folder: the controller may write what it was asked for all the same.

    Found by simulation: the leader committed alone, and then the follower was added.
    """
    state = leader((ME,), (ME, 2))
    state.local_end_moved(10)
    state.ask(((ME, 0), (2, 0)))
    again = lead(given_up(state), given((ME,), replicas=(ME, 2)))
    again.local_end_moved(15)
    assert again.joining == {2}
    assert again.high_watermark == 10
    newer = lead(resign(again), given((ME,), replicas=(ME, 2), partition_epoch=1))
    assert newer.joining == frozenset()
    assert newer.high_watermark == 15


def test_who_is_refused_for_good_counts_no_more() -> None:
    """But what was asked before, and may still be written, does."""
    state = leader((ME,), (ME, 2, 3))
    state.local_end_moved(10)
    state.ask(((ME, 0), (2, 0)))
    state.ask(((ME, 0), (2, 0), (3, 0)))
    state.local_end_moved(15)
    state.refused(((ME, 0), (2, 0), (3, 0)))
    assert state.joining == {2}
    assert state.high_watermark == 10
    state.refused(((ME, 0), (2, 0)))
    assert state.joining == frozenset()
    assert state.high_watermark == 15


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


def fetched_in_life(state: LeaderState, who: int, offset: int, life: int) -> ErrorCode:
    end = state.log_end_offset
    return state.follower_fetched(who, offset, log_end_offset=end, now_ms=0, broker_epoch=life)


def test_a_fetch_of_an_earlier_life_counts_nothing() -> None:
    """KIP-903: it says nothing of the log that the broker has now."""
    state = leader((ME, 2))
    state.local_end_moved(9)
    assert fetched_in_life(state, 2, 5, life=7) is ErrorCode.none
    assert fetched_in_life(state, 2, 9, life=6) is ErrorCode.not_leader_or_follower
    assert state.high_watermark == 5


def test_who_fetches_below_what_it_had_in_one_life_has_lost_records() -> None:
    state = leader((ME, 2, 3), (ME, 2, 3))
    state.local_end_moved(9)
    for who in (2, 3):
        fetched_in_life(state, who, 9, life=7)
    fetched_in_life(state, 2, 8, life=7)
    assert state.lagging(now_ms=0, lag_max_ms=30) == {2}
    fetched_in_life(state, 2, 9, life=7)
    assert state.lagging(now_ms=0, lag_max_ms=30) == {2}
    state = lead(state, given((ME, 3), replicas=(ME, 2, 3), partition_epoch=1))
    state = lead(state, given((ME, 2, 3), partition_epoch=2))
    assert state.lagging(now_ms=0, lag_max_ms=30) == frozenset()


def test_each_that_left_the_isr_for_a_loss_may_come_back() -> None:
    state = leader((ME, 2, 3))
    state.local_end_moved(9)
    for who in (2, 3):
        for offset in (9, 8):
            fetched_in_life(state, who, offset, life=7)
    assert state.lagging(now_ms=0, lag_max_ms=30) == {2, 3}
    state = lead(state, given((ME,), replicas=(ME, 2, 3), partition_epoch=1))
    state = lead(state, given((ME, 2, 3), partition_epoch=2))
    assert state.lagging(now_ms=0, lag_max_ms=30) == frozenset()


def test_who_loses_records_while_it_is_asked_into_the_isr_has_to_leave_it() -> None:
    state = leader((ME,), (ME, 2))
    state.local_end_moved(9)
    fetched_in_life(state, 2, 9, life=7)
    state.ask(((ME, 0), (2, 7)))
    fetched_in_life(state, 2, 8, life=7)
    state = lead(state, given((ME, 2), partition_epoch=1))
    assert state.lagging(now_ms=0, lag_max_ms=30) == {2}


def test_who_truncates_or_begins_another_life_has_lost_nothing_in_this_one() -> None:
    state = leader((ME, 2, 3))
    state.local_end_moved(9)
    for who in (2, 3):
        fetched_in_life(state, who, 9, life=7)
    state.diverged(2)
    fetched_in_life(state, 2, 4, life=7)
    fetched_in_life(state, 3, 4, life=8)
    assert state.lagging(now_ms=0, lag_max_ms=30) == frozenset()


def test_who_was_told_to_truncate_counts_with_nothing_until_it_fetches() -> None:
    state = leader((ME, 2))
    state.local_end_moved(9)
    fetched(state, 2, 5)
    state.diverged(2)
    state.local_end_moved(12)
    assert state.high_watermark == 5
    fetched(state, 2, 12)
    assert state.high_watermark == 12


def test_a_new_leader_knows_what_is_committed_once_its_epoch_is_reached() -> None:
    """KIP-207."""
    state = lead(replica(end=10, high_watermark=7), given((ME, 2), epoch=3))
    known = [state.knows_committed_end]
    for end in (9, 10):
        fetched(state, 2, end)
        known.append(state.knows_committed_end)
    assert known == [False, False, True]
    assert take(replica(end=10, high_watermark=7), given((ME,))).knows_committed_end


def test_records_are_deleted_once_no_live_replica_starts_below() -> None:
    state = leader((ME, 2, 3))
    state.local_end_moved(9)
    assert state.low_watermark(4, alive={ME, 2, 3}) == -1
    for who, start in ((2, 3), (3, 1)):
        state.follower_fetched(who, 9, log_end_offset=9, now_ms=0, log_start_offset=start)
    assert state.low_watermark(4, alive={ME, 2, 3}) == 1
    assert state.low_watermark(4, alive={ME, 2}) == 3
    assert state.low_watermark(4, alive={ME}) == 4


def test_a_consumer_reads_from_the_replica_of_its_rack_that_has_most() -> None:
    racks = {ME: "a", 2: "b", 3: "b", 4: "b", 5: "c"}
    state = leader((ME, 2, 3, 5), (ME, 2, 3, 4, 5))
    state.local_end_moved(10)
    for who, offset in ((2, 8), (3, 9), (4, 10), (5, 7)):
        fetched(state, who, offset)
    # 4 has more, and is outside the ISR; 2 has what is asked for, and less than 3.
    assert state.nearest_replica(8, "b", racks) == 3
    assert state.nearest_replica(9, "b", racks) == 3
    assert state.nearest_replica(10, "b", racks) is None
    assert state.nearest_replica(7, "c", racks) == 5
    assert state.nearest_replica(8, "c", racks) is None
    assert state.nearest_replica(1, "a", racks) is None
    assert state.nearest_replica(1, "d", racks) is None


def wanted(state: LeaderState, wishes: dict[int, int], now_ms: int = 0) -> IsrMembers | None:
    return state.wanted_isr(5, wishes, now_ms, lag_max_ms=30)


def test_what_was_asked_before_is_asked_before_what_was_asked_after() -> None:
    """The controller may have written either, so both count until one is settled."""
    state = leader((ME,), (ME, 2, 3))
    state.local_end_moved(9)
    first, second = ((ME, 5), (2, 6)), ((ME, 5), (3, 7))
    state.ask(first)
    state.ask(second)
    assert wanted(state, {}) == first
    state.refused(first)
    assert wanted(state, {}) == second


def test_the_isr_that_is_asked_for_adds_who_wishes_and_may() -> None:
    state = leader((ME, 2), (ME, 2, 3, 4))
    state.local_end_moved(9)
    fetched_in_life(state, 2, 9, life=6)
    fetched_in_life(state, 3, 9, life=7)
    fetched_in_life(state, 4, 8, life=8)
    assert wanted(state, {}) is None
    assert wanted(state, {4: 8, 9: 1}) is None
    assert wanted(state, {3: 7, 4: 8}) == ((ME, 5), (2, 6), (3, 7))


def test_a_wish_of_an_earlier_life_is_not_asked_for() -> None:
    state = leader((ME,), (ME, 2))
    fetched_in_life(state, 2, 0, life=7)
    assert wanted(state, {2: 6}) is None
    assert wanted(state, {2: 7}) == ((ME, 5), (2, 7))


def test_the_isr_that_is_asked_for_leaves_out_who_lags() -> None:
    """What is not known of a member's life is not said: -1."""
    state = leader((ME, 2, 3))
    fetched_in_life(state, 2, 0, life=6)
    state.follower_fetched(2, 0, log_end_offset=0, now_ms=20, broker_epoch=6)
    assert wanted(state, {}, now_ms=30) is None
    assert wanted(state, {}, now_ms=31) == ((ME, 5), (2, 6))
    assert wanted(state, {}, now_ms=99) == ((ME, 5),)


def test_what_was_asked_and_may_be_written_is_asked_again_as_it_was() -> None:
    """Asked for other members meanwhile, a refusal would not say that this is never written."""
    state = leader((ME,), (ME, 2, 3))
    for who, life in ((2, 7), (3, 8)):
        fetched_in_life(state, who, 0, life=life)
    asked = ((ME, 5), (2, 7))
    state.ask(asked)
    assert wanted(state, {3: 8}) == asked
    state.refused(asked)
    assert wanted(state, {3: 8}) == ((ME, 5), (3, 8))


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
