"""Decides JoinGroup (Kafka's `GroupMetadataManager.classicGroupJoin` and what it calls).

New dynamic members get an id first and join with it (version 4 on: MEMBER_ID_REQUIRED), so that a
client which retries does not leave unused members behind. A static member (KIP-345) that joins
without an id replaces its former self, and a stable group stays stable if the protocol does not
change.
"""

from oncelog.coordinator.shard import EventContext, reply_at_once
from oncelog.core.errors import ErrorCode, require
from oncelog.group.classic_group import ClassicGroup, ClassicGroupMember, FormerSelf, WriteKind
from oncelog.group.decision import GroupDecision
from oncelog.group.events import NO_MEMBER_ID, Join
from oncelog.group.rebalance import (
    complete_join_if_ready,
    current_generation,
    joined_members,
    prepare_rebalance,
    rebalance_or_complete,
)
from oncelog.group.records import group_record
from oncelog.group.replies import JoinReply
from oncelog.group.states import GroupState
from oncelog.group.store import DecisionBuilder, GroupStore, refuse_waiting, session_key

KNOWN_MEMBER_ID_VERSION_MIN = 4
"""From this version on a dynamic member has to join with an assigned id (KIP-394)."""

SKIP_ASSIGNMENT_VERSION_MIN = 9
"""From this version on a restarted static leader can be told to skip the assignment (KIP-814)."""


def join(store: GroupStore, event: Join, context: EventContext) -> GroupDecision:
    """Decide a JoinGroup; the reply may come later, through the group's rebalance."""
    error = check_request(store, event)
    if error is not ErrorCode.none:
        return reply_at_once(context, JoinReply(error, event.member_id))
    group = store.groups.get(event.group_id)
    is_unknown = event.member_id == NO_MEMBER_ID
    if group is None and not is_unknown:
        return reply_at_once(context, JoinReply(ErrorCode.unknown_member_id, event.member_id))
    if group is None:
        group = ClassicGroup(event.group_id)
    builder = DecisionBuilder(event, context)
    if not _accepts_joining_member(store, group, event.member_id):
        _turn_away(store, group, event, builder)
    elif not group.supports(event.protocol_type, event.protocols):
        builder.answer(JoinReply(ErrorCode.inconsistent_group_protocol, event.member_id))
    elif is_unknown:
        _join_new(store, group, event, builder)
    else:
        _join_known(store, group, event, builder)
    return builder.build()


def check_request(store: GroupStore, event: Join) -> ErrorCode:
    """Check what does not depend on the group, nor on its type."""
    if not event.group_id:
        return ErrorCode.invalid_group_id
    shortest_ms = store.config.min_session_timeout_ms
    longest_ms = store.config.max_session_timeout_ms
    if not shortest_ms <= event.session_timeout_ms <= longest_ms:
        return ErrorCode.invalid_session_timeout
    return ErrorCode.none


def check_first(event: Join) -> ErrorCode:
    """Return the error for a JoinGroup that no group without members accepts."""
    if event.member_id != NO_MEMBER_ID:
        return ErrorCode.unknown_member_id
    if not ClassicGroup(event.group_id).supports(event.protocol_type, event.protocols):
        return ErrorCode.inconsistent_group_protocol
    return ErrorCode.none


def _accepts_joining_member(store: GroupStore, group: ClassicGroup, member_id: str) -> bool:
    """Return whether the group accepts one more joining member.

    While members join, only those that have joined count, so the last members to rejoin are
    refused.
    """
    member = group.members.get(member_id)
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        is_waiting = member is not None and member.join_token is not None
        return is_waiting or len(group.joining) < store.config.max_size
    return member is not None or len(group.members) < store.config.max_size


def _turn_away(
    store: GroupStore, group: ClassicGroup, event: Join, builder: DecisionBuilder
) -> None:
    builder.answer(JoinReply(ErrorCode.group_max_size_reached, NO_MEMBER_ID))
    if event.member_id in group.members or event.member_id in group.pending_joins:
        store.drop_member(group, event.member_id)
        complete_join_if_ready(store, group, builder)


def _join_new(
    store: GroupStore, group: ClassicGroup, event: Join, builder: DecisionBuilder
) -> None:
    """Add a member without an id: a static one that is new or restarted, or a dynamic one."""
    prefix = event.client_id if event.group_instance_id is None else event.group_instance_id
    new_id = f"{prefix}-{event.fresh_id}"
    former_id = group.static_members.get(event.group_instance_id or "")
    store.groups.setdefault(group.group_id, group)
    if event.group_instance_id is not None and former_id is not None:
        _replace_static(store, group, former_id, new_id, event, builder)
    elif event.group_instance_id is None and event.version >= KNOWN_MEMBER_ID_VERSION_MIN:
        group.pending_joins.add(new_id)
        deadline_ms = builder.now_ms + event.session_timeout_ms
        store.timers.set(session_key(group, new_id), deadline_ms)
        builder.answer(JoinReply(ErrorCode.member_id_required, new_id))
    else:
        _add(store, group, new_id, event, builder)


