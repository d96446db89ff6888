"""Converts groups between the classic and the consumer protocol, with their members (KIP-848).

A classic group becomes a consumer group with its first member of the new protocol: its members keep
their partitions, in the epoch of their generation, and the next epoch begins. A consumer group
becomes classic when its last member of the new protocol leaves, or is replaced by one of the
classic protocol: those that remain keep their partitions in the generation of the group's epoch,
and rebalance. The record has the generation after that, which no member has: if the coordinator
restarts before the rebalance is over, all members have to rejoin. Pure; the callers write.
"""

from oncelog.coordinator.metadata import Topics
from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.core.errors import ErrorCode
from oncelog.group.classic_group import ClassicGroup, ClassicGroupMember
from oncelog.group.consumer import records
from oncelog.group.consumer.embedded import (
    identified,
    read_assignment,
    read_subscription,
    write_assignment,
)
from oncelog.group.consumer.group import ConsumerGroup
from oncelog.group.consumer.members import ClassicSide, ConsumerMember, Partitions
from oncelog.group.consumer.outcome import ConsumerGroupContext, Refusal
from oncelog.group.subscription import CONSUMER_PROTOCOL_TYPE


def upgrade(classic: ClassicGroup, context: ConsumerGroupContext) -> ConsumerGroup | Refusal:
    """Convert a classic group to a consumer group, or return why it cannot be converted.

    It has no hash of its topics, so that its first heartbeat begins an epoch: what its leader knew
    when it assigned is unknown, and the rebalance that the group may be in ends here.
    """
    if not context.config.migration_policy.upgrades:
        return _cannot(classic, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return _cannot(classic, "it is no group of consumers")
    if len(classic.members) > context.config.max_size:
        return _cannot(classic, "it has too many members")
    group = ConsumerGroup(
        classic.group_id,
        group_epoch=classic.generation_id,
        assignment_epoch=classic.generation_id,
    )
    for member in classic.members.values():
        reason = _take(group, classic, member, context.topics)
        if reason is not None:
            return _cannot(classic, reason)
    return group


def _cannot(classic: ClassicGroup, reason: str) -> Refusal:
    message = f"Cannot upgrade classic group {classic.group_id} to consumer group: {reason}."
    return Refusal(ErrorCode.group_id_not_found, message)


def _take(
    group: ConsumerGroup, classic: ClassicGroup, member: ClassicGroupMember, topics: Topics
) -> str | None:
    """Convert one member; return why it cannot be converted."""
    name = classic.protocol_name
    metadata = member.protocols[0].metadata if name is None else member.metadata(name)
    subscription, assignment = read_subscription(metadata), read_assignment(member.assignment)
    if subscription is None or assignment is None:
        return "a member's subscription or assignment is malformed"
    if assignment.user_data:
        return "the data of a custom assignor would be lost"
    # The client's own assignor may have given a partition to two members.
    owned = identified(assignment.assigned_partitions, topics) - group.owners.keys()
    epoch = classic.generation_id
    group.target[member.member_id] = owned
    group.put(
        ConsumerMember(
            member.member_id,
            member.group_instance_id,
            subscription.rack_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            frozenset(subscription.topics),
            classic=ClassicSide(member.session_timeout_ms, member.protocols),
            member_epoch=epoch,
            previous_member_epoch=epoch,
            assigned=dict.fromkeys(owned, epoch),
        )
    )
    return None


def all_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return all records of a group."""
    group_id, members = group.group_id, group.members.values()
    return [
        *(records.member_metadata(group_id, member) for member in members),
        records.group_epoch(group_id, group.group_epoch, group.metadata_hash),
        *(records.target_assignment(group_id, each, group.target[each]) for each in group.members),
        records.target_epoch(group_id, group.assignment_epoch, group.assignment_timestamp_ms),
        *(records.current_assignment(group_id, member) for member in members),
    ]


def may_downgrade(
    group: ConsumerGroup, gone: frozenset[str], context: ConsumerGroupContext, classic_size_max: int
) -> bool:
    """Whether the group becomes classic once these members are removed."""
    left = [member for member_id, member in group.members.items() if member_id not in gone]
    is_classic = bool(left) and all(member.classic is not None for member in left)
    return (
        is_classic and context.config.migration_policy.downgrades and len(left) <= classic_size_max
    )


def downgrade(
    group: ConsumerGroup, gone: frozenset[str], context: ConsumerGroupContext
) -> tuple[ClassicGroup, dict[str, bytes]]:
    """Return the classic group of the remaining members, with their assignments."""
    classic = ClassicGroup(
        group.group_id, generation_id=group.group_epoch + 1, state_timestamp_ms=context.now_ms
    )
    for member_id, member in group.members.items():
        if member_id not in gone and member.classic is not None:
            classic.add(_classic(member, member.classic), CONSUMER_PROTOCOL_TYPE)
    classic.protocol_name = classic.select_protocol()
    assignments = {
        member_id: write_assignment(
            _target(group, member_id), context.topics, member.metadata(classic.protocol_name)
        )
        for member_id, member in classic.members.items()
    }
    return classic, assignments


def _target(group: ConsumerGroup, member_id: str) -> Partitions:
    return group.target.get(member_id, frozenset())


def _classic(member: ConsumerMember, side: ClassicSide) -> ClassicGroupMember:
    return ClassicGroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        side.session_timeout_ms,
        member.rebalance_timeout_ms,
        side.protocols,
    )
