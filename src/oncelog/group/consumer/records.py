"""Converts between a consumer group's values and its records (`consumer_group_log`).

Only this module of the package knows those records. `replay` is the only writer of a group's
durable state; it accepts records in any order that compaction may leave, and tombstones of absent
values.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from uuid import UUID

from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.core.errors import InvariantViolation
from oncelog.group.consumer.group import ConsumerGroup, ResolvedRegex
from oncelog.group.consumer.members import (
    LEAVE_EPOCH,
    NO_PARTITIONS,
    ClassicSide,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    Partitions,
    TopicIdPartition,
)
from oncelog.group.events import ZERO_TOPIC_ID, JoinProtocol
from oncelog.protocol.records import consumer_group_log as log
from oncelog.protocol.records.consumer_group_log import ConsumerGroupKey, ConsumerGroupKind

# --- encoding


def _entry(
    kind: ConsumerGroupKind, group_id: str, name: str, value: log.ConsumerGroupValue | None
) -> CoordinatorRecord:
    key = log.encode_key(ConsumerGroupKey(kind, group_id, name))
    return CoordinatorRecord(key, None if value is None else log.encode_value(value))


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of the group's epoch."""
    value = log.GroupEpochValue(epoch=epoch, metadata_hash=metadata_hash)
    return _entry(ConsumerGroupKind.GROUP_EPOCH, group_id, "", value)


def no_partition_metadata(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of a record that Kafka before 4.1 wrote."""
    return _entry(ConsumerGroupKind.PARTITION_METADATA, group_id, "", None)


def member_metadata(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's metadata."""
    classic = None
    if member.classic is not None:
        classic = log.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=tuple(
                log.ClassicProtocol(name=each.name, metadata=each.metadata)
                for each in member.classic.protocols
            ),
        )
    value = log.MemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topic_names)),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return _entry(ConsumerGroupKind.MEMBER_METADATA, group_id, member.member_id, value)


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """Return the record of the epoch that the target assignment is for."""
    value = log.TargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp_ms=timestamp_ms
    )
    return _entry(ConsumerGroupKind.TARGET_ASSIGNMENT_METADATA, group_id, "", value)


