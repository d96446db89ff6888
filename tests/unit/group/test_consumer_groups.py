"""What a consumer group's members are waited for, also where an append fails."""

from dataclasses import replace
from typing import Any

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.group.config import GroupConfig
from oncelog.group.consumer.events import Beat, MemberOverdue, Quit
from oncelog.group.consumer.members import MemberState
from oncelog.group.consumer.outcome import BeatReply
from oncelog.group.consumer.settings import ConsumerGroupConfig
from oncelog.group.consumer.timers import MemberTimer
from oncelog.group.events import Join, Leave, LeavingMember, OffsetFetch
from oncelog.group.replies import LeaveReply, OffsetFetchReply
from tests.unit.group.consumer.world import FakeTopics, partitions
from tests.unit.group.context import Context

FAILED = ErrorCode.not_enough_replicas


def context() -> Context:
    consumer = ConsumerGroupConfig(assignment_interval_ms=0)
    return Context(GroupConfig(consumer=consumer), topics=FakeTopics({"t": 4}))


def beat_event(member_id: str, epoch: int = 0, **fields: Any) -> Beat:
    """A heartbeat; a member that joins says everything."""
    if epoch == 0:
        fields |= {"rebalance_timeout_ms": 60_000, "topic_names": frozenset({"t"})}
    return Beat("g", member_id, epoch, **{"owned": frozenset(), **fields})


def beat(c: Context, member_id: str, epoch: int = 0, **fields: Any) -> BeatReply:
    result = c.replies[c.submit(beat_event(member_id, epoch, **fields))]
    assert isinstance(result, BeatReply)
    return result


def keep_alive(c: Context, member_id: str, times: int) -> None:
    """One member's heartbeats, each ten seconds."""
    for _ in range(times):
        c.advance(10_000)
        member = c.consumer_group().members[member_id]
        beat(c, member_id, member.member_epoch, owned=frozenset(member.assigned))


def fail_next(c: Context, ms: int) -> None:
    """Let time pass until the next append, which fails."""
    c.hold = True
    c.advance(ms)
    assert c.in_flight
    c.fail(FAILED)
    c.hold = False


def test_d2_a_group_has_one_transition_in_flight() -> None:
    c = context()
    c.hold = True
    first, second = c.submit(beat_event("a")), c.submit(beat_event("b"))
    assert len(c.in_flight) == 1
    c.hold = False
    c.commit_all()
    assert first in c.replies
    assert second in c.replies
    assert sorted(c.consumer_group().members) == ["a", "b"]


def test_a_silent_member_whose_removal_failed_is_removed_later() -> None:
    c = context()
    beat(c, "a")
    beat(c, "b")
    keep_alive(c, "a", 4)
    fail_next(c, 5_001)
    assert "b" in c.consumer_group().members
    c.advance(500)
    assert list(c.consumer_group().members) == ["a"]


def test_a_member_that_returns_before_its_removal_is_retried_stays() -> None:
    c = context()
    beat(c, "a")
    fail_next(c, 45_001)
    assert beat(c, "a", 1).error is ErrorCode.none
    c.advance(44_000)
    assert list(c.consumer_group().members) == ["a"]
    c.advance(1_000)
    assert not c.consumer_group().members


@pytest.mark.parametrize(
    "leaving", [Quit("g", "a", -1), Leave("g", (LeavingMember("a"),))], ids=["new", "classic"]
)
def test_a_member_whose_leaving_failed_still_has_its_session(leaving: Quit | Leave) -> None:
    c = context()
    beat(c, "a")
    c.hold = True
    c.submit(leaving)
    c.fail(FAILED)
    c.hold = False
    assert "a" in c.consumer_group().members
    c.advance(45_000)
    assert not c.consumer_group().members


def test_a_member_that_left_is_waited_for_no_more() -> None:
    c = context()
    beat(c, "a")
    beat(c, "b")
    c.submit(Quit("g", "b", -1))
    assert not [key for key in c.shard.store.timers.deadlines if key.member_id == "b"]


def test_a_member_whose_revocation_was_not_stored_has_to_say_it_again() -> None:
    c = context()
    beat(c, "a")
    beat(c, "b")
    beat(c, "a", 1, owned=partitions("t", 0, 1, 2, 3))
    assert c.consumer_group().members["a"].state is MemberState.UNREVOKED_PARTITIONS
    c.hold = True
    c.submit(beat_event("a", 1, owned=partitions("t", 0, 1)))
    c.fail(FAILED)
    c.hold = False
    for _ in range(6):
        c.advance(10_000)
        beat(c, "a", 1, owned=partitions("t", 0, 1, 2, 3))
        beat(c, "b", 2)
    assert "a" not in c.consumer_group().members


