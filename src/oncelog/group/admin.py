"""Decides requests that describe, list and delete groups."""

from oncelog.coordinator.shard import EventContext, reply_at_once
from oncelog.core.errors import ErrorCode
from oncelog.group.classic_group import ClassicGroup, WriteKind
from oncelog.group.decision import GroupDecision
from oncelog.group.events import DeleteGroup, DescribeGroup, ListGroups
from oncelog.group.records import group_tombstone, offset_tombstone
from oncelog.group.replies import (
    DeleteReply,
    DescribedMember,
    DescribeReply,
    GroupOverview,
    ListReply,
)
from oncelog.group.states import DEAD, GroupState
from oncelog.group.store import DecisionBuilder, GroupStore
from oncelog.group.subscription import CONSUMER_PROTOCOL_TYPE

CLASSIC = "classic"
CONSUMER = "consumer"
"""Kafka's names for the types of groups (KIP-848)."""

DESCRIBE_NOT_FOUND_VERSION_MIN = 6
"""From this DescribeGroups version on an unknown group gets GROUP_ID_NOT_FOUND (KIP-1043).

Before, it is described as a Dead group.
"""


def describe(store: GroupStore, event: DescribeGroup, context: EventContext) -> GroupDecision:
    """Describe the current state of one group. Only a stable group lists members' metadata."""
    group = store.groups.get(event.group_id)
    if group is None:
        return reply_at_once(context, _not_classic(store, event))
    is_stable = group.state is GroupState.STABLE
    name = group.protocol_name if is_stable else None
    members = tuple(
        DescribedMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            m.metadata(name),
            m.assignment,
        )
        for m in group.members.values()
    )
    result = DescribeReply(
        ErrorCode.none,
        event.group_id,
        group.state.value,
        group.protocol_type or "",
        name or "",
        members,
    )
    return reply_at_once(context, result)


def _not_classic(store: GroupStore, event: DescribeGroup) -> DescribeReply:
    """Describe a group that does not exist, or follows the other protocol."""
    if event.version < DESCRIBE_NOT_FOUND_VERSION_MIN:
        return DescribeReply(ErrorCode.none, event.group_id, DEAD)
    is_other = event.group_id in store.consumer_groups
    reason = "is not a classic group." if is_other else "not found."
    message = f"Group {event.group_id} {reason}"
    return DescribeReply(ErrorCode.group_id_not_found, event.group_id, DEAD, message=message)


def list_groups(store: GroupStore, event: ListGroups, context: EventContext) -> GroupDecision:
    """List the groups whose state and type pass the filters, which ignore case."""
    states = {state.strip().lower() for state in event.states}
    types = {kind.strip().lower() for kind in event.types}
    listed = []
    for group in store.groups.values():
        fits_state = not states or group.state.value.lower() in states
        if fits_state and (not types or CLASSIC in types):
            listed.append(_line(group))
    for consumer_group in store.consumer_groups.values():
        state = consumer_group.state.value
        if (not states or state.lower() in states) and (not types or CONSUMER in types):
            line = GroupOverview(consumer_group.group_id, CONSUMER_PROTOCOL_TYPE, state, CONSUMER)
            listed.append(line)
    return reply_at_once(context, ListReply(ErrorCode.none, tuple(listed)))


def _line(group: ClassicGroup) -> GroupOverview:
    return GroupOverview(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)


def delete_group(store: GroupStore, event: DeleteGroup, context: EventContext) -> GroupDecision:
    """Delete a group without members, and all its offsets, also in open transactions."""
    group = store.groups.get(event.group_id)
    if group is None:
        return reply_at_once(context, DeleteReply(ErrorCode.group_id_not_found, event.group_id))
    if group.state is not GroupState.EMPTY:
        return reply_at_once(context, DeleteReply(ErrorCode.non_empty_group, event.group_id))
    tombstones = [
        offset_tombstone(event.group_id, partition)
        for partition in store.offsets.partitions(event.group_id)
    ]
    tombstones.append(group_tombstone(event.group_id))
    builder = DecisionBuilder(event, context)
    builder.write(group, WriteKind.DELETED, *tombstones)
    builder.reply_on_commit(context.token, DeleteReply(ErrorCode.none, event.group_id))
    return builder.build()
