"""Decides ConsumerGroupHeartbeat: a member joins, stays, or reports its progress.

A heartbeat does up to three things, in this order: it updates the member, and begins a new group
epoch if that changes the subscriptions; it computes a target assignment for an epoch without one;
it moves this member one step towards its target. Most heartbeats do none. Mostly as Kafka's
`GroupMetadataManager.consumerGroupHeartbeat`; expressions are matched at once, where Kafka uses a
thread.

Pure functions of a group, an event and a context. Invariants: INV-8, by `reconciliation`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from oncelog.coordinator import patterns
from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import GROUP_REGEX_REFRESH_MS_MIN
from oncelog.group.consumer import records
from oncelog.group.consumer.events import Beat
from oncelog.group.consumer.group import ConsumerGroup, ResolvedRegex
from oncelog.group.consumer.members import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    Partitions,
)
from oncelog.group.consumer.outcome import (
    BeatReply,
    ConsumerGroupContext,
    Outcome,
    Refusal,
)
from oncelog.group.consumer.reconciliation import Situation, reconcile
from oncelog.group.consumer.target import Members, make_target, target_records
from oncelog.group.consumer.timers import MemberTimer, TimerChange
from oncelog.group.consumer.topics import metadata_hash

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Arrival:
    """The sender of a request: a known member, a new one, or a static member's successor."""

    member: ConsumerMember
    is_new: bool = False
    replaced_id: str | None = None


def heartbeat(
    group: ConsumerGroup, event: Beat, context: ConsumerGroupContext
) -> Outcome | Refusal:
    """Decide one heartbeat."""
    arrival = _arrive(group, event, context)
    if isinstance(arrival, Refusal):
        return arrival
    updated = _updated(arrival.member, event)
    step = change_member(group, arrival, updated, event.owned, context)
    if isinstance(step, Refusal):
        return step
    member = step.member
    assigned = None
    moved = member.assigned.keys() != arrival.member.assigned.keys()
    if event.member_epoch == JOIN_EPOCH or event.is_full or moved:
        assigned = frozenset(member.assigned)
    result = BeatReply(
        ErrorCode.none,
        member.member_id,
        member.member_epoch,
        context.config.heartbeat_interval_ms,
        assigned,
    )
    session = TimerChange(MemberTimer.SESSION, member.member_id, context.config.session_timeout_ms)
    return Outcome(tuple(step.entries), result, (session, *step.timers))


# --- the sender


def _arrive(group: ConsumerGroup, event: Beat, context: ConsumerGroupContext) -> Arrival | Refusal:
    known = group.members.get(event.member_id)
    static = group.static_member(event.instance_id)
    is_full = len(group.members) >= context.config.max_size
    if is_full and known is None and static is None:
        message = f"The group has its maximum of {context.config.max_size} members."
        return Refusal(ErrorCode.group_max_size_reached, message)
    if event.instance_id is not None:
        return _arrive_static(event, static)
    if known is None:
        if event.member_epoch == JOIN_EPOCH:
            return Arrival(ConsumerMember(event.member_id), is_new=True)
        return unknown_member(group, event.member_id)
    return check_epoch(known, event.member_epoch, event.owned) or Arrival(known)


def _arrive_static(event: Beat, static: ConsumerMember | None) -> Arrival | Refusal:
    if static is None:
        if event.member_epoch == JOIN_EPOCH:
            return Arrival(ConsumerMember(event.member_id), is_new=True)
        message = f"Instance id {event.instance_id} is unknown."
        return Refusal(ErrorCode.unknown_member_id, message)
    is_released = static.member_epoch == STATIC_LEAVE_EPOCH or static.classic is not None
    if event.member_epoch == JOIN_EPOCH and static.member_id == event.member_id:
        # The same process, which was fenced or lost the reply; Kafka refuses it.
        return Arrival(static.succeeded_by(event.member_id) if is_released else static)
    if event.member_epoch == JOIN_EPOCH:
        if not is_released:
            message = f"Instance id {event.instance_id} is owned by member {static.member_id}."
            return Refusal(ErrorCode.unreleased_instance_id, message)
        return Arrival(static.succeeded_by(event.member_id), replaced_id=static.member_id)
    if static.member_id != event.member_id:
        return fenced_instance(event.member_id, static)
    return check_epoch(static, event.member_epoch, event.owned) or Arrival(static)


def unknown_member(group: ConsumerGroup, member_id: str) -> Refusal:
    """Return the refusal for a member that the group does not have."""
    message = f"Member {member_id} is not a member of group {group.group_id}."
    return Refusal(ErrorCode.unknown_member_id, message)


