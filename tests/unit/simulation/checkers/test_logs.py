"""Offsets, sequences and committed views of the final logs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.core.limits import SEQUENCE_MODULUS
from oncelog.simulation.final import FinalPartition, FinalState, LoggedBatch, LoggedRecord
from oncelog.simulation.history import BrokerStarted, Fault
from tests.unit.simulation.checkers.model import T0, Model


def filled(count: int = 3) -> Model:
    model = Model()
    producer = model.producer("p")
    for _ in range(count):
        producer.send(T0)
    return model


def change(model: Model, index: int, **changes: object) -> None:
    model.logs[T0][index] = replace(model.logs[T0][index], **changes)  # type: ignore[arg-type]


def test_sequences_leave_no_gap() -> None:
    model = filled()
    change(model, 2, first_sequence=5, last_sequence=5)
    assert model.signatures() == {"INV-2: a gap in the sequences"}


def test_sequences_begin_at_zero() -> None:
    model = filled(1)
    change(model, 0, first_sequence=1, last_sequence=1)
    assert model.signatures() == {"INV-2: a gap in the sequences"}


def test_a_log_without_its_head_begins_with_any_sequence() -> None:
    model = filled()
    model.delete_records(T0, 2)
    assert model.signatures() == set()


def test_sequences_wrap() -> None:
    model = Model()
    producer = model.producer("p")
    producer.send(T0)
    producer.sequences[T0] = SEQUENCE_MODULUS - 1
    producer.send(T0)
    producer.sequences[T0] = 0
    producer.send(T0)
    model.delete_records(T0, 1)
    assert model.signatures() == set()


def test_a_sequence_is_not_repeated() -> None:
    model = filled()
    change(model, 2, first_sequence=1, last_sequence=1)
    assert model.signatures() == {"INV-2: a sequence was repeated"}


def test_each_record_has_a_sequence() -> None:
    model = filled()
    change(model, 2, last_sequence=4)
    assert model.signatures() == {"INV-2: a batch has not one sequence per record"}


def test_a_gap_is_excused_where_power_took_the_producers_batches() -> None:
    model = filled(1)
    change(model, 0, first_sequence=1, last_sequence=1)
    lost = {"flush_every_message": False, "power_losses_s": (0.001,)}
    assert model.kinds(**lost) == set()
    assert model.allowed(**lost) == {"INV-2"}


def test_a_new_epoch_begins_at_zero_again() -> None:
    model = Model()
    producer = model.producer("p", "id", version=2)
    for _ in range(2):
        producer.begin()
        producer.send(T0)
        producer.send(T0)
        producer.commit()
    assert model.signatures() == set()


def view(model: Model, **changes: object) -> FinalState:
    final = model.final()
    partitions = dict(final.partitions)
    partitions[T0] = replace(partitions[T0], **changes)  # type: ignore[arg-type]
    return replace(final, partitions=partitions)


def test_the_committed_view_is_exact() -> None:
    model = filled()
    shown = model.final().partitions[T0].committed
    assert "INV-3: a committed record is not shown" in model.signatures(
        view(model, committed=shown[1:])
    )
    more = (*shown, LoggedRecord(9, None))
    assert model.signatures(view(model, committed=more)) == {
        "INV-3: a record is shown that is not committed"
    }
    order = (shown[1], shown[0], shown[2])
    assert model.signatures(view(model, committed=order)) == {
        "INV-3: the committed view is out of order or repeats records"
    }


def test_the_last_stable_offset_is_where_the_first_open_transaction_begins() -> None:
    model = filled()
    assert "INV-3: the last stable offset is not where the first open transaction begins" in (
        model.signatures(view(model, last_stable_offset=2))
    )


def test_a_commit_marker_ends_its_own_epoch_or_the_one_before() -> None:
    model = Model()
    producer = model.producer("p", "id")
    producer.begin()
    producer.send(T0)
    producer.commit()
    change(model, 1, producer_epoch=5)
    expected = "INV-3: a commit marker of another epoch ended a transaction"
    assert expected in model.signatures()
    for folder, is_excused in (("__transaction_state-0", True), ("t-0", True), ("t-1", False)):
        model.record(Fault, "", "flip-bit", f"/data/{folder}/0.log: bit 0 of byte 9 flipped")
        damaged_s = model.history.events[-1].at_s
        model.record(BrokerStarted, "broker-0", 1)
        assert (expected not in model.signatures(damage_s=(damaged_s,))) is is_excused


def hole(model: Model) -> str:
    del model.logs[T0][1]
    return "a hole in the log"


def headless(model: Model) -> str:
    del model.logs[T0][0]
    return "a hole at the head of the log"


def overlap(model: Model) -> str:
    change(model, 2, first_offset=1)
    return "batches overlap"


def back(model: Model) -> str:
    change(model, 1, leader_epoch=3)
    return "leader epochs go back"


def hollow(model: Model) -> str:
    change(model, 1, records=())
    return "a batch does not hold each of its offsets once"


@pytest.mark.parametrize("spoil", [hole, headless, overlap, back, hollow])
def test_a_log_is_one_valid_prefix(spoil: Callable[[Model], str]) -> None:
    model = filled()
    expected = f"INV-9: {spoil(model)}"
    assert expected in model.signatures()


@pytest.mark.parametrize(("folder", "is_excused"), [("t-0", True), ("t-1", False)])
def test_damage_to_that_log_alone_excuses_epochs_that_go_back(
    folder: str, is_excused: bool
) -> None:
    model = filled()
    model.record(Fault, "world", "flip-bit", f"/data/{folder}/00000000000000000000.log", "byte 12")
    at_s = model.now_s
    model.record(BrokerStarted, "broker-0", 1)
    what = back(model)
    assert (f"INV-9: {what}" not in model.signatures(damage_s=(at_s,))) is is_excused
    assert f"INV-9: {what}" in model.signatures(power_losses_s=(at_s,))
    assert f"INV-9: {hole(model)}" in model.signatures(damage_s=(at_s,))


def test_a_log_does_not_end_before_its_high_watermark() -> None:
    model = filled()
    final = view(model, high_watermark=9, last_stable_offset=9)
    assert model.signatures(final) == {"INV-9: the log ends before its high watermark"}


def test_a_batch_may_begin_before_the_log_start() -> None:
    value = LoggedRecord(1, None)
    batch = LoggedBatch(0, 1, 0, -1, -1, -1, -1, False, "", (value,))
    partition = FinalPartition(T0, "id", 1, 2, 2, (batch,), (value,))
    assert Model().signatures(FinalState({T0: partition})) == set()