def _add(
    store: GroupStore, group: ClassicGroup, member_id: str, event: Join, builder: DecisionBuilder
) -> None:
    member = ClassicGroupMember(
        member_id,
        event.group_instance_id,
        event.client_id,
        event.client_host,
        event.session_timeout_ms,
        _rebalance_timeout_ms(event),
        event.protocols,
        join_token=builder.token,
        is_new=True,
    )
    if group.is_initial_rebalance:
        group.new_member_added = True
    group.add(member, event.protocol_type)
    # It has no member id for heartbeats yet. The timer removes it if its client gave up.
    timeout_ms = store.config.new_member_join_timeout_ms
    store.timers.set(session_key(group, member_id), builder.now_ms + timeout_ms)
    rebalance_or_complete(store, group, builder)


def _rebalance_timeout_ms(event: Join) -> int:
    if event.rebalance_timeout_ms < 0:
        return event.session_timeout_ms
    return event.rebalance_timeout_ms


def _join_known(
    store: GroupStore, group: ClassicGroup, event: Join, builder: DecisionBuilder
) -> None:
    """Join a member that was assigned its id before, in this generation or an earlier one."""
    member_id = event.member_id
    if member_id in group.pending_joins:
        if event.group_instance_id is not None:
            # Only dynamic members are assigned ids first. Kafka fails with the same code.
            builder.answer(JoinReply(ErrorCode.unknown_server_error, member_id))
            return
        _add(store, group, member_id, event, builder)
        return
    error = group.check_member(member_id, event.group_instance_id)
    if error is not ErrorCode.none:
        builder.answer(JoinReply(error, member_id))
        return
    member = group.members[member_id]
    if _knows_already(group, member, event):
        builder.answer(current_generation(group, member))
        return
    _update(group, member, event, builder)
    rebalance_or_complete(store, group, builder)


def _knows_already(group: ClassicGroup, member: ClassicGroupMember, event: Join) -> bool:
    """Whether an unchanged member only needs the reply of this generation again.

    The leader of a stable group is different: its JoinGroup requests a rebalance, as when it
    detects new partitions.
    """
    is_same = member.protocols == event.protocols
    if group.state is GroupState.COMPLETING_REBALANCE:
        return is_same
    is_leader = group.leader_id == member.member_id
    return group.state is GroupState.STABLE and is_same and not is_leader


def _update(
    group: ClassicGroup, member: ClassicGroupMember, event: Join, builder: DecisionBuilder
) -> None:
    group.update(
        member,
        event.protocols,
        event.session_timeout_ms,
        _rebalance_timeout_ms(event),
        builder.token,
    )


def _replace_static(
    store: GroupStore,
    group: ClassicGroup,
    former_id: str,
    new_id: str,
    event: Join,
    builder: DecisionBuilder,
) -> None:
    """Replace a restarted static member; its former self is fenced."""
    leader_id = group.leader_id or ""
    member = group.members[former_id]
    former = FormerSelf(
        former_id, member.session_timeout_ms, member.rebalance_timeout_ms, member.protocols
    )
    refuse_waiting(builder, group, member, ErrorCode.fenced_instance_id, former_id)
    store.timers.cancel(session_key(group, former_id))
    group.rename_static_member(former_id, new_id)
    member.client_id, member.client_host = event.client_id, event.client_host
    member.is_new = False
    _update(group, member, event, builder)
    store.renew_session(group, member, builder.now_ms)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        _store_replacement(group, member, former, leader_id, event, builder)
    elif group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_ready(store, group, builder)
    else:
        # In CompletingRebalance the leader may be assigning to the former id now.
        prepare_rebalance(store, group, builder)


def _store_replacement(
    group: ClassicGroup,
    member: ClassicGroupMember,
    former: FormerSelf,
    leader_id: str,
    event: Join,
    builder: DecisionBuilder,
) -> None:
    """Write the replacement without a rebalance.

    Only the member's record changes, and it gets its old assignment by SyncGroup.
    """
    assignments = {m.member_id: m.assignment for m in group.members.values()}
    record = group_record(group, assignments)
    write = builder.write(group, WriteKind.STATIC_MEMBER, record)
    write.former = former
    write.member_id = member.member_id
    is_leader = group.leader_id == member.member_id
    may_skip = event.version >= SKIP_ASSIGNMENT_VERSION_MIN
    result = JoinReply(
        ErrorCode.none,
        member.member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        # An older client must not be the leader, or it would assign again.
        leader=(group.leader_id or "") if may_skip else leader_id,
        skip_assignment=may_skip and is_leader,
        members=joined_members(group) if may_skip and is_leader else (),
    )
    builder.reply_on_commit(builder.token, result)
    group.end_join(member)


def undo_replacement(
    store: GroupStore, group: ClassicGroup, builder: DecisionBuilder, error: ErrorCode
) -> None:
    """Restore the former self after the record of its replacement was not written."""
    write = group.write
    require(write is not None, f"{group.group_id}: nothing to undo")
    if write is None or write.former is None:
        return
    former = write.former
    store.timers.cancel(session_key(group, write.member_id))
    member = group.rename_static_member(write.member_id, former.member_id)
    group.update(
        member, former.protocols, former.session_timeout_ms, former.rebalance_timeout_ms, None
    )
    store.renew_session(group, member, builder.now_ms)
    result = JoinReply(
        error,
        NO_MEMBER_ID,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
    )
    builder.answer(result)
