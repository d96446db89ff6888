"""Aborted, intermediate and torn reads."""

from dataclasses import replace

import pytest

from oncelog.simulation.history import Polled, TransactionBegan, TransactionEnded, Value
from tests.unit.simulation.checkers.model import T0, T1, Model, Producer


def opened(model: Model) -> tuple[Producer, Value, Value]:
    producer = model.producer("p", "id")
    producer.begin()
    return producer, producer.send(T0), producer.send(T1)


def remark(model: Model, marker: str) -> None:
    model.logs[T0][-1] = replace(model.logs[T0][-1], marker=marker)


def test_no_reader_sees_an_aborted_record() -> None:
    model = Model()
    producer, value, _ = opened(model)
    producer.abort()
    model.record(Polled, "r", T0, True, ((0, value),), 2)
    what = "a reader was given a record of an aborted transaction"
    assert f"aborted-read: {what}" in model.signatures()


def test_a_read_uncommitted_reader_may_see_it() -> None:
    model = Model()
    producer, *_ = opened(model)
    producer.abort()
    model.reader("r", committed=False).poll(T0)
    assert model.signatures() == set()


def test_the_final_view_shows_no_aborted_record() -> None:
    model = Model()
    producer, *_ = opened(model)
    producer.abort()
    remark(model, "commit")
    what = "the log shows a record of an aborted transaction"
    assert f"aborted-read: {what}" in model.signatures()


def test_an_aborted_read_is_not_excused_where_the_abort_marker_was_durable() -> None:
    model = Model()
    producer, value, _ = opened(model)
    producer.abort()
    at_s = model.now_s
    model.record(Polled, "r", T0, True, ((0, value),), 2)
    strict = {"flush_every_message": False, "power_losses_s": (at_s,)}
    assert "aborted-read" in model.kinds(**strict)


def test_an_aborted_read_is_excused_where_power_took_the_marker() -> None:
    model = Model()
    producer, *_ = opened(model)
    producer.abort()
    at_s = model.now_s
    model.cut(T0, 1)
    producer.begin()
    producer.send(T0)
    producer.commit()
    assert "aborted-read" in model.kinds()
    assert "aborted-read" in model.allowed(flush_every_message=False, power_losses_s=(at_s,))
    assert "aborted-read" in model.kinds(flush_every_message=False, power_losses_s=(0.001,))


@pytest.mark.parametrize("is_ended", [False, True])
def test_an_aborted_read_is_excused_where_an_earlier_transaction_was_forgotten(
    is_ended: bool,
) -> None:
    """Its records are open in the log, so the next one writes there without being added."""
    model = Model()
    producer, *_ = opened(model)
    if is_ended:
        producer.commit()
    lost_s = model.now_s
    producer.begin()
    producer.send(T0)
    producer.abort()
    model.logs[T0].pop()
    producer.begin()
    producer.send(T0)
    producer.commit()
    lost = {"flush_every_message": False, "power_losses_s": (lost_s,)}
    assert "aborted-read" in model.kinds()
    assert ("aborted-read" in model.allowed(**lost)) is not is_ended


@pytest.mark.parametrize("is_granted_again", [False, True])
def test_an_aborted_read_is_excused_where_power_took_the_grant_of_its_epoch(
    is_granted_again: bool,
) -> None:
    """The end of the zombie's transaction granted epoch 1, and so did its successor's start."""
    model = Model()
    zombie = model.producer("zombie", "id", version=2)
    zombie.begin()
    zombie.send(T1)
    zombie.commit()
    lost_s = model.now_s
    granted = zombie.ids
    if is_granted_again:
        zombie.ids = (granted[0], granted[1] - 1)
    zombie.begin()
    model.record(TransactionEnded, "zombie", zombie.transaction, False)
    successor = model.producer("successor", "id", version=2)
    assert (successor.ids == granted) is is_granted_again
    successor.begin()
    successor.send(T1)
    zombie.ids, zombie.in_transaction = granted, True
    zombie.send(T0)
    successor.dirty.add(T0)
    successor.commit()
    found = "aborted-read"
    assert found in model.kinds()
    assert (
        found in model.allowed(flush_every_message=False, power_losses_s=(lost_s,))
    ) is is_granted_again
    assert found in model.kinds(flush_every_message=False, power_losses_s=(0.001,))


def test_an_abort_in_a_later_epoch_does_not_speak_against_a_read_before_it() -> None:
    model = Model()
    producer, value, _ = opened(model)
    producer.abort()
    losses = [model.now_s]
    model.cut(T0, 1)
    model.look()
    # A later commit ended both, and power took that too.
    model.record(Polled, "r", T0, True, ((0, value),), 1)
    losses.append(model.now_s)
    model.cut(T0, 1)
    producer.begin()
    producer.send(T0)
    producer.abort()
    lost = {"flush_every_message": False, "power_losses_s": tuple(losses)}
    assert "aborted-read" in model.allowed(**lost)
    assert "aborted-read" not in {a.kind for a in model.judge(**lost) if not a.allowed}
    assert "aborted-read" in model.kinds()


