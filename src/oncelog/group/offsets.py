"""Decides commits, fetches, deletions and expiry of offsets (Kafka's `OffsetMetadataManager`).

INV-8: a commit with a member or a generation is checked against the group; one from an older
generation is refused, in a transaction too (KIP-447). A commit with neither comes from a consumer
that assigns partitions itself, and is accepted while the group has no members (in a transaction
always, as older clients send nothing else).
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from oncelog.coordinator.shard import (
    NOTHING,
    AppendProducer,
    Decision,
    EventContext,
    replies_to,
    reply_at_once,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.core.limits import EXPIRY_CONTINUE_MS
from oncelog.group.classic_group import ClassicGroup, WriteKind
from oncelog.group.consumer.commits import check_fetch
from oncelog.group.decision import GroupDecision
from oncelog.group.events import (
    NO_MEMBER_ID,
    ZERO_TOPIC_ID,
    ExpireOffsets,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToFetch,
    TxnOffsetCommit,
)
from oncelog.group.offset_values import NO_TIMESTAMP, CommittedOffset
from oncelog.group.records import BatchBudget, group_tombstone, offset_record, offset_tombstone
from oncelog.group.replies import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    FetchedOffset,
    OffsetCommitReply,
    OffsetDeleteReply,
    OffsetFetchReply,
    PartitionOutcome,
)
from oncelog.group.states import GroupState
from oncelog.group.store import DecisionBuilder, GroupStore
from oncelog.group.timers import TimerKey, TimerKind

AnyCommit: TypeAlias = OffsetCommit | TxnOffsetCommit


def commit(store: GroupStore, event: OffsetCommit, context: EventContext) -> GroupDecision:
    """Decide an OffsetCommit. It counts as a heartbeat."""
    group = store.groups.get(event.group_id)
    error = _check_commit(group, event)
    if error is not ErrorCode.none:
        return reply_at_once(context, refused(event, error))
    if group is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
        member = group.members.get(event.member_id)
        if member is not None:
            store.renew_session(group, member, context.now_ms)
    return write_offsets(store, event, context)


def commit_in_transaction(
    store: GroupStore, event: TxnOffsetCommit, context: EventContext
) -> GroupDecision:
    """Decide a TxnOffsetCommit.

    The offsets are written now, and become visible with the marker (INV-6).
    """
    if not event.group_id:
        return reply_at_once(context, refused(event, ErrorCode.invalid_group_id))
    error = _check_commit(store.groups.get(event.group_id), event)
    if error is not ErrorCode.none:
        return reply_at_once(context, refused(event, error))
    return write_offsets(store, event, context)


def _check_commit(group: ClassicGroup | None, event: AnyCommit) -> ErrorCode:
    """Check a commit's member and generation against the group (INV-8)."""
    is_transactional = isinstance(event, TxnOffsetCommit)
    if group is None:
        return ErrorCode.none if event.generation_id < 0 else ErrorCode.group_id_not_found
    is_empty = group.state is GroupState.EMPTY
    if event.generation_id < 0 and is_empty:
        return ErrorCode.none
    is_member = event.member_id != NO_MEMBER_ID or event.group_instance_id is not None
    if event.generation_id >= 0 or is_member:
        error = group.check_member(event.member_id, event.group_instance_id)
        if error is not ErrorCode.none:
            return error
        if event.generation_id != group.generation_id:
            return ErrorCode.illegal_generation
    elif not is_transactional:
        return ErrorCode.unknown_member_id
    if not is_transactional and group.state is GroupState.COMPLETING_REBALANCE:
        # It knows the new generation, but not its assignment there.
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def write_offsets(
    store: GroupStore,
    event: AnyCommit,
    context: EventContext,
    stale: Mapping[TopicPartition, ErrorCode] = MappingProxyType({}),
) -> GroupDecision:
    """Write the offsets of an accepted commit, except those of `stale` partitions."""
    expire_ms = NO_TIMESTAMP
    producer = None
    if isinstance(event, TxnOffsetCommit):
        producer_id = ProducerId(event.producer_id)
        producer_epoch = ProducerEpoch(event.producer_epoch)
        producer = AppendProducer(producer_id, producer_epoch, event.permit)
    elif event.retention_ms >= 0:
        expire_ms = context.now_ms + event.retention_ms
    records = []
    outcomes = []
    written = []
    for wanted in event.offsets:
        metadata = wanted.metadata or ""
        partition = TopicPartition(wanted.topic, wanted.partition)
        error = ErrorCode.offset_metadata_too_large
        if partition in stale:
            error = stale[partition]
        elif len(metadata) <= store.config.offset_metadata_max_size:
            error = ErrorCode.none
            value = CommittedOffset(
                wanted.offset,
                wanted.leader_epoch,
                metadata,
                context.now_ms,
                expire_ms,
                wanted.topic_id,
            )
            records.append(offset_record(event.group_id, partition, value))
            written.append(partition)
        outcomes.append(PartitionOutcome(wanted.topic, wanted.partition, error))
    if written:
        store.meter.offset_commits += len(written)
        store.offsets.add_in_flight(event.group_id, written, event)
    replies = replies_to(context.token, OffsetCommitReply(tuple(outcomes)))
    return Decision(tuple(records), replies, producer=producer)


