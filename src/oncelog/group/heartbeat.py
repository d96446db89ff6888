"""Decides Heartbeat and LeaveGroup for classic groups."""

from oncelog.coordinator.shard import EventContext, reply_at_once
from oncelog.core.errors import ErrorCode
from oncelog.group.classic_group import ClassicGroup
from oncelog.group.decision import GroupDecision
from oncelog.group.events import NO_MEMBER_ID, Heartbeat, Leave, LeavingMember
from oncelog.group.rebalance import rebalance_or_complete, remove_member
from oncelog.group.replies import HeartbeatReply, LeaveReply, LeftMember
from oncelog.group.states import GroupState
from oncelog.group.store import DecisionBuilder, GroupStore


def heartbeat(store: GroupStore, event: Heartbeat, context: EventContext) -> GroupDecision:
    """Renew a member's session; REBALANCE_IN_PROGRESS asks it to rejoin."""
    return reply_at_once(context, HeartbeatReply(_heartbeat(store, event, context.now_ms)))


def _heartbeat(store: GroupStore, event: Heartbeat, now_ms: int) -> ErrorCode:
    if not event.group_id:
        return ErrorCode.invalid_group_id
    group = store.groups.get(event.group_id)
    if group is None:
        return ErrorCode.unknown_member_id
    error = group.check_member(event.member_id, event.group_instance_id)
    if error is not ErrorCode.none:
        return error
    if event.generation_id != group.generation_id:
        return ErrorCode.illegal_generation
    store.renew_session(group, group.members[event.member_id], now_ms)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def leave(store: GroupStore, event: Leave, context: EventContext) -> GroupDecision:
    """Remove members, each with its own result, then rebalance once."""
    if not event.group_id:
        return reply_at_once(context, LeaveReply(ErrorCode.invalid_group_id))
    builder = DecisionBuilder(event, context)
    group = store.groups.get(event.group_id)
    outcomes = []
    for leaving in event.members:
        error = ErrorCode.unknown_member_id
        if group is not None:
            error = _leave(store, group, leaving, builder)
        outcomes.append(LeftMember(leaving.member_id, leaving.group_instance_id, error))
    has_left = any(outcome.error is ErrorCode.none for outcome in outcomes)
    if group is not None and has_left and group.state is not GroupState.EMPTY:
        rebalance_or_complete(store, group, builder)
    builder.reply_on_commit(context.token, LeaveReply(ErrorCode.none, tuple(outcomes)))
    return builder.build()


def _leave(
    store: GroupStore, group: ClassicGroup, leaving: LeavingMember, builder: DecisionBuilder
) -> ErrorCode:
    """Remove one member. An administrator names a static one by its instance id alone."""
    member_id = leaving.member_id
    if member_id == NO_MEMBER_ID:
        if leaving.group_instance_id is None:
            return ErrorCode.unknown_member_id
        member_id = group.static_members.get(leaving.group_instance_id, NO_MEMBER_ID)
        if member_id == NO_MEMBER_ID:
            return ErrorCode.unknown_member_id
    elif member_id in group.pending_joins:
        store.drop_member(group, member_id)
        return ErrorCode.none
    else:
        error = group.check_member(member_id, leaving.group_instance_id)
        if error is not ErrorCode.none:
            return error
    remove_member(store, group, group.members[member_id], builder)
    return ErrorCode.none
