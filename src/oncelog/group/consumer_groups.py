"""What requests and timers do to consumer groups (KIP-848).

Decisions are made by the pure functions of `oncelog.group.consumer`; this module finds the group,
sets timers and answers. Every record that a group writes is a transition of its id: until it is
committed, whatever else is about the group waits in the processor, so that each decision sees all
that was decided before.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

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
    ConsumerMember,
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
from oncelog.group.offset_values import CommittedOffset
from oncelog.group.offsets import AnyCommit, expire_offsets, refused, write_offsets
from oncelog.group.records import BatchBudget, group_tombstone, offset_tombstone
from oncelog.group.states import GroupState
from oncelog.group.store import DecisionBuilder, GroupStore
from oncelog.group.timers import TimerKey, TimerKind

TIMER_KINDS: Final[Mapping[MemberTimer, TimerKind]] = MappingProxyType(
    {MemberTimer.SESSION: TimerKind.SESSION, MemberTimer.REVOCATION: TimerKind.REVOCATION}
)


def _context(store: GroupStore, builder: DecisionBuilder) -> Context:
    return Context(builder.now_ms, store.topics(), store.config.consumer)


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


def beat(store: GroupStore, event: Beat, builder: DecisionBuilder) -> None:
    """Decide a heartbeat. A member that joins makes the group, or takes an empty classic one."""
    group = store.consumer_groups.get(event.group_id)
    emptied = []
    if group is None:
        classic = store.groups.get(event.group_id)
        is_taken = classic is not None and (
            classic.state is not GroupState.EMPTY or bool(classic.pending_joins)
        )
        if is_taken or event.member_epoch != JOIN_EPOCH:
            _refuse_beat(builder, _no_such_group(event.group_id))
            return
        if event.group_id in store.recorded:
            emptied.append(group_tombstone(event.group_id))
        group = ConsumerGroup(event.group_id)
    outcome = heartbeat(group, event, _context(store, builder))
    if isinstance(outcome, Refusal):
        _refuse_beat(builder, outcome)
        return
    _plan(store, event.group_id, outcome.timers, builder.now_ms)
    builder.write_all(event.group_id, [*emptied, *outcome.entries])
    builder.reply_on_commit(builder.token, outcome.result)


def leave_group(store: GroupStore, event: Quit, builder: DecisionBuilder) -> None:
    """Decide the last heartbeat of a member."""
    group = store.consumer_groups.get(event.group_id)
    if group is None:
        _refuse_beat(builder, _no_such_group(event.group_id))
        return
    member = leaving.leaving_member(group, event)
    if isinstance(member, Refusal):
        _refuse_beat(builder, member)
        return
    if leaving.is_for_now(event):
        builder.write_all(event.group_id, [leaving.leave_for_now(group, member)])
    else:
        _remove(store, group, member, builder)
    builder.reply_on_commit(builder.token, leaving.farewell(event))


def _no_such_group(group_id: str) -> Refusal:
    return Refusal(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")


def _refuse_beat(builder: DecisionBuilder, refusal: Refusal) -> None:
    builder.answer(BeatResult(refusal.error, message=refusal.message))


def _remove(
    store: GroupStore, group: ConsumerGroup, member: ConsumerMember, builder: DecisionBuilder
) -> None:
    gone = frozenset({member.member_id})
    entries = leaving.remove_members(group, gone, _context(store, builder))
    builder.write_all(group.group_id, entries)
    _plan(store, group.group_id, leaving.stopped_timers(gone), builder.now_ms)


# Timers.


def session_expired(
    store: GroupStore, event: events.SessionExpired, builder: DecisionBuilder
) -> None:
    """A member was silent for its session timeout: it is out."""
    _overdue(store, event.group_id, event.member_id, MemberTimer.SESSION, builder)


def revocation_over(store: GroupStore, event: RevocationOver, builder: DecisionBuilder) -> None:
    """A member did not give its partitions up within its rebalance timeout: it is out."""
    _overdue(store, event.group_id, event.member_id, MemberTimer.REVOCATION, builder)


def _overdue(
    store: GroupStore,
    group_id: str,
    member_id: str,
    timer: MemberTimer,
    builder: DecisionBuilder,
) -> None:
    group = store.consumer_groups.get(group_id)
    member = group.members.get(member_id) if group is not None else None
    was_renewed = TimerKey(TIMER_KINDS[timer], group_id, member_id) in store.timers
    if group is None or member is None or was_renewed or not leaving.is_overdue(member, timer):
        return
    _remove(store, group, member, builder)


# Requests of the classic protocol.


def join_classic(store: GroupStore, event: events.Join, builder: DecisionBuilder) -> None:
    """A member of the classic protocol takes over an empty group, and no other."""
    group = store.consumer_groups[event.group_id]
    if group.members:
        result = results.JoinResult(ErrorCode.inconsistent_group_protocol, event.member_id)
        builder.answer(result)
        return
    builder.write_all(event.group_id, records.no_group(group))
    builder.wait = True


def sync_classic(store: GroupStore, event: events.Sync, builder: DecisionBuilder) -> None:
    """No member speaks the classic protocol."""
    builder.answer(results.SyncResult(ErrorCode.unknown_member_id))


def heartbeat_classic(store: GroupStore, event: events.Heartbeat, builder: DecisionBuilder) -> None:
    """No member speaks the classic protocol."""
    builder.answer(results.HeartbeatResult(ErrorCode.unknown_member_id))


def leave_classic(store: GroupStore, event: events.Leave, builder: DecisionBuilder) -> None:
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
    entries = leaving.remove_members(group, frozenset(gone), _context(store, builder))
    if entries:
        builder.write_all(group.group_id, entries)
    _plan(store, group.group_id, leaving.stopped_timers(frozenset(gone)), builder.now_ms)
    result = results.LeaveResult(ErrorCode.none, tuple(outcomes))
    builder.reply_on_commit(builder.token, result)


# Offsets.


def commit(store: GroupStore, event: AnyCommit, builder: DecisionBuilder) -> None:
    """Decide an OffsetCommit or TxnOffsetCommit; the member's epoch fences it (INV-8)."""
    group = store.consumer_groups[event.group_id]
    error, stale = check_commit(group, event)
    if error is not ErrorCode.none:
        builder.answer(refused(event, error))
        return
    write_offsets(store, event, builder, stale)


