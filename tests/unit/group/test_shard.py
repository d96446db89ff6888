from typing import Any, get_args

import pytest

from oncelog.coordinator import CoordinatorRecord, RecordContext, UnknownKind
from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.core.ids import Offset
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX
from oncelog.group import events as e
from oncelog.group.config import GroupConfig
from oncelog.group.consumer import events as consumer_events
from oncelog.group.decision import GroupEvent
from oncelog.group.failures import refusal
from oncelog.group.replies import HeartbeatReply
from oncelog.group.shard import GroupCoordinatorShard, _event_of
from oncelog.group.states import GroupState
from oncelog.group.timers import TimerKey, TimerKind
from tests.unit.coordinator.support import processor_of
from tests.unit.group.context import APPEND_WAIT_MS_MAX, T0, Context, Written

REQUESTS = [
    Context().join_event("m"),
    e.Sync("g", 1, "m"),
    e.Leave("g", (e.LeavingMember("m"),)),
    Context().commit_event(1),
    Context().txn_commit_event(1),
    e.OffsetFetch("g", None),
    e.OffsetDelete("g", (T0,)),
    e.DescribeGroup("g"),
    e.ListGroups(),
    e.DeleteGroup("g"),
]


@pytest.mark.parametrize("event", REQUESTS, ids=lambda event: type(event).__name__)
def test_after_a_long_load_and_after_resignation_every_request_is_refused(
    event: GroupEvent,
) -> None:
    processor = processor_of(GroupCoordinatorShard(GroupConfig()))
    assert not processor.submit(event, 1, 0).replies
    loading: Any = processor.tick(PARKED_REQUEST_WAIT_MS_MAX).replies[0].value
    processor.activate(0)
    processor.resign(0)
    resigned: Any = processor.submit(event, 2, 0).replies[0].value
    errors = []
    for result in (loading, resigned):
        outcome = result.partitions[0] if "Commit" in type(result).__name__ else result
        errors.append(outcome.error)
    assert errors == [ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator]


def test_a_heartbeat_is_believed_while_the_groups_are_loaded() -> None:
    processor = processor_of(GroupCoordinatorShard(GroupConfig()))
    processor.submit(e.Heartbeat("g", 1, "m"), 1, 0)
    output = processor.tick(PARKED_REQUEST_WAIT_MS_MAX)
    assert output.replies[0].value == HeartbeatReply(ErrorCode.none)
    processor.activate(0)
    processor.resign(0)
    output = processor.submit(e.Heartbeat("g", 1, "m"), 2, 0)
    assert output.replies[0].value == HeartbeatReply(ErrorCode.not_coordinator)


def test_an_event_without_a_request_has_no_refusal() -> None:
    assert refusal(e.ExpireOffsets("g"), ErrorCode.not_coordinator) is None


