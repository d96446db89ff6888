"""Decides requests of classic-protocol members in a consumer group (online migration).

JoinGroup acts as a full heartbeat and gets its reply at once; SyncGroup returns the member's
assignment; Heartbeat asks the member to rejoin when its assignment changes. Pure functions, as
Kafka's `classicGroupJoinToConsumerGroup` and related methods.
"""

from dataclasses import replace

from oncelog.core.errors import ErrorCode
from oncelog.group.consumer.embedded import (
    Subscription,
    identified,
    read_subscription,
    write_assignment,
)
from oncelog.group.consumer.group import ConsumerGroup
from oncelog.group.consumer.heartbeat import Arrival, change_member, is_outdated
from oncelog.group.consumer.members import ClassicSide, ConsumerMember, MemberState
from oncelog.group.consumer.outcome import (
    ConsumerGroupContext,
    Outcome,
    Refusal,
)
from oncelog.group.consumer.settings import MigrationPolicy
from oncelog.group.consumer.timers import MemberTimer, TimerChange
from oncelog.group.events import NO_MEMBER_ID, Heartbeat, Join, Sync
from oncelog.group.replies import HeartbeatReply, JoinReply, SyncReply
from oncelog.group.subscription import CONSUMER_PROTOCOL_TYPE

KNOWN_MEMBER_ID_VERSION_MIN = 4
"""From this JoinGroup version on a dynamic member needs an id to join (KIP-394)."""


def join(group: ConsumerGroup, event: Join, context: ConsumerGroupContext) -> Outcome:
    """Decide a JoinGroup."""
    member_id = event.member_id or f"{event.client_id}-{event.fresh_id}"
    subscription = _subscription(group, event, context)
    if subscription is None:
        return _turned_away(ErrorCode.inconsistent_group_protocol, event.member_id)
    known = group.members.get(member_id) or group.static_member(event.group_instance_id)
    if known is None and len(group.members) >= context.config.max_size:
        return _turned_away(ErrorCode.group_max_size_reached, NO_MEMBER_ID)
    is_dynamic = event.group_instance_id is None
    needs_id = is_dynamic and event.version >= KNOWN_MEMBER_ID_VERSION_MIN
    if needs_id and event.member_id == NO_MEMBER_ID:
        return _turned_away(ErrorCode.member_id_required, member_id)
    arrival = _arrive(group, event, member_id)
    if isinstance(arrival, ErrorCode):
        return _turned_away(arrival, event.member_id)
    timeout_ms = event.rebalance_timeout_ms
    updated = replace(
        arrival.member,
        instance_id=event.group_instance_id or arrival.member.instance_id,
        rack_id=subscription.rack_id or arrival.member.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=event.session_timeout_ms if timeout_ms < 0 else timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        classic=ClassicSide(event.session_timeout_ms, event.protocols),
    )
    owned = identified(subscription.owned_partitions, context.topics)
    step = change_member(group, arrival, updated, owned, context)
    if isinstance(step, Refusal):
        return _turned_away(step.error, event.member_id)
    result = JoinReply(
        ErrorCode.none,
        member_id,
        generation_id=step.member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=event.protocols[0].name,
    )
    timers = (
        TimerChange(MemberTimer.JOIN, member_id, None),
        TimerChange(MemberTimer.SESSION, member_id, event.session_timeout_ms),
        TimerChange(MemberTimer.SYNC, member_id, updated.rebalance_timeout_ms),
    )
    return Outcome(tuple(step.entries), result, timers)


def replaces_last_new_one(group: ConsumerGroup, event: Join) -> bool:
    """Whether a JoinGroup is from the only member that spoke the new protocol, or its successor."""
    member = group.static_member(event.group_instance_id) or group.members.get(event.member_id)
    is_new_one = member is not None and member.classic is None
    return is_new_one and group.classic_count == len(group.members) - 1


def _turned_away(error: ErrorCode, member_id: str) -> Outcome:
    return Outcome((), JoinReply(error, member_id))


