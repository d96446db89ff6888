"""Members that die in the middle of a rebalance: the others do not wait for them for long.

A member that waits in JoinGroup or SyncGroup sends no heartbeats. Its connection tells that it may
be dead.
"""

from typing import Any

from oncelog.core.errors import ErrorCode
from oncelog.group import events as e
from oncelog.group.config import GroupConfig
from oncelog.group.replies import DescribeReply
from oncelog.group.states import GroupState
from tests.support.calls import calls_of
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


def test_a_session_that_ends_together_with_the_sync_phase_begins_one_rebalance() -> None:
    c = Context()
    short, first = c.new_member(rebalance_ms=SESSION_MS)
    long, second = c.new_member(rebalance_ms=SESSION_MS, session_ms=3 * SESSION_MS)
    c.advance(6_000)
    assert c.joined(first).generation_id == c.joined(second).generation_id == 1
    c.advance(SESSION_MS)
    assert list(c.group().members) == [long], f"{short} sent nothing"
    assert c.group().state is GroupState.PREPARING_REBALANCE


def test_a_group_at_rest_waits_for_nothing_but_sessions() -> None:
    c = Context()
    leader, other = c.stable(2, rebalance_ms=SESSION_MS // 2)
    c.leave(other)
    (token,) = rejoined(c, leader)
    assert c.joined(token).generation_id == 2
    c.sync(leader, 2)
    assert c.processor.next_deadline_ms() == c.now_ms + SESSION_MS


def test_static_members_that_only_send_heartbeats_hold_up_no_rebalance_for_ever() -> None:
    """They are kept; who rejoins after the first join phase leads."""
    c = Context()
    times: dict[str, Any] = {"session_ms": 3 * SESSION_MS, "rebalance_ms": 2 * SESSION_MS}
    joins = {instance: c.join(instance=instance, **times) for instance in ("a", "b")}
    c.advance(6_000)
    ids = {instance: c.joined(token).member_id for instance, token in joins.items()}
    lost, waiting = c.new_member(rebalance_ms=SESSION_MS)
    c.drop(waiting)
    for _ in range(3):
        c.advance(SESSION_MS)
        for instance, id_ in ids.items():
            assert c.heartbeat(id_, 1, instance) is ErrorCode.rebalance_in_progress
    again = c.join(ids["a"], instance="a", **times)
    c.advance(2 * SESSION_MS)
    assert (c.joined(again).generation_id, c.joined(again).leader) == (2, ids["a"])
    assert set(c.group().members) == set(ids.values()), f"{lost} is gone"


def test_the_next_first_rebalance_waits_for_more_members_again() -> None:
    c = Context()
    c.drop(c.new_member()[1])
    c.advance(3_000)
    assert c.group().initial_delay_is_over
    c.advance(SESSION_MS)
    assert c.group().state is GroupState.EMPTY
    tokens = [c.new_member()[1] for _ in range(2)]
    assert not any(token in c.replies for token in tokens)
    c.advance(6_000)
    assert [c.joined(token).generation_id for token in tokens] == [2, 2]


def test_a_restarted_static_member_that_waits_long_to_join_is_not_thrown_out() -> None:
    c = Context(GroupConfig(initial_rebalance_delay_ms=2 * SESSION_MS))
    c.join(instance="a")
    again = c.join(instance="a")
    c.advance(2 * SESSION_MS)
    assert c.joined(again).error is ErrorCode.none


def test_a_member_that_asks_again_for_its_assignment_may_wait_long() -> None:
    c = Context()
    leader, _ = c.new_member()
    follower, _ = c.new_member()
    c.advance(6_000)
    c.drop(c.sync(follower))
    again = c.sync(follower)
    for _ in range(2):
        c.advance(SESSION_MS - 1)
        assert c.heartbeat(leader) is ErrorCode.none
    c.sync(leader, 1, **{follower: b"a"})
    assert c.synced(again).assignment == b"a"


def test_a_rejoining_member_may_change_how_long_it_is_waited_for() -> None:
    c = Context()
    times: dict[str, Any] = {"session_ms": 9 * SESSION_MS}
    members = c.stable(2, **times, rebalance_ms=8 * SESSION_MS)
    tokens = [c.join(member, **times, rebalance_ms=2 * SESSION_MS) for member in members]
    assert [c.joined(token).generation_id for token in tokens] == [2, 2]
    _, newcomer = c.new_member(**times, rebalance_ms=2 * SESSION_MS)
    c.advance(2 * SESSION_MS)
    assert c.joined(newcomer).generation_id == 3


def test_a_generation_that_fails_takes_the_assignments_of_the_one_before_along() -> None:
    c = Context()
    members = c.stable(2)
    _, newcomer = c.new_member()
    rejoined(c, *members)
    assert c.joined(newcomer).generation_id == 2
    c.new_member()
    described = c.replies[c.submit(e.DescribeGroup("g"))]
    assert isinstance(described, DescribeReply)
    assert described.state == "PreparingRebalance"
    assert {member.assignment for member in described.members} == {b""}


def test_a_lost_leadership_answers_all_that_wait() -> None:
    c = Context()
    tokens = [c.new_member()[1] for _ in range(2)]
    c.handle(c.processor.resign(c.now_ms))
    assert [c.joined(token).error for token in tokens] == [ErrorCode.not_coordinator] * 2


def calls_of_a_join(members_count: int) -> int:
    """How many functions start while one member of a group rejoins, in the middle of all."""
    c = Context()
    members = c.stable(members_count)
    c.new_member()
    rejoined(c, *members[1 : members_count // 2])
    return calls_of(lambda: c.join(members[0]))


def test_a_join_costs_the_same_however_many_members_a_group_has() -> None:
    assert calls_of_a_join(200) == calls_of_a_join(10)


def test_a_connection_that_is_lost_in_a_join_phase_cuts_its_own_member_off() -> None:
    c = Context()
    members = c.stable(3)
    c.new_member()
    first, second = rejoined(c, *members[:2])
    assert {first, second} < set(c.group().joining)
    c.drop(second)
    assert [each.is_cut_off for each in c.group().members.values()][:3] == [False, True, False]
    rejoined(c, members[1], members[2])
    assert not c.group().joining
