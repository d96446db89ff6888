"""Checks who may commit and fetch offsets of a consumer group, by member epoch (INV-8).

Pure functions of a group and an event.
"""

from collections.abc import Mapping
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.group import events
from oncelog.group.consumer.group import ConsumerGroup
from oncelog.group.consumer.members import TopicIdPartition

MEMBER_EPOCH_VERSION_MIN: Final = 9
"""The first OffsetCommit version with a member epoch for members of the new protocol."""


def check_commit(
    group: ConsumerGroup, event: events.OffsetCommit | events.TxnOffsetCommit
) -> tuple[ErrorCode, Mapping[TopicPartition, ErrorCode]]:
    """Return the request's error, or the partitions that its epoch may not commit.

    An older epoch is valid for partitions that the member has owned since then (KIP-1251): a commit
    may be in flight when the epoch increases.
    """
    is_transactional = isinstance(event, events.TxnOffsetCommit)
    none: dict[TopicPartition, ErrorCode] = {}
    if event.generation_id < 0 and not group.members:
        return ErrorCode.none, none
    is_anonymous = event.member_id == events.NO_MEMBER_ID and event.group_instance_id is None
    if is_transactional and event.generation_id < 0 and is_anonymous:
        return ErrorCode.none, none
    member = group.members.get(event.member_id)
    if member is None:
        return ErrorCode.unknown_member_id, none
    is_new = member.classic is None
    if is_new and not is_transactional and event.version < MEMBER_EPOCH_VERSION_MIN:
        return ErrorCode.unsupported_version, none
    refused = ErrorCode.stale_member_epoch if is_new else ErrorCode.illegal_generation
    if event.generation_id > member.member_epoch:
        return refused, none
    if event.generation_id == member.member_epoch:
        return ErrorCode.none, none
    owned = {**member.pending_revocation, **member.assigned}
    stale = {
        TopicPartition(each.topic, each.partition): refused
        for each in event.offsets
        if event.generation_id < owned.get(TopicIdPartition(each.topic_id, each.partition), 2**31)
    }
    return ErrorCode.none, stale


def check_fetch(group: ConsumerGroup, event: events.OffsetFetch) -> ErrorCode:
    """Return the error of an OffsetFetch; administrators send no member."""
    if event.member_id is None and event.member_epoch < 0:
        return ErrorCode.none
    member = group.members.get(event.member_id or "")
    if member is None:
        return ErrorCode.unknown_member_id
    if event.member_epoch != member.member_epoch:
        is_new = member.classic is None
        return ErrorCode.stale_member_epoch if is_new else ErrorCode.illegal_generation
    return ErrorCode.none