def test_a_member_whose_joining_took_longer_than_its_session_is_waited_for() -> None:
    c = context()
    c.hold = True
    c.submit(beat_event("a"))
    c.advance(60_000)
    c.hold = False
    c.commit_all()
    assert list(c.consumer_group().members) == ["a"]
    c.advance(45_500)
    assert not c.consumer_group().members


# Requests of the classic protocol.


def fail_join(c: Context, member_id: str = "", topic: str = "t") -> None:
    """A JoinGroup whose records are not stored."""
    c.hold = True
    c.join(member_id, version=3, topics=(topic,))
    assert c.in_flight
    c.fail(FAILED)
    c.hold = False


def test_a_member_that_did_not_come_in_leaves_no_deadline_to_a_classic_group() -> None:
    """Seed 1000001: the deadline of its SyncGroup stopped the broker after the downgrade."""
    c = context()
    beat(c, "a")
    member = c.joined(c.join(version=3))
    fail_join(c)
    c.submit(Quit("g", "a", -1))
    assert list(c.group().members) == [member.member_id]
    c.advance(61_000)
    assert not c.group().members


def test_a_member_whose_rejoining_failed_owes_no_sync_for_it() -> None:
    c = context()
    beat(c, "a")
    member = c.joined(c.join(version=3)).member_id
    generation = c.consumer_group().members[member].member_epoch
    c.sync(member, generation)
    fail_join(c, member, topic="other")
    for _ in range(7):
        c.advance(9_000)
        c.heartbeat(member, generation)
        beat(c, "a", 1, owned=partitions("t", 0, 1, 2, 3))
    assert member in c.consumer_group().members


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_the_limits_of_session_timeouts_count_in_consumer_groups_too(session_ms: int) -> None:
    c = context()
    beat(c, "a")
    joined = c.joined(c.join(version=3, session_ms=session_ms))
    assert joined.error is ErrorCode.invalid_session_timeout
    assert list(c.consumer_group().members) == ["a"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"session_timeout_ms": 1}, ErrorCode.invalid_session_timeout),
        ({"member_id": "other"}, ErrorCode.unknown_member_id),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_a_refused_join_leaves_an_empty_consumer_group_as_it_is(
    wrong: dict[str, Any], error: ErrorCode
) -> None:
    c = context()
    beat(c, "a")
    c.submit(Quit("g", "a", -1))
    written_count = len(c.log)
    request: Join = replace(c.join_event(version=3), **wrong)
    assert c.joined(c.submit(request)).error is error
    assert "g" in c.shard.store.consumer_groups
    assert len(c.log) == written_count


@pytest.mark.parametrize(
    ("member_id", "instance_id", "error"),
    [
        ("a", "unknown", ErrorCode.unknown_member_id),
        ("", "unknown", ErrorCode.unknown_member_id),
        ("a", "s", ErrorCode.fenced_instance_id),
        ("b", "s", ErrorCode.none),
        ("", "s", ErrorCode.none),
        ("a", None, ErrorCode.none),
    ],
)
def test_a_leaving_member_is_the_one_that_the_instance_id_names(
    member_id: str, instance_id: str | None, error: ErrorCode
) -> None:
    c = context()
    beat(c, "a")
    beat(c, "b", instance_id="s")
    result = c.replies[c.submit(Leave("g", (LeavingMember(member_id, instance_id),)))]
    assert isinstance(result, LeaveReply)
    assert [each.error for each in result.members] == [error]
    assert len(c.consumer_group().members) == (1 if error is ErrorCode.none else 2)


@pytest.mark.parametrize("timer", list(MemberTimer))
def test_a_deadline_of_a_member_that_is_gone_changes_nothing(timer: MemberTimer) -> None:
    c = context()
    beat(c, "a")
    before = len(c.log)
    c.submit(MemberOverdue("g", "b", timer))
    assert len(c.log) == before
    assert list(c.consumer_group().members) == ["a"]


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, ErrorCode.none),
        ("a", 1, ErrorCode.none),
        ("a", -1, ErrorCode.stale_member_epoch),
        ("a", 2, ErrorCode.stale_member_epoch),
        ("b", -1, ErrorCode.unknown_member_id),
        (None, 1, ErrorCode.unknown_member_id),
    ],
)
def test_who_names_a_member_fetches_offsets_in_its_epoch(
    member_id: str | None, epoch: int, error: ErrorCode
) -> None:
    """As KIP-848 has it; an administrator names neither."""
    c = context()
    assert beat(c, "a").member_epoch == 1
    event = OffsetFetch("g", None, member_id=member_id, member_epoch=epoch)
    result = c.replies[c.submit(event)]
    assert isinstance(result, OffsetFetchReply)
    assert result.error is error
