"""What requests and timers do to consumer groups (KIP-848).

Decisions are made by the pure functions of `oncelog.group.consumer`; this module finds the group,
sets timers and answers. Every record that a group writes is a transition of its id: until it is
committed, whatever else is about the group waits in the processor, so that each decision sees all
that was decided before.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from oncelog.coordinator.shard import (
    NOTHING,
    CoordinatorRecord,
    Decision,
    EventContext,
    answer,
    replies_to,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.group import events, results
from oncelog.group.consumer import leaving, records
from oncelog.group.consumer.commits import check_commit
from oncelog.group.consumer.events import Beat, DescribeConsumerGroup, Quit, RevocationOver
from oncelog.group.consumer.group import ConsumerGroup, ConsumerGroupState
from oncelog.group.consumer.heartbeat import heartbeat
from oncelog.group.consumer.members import (
    JOIN_EPOCH,
    MemberState,
)
from oncelog.group.consumer.outcome import (
    BeatResult,
    ConsumerGroupDescription,
    Context,
    MemberTimer,
    Refusal,
    TimerChange,
)
from oncelog.group.consumer.target import Members
from oncelog.group.decision import GroupDecision, GroupEvent, GroupResult
from oncelog.group.offset_values import CommittedOffset
from oncelog.group.offsets import AnyCommit, expire_offsets, refused, write_offsets
from oncelog.group.records import BatchBudget, group_tombstone, offset_tombstone
from oncelog.group.states import GroupState
from oncelog.group.store import DecisionBuilder, GroupStore
from oncelog.group.timers import TimerKey, TimerKind

TIMER_KINDS: Final[Mapping[MemberTimer, TimerKind]] = MappingProxyType(
    {MemberTimer.SESSION: TimerKind.SESSION, MemberTimer.REVOCATION: TimerKind.REVOCATION}
)


def _context(store: GroupStore, now_ms: int) -> Context:
    return Context(now_ms, store.topics(), store.config.consumer)


def _plan(store: GroupStore, group_id: str, changes: Iterable[TimerChange], now_ms: int) -> None:
    for timer, member_id, delay_ms in changes:
        key = TimerKey(TIMER_KINDS[timer], group_id, member_id)
        if delay_ms is None:
            store.timers.cancel(key)
        else:
            store.timers.set(key, now_ms + delay_ms)


def start_timers(store: GroupStore, group: ConsumerGroup, now_ms: int) -> None:
    """Start what every member is waited for with, after the group was loaded."""
    session_ms = store.config.consumer.session_timeout_ms
    for member in group.members.values():
        _plan(
            store,
            group.group_id,
            [TimerChange(MemberTimer.SESSION, member.member_id, session_ms)],
            now_ms,
        )
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            delay_ms = member.rebalance_timeout_ms
            change = TimerChange(MemberTimer.REVOCATION, member.member_id, delay_ms)
            _plan(store, group.group_id, [change], now_ms)


# ConsumerGroupHeartbeat.


def beat(store: GroupStore, event: Beat, context: EventContext) -> GroupDecision:
    """Decide a heartbeat. A member that joins makes the group, or takes an empty classic one."""
    group = store.consumer_groups.get(event.group_id)
    emptied = []
    if group is None:
        classic = store.groups.get(event.group_id)
        is_taken = classic is not None and (
            classic.state is not GroupState.EMPTY or bool(classic.pending_joins)
        )
        if is_taken or event.member_epoch != JOIN_EPOCH:
            return _refuse_beat(context, _no_such_group(event.group_id))
        if event.group_id in store.recorded:
            emptied.append(group_tombstone(event.group_id))
        group = ConsumerGroup(event.group_id)
    outcome = heartbeat(group, event, _context(store, context.now_ms))
    if isinstance(outcome, Refusal):
        return _refuse_beat(context, outcome)
    _plan(store, event.group_id, outcome.timers, context.now_ms)
    return _write(event.group_id, [*emptied, *outcome.records], context, outcome.result)


def leave_group(store: GroupStore, event: Quit, context: EventContext) -> GroupDecision:
    """Decide the last heartbeat of a member."""
    group = store.consumer_groups.get(event.group_id)
    if group is None:
        return _refuse_beat(context, _no_such_group(event.group_id))
    member = leaving.leaving_member(group, event)
    if isinstance(member, Refusal):
        return _refuse_beat(context, member)
    if leaving.is_for_now(event):
        written = [leaving.leave_for_now(group, member)]
    else:
        written = _remove(store, group, frozenset({member.member_id}), context.now_ms)
    return _write(event.group_id, written, context, leaving.farewell(event))


def _no_such_group(group_id: str) -> Refusal:
    return Refusal(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")


def _refuse_beat(context: EventContext, refusal: Refusal) -> GroupDecision:
    return answer(context, BeatResult(refusal.error, message=refusal.message))


def _write(
    group_id: str,
    written: Sequence[CoordinatorRecord],
    context: EventContext,
    result: GroupResult,
) -> GroupDecision:
    """Write records as a transition of the group's id, and answer when they are committed."""
    replies = replies_to(context.token, result)
    return Decision(tuple(written), replies, id=group_id if written else None)