def fenced_instance(member_id: str, static: ConsumerMember) -> Refusal:
    """Return the refusal for a member whose instance id belongs to another one now."""
    message = (
        f"Member {member_id} with instance id {static.instance_id} "
        f"was fenced by member {static.member_id}."
    )
    return Refusal(ErrorCode.fenced_instance_id, message)


def check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> Refusal | None:
    """Refuse an epoch that is not the member's.

    The previous epoch is accepted if the member owns only assigned partitions: the reply with the
    new epoch may have been lost.
    """
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return None
    is_late = epoch == member.previous_member_epoch and epoch < member.member_epoch
    if is_late and owned is not None and owned <= member.assigned.keys():
        return None
    message = (
        f"Member {member.member_id} is in epoch {member.member_epoch}, not {epoch}; "
        "it has to abandon its partitions and rejoin."
    )
    return Refusal(ErrorCode.fenced_member_epoch, message)


def _updated(member: ConsumerMember, event: Beat) -> ConsumerMember:
    """Return the member as the heartbeat describes it, now of the new protocol."""
    timeout_ms = None if event.rebalance_timeout_ms == -1 else event.rebalance_timeout_ms
    return replace(
        member,
        instance_id=_said(event.instance_id, member.instance_id),
        rack_id=_said(event.rack_id, member.rack_id),
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=_said(timeout_ms, member.rebalance_timeout_ms),
        topic_names=_said(event.topic_names, member.topic_names),
        topic_regex=_said(event.topic_regex, member.topic_regex),
        server_assignor=_said(event.server_assignor, member.server_assignor),
        classic=None,
    )


def _said(said: _T | None, known: _T) -> _T:
    return known if said is None else said


# --- its effects


@dataclass(slots=True)
class MemberChange:
    """The records of a changed member, while they are collected."""

    member: ConsumerMember
    entries: list[CoordinatorRecord]
    timers: list[TimerChange]


def change_member(
    group: ConsumerGroup,
    arrival: Arrival,
    updated: ConsumerMember,
    owned: Partitions | None,
    context: ConsumerGroupContext,
) -> MemberChange | Refusal:
    """Apply a member's new description, and move it towards its target."""
    before, group_id = arrival.member, group.group_id
    members = Members.of(group)
    step = MemberChange(updated, [], [])
    is_placed = arrival.is_new or arrival.replaced_id is not None
    if arrival.replaced_id is not None:
        step.entries += records.no_member(group_id, arrival.replaced_id)
    if is_placed or not updated.has_metadata_of(before):
        members = members.with_member(updated, arrival.replaced_id)
        step.entries.append(records.member_metadata(group_id, updated))
    if arrival.replaced_id is not None:
        target = members.target.get(updated.member_id, frozenset())
        step.entries.append(records.target_assignment(group_id, updated.member_id, target))
        step.entries.append(records.current_assignment(group_id, updated))
    subscription_changed = (
        updated.topic_names != before.topic_names or updated.topic_regex != before.topic_regex
    )
    regexes = _resolve(group, members, before, updated, context)
    if isinstance(regexes, Refusal):
        return regexes
    step.entries += regexes.entries
    members = members.with_regexes(regexes.resolved)
    is_wanted = arrival.is_new or subscription_changed or regexes.changed
    epoch = begin_epoch(group, members, step.entries, context, is_wanted=is_wanted)
    if not is_wanted and epoch == group.group_epoch and not regexes.is_due:
        group.seen_revision = context.topics.revision
    _assign(group, members, step, epoch, owned, subscription_changed, context)
    return step


def begin_epoch(
    group: ConsumerGroup,
    members: Members,
    entries: list[CoordinatorRecord],
    context: ConsumerGroupContext,
    *,
    is_wanted: bool,
) -> int:
    """Begin a new group epoch if requested or if the topics changed; return the epoch."""
    if not is_wanted and group.seen_revision == context.topics.revision:
        return group.group_epoch
    topics_hash = metadata_hash(context.topics, members.subscribed_names())
    if not is_wanted and topics_hash == group.metadata_hash:
        return group.group_epoch
    epoch = group.group_epoch + 1
    entries.append(records.group_epoch(group.group_id, epoch, topics_hash))
    if group.has_partition_metadata:
        entries.append(records.no_partition_metadata(group.group_id))
    context.meter.consumer_rebalances += 1
    return epoch


