"""Members that leave a consumer group: of their own accord, or because they were silent.

Pure functions of a group and an event. What a member owned is nobody's once its tombstones are
committed, and the next heartbeats give it to others.
"""

from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.core.errors import ErrorCode
from oncelog.group.consumer import records
from oncelog.group.consumer.events import Quit
from oncelog.group.consumer.group import ConsumerGroup
from oncelog.group.consumer.heartbeat import begin_epoch, fenced_instance, unknown_member
from oncelog.group.consumer.members import STATIC_LEAVE_EPOCH, ConsumerMember, MemberState
from oncelog.group.consumer.outcome import (
    BeatResult,
    Context,
    Refusal,
)
from oncelog.group.consumer.target import Members
from oncelog.group.consumer.timers import MemberTimer, TimerChange

# One who leaves.


def leaving_member(group: ConsumerGroup, event: Quit) -> ConsumerMember | Refusal:
    """The member that a `Quit` is about."""
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
    """Whether the member is static and expected back."""
    return event.instance_id is not None and event.member_epoch == STATIC_LEAVE_EPOCH


def leave_for_now(group: ConsumerGroup, member: ConsumerMember) -> CoordinatorRecord:
    """The record of a static member that left for now. Its session goes on."""
    return records.current_assignment(group.group_id, member.left_for_now())


def farewell(event: Quit) -> BeatResult:
    """The answer to a member that has left."""
    return BeatResult(ErrorCode.none, event.member_id, event.member_epoch)


# Members that are taken out.


def remove_members(
    group: ConsumerGroup, member_ids: frozenset[str], context: Context
) -> list[CoordinatorRecord]:
    """The records that take members out and begin a new epoch; none for no members."""
    if not member_ids:
        return []
    group_id = group.group_id
    entries = [entry for each in sorted(member_ids) for entry in records.no_member(group_id, each)]
    left = Members.of(group).without(member_ids)
    used = {member.topic_regex for member in left.members.values()}
    unused = [regex for regex in group.regexes if regex not in used]
    entries += [records.no_regular_expression(group_id, regex) for regex in unused]
    kept = {regex: resolved for regex, resolved in group.regexes.items() if regex in used}
    begin_epoch(group, left.with_regexes(kept), entries, context, is_wanted=True)
    return entries


def is_overdue(member: ConsumerMember, timer: MemberTimer) -> bool:
    """Whether a timer that came up still means its member: one revokes no more once it has."""
    if timer is MemberTimer.REVOCATION:
        return member.state is MemberState.UNREVOKED_PARTITIONS
    return True


def stopped_timers(member_ids: frozenset[str]) -> list[TimerChange]:
    """No timer of these members is needed any more."""
    return [TimerChange(timer, each, None) for each in sorted(member_ids) for timer in MemberTimer]