def test_every_event_is_named_in_the_union() -> None:
    events = {
        value
        for module in (e, consumer_events)
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    events -= {e.JoinProtocol, e.MemberAssignment, e.LeavingMember, e.OffsetToCommit}
    assert events - {e.OffsetToFetch, e.Leftover} == set(get_args(GroupEvent))


def test_after_a_restart_members_go_on_without_a_rebalance() -> None:
    c = Context()
    leader, follower = c.stable(2)
    c.now_ms += 1_000_000
    c.restart()
    assert c.group().state is GroupState.STABLE
    assert c.heartbeat(leader) is c.heartbeat(follower) is ErrorCode.none
    assert c.synced(c.sync(follower)).assignment == b"a-" + follower.encode()
    assert c.commit(1, leader, 1) is ErrorCode.none
    c.advance(9_999)
    assert len(c.group().members) == 2
    c.advance(1)
    assert c.group().state is GroupState.EMPTY


def test_an_assignment_that_was_lost_before_its_record_is_made_again() -> None:
    c = Context()
    leader = c.stable()[0]
    c.join(leader)
    c.hold = True
    c.sync(leader, 2)
    del c.log[c.in_flight[0][1] :]
    c.hold = False
    c.restart()
    assert c.group().generation_id == 1
    assert c.heartbeat(leader, 2) is ErrorCode.illegal_generation


def test_waiting_members_are_sent_to_the_next_coordinator_on_resignation() -> None:
    c = Context()
    leader, follower = c.stable(2)
    joining = c.join(leader)
    others = [c.new_member(group_id=group)[1] for group in ("h", "i")]
    c.handle(c.processor.resign(c.now_ms))
    tokens = [joining, *others]
    assert [c.joined(token).error for token in tokens] == [ErrorCode.not_coordinator] * 3
    assert follower


def test_a_sync_in_flight_is_answered_once_on_resignation() -> None:
    c = Context()
    leader, _ = c.new_member()
    follower, _ = c.new_member()
    c.advance(6_000)
    c.hold = True
    tokens = [c.sync(follower), c.sync(leader), c.sync(follower)]
    c.handle(c.processor.resign(c.now_ms))
    assert [c.synced(t).error for t in tokens] == [ErrorCode.not_coordinator] * 3


def test_a_commit_that_is_not_committed_in_time_is_told_to_come_again_and_shows_later() -> None:
    c = Context()
    (member,) = c.stable()
    c.hold = True
    slow = c.submit(c.commit_event(7, member, 1))
    c.advance(APPEND_WAIT_MS_MAX - 1)
    assert slow not in c.replies
    c.advance(1)
    assert c.outcome(slow) is ErrorCode.coordinator_not_available
    c.commit_all()
    c.hold = False
    assert [fetched.offset for fetched in c.fetch_all()] == [7]


@pytest.mark.parametrize("end", ["committed", "failed", "resigned"])
def test_a_leader_whose_assignment_is_not_committed_in_time_is_answered_once(end: str) -> None:
    c = Context()
    leader, _ = c.new_member()
    follower, _ = c.new_member()
    c.advance(6_000)
    c.hold = True
    waiting, slow = c.sync(follower), c.sync(leader)
    c.advance(APPEND_WAIT_MS_MAX)
    assert c.synced(slow).error is ErrorCode.coordinator_not_available
    assert waiting not in c.replies
    if end == "committed":
        c.commit_all()
        assert c.synced(waiting).error is ErrorCode.none
    elif end == "failed":
        c.fail(ErrorCode.kafka_storage_error)
        assert c.synced(waiting).error is ErrorCode.not_coordinator
    else:
        c.handle(c.processor.resign(c.now_ms))
        assert c.synced(waiting).error is ErrorCode.not_coordinator


def test_a_request_that_waits_too_long_for_a_record_is_told_to_come_again() -> None:
    c = Context()
    member, _ = c.new_member()
    c.advance(6_000)
    c.hold = True
    c.sync(member)
    token = c.submit(c.commit_event(1, member, 1))
    c.advance(PARKED_REQUEST_WAIT_MS_MAX)
    assert c.outcome(token) is ErrorCode.coordinator_not_available


def test_replies_that_hold_anyway_are_given_when_a_write_fails() -> None:
    c = Context(GroupConfig(initial_rebalance_delay_ms=0))
    member, _ = c.new_member()
    c.advance(0)
    waiting = c.sync(member)
    assert c.synced(waiting).error is ErrorCode.none
    joining = c.join(member)
    assert c.joined(joining).generation_id == 2
    c.group().members[member].sync_token = 999
    c.hold = True
    c.submit(e.Leave("g", (e.LeavingMember(member),)))
    c.fail(ErrorCode.network_exception)
    assert c.synced(999).error is ErrorCode.unknown_member_id


def test_records_of_other_kinds_are_left_alone_and_named() -> None:
    shard = GroupCoordinatorShard(GroupConfig())
    with pytest.raises(UnknownKind) as caught:
        shard.replay(CoordinatorRecord(b"\x00\x11\x00\x01g", b""), RecordContext(Offset(0), 0))
    assert caught.value.kind == 17
    assert shard.store.groups == {}


def test_a_tombstone_of_an_unknown_group_changes_nothing() -> None:
    c = Context()
    c.stable()
    processor = processor_of(GroupCoordinatorShard(GroupConfig()))
    (written, *_) = c.log
    assert isinstance(written, Written)
    record = written.record
    processor.replay(CoordinatorRecord(record.key, None), RecordContext(Offset(0), 0))
    processor.replay(record, RecordContext(Offset(1), 0))
    assert isinstance(processor.shard, GroupCoordinatorShard)
    assert list(processor.shard.store.groups) == ["g"]


def test_a_sweep_is_no_event_of_a_group() -> None:
    c = Context()
    c.stable()
    with pytest.raises(InvariantViolation):
        _event_of(TimerKey(TimerKind.SWEEP), c.group())


def test_a_join_timer_that_was_overtaken_does_nothing() -> None:
    c = Context()
    leader, _ = c.stable(2)
    token = c.join(leader)
    c.submit_silently(e.JoinPhaseOver("g"))
    assert token not in c.replies
    c.submit_silently(e.JoinPhaseOver("gone"))
    c.shard.store.timers.cancel(TimerKey(TimerKind.JOIN, "g"))
    c.submit_silently(e.JoinPhaseOver("g"))
    assert c.joined(token).generation_id == 2
    c.submit_silently(e.JoinPhaseOver("g"))
    assert c.group().generation_id == 2