def target_assignment(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    """Return the record of a member's target."""
    value = log.TargetAssignmentMemberValue(
        topic_partitions=tuple(
            log.TargetPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic(partitions)
        )
    )
    return _entry(ConsumerGroupKind.TARGET_ASSIGNMENT_MEMBER, group_id, member_id, value)


def current_assignment(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of the partitions that a member owns."""
    value = log.CurrentAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_owned(member.assigned),
        partitions_pending_revocation=_owned(member.pending_revocation),
    )
    return _entry(ConsumerGroupKind.CURRENT_ASSIGNMENT, group_id, member.member_id, value)


def by_topic(partitions: Partitions) -> Iterator[tuple[UUID, tuple[int, ...]]]:
    """Return each topic with the numbers of its partitions, in order."""
    for topic_id, group in groupby(sorted(partitions), key=lambda each: each.topic_id):
        yield topic_id, tuple(each.partition for each in group)


def _owned(partitions: OwnedPartitions) -> tuple[log.OwnedPartitions, ...]:
    return tuple(
        log.OwnedPartitions(
            topic_id=topic_id,
            partitions=numbers,
            assignment_epochs=tuple(
                partitions[TopicIdPartition(topic_id, number)] for number in numbers
            ),
        )
        for topic_id, numbers in by_topic(frozenset(partitions))
    )


def regular_expression(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """Return the record of the topics that an expression matched."""
    value = log.RegularExpressionValue(
        topics=tuple(sorted(resolved.topics)),
        version=resolved.revision,
        timestamp_ms=resolved.timestamp_ms,
    )
    return _entry(ConsumerGroupKind.REGULAR_EXPRESSION, group_id, regex, value)


def no_regular_expression(group_id: str, regex: str) -> CoordinatorRecord:
    """Return the tombstone of an expression without subscribers."""
    return _entry(ConsumerGroupKind.REGULAR_EXPRESSION, group_id, regex, None)


def no_member(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of a member."""
    kinds = (
        ConsumerGroupKind.CURRENT_ASSIGNMENT,
        ConsumerGroupKind.TARGET_ASSIGNMENT_MEMBER,
        ConsumerGroupKind.MEMBER_METADATA,
    )
    return [_entry(kind, group_id, member_id, None) for kind in kinds]


def no_group(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return the tombstones of a group and all its records."""
    entries = [
        entry for member_id in group.members for entry in no_member(group.group_id, member_id)
    ]
    entries += [no_regular_expression(group.group_id, regex) for regex in group.regexes]
    kinds = (
        ConsumerGroupKind.TARGET_ASSIGNMENT_METADATA,
        ConsumerGroupKind.PARTITION_METADATA,
        ConsumerGroupKind.GROUP_EPOCH,
    )
    return entries + [_entry(kind, group.group_id, "", None) for kind in kinds]


# --- replay


def replay(
    group: ConsumerGroup, key: ConsumerGroupKey, value: log.ConsumerGroupValue | None
) -> None:
    """Apply one record of the group. The caller applies the group's own tombstone."""
    if value is None:
        _forget(group, key)
    elif isinstance(value, log.GroupEpochValue):
        group.group_epoch, group.metadata_hash = value.epoch, value.metadata_hash
    elif isinstance(value, log.PartitionMetadataValue):
        group.has_partition_metadata = True
    elif isinstance(value, log.MemberMetadataValue):
        group.put(_with_metadata(_member(group, key.name), value))
    elif isinstance(value, log.TargetAssignmentMetadataValue):
        group.assignment_epoch = value.assignment_epoch
        group.assignment_timestamp_ms = value.assignment_timestamp_ms
    elif isinstance(value, log.TargetAssignmentMemberValue):
        group.target[key.name] = frozenset(
            TopicIdPartition(each.topic_id or ZERO_TOPIC_ID, number)
            for each in value.topic_partitions
            for number in each.partitions
        )
    elif isinstance(value, log.CurrentAssignmentValue):
        group.put(_with_assignment(_member(group, key.name), value))
    elif isinstance(value, log.RegularExpressionValue):
        topics = frozenset(value.topics)
        group.regexes[key.name] = ResolvedRegex(topics, value.version, value.timestamp_ms)
    else:
        raise InvariantViolation(f"no replay for {value!r}")


def _forget(group: ConsumerGroup, key: ConsumerGroupKey) -> None:
    if key.kind is ConsumerGroupKind.PARTITION_METADATA:
        group.has_partition_metadata = False
    elif key.kind is ConsumerGroupKind.MEMBER_METADATA:
        group.remove(key.name)
    elif key.kind is ConsumerGroupKind.TARGET_ASSIGNMENT_METADATA:
        group.assignment_epoch, group.assignment_timestamp_ms = -1, 0
    elif key.kind is ConsumerGroupKind.TARGET_ASSIGNMENT_MEMBER:
        group.target.pop(key.name, None)
    elif key.kind is ConsumerGroupKind.REGULAR_EXPRESSION:
        group.regexes.pop(key.name, None)
    elif key.kind is ConsumerGroupKind.CURRENT_ASSIGNMENT and key.name in group.members:
        gone = replace(
            group.members[key.name],
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            assigned=NO_PARTITIONS,
            pending_revocation=NO_PARTITIONS,
        )
        group.put(gone)


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id) or ConsumerMember(member_id)


def _with_metadata(member: ConsumerMember, value: log.MemberMetadataValue) -> ConsumerMember:
    classic = value.classic_member_metadata
    side = None
    if classic is not None:
        protocols = tuple(JoinProtocol(p.name, p.metadata) for p in classic.supported_protocols)
        side = ClassicSide(classic.session_timeout_ms, protocols)
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=side,
    )


def _with_assignment(member: ConsumerMember, value: log.CurrentAssignmentValue) -> ConsumerMember:
    known = set(MemberState)
    state = MemberState(value.state) if value.state in known else MemberState.UNKNOWN
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=state,
        assigned=_epochs(value.assigned_partitions, value.member_epoch),
        pending_revocation=_epochs(value.partitions_pending_revocation, value.member_epoch),
    )


def _epochs(
    topics: tuple[log.OwnedPartitions, ...], member_epoch: int
) -> dict[TopicIdPartition, int]:
    """Return each partition's assignment epoch, which records of Kafka before 4.2 lack."""
    found = {}
    for each in topics:
        epochs = each.assignment_epochs or (member_epoch,) * len(each.partitions)
        for number, epoch in zip(each.partitions, epochs, strict=False):
            found[TopicIdPartition(each.topic_id or ZERO_TOPIC_ID, number)] = epoch
    return found