def test_a_refused_record_is_not_in_the_log() -> None:
    model = Model()
    producer = model.producer("p")
    value = producer.hand_over(T0)
    producer.land(T0, value)
    producer.fail(value)
    assert model.signatures() == set()
    producer.fail(value, certain=True)
    assert model.signatures() == {"aborted-read: a refused record is in the log"}


def test_no_reader_sees_a_record_before_its_commit_was_asked_for() -> None:
    model = Model()
    producer, value, _ = opened(model)
    model.record(Polled, "r", T0, True, ((0, value),), 1)
    producer.commit()
    what = "a reader was given a record of an open transaction"
    assert model.signatures() == {f"intermediate-read: {what}"}


def test_a_reader_may_see_it_before_the_commit_is_answered() -> None:
    model = Model()
    producer, *_ = opened(model)
    producer.commit(answered=False)
    model.reader("r").poll(T0)
    assert model.signatures() == set()


def test_the_final_view_shows_no_record_without_a_requested_commit() -> None:
    model = Model()
    producer, *_ = opened(model)
    producer.initialize()
    remark(model, "commit")
    what = "the log shows a record whose commit nobody asked for"
    assert f"intermediate-read: {what}" in model.signatures()


def producer_began_s(model: Model) -> float:
    return next(e.at_s for e in model.history.events if isinstance(e, TransactionBegan))


def test_a_committed_transaction_is_whole() -> None:
    model = Model()
    producer, *_ = opened(model)
    producer.commit()
    assert model.signatures() == set()
    remark(model, "abort")
    assert "torn-transaction: a part is missing" in model.signatures()


def test_a_transaction_in_doubt_is_whole_or_absent() -> None:
    for arrives in (True, False):
        model = Model()
        producer, *_ = opened(model)
        producer.commit(answered=False, arrives=arrives)
        producer.initialize()
        assert model.signatures() == set()
        producer.begin()
        producer.send(T1)
        producer.commit()
        remark(model, "abort" if arrives else "commit")
        what = "torn-transaction: a part of a transaction in doubt is missing"
        assert what in model.signatures()


def test_a_record_without_an_answer_may_be_missing_from_a_transaction() -> None:
    model = Model()
    producer, *_ = opened(model)
    producer.hand_over(T0)
    producer.commit()
    assert model.signatures() == set()


def test_a_producer_that_gave_up_a_record_does_not_commit() -> None:
    model = Model()
    producer, *_ = opened(model)
    producer.fail(producer.hand_over(T0))
    producer.commit()
    assert model.signatures() == {"torn-transaction: it was committed although a record had failed"}


def test_a_torn_transaction_is_excused_where_power_took_a_part() -> None:
    model = Model()
    producer, *_ = opened(model)
    producer.commit()
    at_s = model.now_s
    model.cut(T0, 0)
    assert "torn-transaction" in model.kinds()
    lost = {"flush_every_message": False, "power_losses_s": (at_s,)}
    assert model.kinds(**lost) == set()
    assert "torn-transaction" in model.allowed(**lost)


@pytest.mark.parametrize(("lost_after_s", "is_excused"), [(0.0, True), (-1.0, False)])
def test_an_abort_by_timeout_of_which_power_left_one_marker_excuses_a_torn_transaction(
    lost_after_s: float, is_excused: bool
) -> None:
    """Power took the others, and what the coordinator knew: it commits them."""
    model = Model()
    model.now_s = 2.0
    producer, *_ = opened(model)
    lost_s = producer_began_s(model) + lost_after_s
    producer.commit()
    remark(model, "abort")
    lost = {"flush_every_message": False, "power_losses_s": (lost_s,)}
    assert ("torn-transaction" in model.allowed(**lost)) is is_excused


def test_a_part_that_is_not_a_tail_is_not_excused() -> None:
    model = Model()
    producer, *_ = opened(model)
    producer.commit()
    model.producer("q").send(T0)
    at_s = model.now_s + 0.005
    del model.logs[T0][0]
    found = model.kinds(flush_every_message=False, power_losses_s=(at_s,))
    assert {"torn-transaction", "lost-write"} <= found


def test_a_deleted_part_is_not_missing() -> None:
    model = Model()
    producer, *_ = opened(model)
    producer.commit()
    model.delete_records(T0, 2)
    assert model.signatures() == set()