def delete_offsets(store: GroupStore, event: events.OffsetDelete, builder: DecisionBuilder) -> None:
    """Decide an OffsetDelete: nothing that the group is subscribed to."""
    group = store.consumer_groups[event.group_id]
    subscribed = Members.of(group).subscribed_names()
    outcomes = []
    for partition in event.partitions:
        error = ErrorCode.none
        if partition.topic in subscribed:
            error = ErrorCode.group_subscribed_to_topic
        elif store.offsets.is_known(event.group_id, partition):
            builder.entries.append(offset_tombstone(event.group_id, partition))
        outcomes.append(results.PartitionOutcome(*partition, error))
    result = results.OffsetDeleteResult(ErrorCode.none, tuple(outcomes))
    builder.reply_on_commit(builder.token, result)


def expire(store: GroupStore, event: events.ExpireOffsets, builder: DecisionBuilder) -> None:
    """Delete offsets that outlived their retention, and with the last one an empty group."""
    group = store.consumer_groups[event.group_id]
    subscribed = Members.of(group).subscribed_names()
    batch = BatchBudget(store.config.append_bytes_max)

    def base_ms(partition: TopicPartition, value: CommittedOffset) -> int | None:
        return None if partition.topic in subscribed else value.commit_timestamp_ms

    is_whole, stay = expire_offsets(store, event.group_id, builder, batch, base_ms)
    last = records.no_group(group)
    if is_whole and not group.members and not stay and all(batch.take(each) for each in last):
        builder.write_all(event.group_id, last)


# Administration.


def describe(store: GroupStore, event: DescribeConsumerGroup, builder: DecisionBuilder) -> None:
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
    builder.answer(result)


def delete_group(store: GroupStore, event: events.DeleteGroup, builder: DecisionBuilder) -> None:
    """Delete a group without members, and all its offsets."""
    group = store.consumer_groups[event.group_id]
    if group.state is not ConsumerGroupState.EMPTY:
        builder.answer(results.DeleteResult(ErrorCode.non_empty_group, event.group_id))
        return
    offsets = store.offsets.partitions(event.group_id)
    tombstones = [offset_tombstone(event.group_id, partition) for partition in offsets]
    builder.write_all(event.group_id, [*tombstones, *records.no_group(group)])
    result = results.DeleteResult(ErrorCode.none, event.group_id)
    builder.reply_on_commit(builder.token, result)


Handler: TypeAlias = Callable[[GroupStore, Any, DecisionBuilder], None]

HANDLERS: Final[dict[type, Handler]] = {
    events.Join: join_classic,
    events.Sync: sync_classic,
    events.Heartbeat: heartbeat_classic,
    events.Leave: leave_classic,
    events.OffsetCommit: commit,
    events.TxnOffsetCommit: commit,
    events.OffsetDelete: delete_offsets,
    events.ExpireOffsets: expire,
    events.DeleteGroup: delete_group,
    events.SessionExpired: session_expired,
}
"""What an event that every group knows does to a consumer group, where that is another thing."""

OWN_HANDLERS: Final[dict[type, Handler]] = {
    Beat: beat,
    Quit: leave_group,
    DescribeConsumerGroup: describe,
    RevocationOver: revocation_over,
}
"""What only consumer groups know."""
