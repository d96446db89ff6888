"""Both coordinators agree with their logs; each thing that they may get wrong is named."""

from dataclasses import fields, replace
from typing import Any
from uuid import UUID

import pytest

from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.core.ids import TopicPartition
from oncelog.group.consumer import records
from oncelog.group.consumer.group import ConsumerGroup, ResolvedRegex
from oncelog.group.consumer.members import (
    ClassicSide,
    ConsumerMember,
    MemberState,
    TopicIdPartition,
)
from oncelog.group.events import JoinProtocol
from oncelog.simulation.agreement import coordinators
from oncelog.transaction.states import TransactionState
from tests.support.oracles import Logged, offsets_of, transactions_of
from tests.unit.group.context import Context as Groups
from tests.unit.group.context import logged
from tests.unit.transaction.context import ID
from tests.unit.transaction.context import Context as Transactions

T0 = TopicPartition("t", 0)


def wrong_transactions(context: Transactions) -> list[str]:
    log = [Logged(record, time_ms) for record, time_ms in context.log]
    implied = transactions_of(log).transactions
    return list(coordinators.transactions(implied, context.shard.transactions))


def wrong_groups(context: Groups) -> list[str]:
    return list(coordinators.groups(offsets_of(logged(context.log)), context.shard.store))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("state", [s for s in TransactionState if s.value < 6])
def test_every_part_of_a_transactional_id_is_compared(
    version: int, state: TransactionState
) -> None:
    context = Transactions(version=version)
    context.go_to(state)
    assert not wrong_transactions(context)
    held = context.shard.transactions
    sound = held[ID]
    for field in fields(sound):
        if field.name in ("transactional_id", "start_timestamp_ms", "last_update_timestamp_ms"):
            continue
        value = getattr(sound, field.name)
        other: Any = value + 7 if isinstance(value, int) else TransactionState.DEAD
        changed: dict[str, Any] = {
            field.name: {T0} ^ value if field.name == "partitions" else other
        }
        held[ID] = replace(sound, **changed)
        assert wrong_transactions(context), field.name
    del held[ID]
    assert wrong_transactions(context)


def test_offsets_are_compared_before_and_after_their_marker() -> None:
    context = Groups()
    context.commit(3)
    context.txn_commit(5, producer_id=7)
    assert not wrong_groups(context)
    pending = context.shard.store.offsets.pending._by_producer[7]["g"]
    pending[T0] = pending[T0]._replace(offset=6)
    assert wrong_groups(context)
    pending[T0] = pending[T0]._replace(offset=5)
    context.marker(7, commit=True)
    assert not wrong_groups(context)
    committed = context.shard.store.offsets._committed["g"]
    assert committed[T0].offset == 5
    for name in ("offset", "leader_epoch", "record_offset"):
        sound = committed[T0]
        committed[T0] = sound._replace(**{name: getattr(sound, name) + 1})
        assert wrong_groups(context), name
        committed[T0] = sound


def test_a_classic_group_is_compared_once_it_is_stable() -> None:
    context = Groups()
    (member,) = context.stable()
    assert not wrong_groups(context)
    group = context.group()
    group.generation_id += 1
    assert wrong_groups(context)
    group.generation_id -= 1
    group.members[member].assignment += b"x"
    assert wrong_groups(context)
    context.shard.store.recorded.clear()
    assert any("groups with a record" in text for text in wrong_groups(context))


def test_every_kind_of_record_of_a_consumer_group_is_compared() -> None:
    topic_id = UUID(int=9)
    owned = {TopicIdPartition(topic_id, 0): 3, TopicIdPartition(topic_id, 1): 4}
    member = ConsumerMember(
        "m",
        "instance",
        "rack",
        "client",
        "host",
        9_000,
        frozenset({"a", "b"}),
        "c.*",
        "range",
        ClassicSide(5_000, (JoinProtocol("range", b"meta"),)),
        4,
        3,
        MemberState.UNREVOKED_PARTITIONS,
        owned,
        {TopicIdPartition(topic_id, 2): 4},
    )
    context = Groups()
    group = context.shard.store.consumer_groups["g"] = ConsumerGroup("g", 5, 77, 4)
    group.put(member)
    group.target["m"] = frozenset(owned)
    group.regexes["c.*"] = ResolvedRegex(frozenset({"cc"}), 1, 2)
    written = [
        records.member_metadata("g", member),
        records.group_epoch("g", 5, 77),
        records.regular_expression("g", "c.*", group.regexes["c.*"]),
        records.target_assignment("g", "m", group.target["m"]),
        records.target_epoch("g", 4, 10),
        records.current_assignment("g", member),
    ]
    whole = offsets_of(Logged(record, 0) for record in written)
    assert not list(coordinators.groups(whole, context.shard.store))
    for left_out in written:
        rest = offsets_of(Logged(record, 0) for record in written if record is not left_out)
        assert list(coordinators.groups(rest, context.shard.store)), left_out
    deleted = [*written, *_tombstones(written)]
    assert not offsets_of(Logged(record, 0) for record in deleted).consumer.groups()


def _tombstones(written: list[CoordinatorRecord]) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(record.key, None) for record in written]
