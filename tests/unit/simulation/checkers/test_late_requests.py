"""What late requests of a TV1 client excuse, and that those of a TV2 client excuse nothing."""

from __future__ import annotations

import pytest

from oncelog.simulation.history import LateRequest, TransactionEnding
from tests.unit.simulation.checkers.model import OUT, T0, T1, Model, Producer


def met(model: Model, *, version: int = 1, is_late: bool = True, ends: bool = True) -> Producer:
    """A producer whose second transaction is open while a request of its first one is late."""
    producer = model.producer("p", "id", version)
    producer.begin()
    producer.send(T0)
    producer.commit() if ends else producer.abort()
    if is_late:
        model.record(LateRequest, "p")
    producer.begin()
    producer.send(T0)
    return producer


def ended_early(producer: Producer, commit: bool) -> None:
    """The late EndTxn takes effect: the coordinator ends what is open."""
    producer.write_end(commit)
    producer.in_transaction = True


def aborts(producer: Producer) -> None:
    """The client says that it aborts; nothing is open any more."""
    producer.model.record(TransactionEnding, producer.who, producer.transaction, False)
    producer.abort()


def test_a_late_commit_may_show_a_transaction_before_its_end() -> None:
    model = Model()
    producer = met(model)
    ended_early(producer, commit=True)
    model.reader("r").poll(T0)
    producer.commit()
    assert model.signatures() == set()
    assert "intermediate-read" in model.allowed()


def test_a_late_commit_may_show_what_its_client_aborts() -> None:
    model = Model()
    producer = met(model)
    ended_early(producer, commit=True)
    aborts(producer)
    assert model.signatures() == set()
    assert "aborted-read" in model.allowed()


def test_a_late_abort_may_take_a_part_of_the_next_transaction() -> None:
    model = Model()
    producer = met(model, ends=False)
    ended_early(producer, commit=False)
    producer.send(T1)
    producer.commit()
    assert model.signatures() == set()
    assert "torn-transaction" in model.allowed()


@pytest.mark.parametrize("is_late", [True, False])
def test_a_late_commit_may_show_a_part_that_is_copied_before_the_rest(is_late: bool) -> None:
    model = Model()
    producer, copier = met(model, is_late=is_late), model.producer("q", "other", 2)
    ended_early(producer, commit=True)
    copier.begin()
    copier.send(OUT, source="t-0@2")
    copier.commit()
    producer.send(OUT)
    producer.commit()
    assert ("G1c" in model.kinds()) is not is_late
    assert ("G1c" in model.allowed()) is is_late


@pytest.mark.parametrize(
    ("version", "is_late"), [(2, True), (2, False), (1, False)], ids=["tv2", "tv2-calm", "tv1-calm"]
)
def test_without_a_late_request_of_tv1_nothing_is_excused(version: int, is_late: bool) -> None:
    model = Model()
    producer = met(model, version=version, is_late=is_late)
    ended_early(producer, commit=True)
    aborts(producer)
    assert "aborted-read" in model.kinds()


def test_a_first_transaction_has_no_late_request_before_it() -> None:
    model = Model()
    producer = model.producer("p", "id")
    model.record(LateRequest, "p")
    producer.begin()
    producer.send(T0)
    ended_early(producer, commit=True)
    aborts(producer)
    producer.begin()
    producer.send(T0)
    producer.commit()
    assert "aborted-read" in model.kinds()


def test_the_late_request_of_another_client_excuses_nothing() -> None:
    model = Model()
    producer = met(model, is_late=False)
    model.record(LateRequest, "q")
    ended_early(producer, commit=True)
    aborts(producer)
    assert "aborted-read" in model.kinds()


def test_a_request_may_be_late_for_any_later_transaction_of_the_epoch() -> None:
    model = Model()
    producer = met(model)
    producer.commit()
    producer.begin()
    producer.send(T0)
    ended_early(producer, commit=True)
    aborts(producer)
    assert model.signatures() == set()


def test_a_new_epoch_ends_the_excuse() -> None:
    """KIP-360: what was on its way is fenced."""
    model = Model()
    producer = met(model)
    producer.commit()
    producer.initialize()
    for _ in range(2):
        producer.begin()
        producer.send(T0)
        ended_early(producer, commit=True)
        aborts(producer)
    assert "aborted-read" in model.kinds()


def offsets_come_late(version: int, is_late: bool) -> Model:
    """The offsets of the first transaction are put in place of those of the second."""
    model = Model()
    producer = model.producer("p", "id", version)
    for offset in (1, 2):
        producer.begin()
        producer.send(OUT)
        producer.offsets("g", T0, offset)
        producer.commit()
        if offset == 1 and is_late:
            model.record(LateRequest, "p")
    model.offsets["g"][T0] = 1
    model.fetch_offsets("r", "g")
    return model


def test_inv6_late_offsets_of_tv1_may_replace_newer_ones() -> None:
    model = offsets_come_late(1, is_late=True)
    assert "INV-6" not in model.kinds()
    assert "INV-6" in model.allowed()


@pytest.mark.parametrize(("version", "is_late"), [(2, True), (1, False)])
def test_inv6_other_offsets_that_go_back_are_found(version: int, is_late: bool) -> None:
    assert "INV-6" in offsets_come_late(version, is_late).kinds()


def test_inv6_the_commit_of_a_new_epoch_ends_the_excuse() -> None:
    model = offsets_come_late(1, is_late=True)
    successor = model.producer("q", "id")
    successor.begin()
    successor.send(OUT)
    successor.offsets("g", T0, 3)
    successor.commit()
    model.offsets["g"][T0] = 1
    model.fetch_offsets("r", "g")
    assert "INV-6" in model.kinds()