def _subscription(
    group: ConsumerGroup, event: Join, context: ConsumerGroupContext
) -> Subscription | None:
    """Return the member's subscription, if its protocol is that of the other classic members."""
    if context.config.migration_policy is MigrationPolicy.DISABLED:
        return None
    if event.protocol_type != CONSUMER_PROTOCOL_TYPE or not event.protocols:
        return None
    offered = {protocol.name for protocol in event.protocols}
    for member in group.members.values():
        if member.classic is not None:
            offered &= {protocol.name for protocol in member.classic.protocols}
    return read_subscription(event.protocols[0].metadata) if offered else None


def _arrive(group: ConsumerGroup, event: Join, member_id: str) -> Arrival | ErrorCode:
    static = group.static_member(event.group_instance_id)
    if event.group_instance_id is None:
        known = group.members.get(member_id)
        return Arrival(ConsumerMember(member_id), is_new=True) if known is None else Arrival(known)
    if event.member_id == NO_MEMBER_ID:
        if static is None:
            return Arrival(ConsumerMember(member_id), is_new=True)
        return Arrival(static.succeeded_by(member_id), replaced_id=static.member_id)
    if static is None:
        return ErrorCode.unknown_member_id
    if static.member_id != event.member_id:
        return ErrorCode.fenced_instance_id
    return Arrival(static)


def sync(group: ConsumerGroup, event: Sync, context: ConsumerGroupContext) -> Outcome:
    """Decide a SyncGroup: the member's assignment exists already."""
    found = _classic_member(group, event.member_id, event.group_instance_id, event.generation_id)
    if isinstance(found, ErrorCode):
        return Outcome((), SyncReply(found))
    member, side = found
    is_other_type = event.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
    if is_other_type or event.protocol_name not in (None, side.protocols[0].name):
        return Outcome((), SyncReply(ErrorCode.inconsistent_group_protocol))
    is_behind = group.assignment_epoch > member.member_epoch
    if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return Outcome((), SyncReply(ErrorCode.rebalance_in_progress), (_call_back(member),))
    metadata = side.protocols[0].metadata
    assignment = write_assignment(frozenset(member.assigned), context.topics, metadata)
    timers = (
        TimerChange(MemberTimer.SYNC, member.member_id, None),
        TimerChange(MemberTimer.SESSION, member.member_id, side.session_timeout_ms),
    )
    result = SyncReply(ErrorCode.none, event.protocol_type, event.protocol_name, assignment)
    return Outcome((), result, timers)


def heartbeat(group: ConsumerGroup, event: Heartbeat, context: ConsumerGroupContext) -> Outcome:
    """Decide a Heartbeat: REBALANCE_IN_PROGRESS asks the member to rejoin.

    An outdated target also causes it: the group may have no member of the new protocol to renew it.
    """
    found = _classic_member(group, event.member_id, event.group_instance_id, event.generation_id)
    if isinstance(found, ErrorCode):
        return Outcome((), HeartbeatReply(found))
    member, side = found
    session = TimerChange(MemberTimer.SESSION, member.member_id, side.session_timeout_ms)
    if not _has_to_rejoin(group, member) and not is_outdated(group, context):
        return Outcome((), HeartbeatReply(ErrorCode.none), (session,))
    error = ErrorCode.rebalance_in_progress
    return Outcome((), HeartbeatReply(error), (session, _call_back(member)))


def _has_to_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether there is a new target, a partition to revoke, or one that became free."""
    if member.member_epoch < group.assignment_epoch:
        return True
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    missing = group.target.get(member.member_id, frozenset()) - member.assigned.keys()
    is_waiting = any(partition in group.owners for partition in missing)
    return member.state is MemberState.UNRELEASED_PARTITIONS and not is_waiting


def _call_back(member: ConsumerMember) -> TimerChange:
    """Ask a member to rejoin within its rebalance timeout, counted from the first such reply."""
    delay_ms = member.rebalance_timeout_ms
    return TimerChange(MemberTimer.JOIN, member.member_id, delay_ms, if_absent=True)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerMember, ClassicSide] | ErrorCode:
    """Return the member that sent a classic-protocol request, after checking its generation."""
    member = group.members.get(member_id)
    if instance_id is not None:
        member = group.static_member(instance_id)
        if member is not None and member.member_id != member_id:
            return ErrorCode.fenced_instance_id
    if member is None or member.classic is None:
        return ErrorCode.unknown_member_id
    if member.member_epoch != generation_id:
        return ErrorCode.illegal_generation
    return member, member.classic
