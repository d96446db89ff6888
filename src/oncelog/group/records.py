"""Converts between the shard's values and the records of `__consumer_offsets` (`group_log`).

Only this module and `oncelog.group.consumer.records` handle bytes. `decode` returns None for keys
of other protocols (share and streams groups).
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from oncelog.coordinator.shard import CoordinatorRecord, clock_shift_ms
from oncelog.core.ids import TopicPartition
from oncelog.group.classic_group import ClassicGroup, ClassicGroupMember
from oncelog.group.events import ZERO_TOPIC_ID, JoinProtocol
from oncelog.group.offset_values import NO_TIMESTAMP, CommittedOffset
from oncelog.group.states import GroupState
from oncelog.protocol.batch import HEADER_SIZE
from oncelog.protocol.records import consumer_group_log, group_log

_RECORD_BYTES: Final = 24
"""An upper bound of a record's lengths, deltas and attributes."""


class OffsetRecord(NamedTuple):
    """An offset commit, or its tombstone."""

    group_id: str
    partition: TopicPartition
    value: CommittedOffset | None


class GroupRecord(NamedTuple):
    """A group's generation, or its tombstone."""

    group_id: str
    value: group_log.GroupMetadataValue | None


class ConsumerGroupRecord(NamedTuple):
    """A record of a consumer group (KIP-848), or its tombstone."""

    key: consumer_group_log.ConsumerGroupKey
    value: consumer_group_log.ConsumerGroupValue | None


AnyRecord: TypeAlias = OffsetRecord | GroupRecord | ConsumerGroupRecord


class BatchBudget:
    """Counts tombstones into one append of at most `bytes_max` bytes; the first always fits."""

    def __init__(self, bytes_max: int) -> None:
        self._free = bytes_max - HEADER_SIZE
        self._is_empty = True

    def take(self, tombstone: CoordinatorRecord) -> bool:
        """Return whether it still fits; if so, count it."""
        self._free -= len(tombstone.key) + _RECORD_BYTES
        fits = self._free >= 0 or self._is_empty
        self._is_empty = False
        return fits


def decode(record: CoordinatorRecord) -> AnyRecord | None:
    """Decode one record; None for an unknown key type."""
    key = group_log.decode_key(record.key)
    if isinstance(key, group_log.OffsetCommitKey):
        partition = TopicPartition(key.topic, key.partition)
        value = None
        if record.value is not None:
            value = _committed(group_log.decode_offset_commit_value(record.value))
        return OffsetRecord(key.group, partition, value)
    if isinstance(key, group_log.GroupMetadataKey):
        metadata = None
        if record.value is not None:
            metadata = group_log.decode_group_metadata_value(record.value)
        return GroupRecord(key.group, metadata)
    consumer_key = consumer_group_log.decode_key(record.key)
    if consumer_key is None:
        return None
    value_of_kind = None
    if record.value is not None:
        value_of_kind = consumer_group_log.decode_value(consumer_key.kind, record.value)
    return ConsumerGroupRecord(consumer_key, value_of_kind)


def _committed(value: group_log.OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp_ms,
        value.expire_timestamp_ms,
        value.topic_id or ZERO_TOPIC_ID,
    )


def offset_record(
    group_id: str, partition: TopicPartition, value: CommittedOffset
) -> CoordinatorRecord:
    """Return the record of an offset commit.

    One that expires is written in a version without leader epoch and topic id, so it has to be
    decoded.
    """
    record = group_log.OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp_ms,
        expire_timestamp_ms=value.expire_timestamp_ms,
        topic_id=None if value.topic_id == ZERO_TOPIC_ID else value.topic_id,
    )
    return CoordinatorRecord(
        _offset_key(group_id, partition),
        group_log.encode_offset_commit_value(record),
        OffsetRecord(group_id, partition, value)
        if value.expire_timestamp_ms == NO_TIMESTAMP
        else None,
    )


def offset_tombstone(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    """Return the record that deletes an offset."""
    decoded = OffsetRecord(group_id, partition, None)
    return CoordinatorRecord(_offset_key(group_id, partition), None, decoded)


def _offset_key(group_id: str, partition: TopicPartition) -> bytes:
    key = group_log.OffsetCommitKey(group_id, partition.topic, partition.partition)
    return group_log.encode_offset_commit_key(key)


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """Return the record of a group's generation, with its members' assignments."""
    members = tuple(
        group_log.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name),
            assignment=assignments[member.member_id],
        )
        for member in group.members.values()
    )
    value = group_log.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp_ms=group.state_timestamp_ms,
        members=members,
    )
    return CoordinatorRecord(
        _group_key(group.group_id),
        group_log.encode_group_metadata_value(value),
        GroupRecord(group.group_id, value),
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the record that deletes a group."""
    return CoordinatorRecord(_group_key(group_id), None, GroupRecord(group_id, None))


def _group_key(group_id: str) -> bytes:
    return group_log.encode_group_metadata_key(group_log.GroupMetadataKey(group_id))


def assignments(value: group_log.GroupMetadataValue) -> Iterator[tuple[str, bytes]]:
    """Return each member's assignment."""
    for member in value.members:
        yield member.member_id, member.assignment


def load_group(group_id: str, value: group_log.GroupMetadataValue, written_ms: int) -> ClassicGroup:
    """Restore a group from its last record: stable or empty, without waiting requests.

    A group becomes empty when its record is written, at `written_ms` by the wall clock.
    """
    state_ms = value.current_state_timestamp_ms
    if state_ms >= 0:
        state_ms += clock_shift_ms(state_ms, written_ms)
    group = ClassicGroup(
        group_id,
        generation_id=value.generation,
        protocol_name=value.protocol,
        leader_id=value.leader,
        state_timestamp_ms=state_ms,
    )
    for stored in value.members:
        timeout_ms = stored.rebalance_timeout_ms
        member = ClassicGroupMember(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout_ms,
            stored.session_timeout_ms if timeout_ms < 0 else timeout_ms,
            # The log contains only the selected protocol.
            (JoinProtocol(value.protocol or "", stored.subscription),),
            stored.assignment,
        )
        group.add(member, value.protocol_type)
    group.protocol_type = value.protocol_type or None
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.learn_subscription()
    return group
