"""Applies requests and timers to consumer groups (KIP-848).

The pure functions of `oncelog.group.consumer` decide; this module finds the group, sets timers and
replies. Every record that a group writes is a transition of its id: until it is committed, other
events of the group wait in the processor, so that each decision sees the results of all earlier
ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from oncelog.coordinator.shard import (
    NOTHING,
    CoordinatorRecord,
    Decision,
    EventContext,
    replies_to,
    reply_at_once,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import MEMBER_REMOVAL_RETRY_BACKOFF_MS
from oncelog.group import events, replies
from oncelog.group.consumer import classic_members, leaving, records
from oncelog.group.consumer.commits import check_commit
from oncelog.group.consumer.events import (
    Beat,
    DescribeConsumerGroup,
    DowngradeDue,
    GroupConverted,
    MemberOverdue,
    Quit,
)
from oncelog.group.consumer.group import ConsumerGroup, ConsumerGroupState
from oncelog.group.consumer.heartbeat import heartbeat
from oncelog.group.consumer.members import (
    JOIN_EPOCH,
    MemberState,
)
from oncelog.group.consumer.outcome import (
    BeatReply,
    ConsumerGroupContext,
    ConsumerGroupDescription,
    Outcome,
    Refusal,
)
from oncelog.group.consumer.target import Members
from oncelog.group.consumer.timers import MemberTimer, TimerChange
from oncelog.group.decision import GroupDecision, GroupEvent, GroupReply
from oncelog.group.join import check_first, check_request
from oncelog.group.migration import all_records, downgrade, may_downgrade, upgrade
from oncelog.group.offset_values import CommittedOffset
from oncelog.group.offsets import (
    AnyCommit,
    delete_each,
    expire_offsets,
    refused,
    write_offsets,
)
from oncelog.group.rebalance import prepare_rebalance
from oncelog.group.records import BatchBudget, group_record, group_tombstone, offset_tombstone
from oncelog.group.states import GroupState
from oncelog.group.store import DecisionBuilder, GroupStore
from oncelog.group.timers import TimerKey, TimerKind

TIMER_KINDS: Final[Mapping[MemberTimer, TimerKind]] = MappingProxyType(
    {
        MemberTimer.SESSION: TimerKind.SESSION,
        MemberTimer.REVOCATION: TimerKind.REVOCATION,
        MemberTimer.JOIN: TimerKind.MEMBER_JOIN,
        MemberTimer.SYNC: TimerKind.MEMBER_SYNC,
    }
)
Request: TypeAlias = Beat | events.Join | events.Sync | events.Heartbeat
MEMBER_TIMERS: Final = {kind: timer for timer, kind in TIMER_KINDS.items()}


def _context(
    store: GroupStore,
    group_id: str,
    context: EventContext,
    may_describe: Callable[[str], bool] | None = None,
) -> ConsumerGroupContext:
    config = store.consumer_config(group_id, context.metadata)
    topics = context.metadata.topics
    return ConsumerGroupContext(context.now_ms, topics, config, store.meter, may_describe)


def _key_of(group_id: str, change: TimerChange) -> TimerKey:
    return TimerKey(TIMER_KINDS[change.timer], group_id, change.member_id)


def _plan(store: GroupStore, group_id: str, changes: Iterable[TimerChange], now_ms: int) -> None:
    for change in changes:
        key = _key_of(group_id, change)
        if change.delay_ms is None:
            store.timers.cancel(key)
        elif not change.if_absent or key not in store.timers:
            store.timers.set(key, now_ms + change.delay_ms)


def start_timers(store: GroupStore, group: ConsumerGroup, context: EventContext) -> None:
    """Start every member's timers, after the group was loaded or converted."""
    changes = []
    own_session_ms = store.consumer_config(group.group_id, context.metadata).session_timeout_ms
    for member in group.members.values():
        session_ms = own_session_ms
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        elif member.state is MemberState.UNREVOKED_PARTITIONS:
            delay_ms = member.rebalance_timeout_ms
            changes.append(TimerChange(MemberTimer.REVOCATION, member.member_id, delay_ms))
        changes.append(TimerChange(MemberTimer.SESSION, member.member_id, session_ms))
    _plan(store, group.group_id, changes, context.now_ms)


# ConsumerGroupHeartbeat.


