"""Runs the rebalance of a classic group: join, start a generation, wait for SyncGroup.

Source: Kafka's `GroupMetadataManager`: `prepareRebalance`, `completeClassicGroupJoin`,
`expirePendingSync` and what they call.
"""

from oncelog.coordinator.shard import NOTHING, EventContext
from oncelog.core.errors import ErrorCode, require
from oncelog.group.classic_group import ClassicGroup, ClassicGroupMember, WriteKind
from oncelog.group.decision import GroupDecision, GroupEvent
from oncelog.group.events import (
    NO_MEMBER_ID,
    ConnectionLost,
    JoinPhaseOver,
    MemberSessionExpired,
    SyncPhaseOver,
)
from oncelog.group.records import group_record
from oncelog.group.replies import JoinedMember, JoinReply, SyncReply
from oncelog.group.states import GroupState, may_rebalance
from oncelog.group.store import (
    DecisionBuilder,
    GroupStore,
    answer_join,
    answer_sync,
    refuse_waiting,
    session_key,
)


def rebalance_or_complete(store: GroupStore, group: ClassicGroup, builder: DecisionBuilder) -> None:
    """Start a rebalance, or complete the join phase if all members have joined."""
    if may_rebalance(group.state):
        prepare_rebalance(store, group, builder)
    else:
        complete_join_if_ready(store, group, builder)


def prepare_rebalance(store: GroupStore, group: ClassicGroup, builder: DecisionBuilder) -> None:
    """Start the join phase: members that wait in SyncGroup have to rejoin."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        cancel_assignment(store, group, builder, ErrorCode.rebalance_in_progress)
    group.pending_syncs.clear()
    store.timers.cancel(group.sync_key)
    is_initial = group.state is GroupState.EMPTY
    group.move(GroupState.PREPARING_REBALANCE, builder.now_ms)
    if is_initial:
        # A new group waits for more members, so that they need not rebalance again.
        delay_ms = store.config.initial_rebalance_delay_ms
        group.initial_delay_is_over = False
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        store.timers.set(group.join_key, builder.now_ms + delay_ms)
    elif group.has_all_joined:
        complete_join(store, group, builder)
    else:
        store.timers.set(group.join_key, builder.now_ms + group.rebalance_timeout_ms)


def cancel_assignment(
    store: GroupStore, group: ClassicGroup, builder: DecisionBuilder, error: ErrorCode
) -> None:
    """Discard the assignments of a generation that failed."""
    for member in group.members.values():
        member.assignment = b""
        if answer_sync(builder, member, SyncReply(error)):
            store.renew_after_wait(group, member, builder.now_ms)


def complete_join_if_ready(
    store: GroupStore, group: ClassicGroup, builder: DecisionBuilder
) -> None:
    """Start the generation if all members have joined; a new group waits its full initial delay."""
    preparing = group.state is GroupState.PREPARING_REBALANCE
    if preparing and not group.is_initial_rebalance and group.has_all_joined:
        complete_join(store, group, builder)


def complete_join(store: GroupStore, group: ClassicGroup, builder: DecisionBuilder) -> None:
    """Remove dynamic members that did not rejoin, then start the next generation."""
    store.timers.cancel(group.join_key)
    absent = [m for m in group.members.values() if m.join_token is None]
    for member in absent:
        if member.group_instance_id is None:
            store.drop_member(group, member.member_id)
    if group.members and not group.elect_joined_leader():
        # Those that are left are static and did not join, or cut off: their sessions decide, or
        # the next one that joins.
        group.initial_delay_is_over = True
        store.timers.set(group.join_key, builder.now_ms + group.rebalance_timeout_ms)
        return
    group.start_generation(builder.now_ms)
    if group.state is GroupState.EMPTY:
        builder.write(group, WriteKind.EMPTIED, group_record(group, {}))
        return
    for member in group.members.values():
        answer_join(builder, group, member, current_generation(group, member))
        store.renew_after_wait(group, member, builder.now_ms)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    store.timers.set(group.sync_key, builder.now_ms + group.rebalance_timeout_ms)


def current_generation(group: ClassicGroup, member: ClassicGroupMember) -> JoinReply:
    """Reply to a member's JoinGroup; only the leader receives the list of members."""
    is_leader = group.leader_id == member.member_id
    return JoinReply(
        ErrorCode.none,
        member.member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        members=joined_members(group) if is_leader else (),
    )