def _remove(
    store: GroupStore, group: ConsumerGroup, gone: frozenset[str], now_ms: int
) -> list[CoordinatorRecord]:
    """Return the records that remove members, and stop their timers."""
    written = leaving.remove_members(group, gone, _context(store, now_ms))
    _plan(store, group.group_id, leaving.stopped_timers(gone), now_ms)
    return written


# Timers.


def overdue(
    store: GroupStore, group_id: str, member_id: str, timer: MemberTimer, context: EventContext
) -> GroupDecision:
    """Remove a member that was silent for its session timeout, or kept partitions for too long."""
    group = store.consumer_groups.get(group_id)
    member = group.members.get(member_id) if group is not None else None
    was_renewed = TimerKey(TIMER_KINDS[timer], group_id, member_id) in store.timers
    if group is None or member is None or was_renewed or not leaving.is_overdue(member, timer):
        return NOTHING
    written = _remove(store, group, frozenset({member_id}), context.now_ms)
    return Decision(tuple(written), id=group_id if written else None)


# Requests of the classic protocol.


def join_classic(store: GroupStore, event: events.Join, context: EventContext) -> GroupDecision:
    """A member of the classic protocol takes over an empty group, and no other."""
    group = store.consumer_groups[event.group_id]
    if group.members:
        result = results.JoinResult(ErrorCode.inconsistent_group_protocol, event.member_id)
        return answer(context, result)
    return Decision(tuple(records.no_group(group)), id=event.group_id, wait=True)


def leave_classic(store: GroupStore, event: events.Leave, context: EventContext) -> GroupDecision:
    """Remove members, each with an outcome of its own; an administrator may name any."""
    group = store.consumer_groups[event.group_id]
    outcomes, gone = [], set()
    for each in event.members:
        member = group.static_member(each.group_instance_id) or group.members.get(each.member_id)
        error = ErrorCode.none
        if member is None or member.member_id in gone:
            error = ErrorCode.unknown_member_id
        elif each.member_id not in (events.NO_MEMBER_ID, member.member_id):
            error = ErrorCode.fenced_instance_id
        else:
            gone.add(member.member_id)
        outcomes.append(results.LeftMember(each.member_id, each.group_instance_id, error))
    written = _remove(store, group, frozenset(gone), context.now_ms)
    result = results.LeaveResult(ErrorCode.none, tuple(outcomes))
    return _write(group.group_id, written, context, result)


# Offsets.


def commit(store: GroupStore, event: AnyCommit, context: EventContext) -> GroupDecision:
    """Decide an OffsetCommit or TxnOffsetCommit; the member's epoch fences it (INV-8)."""
    group = store.consumer_groups[event.group_id]
    error, stale = check_commit(group, event)
    if error is not ErrorCode.none:
        return answer(context, refused(event, error))
    return write_offsets(store, event, context, stale)