def beat(store: GroupStore, event: Beat, context: EventContext) -> GroupDecision:
    """Decide a heartbeat. A joining member creates the group, or converts a classic one."""
    group = store.consumer_groups.get(event.group_id)
    here = _context(store, event.group_id, context, event.may_describe)
    if group is not None:
        return _decision_of(store, event, heartbeat(group, event, here), context)
    if event.member_epoch != JOIN_EPOCH:
        refusal = _no_such_group(store, event.group_id, is_heartbeat=True)
        return _refuse_beat(context, refusal)
    group, converted = ConsumerGroup(event.group_id), []
    classic = store.groups.get(event.group_id)
    if classic is not None and classic.state is not GroupState.EMPTY:
        upgraded = upgrade(classic, here)
        if isinstance(upgraded, Refusal):
            return _refuse_beat(context, upgraded)
        group, converted = upgraded, all_records(upgraded)
    outcome = heartbeat(group, event, here)
    if isinstance(outcome, Refusal):
        return _refuse_beat(context, outcome)
    if event.group_id in store.recorded:
        converted.insert(0, group_tombstone(event.group_id))
    _change(store, event, outcome, context)
    builder = DecisionBuilder(event, context)
    for member in classic.members.values() if classic is not None else ():
        # Their requests wait on if the append fails: then the group stays classic.
        error = ErrorCode.rebalance_in_progress
        builder.reply_on_commit(member.join_token, replies.JoinReply(error, member.member_id))
        builder.reply_on_commit(member.sync_token, replies.SyncReply(error))
    builder.reply_on_commit(context.token, outcome.result)
    if converted:
        store.due.append(GroupConverted(event.group_id))
    builder.write_all(event.group_id, [*converted, *outcome.records])
    return builder.build()


def _decision_of(
    store: GroupStore,
    event: Request,
    outcome: Outcome | Refusal,
    context: EventContext,
) -> GroupDecision:
    """Set the timers, write the records, and reply once they are committed."""
    if isinstance(outcome, Refusal):
        return _refuse_beat(context, outcome)
    _change(store, event, outcome, context)
    return _write(event.group_id, outcome.records, context, outcome.result)


def _change(store: GroupStore, event: Request, outcome: Outcome, context: EventContext) -> None:
    """Set the timers, and note what `restore_timers` needs if the records are not committed."""
    if outcome.records:
        keys = [_key_of(event.group_id, change) for change in outcome.timers]
        store.changed_timers[event.group_id] = (event, {key: key in store.timers for key in keys})
    _plan(store, event.group_id, outcome.timers, context.now_ms)


def leave_group(store: GroupStore, event: Quit, context: EventContext) -> GroupDecision:
    """Decide the last heartbeat of a member."""
    group = store.consumer_groups.get(event.group_id)
    if group is None:
        return _refuse_beat(context, _no_such_group(store, event.group_id))
    member = leaving.leaving_member(group, event)
    if isinstance(member, Refusal):
        return _refuse_beat(context, member)
    if leaving.is_for_now(event):
        written = [leaving.leave_for_now(group, member)]
    else:
        written = _remove(store, group, frozenset({member.member_id}), context)
    return _write(event.group_id, written, context, leaving.farewell(event))


def _no_such_group(store: GroupStore, group_id: str, *, is_heartbeat: bool = False) -> Refusal:
    """Return Kafka's message for a group that does not exist, or follows the classic protocol."""
    if group_id in store.groups:
        message = f"Group {group_id} is not a consumer group."
    elif is_heartbeat:
        message = f"Consumer group {group_id} not found."
    else:
        message = f"Group {group_id} not found."
    return Refusal(ErrorCode.group_id_not_found, message)


def _refuse_beat(context: EventContext, refusal: Refusal) -> GroupDecision:
    return reply_at_once(context, BeatReply(refusal.error, message=refusal.message))


def _write(
    group_id: str,
    written: Sequence[CoordinatorRecord],
    context: EventContext,
    result: GroupReply,
) -> GroupDecision:
    """Write records as a transition of the group's id, and reply when they are committed."""
    replies = replies_to(context.token, result)
    return Decision(tuple(written), replies, id=group_id if written else None)


def _remove(
    store: GroupStore, group: ConsumerGroup, gone: frozenset[str], context: EventContext
) -> list[CoordinatorRecord]:
    """Return the records that remove members; their timers stop once these are committed.

    If only classic-protocol members remain, the group becomes classic.
    """
    here = _context(store, group.group_id, context)
    return _downgrade(store, group, gone, here) or leaving.remove_members(group, gone, here)