def refused(event: AnyCommit, error: ErrorCode) -> OffsetCommitReply:
    """Answer every partition of a commit with one error."""
    outcomes = (PartitionOutcome(o.topic, o.partition, error) for o in event.offsets)
    return OffsetCommitReply(tuple(outcomes))


def fetch(store: GroupStore, event: OffsetFetch, context: EventContext) -> GroupDecision:
    """Return committed offsets.

    With `require_stable`, unstable ones get UNSTABLE_OFFSET_COMMIT.

    If all are requested, Kafka leaves out a partition whose first offset is still in an open
    transaction; we report it as unstable, since a reader that requires stable offsets would
    otherwise start without one (INV-6).
    """
    consumer_group = store.consumer_groups.get(event.group_id)
    if consumer_group is not None:
        error = check_fetch(consumer_group, event)
        if error is not ErrorCode.none:
            return reply_at_once(context, OffsetFetchReply(error))
    if event.offsets is not None:
        wanted = event.offsets
    else:
        known = dict.fromkeys(p for p, _ in store.offsets.of_group(event.group_id))
        if event.require_stable:
            known |= dict.fromkeys(store.offsets.partitions(event.group_id))
        wanted = tuple(OffsetToFetch(p.topic, p.partition) for p in known)
    found = tuple(_fetch_one(store, event, offset) for offset in wanted)
    return reply_at_once(context, OffsetFetchReply(ErrorCode.none, found))


def _fetch_one(store: GroupStore, event: OffsetFetch, wanted: OffsetToFetch) -> FetchedOffset:
    partition = TopicPartition(wanted.topic, wanted.partition)
    error = ErrorCode.none
    value = store.offsets.get(event.group_id, partition)
    if event.require_stable and store.offsets.is_unstable(event.group_id, partition):
        error = ErrorCode.unstable_offset_commit
        value = None
    if value is None or _is_of_another_topic(value, wanted):
        return FetchedOffset(*partition, NO_OFFSET, NO_LEADER_EPOCH, "", error)
    return FetchedOffset(
        *partition, value.offset, value.leader_epoch, value.metadata, error, value.topic_id
    )


def _is_of_another_topic(value: CommittedOffset, wanted: OffsetToFetch) -> bool:
    """Whether the offset was committed for a deleted topic of the same name."""
    known = ZERO_TOPIC_ID not in (value.topic_id, wanted.topic_id)
    return known and value.topic_id != wanted.topic_id


def delete(store: GroupStore, event: OffsetDelete, context: EventContext) -> GroupDecision:
    """Decide an OffsetDelete.

    Subscribed topics are refused, and so are groups of other types that have members.
    """
    if not event.group_id:
        return reply_at_once(context, OffsetDeleteReply(ErrorCode.invalid_group_id))
    group = store.groups.get(event.group_id)
    if group is None:
        return reply_at_once(context, OffsetDeleteReply(ErrorCode.group_id_not_found))
    if group.state is not GroupState.EMPTY and not group.is_consumer_group:
        return reply_at_once(context, OffsetDeleteReply(ErrorCode.non_empty_group))
    return delete_each(store, event, context, group.is_subscribed_to)


