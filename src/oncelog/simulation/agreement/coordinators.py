"""Compares both coordinators' durable state with what their internal topics imply (D2).

Compaction keeps the newest record of each key, so nothing here depends on it. Times are compared
where no clock can have shifted them: a transaction's age.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oncelog.group.classic_group import ClassicGroup
from oncelog.group.consumer.group import ConsumerGroup
from oncelog.group.consumer.members import ConsumerMember, OwnedPartitions
from oncelog.group.offset_values import CommittedOffset
from oncelog.group.states import GroupState
from oncelog.group.store import GroupStore
from oncelog.simulation.oracle.consumer_groups import Owned, RawConsumerGroup, RawConsumerMember
from oncelog.simulation.oracle.group_log import (
    OffsetKey,
    OffsetsState,
    RawGroup,
    RawMember,
    RawOffset,
)
from oncelog.simulation.oracle.transaction_log import RawTransaction
from oncelog.transaction.states import TransactionMetadata

__all__ = ["groups", "transactions"]


def transactions(
    implied: Mapping[str, RawTransaction], held: Mapping[str, TransactionMetadata]
) -> Iterator[str]:
    """Compare the metadata of all transactional ids of one partition."""
    yield from _of_both(
        "transactional id",
        implied,
        {id_: _transaction(metadata, implied.get(id_)) for id_, metadata in held.items()},
        _with_age,
    )


def _with_age(raw: RawTransaction) -> tuple[object, ...]:
    age_ms = raw.last_update_ms - raw.start_ms if raw.start_ms > 0 else None
    return (
        raw.producer_id,
        raw.producer_epoch,
        raw.timeout_ms,
        raw.state,
        raw.partitions,
        age_ms,
        raw.previous_producer_id,
        raw.next_producer_id,
        raw.client_transaction_version,
    )


def _transaction(held: TransactionMetadata, raw: RawTransaction | None) -> tuple[object, ...]:
    start_ms = held.start_timestamp_ms
    of_version_1 = (
        held.previous_producer_id,
        held.next_producer_id,
        held.client_transaction_version,
    )
    if raw is not None and raw.previous_producer_id is None:
        of_version_1 = None, None, None  # type: ignore[assignment]
    return (
        held.producer_id,
        held.producer_epoch,
        held.timeout_ms,
        held.state.status,
        frozenset(tuple(partition) for partition in held.partitions),
        held.last_update_timestamp_ms - start_ms if start_ms > 0 else None,
        *of_version_1,
    )


def groups(implied: OffsetsState, store: GroupStore) -> Iterator[str]:
    """Compare the offsets and groups of one partition of `__consumer_offsets`."""
    committed = store.offsets.snapshot()[0]
    pending = store.offsets.pending.snapshot()
    yield from _of_both("offset", implied.committed, _flat(committed), _offset)
    waiting = {id_: offsets for id_, offsets in implied.pending.items() if offsets}
    for producer_id in sorted(waiting.keys() | pending.keys()):
        yield from _of_both(
            f"offset that producer {producer_id} has not committed",
            waiting.get(producer_id, {}),
            _flat(pending.get(producer_id, {})),
            _offset,
        )
    yield from _classic(implied.classic, store)
    yield from _of_both(
        "consumer group",
        implied.consumer.groups(),
        {id_: _consumer_group(group) for id_, group in store.consumer_groups.items()},
        _raw_consumer_group,
    )


def _offset(raw: RawOffset) -> tuple[object, ...]:
    topic_id = raw.topic_id.int if raw.topic_id is not None else 0
    return raw.offset, raw.leader_epoch, raw.metadata, topic_id, raw.record_offset


def _flat(by_group: Any) -> dict[OffsetKey, tuple[object, ...]]:
    found: dict[OffsetKey, tuple[object, ...]] = {}
    for group, offsets in by_group.items():
        for (topic, partition), held in offsets.items():
            found[group, topic, partition] = _held_offset(held)
    return found


def _held_offset(held: CommittedOffset) -> tuple[object, ...]:
    return (
        held.offset,
        held.leader_epoch,
        held.metadata,
        held.topic_id.int,
        held.record_offset,
    )


def _classic(implied: Mapping[str, RawGroup], store: GroupStore) -> Iterator[str]:
    """Compare classic groups: all that have a record, and what that says of the stable ones.

    Members and generations of the others are volatile: a rebalance is under way.
    """
    if store.recorded != set(implied):
        yield f"groups with a record: {sorted(store.recorded)}, by the log {sorted(implied)}"
    for id_, raw in implied.items():
        group = store.groups.get(id_)
        if group is None:
            if id_ not in store.consumer_groups:
                yield f"group {id_} is not known: {raw}"
        elif group.state is GroupState.STABLE and group.write is None:
            held = _classic_group(group)
            if held != raw:
                yield f"group {id_} is {held}, by the log {raw}"


def _classic_group(group: ClassicGroup) -> RawGroup:
    members = {
        id_: RawMember(member.group_instance_id, member.assignment)
        for id_, member in group.members.items()
    }
    return RawGroup(
        group.protocol_type or "",
        group.generation_id,
        group.protocol_name,
        group.leader_id,
        members,
    )


def _raw_consumer_group(raw: RawConsumerGroup) -> RawConsumerGroup:
    return raw


def _consumer_group(group: ConsumerGroup) -> RawConsumerGroup:
    return RawConsumerGroup(
        group.group_epoch,
        group.metadata_hash,
        group.assignment_epoch,
        {id_: _consumer_member(member) for id_, member in group.members.items()},
        {
            id_: frozenset((each.topic_id, each.partition) for each in target)
            for id_, target in group.target.items()
        },
        {regex: resolved.topics for regex, resolved in group.regexes.items()},
    )


def _consumer_member(member: ConsumerMember) -> RawConsumerMember:
    classic = member.classic
    return RawConsumerMember(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.topic_names,
        member.topic_regex,
        member.rebalance_timeout_ms,
        member.server_assignor,
        None if classic is None else tuple(protocol.name for protocol in classic.protocols),
        member.member_epoch,
        member.previous_member_epoch,
        int(member.state.value),
        _owned(member.assigned),
        _owned(member.pending_revocation),
    )


def _owned(partitions: OwnedPartitions) -> Owned:
    return {(each.topic_id, each.partition): epoch for each, epoch in partitions.items()}


def _of_both(
    what: str, implied: Mapping[Any, Any], held: Mapping[Any, object], comparable: Any
) -> Iterator[str]:
    for key in implied.keys() | held.keys():
        wanted = comparable(implied[key]) if key in implied else None
        if held.get(key) != wanted:
            yield f"{what} {key} is {held.get(key)}, by the log {wanted}"