def _downgrade(
    store: GroupStore, group: ConsumerGroup, gone: frozenset[str], here: ConsumerGroupContext
) -> list[CoordinatorRecord]:
    """Return the records that make the group classic without these members; none if it may not."""
    if not may_downgrade(group, gone, here, store.config.max_size):
        return []
    classic, assignments = downgrade(group, gone, here)
    store.due.append(GroupConverted(group.group_id, group.group_epoch))
    return [*records.no_group(group), group_record(classic, assignments)]


def downgrade_due(store: GroupStore, event: DowngradeDue, context: EventContext) -> GroupDecision:
    """Make a group classic whose last member of the new protocol was replaced by a classic one."""
    group = store.consumer_groups.get(event.group_id)
    if group is None:
        return NOTHING
    here = _context(store, group.group_id, context)
    written = _downgrade(store, group, frozenset(), here)
    return Decision(tuple(written), id=group.group_id if written else None)


def group_converted(
    store: GroupStore, event: GroupConverted, context: EventContext
) -> GroupDecision:
    """Start the timers of a group that has changed its protocol; a classic one rebalances.

    If the change was not committed there is nothing to do.
    """
    builder = DecisionBuilder(event, context)
    group = store.consumer_groups.get(event.group_id)
    classic = store.groups.get(event.group_id)
    if event.generation_id is None and group is not None:
        start_timers(store, group, context)
    if event.generation_id is not None and classic is not None:
        for member in classic.members.values():
            store.renew_session(classic, member, context.now_ms)
        if classic.state is GroupState.STABLE:
            classic.stay_in(event.generation_id)
            prepare_rebalance(store, classic, builder)
    return builder.build()


def member_overdue(store: GroupStore, event: MemberOverdue, context: EventContext) -> GroupDecision:
    """Remove a member that missed its session, revocation, join or sync deadline."""
    group = store.consumer_groups.get(event.group_id)
    member = group.members.get(event.member_id) if group is not None else None
    key = TimerKey(TIMER_KINDS[event.timer], event.group_id, event.member_id)
    if group is None or member is None or key in store.timers:
        return NOTHING
    if not leaving.is_overdue(member, event.timer):
        return NOTHING
    written = _remove(store, group, frozenset({member.member_id}), context)
    return Decision(tuple(written), id=group.group_id if written else None)


def restore_timers(store: GroupStore, event: GroupEvent, group_id: str, now_ms: int) -> None:
    """Undo what a failed event did to timers: each member has to be waited for as before.

    A timer that the event began ends, also that of a member that did not come in. One that it ended
    begins again. A session that it renewed stays so, as its heartbeat was received.
    """
    group = store.consumer_groups.get(group_id)
    members = group.members if group is not None else {}
    if isinstance(event, MemberOverdue) and event.member_id in members:
        delay_ms = MEMBER_REMOVAL_RETRY_BACKOFF_MS
        again = TimerChange(event.timer, event.member_id, delay_ms, if_absent=True)
        _plan(store, group_id, (again,), now_ms)
    changer, changed = store.changed_timers.get(group_id, (None, {}))
    if changer is not event:
        return
    del store.changed_timers[group_id]
    for key, was_running in changed.items():
        if not was_running:
            store.timers.cancel(key)
        elif key not in store.timers and key.member_id in members:
            store.timers.set(key, now_ms + members[key.member_id].rebalance_timeout_ms)


# Requests of the classic protocol.


def join_classic(store: GroupStore, event: events.Join, context: EventContext) -> GroupDecision:
    """Let a classic-protocol member join the group, or take over an empty group."""
    group = store.consumer_groups[event.group_id]
    error = check_request(store, event)
    if error is ErrorCode.none and not group.members:
        error = check_first(event)
    if error is not ErrorCode.none:
        return reply_at_once(context, replies.JoinReply(error, event.member_id))
    if not group.members:
        return Decision(tuple(records.no_group(group)), id=event.group_id, wait=True)
    here = _context(store, event.group_id, context, event.may_describe)
    outcome = classic_members.join(group, event, here)
    if outcome.records and classic_members.replaces_last_new_one(group, event):
        store.due.append(DowngradeDue(event.group_id))
    return _decision_of(store, event, outcome, context)


def sync_classic(store: GroupStore, event: events.Sync, context: EventContext) -> GroupDecision:
    """Return a classic-protocol member's assignment."""
    group = store.consumer_groups[event.group_id]
    outcome = classic_members.sync(group, event, _context(store, event.group_id, context))
    return _decision_of(store, event, outcome, context)