def delete_offsets(
    store: GroupStore, event: events.OffsetDelete, context: EventContext
) -> GroupDecision:
    """Decide an OffsetDelete: nothing that the group is subscribed to."""
    group = store.consumer_groups[event.group_id]
    subscribed = Members.of(group).subscribed_names()
    tombstones = []
    outcomes = []
    for partition in event.partitions:
        error = ErrorCode.none
        if partition.topic in subscribed:
            error = ErrorCode.group_subscribed_to_topic
        elif store.offsets.is_known(event.group_id, partition):
            tombstones.append(offset_tombstone(event.group_id, partition))
        outcomes.append(results.PartitionOutcome(*partition, error))
    result = results.OffsetDeleteResult(ErrorCode.none, tuple(outcomes))
    return Decision(tuple(tombstones), replies_to(context.token, result))


def expire(store: GroupStore, event: events.ExpireOffsets, context: EventContext) -> GroupDecision:
    """Delete offsets that outlived their retention, and with the last one an empty group."""
    group = store.consumer_groups[event.group_id]
    subscribed = Members.of(group).subscribed_names()
    builder = DecisionBuilder(event, context)
    batch = BatchBudget(store.config.append_bytes_max)

    def base_ms(partition: TopicPartition, value: CommittedOffset) -> int | None:
        return None if partition.topic in subscribed else value.commit_timestamp_ms

    is_whole, stay = expire_offsets(store, event.group_id, builder, batch, base_ms)
    last = records.no_group(group)
    if is_whole and not group.members and not stay and all(batch.take(each) for each in last):
        builder.write_all(event.group_id, last)
    return builder.build()


# Administration.


def describe(
    store: GroupStore, event: DescribeConsumerGroup, context: EventContext
) -> GroupDecision:
    """Describe a group as it is now."""
    group = store.consumer_groups.get(event.group_id)
    if group is None:
        refusal = _no_such_group(event.group_id)
        result = ConsumerGroupDescription(refusal.error, event.group_id, refusal.message)
    else:
        result = ConsumerGroupDescription(
            ErrorCode.none,
            event.group_id,
            None,
            group.state,
            group.group_epoch,
            max(group.assignment_epoch, 0),
            group.preferred_assignor(store.config.consumer.assignors[0]),
            tuple(group.members.values()),
            dict(group.target),
        )
    return answer(context, result)


def delete_group(
    store: GroupStore, event: events.DeleteGroup, context: EventContext
) -> GroupDecision:
    """Delete a group without members, and all its offsets."""
    group = store.consumer_groups[event.group_id]
    if group.state is not ConsumerGroupState.EMPTY:
        return answer(context, results.DeleteResult(ErrorCode.non_empty_group, event.group_id))
    offsets = store.offsets.partitions(event.group_id)
    tombstones = [offset_tombstone(event.group_id, partition) for partition in offsets]
    result = results.DeleteResult(ErrorCode.none, event.group_id)
    return _write(event.group_id, [*tombstones, *records.no_group(group)], context, result)


# Routing.


def decide(store: GroupStore, event: GroupEvent, context: EventContext) -> GroupDecision | None:
    """Decide an event that every group knows, about a consumer group.

    None where it does the same to a group of either protocol.
    """
    match event:
        case events.OffsetCommit() | events.TxnOffsetCommit():
            return commit(store, event, context)
        case events.SessionExpired(group_id, member_id):
            return overdue(store, group_id, member_id, MemberTimer.SESSION, context)
        case events.Join():
            return join_classic(store, event, context)
        case events.Sync():
            # No member speaks the classic protocol.
            return answer(context, results.SyncResult(ErrorCode.unknown_member_id))
        case events.Heartbeat():
            return answer(context, results.HeartbeatResult(ErrorCode.unknown_member_id))
        case events.Leave():
            return leave_classic(store, event, context)
        case events.OffsetDelete():
            return delete_offsets(store, event, context)
        case events.ExpireOffsets():
            return expire(store, event, context)
        case events.DeleteGroup():
            return delete_group(store, event, context)
    return None


def decide_own(
    store: GroupStore,
    event: Beat | Quit | DescribeConsumerGroup | RevocationOver,
    context: EventContext,
) -> GroupDecision:
    """Decide an event that only consumer groups know."""
    match event:
        case Beat():
            return beat(store, event, context)
        case Quit():
            return leave_group(store, event, context)
        case DescribeConsumerGroup():
            return describe(store, event, context)
        case RevocationOver(group_id, member_id):
            return overdue(store, group_id, member_id, MemberTimer.REVOCATION, context)