def delete_each(
    store: GroupStore,
    event: OffsetDelete,
    context: EventContext,
    is_subscribed_to: Callable[[str], bool],
) -> GroupDecision:
    """Delete the known offsets of an accepted OffsetDelete, except those of subscribed topics."""
    records = []
    outcomes = []
    for partition in event.partitions:
        error = ErrorCode.none
        if is_subscribed_to(partition.topic):
            error = ErrorCode.group_subscribed_to_topic
        elif store.offsets.is_known(event.group_id, partition):
            records.append(offset_tombstone(event.group_id, partition))
        outcomes.append(PartitionOutcome(*partition, error))
    store.meter.offset_deletions += len(records)
    result = OffsetDeleteReply(ErrorCode.none, tuple(outcomes))
    return Decision(tuple(records), replies_to(context.token, result))


def expire(store: GroupStore, event: ExpireOffsets, context: EventContext) -> GroupDecision:
    """Delete the expired offsets of a group.

    With the last one an empty group is deleted too. The rest, if one append cannot hold all, waits
    for the next sweep, which follows soon.
    """
    group = store.groups.get(event.group_id)
    if group is None:
        return NOTHING
    builder = DecisionBuilder(event, context)
    batch = BatchBudget(store.config.append_bytes_max)
    is_whole, stay = expire_offsets(store, group.group_id, builder, batch, partial(_base_ms, group))
    if not is_whole:
        return builder.build()
    is_over = group.state is GroupState.EMPTY and not group.pending_joins and not stay
    if is_over and (builder.records or group.group_id in store.recorded):
        last = group_tombstone(group.group_id)
        if batch.take(last):
            builder.write(group, WriteKind.DELETED, last)
        else:
            store.timers.set(TimerKey(TimerKind.SWEEP), context.now_ms + EXPIRY_CONTINUE_MS)
    elif is_over:
        # It was never written: there is nothing to delete in the log.
        store.forget(group)
    return builder.build()


def expire_offsets(
    store: GroupStore,
    group_id: str,
    builder: DecisionBuilder,
    batch: BatchBudget,
    base_ms_of: Callable[[TopicPartition, CommittedOffset], int | None],
) -> tuple[bool, int]:
    """Delete a group's expired offsets, by age since `base_ms_of` (None: never expires).

    Returns whether all of them fitted into the append, and how many offsets remain.
    """
    stay = 0
    for partition, value in store.offsets.of_group(group_id):
        base_ms = base_ms_of(partition, value)
        unstable = store.offsets.is_unstable(group_id, partition)
        if unstable or base_ms is None or not _is_over(store, value, base_ms, builder.now_ms):
            stay += 1
            continue
        tombstone = offset_tombstone(group_id, partition)
        if not batch.take(tombstone):
            store.timers.set(TimerKey(TimerKind.SWEEP), builder.now_ms + EXPIRY_CONTINUE_MS)
            return False, stay
        builder.records.append(tombstone)
        store.meter.offset_expirations += 1
    stay += sum(
        store.offsets.is_unstable(group_id, partition)
        for partition in store.offsets.partitions(group_id)
    )
    return True, stay


def _is_over(store: GroupStore, value: CommittedOffset, base_ms: int, now_ms: int) -> bool:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - base_ms >= store.config.offsets_retention_ms


def _base_ms(group: ClassicGroup, partition: TopicPartition, value: CommittedOffset) -> int | None:
    """Return the time from which an offset's retention counts (KIP-211).

    That is when the group became empty, or the commit if it never had members.
    """
    if group.is_subscribed_to(partition.topic):
        return None
    if group.state is GroupState.EMPTY:
        is_dated = group.state_timestamp_ms >= 0
        return group.state_timestamp_ms if is_dated else value.commit_timestamp_ms
    is_known = group.is_consumer_group and group.subscribed_topics is not None
    return value.commit_timestamp_ms if is_known and group.state is GroupState.STABLE else None
