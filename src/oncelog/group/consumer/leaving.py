"""Removes members from a consumer group: they left, or their session expired.

Pure functions of a group and an event. A removed member's partitions are free once its tombstones
are committed, and the next heartbeats assign them to others.
"""

from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.core.errors import ErrorCode
from oncelog.group.consumer import records
from oncelog.group.consumer.events import Quit
from oncelog.group.consumer.group import ConsumerGroup
from oncelog.group.consumer.heartbeat import begin_epoch, fenced_instance, unknown_member
from oncelog.group.consumer.members import STATIC_LEAVE_EPOCH, ConsumerMember, MemberState
from oncelog.group.consumer.outcome import (
    BeatReply,
    ConsumerGroupContext,
    Refusal,
)
from oncelog.group.consumer.target import Members
from oncelog.group.consumer.timers import MemberTimer

# --- a member that leaves


def leaving_member(group: ConsumerGroup, event: Quit) -> ConsumerMember | Refusal:
    """Return the member that a `Quit` names."""
    if event.instance_id is None:
        return group.members.get(event.member_id) or unknown_member(group, event.member_id)
    static = group.static_member(event.instance_id)
    if static is None:
        message = f"Instance id {event.instance_id} is unknown."
        return Refusal(ErrorCode.unknown_member_id, message)
    if static.member_id != event.member_id:
        return fenced_instance(event.member_id, static)
    return static


def is_for_now(event: Quit) -> bool:
    """Whether the member is static and expected to rejoin."""
    return event.instance_id is not None and event.member_epoch == STATIC_LEAVE_EPOCH


def leave_for_now(group: ConsumerGroup, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a static member that left temporarily. Its session continues."""
    return records.current_assignment(group.group_id, member.left_for_now())


def farewell(event: Quit) -> BeatReply:
    """Return the reply to a member that has left."""
    return BeatReply(ErrorCode.none, event.member_id, event.member_epoch)


# --- members that are removed


def remove_members(
    group: ConsumerGroup, member_ids: frozenset[str], context: ConsumerGroupContext
) -> list[CoordinatorRecord]:
    """Return the records that remove members and begin a new epoch; none for no members."""
    if not member_ids:
        return []
    group_id = group.group_id
    entries = [entry for each in sorted(member_ids) for entry in records.no_member(group_id, each)]
    left = Members.of(group).without(member_ids)
    used = {member.topic_regex for member in left.members.values()}
    unused = [regex for regex in group.regexes if regex not in used]
    entries += [records.no_regular_expression(group_id, regex) for regex in unused]
    begin_epoch(group, left, entries, context, is_wanted=True)
    return entries


def is_overdue(member: ConsumerMember, timer: MemberTimer) -> bool:
    """Whether a timer still applies to its member: one that has revoked is no longer late."""
    if timer is MemberTimer.REVOCATION:
        return member.state is MemberState.UNREVOKED_PARTITIONS
    return True