def _assign(
    group: ConsumerGroup,
    members: Members,
    step: MemberChange,
    group_epoch: int,
    owned: Partitions | None,
    subscription_changed: bool,
    context: ConsumerGroupContext,
) -> None:
    """Compute the target of a new epoch, if due, and move the member towards it."""
    member, target, assignment_epoch = step.member, members.target, group.assignment_epoch
    if group_epoch > assignment_epoch and _may_assign(group, context):
        assignor = group.preferred_assignor(context.config.assignors[0], members.members.values())
        before, target = target, make_target(members, assignor, context.topics)
        assignment_epoch = group_epoch
        step.entries += target_records(group.group_id, before, target, group_epoch, context.now_ms)
    if member.is_reconciled_to(assignment_epoch) and not subscription_changed:
        return
    situation = Situation(
        assignment_epoch,
        target.get(member.member_id, frozenset()),
        members.subscribed_ids(member, context.topics),
        group.owners,
        owned,
        subscription_changed,
    )
    step.member = reconcile(member, situation)
    if step.member.has_assignment_of(member):
        return
    step.entries.append(records.current_assignment(group.group_id, step.member))
    if member.classic is not None:
        return  # Instead it has its time to rejoin.
    is_revoking = step.member.state is MemberState.UNREVOKED_PARTITIONS
    delay_ms = member.rebalance_timeout_ms if is_revoking else None
    step.timers.append(TimerChange(MemberTimer.REVOCATION, member.member_id, delay_ms))


def is_outdated(group: ConsumerGroup, context: ConsumerGroupContext) -> bool:
    """Whether a new target is due: the group's epoch has none, or its topics changed."""
    if group.seen_revision != context.topics.revision:
        names = Members.of(group).subscribed_names()
        if metadata_hash(context.topics, names) != group.metadata_hash:
            return _may_assign(group, context)
        if not group.regexes:
            group.seen_revision = context.topics.revision
    return group.group_epoch > group.assignment_epoch and _may_assign(group, context)


def _may_assign(group: ConsumerGroup, context: ConsumerGroupContext) -> bool:
    """Whether enough time has passed since the last target: members that join together share one.

    The first target is computed at once (KIP-1263). A target with a future time (the clock was set
    back, and the broker restarted) delays nothing.
    """
    if group.assignment_timestamp_ms == 0:
        return True
    passed_ms = context.now_ms - group.assignment_timestamp_ms
    return not 0 <= passed_ms < context.config.assignment_interval_ms


# Regular expressions.


@dataclass(frozen=True, slots=True)
class _Regexes:
    """The group's expressions after a heartbeat. `is_due`: match them against new topics."""

    resolved: Mapping[str, ResolvedRegex]
    entries: list[CoordinatorRecord]
    changed: bool = False
    is_due: bool = False


def _resolve(
    group: ConsumerGroup,
    members: Members,
    before: ConsumerMember,
    updated: ConsumerMember,
    context: ConsumerGroupContext,
) -> _Regexes | Refusal:
    """Match a new expression, remove an unused one, and match all when topics changed."""
    is_stale = group.seen_revision != context.topics.revision
    if updated.topic_regex == before.topic_regex and not (group.regexes and is_stale):
        return _Regexes(group.regexes, [])
    if updated.topic_regex != before.topic_regex and updated.topic_regex:
        try:
            patterns.check(updated.topic_regex)
        except patterns.InvalidPattern as error:
            message = f"SubscribedTopicRegex `{updated.topic_regex}` is not valid: {error}."
            return Refusal(ErrorCode.invalid_regular_expression, message)
    used = {member.topic_regex for member in members.members.values() if member.topic_regex}
    entries = [
        records.no_regular_expression(group.group_id, regex)
        for regex in group.regexes
        if regex not in used
    ]
    resolved = dict(group.regexes)
    last_ms = group.regexes_refreshed_ms
    is_due = is_stale and bool(resolved)
    if is_due and (last_ms is None or context.now_ms >= last_ms + GROUP_REGEX_REFRESH_MS_MIN):
        group.regexes_refreshed_ms = context.now_ms
        is_due = False
        wanted = used
    else:
        wanted = used - resolved.keys()
    changed = False
    for regex in sorted(wanted):
        old = resolved.get(regex)
        matched = _matching(regex, context)
        if old is None or old.topics != matched.topics:
            resolved[regex] = matched
            entries.append(records.regular_expression(group.group_id, regex, matched))
            changed = True
    return _Regexes(resolved, entries, changed, is_due)


def _matching(regex: str, context: ConsumerGroupContext) -> ResolvedRegex:
    try:
        names = patterns.matching(regex, context.topics.names())
    except patterns.InvalidPattern:
        # Another broker accepted it. Its subscribers get no topics; other members are unaffected.
        names = frozenset()
    if context.may_describe is not None:
        names = frozenset(filter(context.may_describe, names))
    return ResolvedRegex(names, context.topics.revision, context.now_ms)