def heartbeat_classic(
    store: GroupStore, event: events.Heartbeat, context: EventContext
) -> GroupDecision:
    """Renew a classic-protocol member's session."""
    group = store.consumer_groups[event.group_id]
    outcome = classic_members.heartbeat(group, event, _context(store, event.group_id, context))
    return _decision_of(store, event, outcome, context)


def leave_classic(store: GroupStore, event: events.Leave, context: EventContext) -> GroupDecision:
    """Remove members, each with its own result; an administrator may name any."""
    group = store.consumer_groups[event.group_id]
    outcomes, gone = [], set()
    for each in event.members:
        if each.group_instance_id is None:
            member = group.members.get(each.member_id)
        else:
            member = group.static_member(each.group_instance_id)
        error = ErrorCode.none
        if member is None or member.member_id in gone:
            error = ErrorCode.unknown_member_id
        elif each.member_id not in (events.NO_MEMBER_ID, member.member_id):
            error = ErrorCode.fenced_instance_id
        else:
            gone.add(member.member_id)
        outcomes.append(replies.LeftMember(each.member_id, each.group_instance_id, error))
    written = _remove(store, group, frozenset(gone), context) if gone else []
    result = replies.LeaveReply(ErrorCode.none, tuple(outcomes))
    return _write(group.group_id, written, context, result)


# Offsets.


def commit(store: GroupStore, event: AnyCommit, context: EventContext) -> GroupDecision:
    """Decide an OffsetCommit or TxnOffsetCommit; the member's epoch fences it (INV-8)."""
    group = store.consumer_groups[event.group_id]
    error, stale = check_commit(group, event)
    if error is not ErrorCode.none:
        return reply_at_once(context, refused(event, error))
    return write_offsets(store, event, context, stale)


def delete_offsets(
    store: GroupStore, event: events.OffsetDelete, context: EventContext
) -> GroupDecision:
    """Decide an OffsetDelete; topics that the group subscribes to are refused."""
    group = store.consumer_groups[event.group_id]
    subscribed = Members.of(group).subscribed_names()
    return delete_each(store, event, context, subscribed.__contains__)


def expire(store: GroupStore, event: events.ExpireOffsets, context: EventContext) -> GroupDecision:
    """Delete expired offsets, and an empty group with its last one."""
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
    """Describe the current state of a group."""
    group = store.consumer_groups.get(event.group_id)
    if group is None:
        refusal = _no_such_group(store, event.group_id)
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
    return reply_at_once(context, result)


def delete_group(
    store: GroupStore, event: events.DeleteGroup, context: EventContext
) -> GroupDecision:
    """Delete a group without members, and all its offsets."""
    group = store.consumer_groups[event.group_id]
    if group.state is not ConsumerGroupState.EMPTY:
        return reply_at_once(
            context, replies.DeleteReply(ErrorCode.non_empty_group, event.group_id)
        )
    offsets = store.offsets.partitions(event.group_id)
    tombstones = [offset_tombstone(event.group_id, partition) for partition in offsets]
    result = replies.DeleteReply(ErrorCode.none, event.group_id)
    return _write(event.group_id, [*tombstones, *records.no_group(group)], context, result)


# Routing.


def decide(store: GroupStore, event: GroupEvent, context: EventContext) -> GroupDecision | None:
    """Decide an event that both group types have, for a consumer group.

    None where the effect is the same for both types.
    """
    match event:
        case events.OffsetCommit() | events.TxnOffsetCommit():
            return commit(store, event, context)
        case events.Join():
            return join_classic(store, event, context)
        case events.Sync():
            return sync_classic(store, event, context)
        case events.Heartbeat():
            return heartbeat_classic(store, event, context)
        case events.Leave():
            return leave_classic(store, event, context)
        case events.OffsetDelete():
            return delete_offsets(store, event, context)
        case events.ExpireOffsets():
            return expire(store, event, context)
        case events.DeleteGroup():
            return delete_group(store, event, context)
    return None


OwnEvent: TypeAlias = (
    Beat | Quit | DescribeConsumerGroup | MemberOverdue | GroupConverted | DowngradeDue
)


def decide_own(
    store: GroupStore,
    event: OwnEvent,
    context: EventContext,
) -> GroupDecision:
    """Decide an event that only consumer groups have."""
    match event:
        case Beat():
            return beat(store, event, context)
        case Quit():
            return leave_group(store, event, context)
        case DescribeConsumerGroup():
            return describe(store, event, context)
        case MemberOverdue():
            return member_overdue(store, event, context)
        case GroupConverted():
            return group_converted(store, event, context)
        case DowngradeDue():
            return downgrade_due(store, event, context)
