"""Heartbeat and LeaveGroup: a member says that it is there, or that it goes."""

from oncelog.core.errors import ErrorCode
from oncelog.group.classic_group import ClassicGroup
from oncelog.group.events import NO_MEMBER_ID, Heartbeat, Leave, LeavingMember
from oncelog.group.rebalance import rebalance_or_complete, remove_member
from oncelog.group.registry import Draft, Room
from oncelog.group.results import HeartbeatResult, LeaveResult, LeftMember
from oncelog.group.states import GroupState


def heartbeat(room: Room, event: Heartbeat, draft: Draft) -> None:
    """Renew a member's session; REBALANCE_IN_PROGRESS calls it to join again."""
    draft.answer(HeartbeatResult(_heartbeat(room, event, draft)))


def _heartbeat(room: Room, event: Heartbeat, draft: Draft) -> ErrorCode:
    if not event.group_id:
        return ErrorCode.invalid_group_id
    group = room.groups.get(event.group_id)
    if group is None:
        return ErrorCode.unknown_member_id
    error = group.check_member(event.member_id, event.group_instance_id)
    if error is not ErrorCode.none:
        return error
    if event.generation_id != group.generation_id:
        return ErrorCode.illegal_generation
    room.renew_session(group, group.members[event.member_id], draft.now_ms)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def leave(room: Room, event: Leave, draft: Draft) -> None:
    """Remove members, each with an outcome of its own, then rebalance once."""
    if not event.group_id:
        draft.answer(LeaveResult(ErrorCode.invalid_group_id))
        return
    group = room.groups.get(event.group_id)
    outcomes = []
    for leaving in event.members:
        error = ErrorCode.unknown_member_id
        if group is not None:
            error = _leave(room, group, leaving, draft)
        outcomes.append(LeftMember(leaving.member_id, leaving.group_instance_id, error))
    has_left = any(outcome.error is ErrorCode.none for outcome in outcomes)
    if group is not None and has_left and group.state is not GroupState.EMPTY:
        rebalance_or_complete(room, group, draft)
    draft.reply_on_commit(draft.token, LeaveResult(ErrorCode.none, tuple(outcomes)))


def _leave(room: Room, group: ClassicGroup, leaving: LeavingMember, draft: Draft) -> ErrorCode:
    """Remove one member. An administrator names a static one by its instance id alone."""
    member_id = leaving.member_id
    if member_id == NO_MEMBER_ID:
        if leaving.group_instance_id is None:
            return ErrorCode.unknown_member_id
        member_id = group.static_members.get(leaving.group_instance_id, NO_MEMBER_ID)
        if member_id == NO_MEMBER_ID:
            return ErrorCode.unknown_member_id
    elif member_id in group.pending_joins:
        room.drop_member(group, member_id)
        return ErrorCode.none
    else:
        error = group.check_member(member_id, leaving.group_instance_id)
        if error is not ErrorCode.none:
            return error
    remove_member(room, group, group.members[member_id], draft)
    return ErrorCode.none