def joined_members(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    """List the members for the leader, with their metadata for the selected protocol."""
    name = group.protocol_name
    members = group.members.values()
    return tuple(
        [JoinedMember(m.member_id, m.group_instance_id, m.metadata(name)) for m in members]
    )


def join_phase_over(
    store: GroupStore, event: JoinPhaseOver, context: EventContext
) -> GroupDecision:
    """End the join phase; a first rebalance is extended while new members join."""
    group = store.groups.get(event.group_id)
    if group is None or group.state is not GroupState.PREPARING_REBALANCE:
        return NOTHING
    if group.is_initial_rebalance and group.new_member_added and group.initial_remaining_ms:
        group.new_member_added = False
        passed_ms = group.initial_delay_ms
        delay_ms = min(store.config.initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.initial_remaining_ms - passed_ms, 0)
        store.timers.set(group.join_key, context.now_ms + delay_ms)
        return NOTHING
    builder = DecisionBuilder(event, context)
    complete_join(store, group, builder)
    return builder.build()


def sync_phase_over(
    store: GroupStore, event: SyncPhaseOver, context: EventContext
) -> GroupDecision:
    """Remove the members that sent no SyncGroup, and let the others rebalance."""
    group = store.groups.get(event.group_id)
    if group is None or group.generation_id != event.generation_id or not group.pending_syncs:
        return NOTHING
    require(may_rebalance(group.state), f"{group.group_id}: waits for SyncGroup in {group.state}")
    for member_id in sorted(group.pending_syncs):
        store.drop_member(group, member_id)
    builder = DecisionBuilder(event, context)
    prepare_rebalance(store, group, builder)
    return builder.build()


def session_expired(
    store: GroupStore, event: MemberSessionExpired, context: EventContext
) -> GroupDecision:
    """Remove a member whose session timed out, unless `ClassicGroupMember.is_excused`."""
    group = store.groups.get(event.group_id)
    if group is None:
        return NOTHING
    builder = DecisionBuilder(event, context)
    member = group.members.get(event.member_id)
    if event.member_id in group.pending_joins:
        group.remove(event.member_id)
        complete_join_if_all_here(store, group, builder)
    elif member is not None and not member.is_excused:
        remove_member(store, group, member, builder)
        if may_rebalance(group.state):
            prepare_rebalance(store, group, builder)
        else:
            complete_join_if_all_here(store, group, builder)
    return builder.build()


def connection_lost(
    store: GroupStore, event: ConnectionLost, context: EventContext
) -> GroupDecision:
    """Start the session of a member whose waiting request lost its connection.

    Its process may have died. While its request waits it sends no heartbeats, so that its session
    would begin only when the rebalance is over.
    """
    group = store.groups.get(event.group_id)
    if group is None:
        return NOTHING
    joining = group.joining.get(event.token)
    waiting = group.members.values() if joining is None else (joining,)
    for member in waiting:
        if event.token in (member.join_token, member.sync_token):
            member.is_cut_off = True
            store.renew_session(group, member, context.now_ms)
    return NOTHING


def complete_join_if_all_here(
    store: GroupStore, group: ClassicGroup, builder: DecisionBuilder
) -> None:
    """Start the generation if all members have joined, in a new group too."""
    if group.state is GroupState.PREPARING_REBALANCE and group.has_all_joined:
        complete_join(store, group, builder)


def remove_member(
    store: GroupStore, group: ClassicGroup, member: ClassicGroupMember, builder: DecisionBuilder
) -> None:
    """Remove a member. UNKNOWN_MEMBER_ID makes a live client join again."""
    refuse_waiting(builder, group, member, ErrorCode.unknown_member_id, NO_MEMBER_ID)
    store.drop_member(group, member.member_id)


def is_stale(store: GroupStore, event: GroupEvent) -> bool:
    """Whether a timer's event is late: its deadline has been moved since."""
    match event:
        case MemberSessionExpired(group_id, member_id) if group_id in store.groups:
            return session_key(store.groups[group_id], member_id) in store.timers
        case JoinPhaseOver(group_id) if group_id in store.groups:
            return store.groups[group_id].join_key in store.timers
    return False
