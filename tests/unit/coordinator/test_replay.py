"""Replaying what still counts of a log leaves a shard as replaying all of it does."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.coordinator import (
    CoordinatorRecord,
    EndTransactionMarker,
    RecordContext,
    ReplayBuffer,
    marker_context,
)
from oncelog.coordinator.replay import RecordToReplay
from oncelog.core.errors import ProtocolError
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId, TopicPartition
from oncelog.group.config import GroupConfig
from oncelog.group.offset_values import CommittedOffset
from oncelog.group.records import group_tombstone, offset_record, offset_tombstone
from oncelog.group.shard import GroupCoordinatorShard
from oncelog.protocol.records import group_log
from oncelog.transaction import records as transaction_records
from oncelog.transaction.shard import TransactionCoordinatorShard
from oncelog.transaction.states import TransactionMetadata, TransactionState
from tests.support.examples import examples
from tests.unit.coordinator.support import AnyShard, processor_of

EPOCH = ProducerEpoch(0)
GROUPS = ("g", "h")
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))

Step: TypeAlias = tuple[str, int, int, int]
"""What happens, to which group or producer, to which partition, and a number of its own."""

Log: TypeAlias = list[tuple[CoordinatorRecord, ProducerId | None] | tuple[ProducerId, bool]]
"""Records, each with the producer whose transaction it is of, and end markers."""


def offsets_log(steps: Sequence[Step]) -> Log:
    log: Log = []
    for kind, who, which, number in steps:
        group, partition, producer = GROUPS[who], PARTITIONS[which], ProducerId(7 + who)
        value = CommittedOffset(number, 0, "", 1)
        match kind:
            case "commit":
                log.append((offset_record(group, partition, value), None))
            case "delete":
                log.append((offset_tombstone(group, partition), None))
            case "send":
                log.append((offset_record(GROUPS[number % 2], partition, value), producer))
            case "end":
                log.append((producer, which == 0))
            case "generation":
                metadata = group_log.GroupMetadataValue("consumer", number, None, None, 1, ())
                key = group_log.encode_group_metadata_key(group_log.GroupMetadataKey(group))
                log.append(
                    (CoordinatorRecord(key, group_log.encode_group_metadata_value(metadata)), None)
                )
            case "forget":
                # A group is deleted together with its offsets.
                log += [(offset_tombstone(group, one), None) for one in PARTITIONS]
                log.append((group_tombstone(group), None))
    return log


def transaction_log(steps: Sequence[Step]) -> Log:
    log: Log = []
    for kind, who, which, number in steps:
        if kind in ("delete", "forget"):
            log.append((transaction_records.tombstone(GROUPS[who]), None))
        else:
            state = (TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT)[which]
            partitions = frozenset(PARTITIONS if which == 0 else ())
            metadata = TransactionMetadata(
                GROUPS[who], ProducerId(number), EPOCH, 10, state, partitions
            )
            log.append((transaction_records.encode(metadata), None))
    return log


def replay_all(shard: AnyShard, log: Log) -> None:
    processor = processor_of(shard)
    for offset, step in enumerate(map(_unpacked, log)):
        entry, producer, commit = step
        if entry is None:
            assert producer is not None
            marker = EndTransactionMarker(offset, producer, EPOCH, commit)
            processor.replay(marker, marker_context(marker))
        elif producer is None:
            processor.replay(entry, RecordContext(Offset(offset), 1))
        else:
            context = RecordContext(Offset(offset), 1, producer, EPOCH, transactional=True)
            processor.replay(entry, context)


def replay_what_counts(shard: AnyShard, log: Log, stretch_count: int) -> int:
    """Replay in stretches; returns how many steps were left to apply."""
    processor, replay, applied = processor_of(shard), ReplayBuffer(), 0

    def apply() -> None:
        nonlocal applied
        offsets = []
        for step in replay.rest():
            offsets.append(step.offset)
            if isinstance(step, EndTransactionMarker):
                processor.replay(step, marker_context(step))
            else:
                processor.replay(step.record, step.context)
        assert offsets == sorted(set(offsets))
        assert len(offsets) == len(replay)
        applied += len(offsets)

    for offset, (entry, producer, commit) in enumerate(map(_unpacked, log)):
        if entry is None:
            assert producer is not None
            replay.end_transaction(EndTransactionMarker(offset, producer, EPOCH, commit))
        elif producer is None:
            replay.add([(offset, 1, entry.key, entry.value)])
        else:
            replay.add_transactional([(offset, 1, entry.key, entry.value)], producer, EPOCH)
        if offset % stretch_count == stretch_count - 1:
            apply()
            replay = ReplayBuffer()
    apply()
    return applied


def _unpacked(
    step: tuple[CoordinatorRecord, ProducerId | None] | tuple[ProducerId, bool],
) -> tuple[CoordinatorRecord | None, ProducerId | None, bool]:
    first, second = step
    if isinstance(first, CoordinatorRecord):
        assert not isinstance(second, bool)
        return first, second, False
    return None, first, bool(second)


def groups_of(shard: GroupCoordinatorShard) -> object:
    """What a group coordinator knows, without groups of which nothing is left."""
    room = shard.store
    offsets = room.offsets.snapshot()
    kept = {
        id_: (group.generation_id, group.state, group.protocol_type)
        for id_, group in room.groups.items()
        if id_ in room.recorded or room.offsets.partitions(id_)
    }
    return offsets, kept, room.recorded


def transactions_of(shard: TransactionCoordinatorShard) -> object:
    store = shard._store
    epochs = {id_: store.volatile[id_].last_producer_epoch for id_ in store.transactions}
    return store.transactions, store.timeouts.deadlines, epochs


def groups() -> GroupCoordinatorShard:
    return GroupCoordinatorShard(GroupConfig())


def transactions() -> TransactionCoordinatorShard:
    return TransactionCoordinatorShard(0)


step = st.tuples(
    st.sampled_from(
        ["commit", "commit", "delete", "send", "send", "end", "end", "generation", "forget"]
    ),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(0, 9),
)
histories = st.lists(step, max_size=40)


@settings(max_examples=examples(200), deadline=None)
@given(histories, st.integers(1, 12))
@example([("send", 0, 0, 0), ("commit", 0, 0, 2), ("end", 0, 0, 0)], 99)
@example([("send", 0, 0, 0), ("delete", 0, 0, 0), ("end", 0, 0, 0)], 99)
@example([("send", 0, 0, 0), ("delete", 0, 0, 0), ("commit", 0, 0, 1), ("end", 0, 0, 0)], 1)
@example([("send", 0, 0, 0), ("end", 0, 1, 0), ("send", 0, 1, 0), ("end", 0, 0, 0)], 2)
def test_offsets_and_groups_are_the_same_after_either_way(
    steps: list[Step], stretch_count: int
) -> None:
    """INV-6: whatever stretches a transaction, its marker and a tombstone stand in."""
    log = offsets_log(steps)
    one, other = groups(), groups()
    replay_all(one, log)
    replay_what_counts(other, log, stretch_count)
    assert groups_of(other) == groups_of(one)


@settings(max_examples=examples(100), deadline=None)
@given(histories, st.integers(1, 12))
def test_transactions_are_the_same_after_either_way(steps: list[Step], stretch_count: int) -> None:
    log = transaction_log(steps)
    one, other = transactions(), transactions()
    replay_all(one, log)
    replay_what_counts(other, log, stretch_count)
    assert transactions_of(other) == transactions_of(one)


def test_a_tombstone_in_a_transaction_ends_what_was_said_of_its_key() -> None:
    replay = ReplayBuffer()
    replay.add([(0, 1, b"key", b"value")])
    replay.add_transactional([(1, 1, b"key", None)], ProducerId(1), EPOCH)
    (step,) = replay.rest()
    assert not isinstance(step, EndTransactionMarker)
    assert (step.offset, step.record.value) == (1, None)


def test_a_committed_transaction_counts_with_all_of_its_records() -> None:
    replay = ReplayBuffer()
    replay.add([(0, 1, b"deleted before", None), (1, 1, b"written before", b"old")])
    batch = [
        (2, 1, b"deleted before", b"new"),
        (3, 1, b"replaced after", b"new"),
        (4, 1, b"deleted after", b"new"),
        (5, 1, b"written before", b"new"),
    ]
    replay.add_transactional(batch, ProducerId(7), EPOCH)
    replay.add([(6, 1, b"replaced after", b"newer"), (7, 1, b"deleted after", None)])
    marker = EndTransactionMarker(8, ProducerId(7), EPOCH, commit=True)
    replay.end_transaction(marker)
    *steps, last = replay.rest()
    left = [(step.offset, step.record) for step in steps if isinstance(step, RecordToReplay)]
    assert left == [
        (0, CoordinatorRecord(b"deleted before", None)),
        (2, CoordinatorRecord(b"deleted before", b"new")),
        (5, CoordinatorRecord(b"written before", b"new")),
        (6, CoordinatorRecord(b"replaced after", b"newer")),
        (7, CoordinatorRecord(b"deleted after", None)),
    ]
    assert last == marker


@pytest.mark.parametrize(
    ("make_log", "steps", "left_count"),
    [
        (transaction_log, [("commit", 0, n % 2, n) for n in range(99)], 1),
        (offsets_log, [("commit", 0, 0, n) for n in range(99)], 1),
        (offsets_log, [("send", 0, 0, 0), ("end", 0, 0, 0)] * 50, 2),
        (offsets_log, [("send", 0, 0, 0), ("end", 0, 1, 0)] * 50, 1),
        (offsets_log, [("commit", 0, 0, 0), ("delete", 0, 0, 0)] * 50, 1),
    ],
)
def test_history_costs_nothing_to_apply(
    make_log: Callable[[Sequence[Step]], Log], steps: list[Step], left_count: int
) -> None:
    """One record per key, and one marker per producer."""
    shard = transactions() if make_log is transaction_log else groups()
    assert replay_what_counts(shard, make_log(steps), 1000) == left_count


def test_a_record_without_a_key_is_named() -> None:
    replay = ReplayBuffer()
    with pytest.raises(ProtocolError, match="offset 4: a record without a key"):
        replay.add([(3, 1, b"k", b"v"), (4, 1, None, b"v")])
    with pytest.raises(ProtocolError, match="offset 5"):
        replay.add_transactional([(5, 1, None, None)], ProducerId(7), EPOCH)
    with pytest.raises(ProtocolError, match="offset 6"):
        replay.add_transactional([(6, 1, None, b"v")], ProducerId(7), EPOCH)
