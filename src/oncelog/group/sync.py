"""Decides SyncGroup (Kafka's `classicGroupSyncToClassicGroup`).

The leader's assignment is written to the log, then sent to every member (INV-8); a member without
an assignment gets an empty one. No member receives an assignment before its record is committed, so
that after a fail-over the group has the generation that its members know.
"""

from oncelog.coordinator.shard import NOTHING, EventContext, reply_at_once
from oncelog.core.errors import ErrorCode, require
from oncelog.group.classic_group import ClassicGroup, ClassicGroupMember, WriteKind
from oncelog.group.decision import GroupDecision
from oncelog.group.events import Sync
from oncelog.group.rebalance import cancel_assignment, rebalance_or_complete
from oncelog.group.records import group_record
from oncelog.group.replies import SyncReply
from oncelog.group.states import GroupState
from oncelog.group.store import DecisionBuilder, GroupStore


def sync(store: GroupStore, event: Sync, context: EventContext) -> GroupDecision:
    """Decide a SyncGroup; a follower's reply is sent with the leader's."""
    group = store.groups.get(event.group_id)
    if not event.group_id:
        return reply_at_once(context, SyncReply(ErrorCode.invalid_group_id))
    if group is None:
        return reply_at_once(context, SyncReply(ErrorCode.unknown_member_id))
    error = _check(group, event)
    if error is not ErrorCode.none:
        return reply_at_once(context, SyncReply(error))
    member = group.members[event.member_id]
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs:
        store.timers.cancel(group.sync_key)
    if group.state is GroupState.STABLE:
        return reply_at_once(context, assignment_of(group, member, member.assignment))
    member.sync_token = context.token
    member.is_cut_off = False
    if group.leader_id == member.member_id:
        return _store_assignment(store, group, event, context)
    return NOTHING


def _check(group: ClassicGroup, event: Sync) -> ErrorCode:
    error = group.check_member(event.member_id, event.group_instance_id)
    if error is not ErrorCode.none:
        return error
    if event.generation_id != group.generation_id:
        return ErrorCode.illegal_generation
    if _differs(event.protocol_type, group.protocol_type):
        return ErrorCode.inconsistent_group_protocol
    if _differs(event.protocol_name, group.protocol_name):
        return ErrorCode.inconsistent_group_protocol
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def _differs(theirs: str | None, ours: str | None) -> bool:
    return theirs is not None and ours is not None and theirs != ours


def _store_assignment(
    store: GroupStore, group: ClassicGroup, event: Sync, context: EventContext
) -> GroupDecision:
    builder = DecisionBuilder(event, context)
    given = dict(event.assignments)
    assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
    builder.write(group, WriteKind.ASSIGNMENT, group_record(group, assignments))
    for member in group.members.values():
        if member.sync_token is not None:
            store.renew_after_wait(group, member, context.now_ms)
            result = assignment_of(group, member, assignments[member.member_id])
            builder.reply_on_commit(member.sync_token, result)
    return builder.build()


def assignment_of(group: ClassicGroup, member: ClassicGroupMember, assignment: bytes) -> SyncReply:
    """Reply with a member's assignment."""
    require(member.member_id in group.members, "INV-8: an assignment goes to a member only")
    return SyncReply(ErrorCode.none, group.protocol_type, group.protocol_name, assignment)


def assignment_failed(
    store: GroupStore, group: ClassicGroup, builder: DecisionBuilder, error: ErrorCode
) -> None:
    """Handle an assignment whose record was not written.

    Every waiting SyncGroup gets the error, and all members rejoin.
    """
    cancel_assignment(store, group, builder, error)
    rebalance_or_complete(store, group, builder)
