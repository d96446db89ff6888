"""What compaction may remove, and what readers need not have seen then."""

from dataclasses import replace

import pytest

from oncelog.simulation.final import FinalState, KeyedRecord
from oncelog.simulation.history import Polled
from tests.unit.simulation.checkers.model import T0, Model


def record(
    offset: int,
    key: bytes | None = b"k",
    *,
    removed: bool = False,
    tombstone: bool = False,
    outcome: str = "committed",
) -> KeyedRecord:
    return KeyedRecord(offset, key, tombstone, outcome, removed)


def found(*records: KeyedRecord, **promise: object) -> set[str]:
    model = Model()
    return model.signatures(replace(model.final(), compacted={T0: records}), **promise)


def test_an_older_record_of_a_key_may_go() -> None:
    assert found(record(0, removed=True), record(1, removed=True), record(2)) == set()


def test_the_newest_record_of_a_key_stays() -> None:
    expected = {"compaction: compaction removed the newest record of a key"}
    assert found(record(0), record(1, removed=True)) == expected
    assert found(record(0, removed=True), record(1, b"other")) == expected


@pytest.mark.parametrize("outcome", ["aborted", ""])
def test_only_a_committed_record_makes_another_obsolete(outcome: str) -> None:
    assert found(record(0, removed=True), record(1, outcome=outcome)) == {
        "compaction: compaction removed the newest record of a key"
    }


def test_aborted_records_and_tombstones_may_go() -> None:
    aborted = record(0, removed=True, outcome="aborted")
    assert found(aborted, record(1, b"b", removed=True, tombstone=True)) == set()


def test_a_record_of_an_open_transaction_stays() -> None:
    assert found(record(0, removed=True, outcome=""), record(1)) == {
        "compaction: compaction removed a record of an open transaction"
    }


def test_damage_excuses_it_and_a_loss_of_power_does_not() -> None:
    assert found(record(0, removed=True), damage_s=(1.0,)) == set()
    assert found(record(0, removed=True), power_losses_s=(1.0,)) != set()


def compacted(model: Model, *offsets: int) -> FinalState:
    """The model's final state after these records of T0 were removed."""
    final = model.final()
    log = final.partitions[T0]
    shown = tuple(entry for entry in log.committed if entry.offset not in offsets)
    thinned = replace(log, committed=shown, compacted=frozenset(offsets))
    return replace(final, partitions={**final.partitions, T0: thinned})


@pytest.mark.parametrize("committed", [False, True])
def test_a_removed_record_is_neither_lost_nor_skipped_nor_unseen(committed: bool) -> None:
    model = Model()
    producer = model.producer("p")
    for _ in range(4):
        producer.send(T0)
    reader = model.reader("r", committed)
    reader.poll(T0)
    polled = next(model.history.of(Polled))
    model.edit(Polled, 0, records=(polled.records[0], polled.records[3]))
    assert model.kinds() == {"skipped-poll", "unseen"}
    assert model.kinds(compacted(model, 1, 2)) == set()
    final = model.final()
    log = replace(final.partitions[T0], removable=frozenset((1, 2)))
    assert model.kinds(replace(final, partitions={**final.partitions, T0: log})) == set()


def test_what_is_not_shown_must_have_been_removed() -> None:
    model = Model()
    producer = model.producer("p")
    for _ in range(3):
        producer.send(T0)
    final = compacted(model, 1)
    log = replace(final.partitions[T0], committed=final.partitions[T0].committed[:1])
    assert "INV-3" in model.kinds(replace(final, partitions={**final.partitions, T0: log}))
