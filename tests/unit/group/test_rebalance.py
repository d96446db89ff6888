"""Members that die in the middle of a rebalance: the others do not wait for them for long.

A member that waits in JoinGroup or SyncGroup sends no heartbeats. Its connection tells that it may
be dead.
"""

from oncelog.core.errors import ErrorCode
from oncelog.group.states import GroupState
from tests.unit.group.context import Context

SESSION_MS = 10_000


def rejoined(c: Context, *members: str) -> list[int]:
    """Members of generation 1 that rejoin, as their heartbeats told them to."""
    return [c.join(member) for member in members]


def test_a_member_that_dies_in_a_join_phase_is_out_a_session_later() -> None:
    c = Context()
    leader, victim, silent = c.stable(3)
    c.advance(SESSION_MS - 2_000)
    for member in (leader, victim):
        assert c.heartbeat(member) is ErrorCode.none
    _, newcomer = c.new_member()
    first, second = rejoined(c, leader, victim)
    c.drop(second)
    c.advance(2_000)
    assert silent not in c.group().members
    assert c.joined(first).generation_id == c.joined(newcomer).generation_id == 2
    assert victim in c.group().members
    c.sync(leader, 2)
    c.advance(4_000)
    assert c.heartbeat(leader, 2) is ErrorCode.none
    c.advance(3_999)
    assert victim in c.group().members
    c.advance(1)
    assert victim not in c.group().members
    assert c.group().state is GroupState.PREPARING_REBALANCE


def test_a_join_phase_does_not_wait_for_the_dead_who_had_joined() -> None:
    c = Context()
    leader, victim = c.stable(2)
    _, newcomer = c.new_member()
    (waiting,) = rejoined(c, victim)
    c.drop(waiting)
    assert newcomer not in c.replies
    (last,) = rejoined(c, leader)
    assert c.joined(last).generation_id == c.joined(newcomer).generation_id == 2


def test_a_member_that_comes_back_in_time_on_another_connection_stays() -> None:
    c = Context()
    leader, other = c.stable(2)
    c.new_member()
    (cut_off,) = rejoined(c, other)
    c.drop(cut_off)
    c.advance(SESSION_MS - 1)
    c.heartbeat(leader)
    (again,) = rejoined(c, other)
    c.advance(SESSION_MS - 1)
    assert other in c.group().members
    rejoined(c, leader)
    assert c.joined(again).error is ErrorCode.none


def test_a_closed_older_connection_does_not_cut_a_member_off() -> None:
    c = Context()
    leader, other = c.stable(2)
    c.new_member()
    before, _ = rejoined(c, other, other)
    c.drop(before)
    c.advance(SESSION_MS - 1)
    c.heartbeat(leader)
    c.advance(2)
    assert other in c.group().members


def test_who_is_cut_off_does_not_become_the_leader() -> None:
    c = Context()
    leader, other = c.stable(2)
    _, newcomer = c.new_member()
    (cut_off,) = rejoined(c, leader)
    c.drop(cut_off)
    (last,) = rejoined(c, other)
    assert c.joined(last).leader == c.joined(newcomer).leader == other


def test_a_leader_that_dies_before_its_assignment_delays_the_group_by_at_most_a_session() -> None:
    c = Context()
    _, first = c.new_member()
    leader = c.group().leader_id or ""
    follower, second = c.new_member()
    c.advance(6_000)
    assert c.joined(first).leader == c.joined(second).leader == leader
    waiting = c.sync(follower)
    c.advance(SESSION_MS)
    assert c.synced(waiting).error is ErrorCode.rebalance_in_progress
    assert list(c.group().members) == [follower]


def test_a_follower_that_dies_while_it_waits_for_its_assignment_is_out_a_session_later() -> None:
    c = Context()
    leader, first = c.new_member()
    follower, second = c.new_member()
    c.advance(6_000)
    assert c.joined(first).generation_id == c.joined(second).generation_id == 1
    c.drop(c.sync(follower))
    c.advance(SESSION_MS - 1)
    c.sync(leader, 1, **{follower: b"a"})
    assert c.group().state is GroupState.STABLE
    c.advance(1)
    assert follower not in c.group().members


def test_a_group_whose_members_are_all_cut_off_becomes_empty() -> None:
    c = Context()
    leader, other = c.stable(2)
    for token in rejoined(c, leader, other):
        c.drop(token)
    c.advance(SESSION_MS)
    assert c.group().state is GroupState.EMPTY


def test_a_connection_that_closes_late_or_for_another_request_changes_nothing() -> None:
    c = Context()
    (leader,) = c.stable(1)
    token = c.submit(c.commit_event(7, leader, 1))
    assert c.processor.shard.dropped(c.asked[token], token) is None
    joining = c.join(leader)
    assert joining in c.replies
    c.drop(joining)
    c.leave(leader)
    c.drop(joining)
    assert c.group().state is GroupState.EMPTY


def test_a_static_member_that_is_restarted_in_the_first_rebalance_joins_at_once() -> None:
    c = Context()
    c.drop(c.join(instance="one"))
    c.advance(6_000)
    assert c.joined(c.join(instance="one")).error is ErrorCode.none


def test_a_member_joins_at_once_if_those_of_the_first_rebalance_are_cut_off() -> None:
    c = Context()
    c.drop(c.new_member()[1])
    c.advance(6_000)
    newcomer, token = c.new_member()
    assert c.joined(token).leader == newcomer
