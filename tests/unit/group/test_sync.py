import pytest

from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.core.ids import Offset
from oncelog.group.events import Sync, SyncPhaseOver
from oncelog.group.states import GroupState
from tests.unit.group.context import Context


def gathered(c: Context, count: int = 2) -> list[str]:
    """Members of generation 1 that have not sent SyncGroup yet."""
    members = [c.new_member()[0] for _ in range(count)]
    c.advance(6_000)
    assert c.group().state is GroupState.COMPLETING_REBALANCE
    return members


def test_each_member_gets_what_the_leader_made_for_it() -> None:
    c = Context()
    leader, follower = gathered(c)
    waiting = c.sync(follower)
    assert waiting not in c.replies
    own = c.submit(c.sync_event(leader, 1, {leader: b"L", follower: b"F"}))
    assert (c.synced(own).assignment, c.synced(waiting).assignment) == (b"L", b"F")
    assert c.synced(own).protocol_name == "range"
    assert c.synced(own).protocol_type == "consumer"
    assert c.group().state is GroupState.STABLE


def test_a_member_that_the_leader_left_out_gets_an_empty_assignment() -> None:
    c = Context()
    leader, follower = gathered(c)
    c.submit(c.sync_event(leader, 1, {leader: b"L", "stranger": b"S"}))
    assert c.synced(c.sync(follower)).assignment == b""


def test_no_member_gets_an_assignment_before_its_record_is_committed() -> None:
    c = Context()
    leader, follower = gathered(c)
    early = c.sync(follower)
    c.hold = True
    own = c.submit(c.sync_event(leader, 1, {leader: b"L", follower: b"F"}))
    late = c.sync(follower)
    assert not {early, own, late} & set(c.replies)
    c.commit_all()
    assert [c.synced(t).assignment for t in (early, own, late)] == [b"F", b"L", b"F"]


def test_a_failed_assignment_is_told_to_all_who_wait_and_they_rejoin() -> None:
    c = Context()
    leader, follower = gathered(c)
    waiting = c.sync(follower)
    c.hold = True
    own = c.submit(c.sync_event(leader, 1, {leader: b"L", follower: b"F"}))
    c.fail(ErrorCode.not_leader_or_follower)
    assert c.synced(own).error is c.synced(waiting).error is ErrorCode.not_coordinator
    assert c.group().state is GroupState.PREPARING_REBALANCE
    assert c.group().members[follower].assignment == b""
    tokens = [c.join(leader), c.join(follower)]
    assert [c.joined(t).generation_id for t in tokens] == [2, 2]


def test_a_sync_that_does_not_fit_the_group_is_refused() -> None:
    c = Context()
    leader, _ = gathered(c)

    def refused(event: Sync) -> ErrorCode:
        return c.synced(c.submit(event)).error

    assert refused(Sync("", 1, leader)) is ErrorCode.invalid_group_id
    assert refused(Sync("other", 1, leader)) is ErrorCode.unknown_member_id
    assert refused(Sync("g", 1, "stranger")) is ErrorCode.unknown_member_id
    assert refused(Sync("g", 1, leader, "instance")) is ErrorCode.unknown_member_id
    assert refused(Sync("g", 0, leader)) is ErrorCode.illegal_generation
    inconsistent = ErrorCode.inconsistent_group_protocol
    assert refused(Sync("g", 1, leader, None, "connect")) is inconsistent
    assert refused(Sync("g", 1, leader, None, None, "sticky")) is inconsistent


def test_a_sync_during_a_rebalance_is_told_so() -> None:
    c = Context()
    leader, follower = c.stable(2)
    c.join(leader)
    assert c.synced(c.sync(follower)).error is ErrorCode.rebalance_in_progress


def test_who_joins_but_never_syncs_is_out() -> None:
    c = Context()
    leader, follower = gathered(c)
    c.submit(c.sync_event(leader, 1, {leader: b"L", follower: b"F"}))
    for _ in range(12):
        assert c.heartbeat(leader) is ErrorCode.none
        assert c.heartbeat(follower) is ErrorCode.none
        c.advance(5_000)
    assert c.group().state is GroupState.PREPARING_REBALANCE
    assert list(c.group().members) == [leader]


def test_without_any_sync_group_the_group_ends_up_empty() -> None:
    c = Context()
    members = gathered(c)
    for _ in range(12):
        for member in members:
            c.heartbeat(member)
        c.advance(5_000)
    assert c.group().state is GroupState.EMPTY
    assert c.group().generation_id == 2


def test_a_sync_timer_of_an_older_generation_does_nothing() -> None:
    c = Context()
    gathered(c)
    c.submit_silently(SyncPhaseOver("g", 0))
    c.submit_silently(SyncPhaseOver("gone", 1))
    assert c.group().state is GroupState.COMPLETING_REBALANCE


def test_a_member_that_waits_for_its_assignment_need_not_heartbeat() -> None:
    c = Context()
    _, follower = gathered(c)
    token = c.sync(follower)
    c.advance(9_999)
    assert token not in c.replies
    c.advance(1)
    # The leader was silent for its session timeout; the follower is asked to rejoin.
    assert c.synced(token).error is ErrorCode.rebalance_in_progress
    assert list(c.group().members) == [follower]


def test_timers_that_come_up_while_a_record_is_written_are_held() -> None:
    c = Context()
    leader, follower = gathered(c)
    c.hold = True
    c.submit(c.sync_event(leader, 1, {leader: b"L", follower: b"F"}))
    c.advance(30_000)
    late = c.submit(Sync("g", 1, follower))
    c.hold = False
    c.commit_all()
    assert c.synced(late).assignment == b"F"
    assert set(c.group().members) == {leader, follower}
    c.advance(9_999)
    assert set(c.group().members) == {leader, follower}
    c.advance(1)
    assert not c.group().members


def test_an_id_given_out_and_a_sync_phase_that_end_during_a_write_end_after_it() -> None:
    c = Context()
    leader, follower = gathered(c)
    c.join()
    c.hold = True
    c.submit(c.sync_event(leader, 1, {leader: b"L", follower: b"F"}))
    c.advance(100_000)
    assert c.group().pending_joins
    assert len(c.in_flight) == 1
    c.hold = False
    append, base = c.in_flight.pop(0)
    c.handle(c.processor.committed(append.append_id, Offset(base), c.now_ms))
    c.handle(c.processor.tick(c.now_ms))
    assert not c.group().pending_joins
    assert follower not in c.group().members
    assert c.group().state is GroupState.PREPARING_REBALANCE


def test_a_join_or_sync_without_a_token_is_our_bug() -> None:
    c = Context()
    with pytest.raises(InvariantViolation):
        c.submit_silently(c.join_event())
