"""The transaction log, its markers, fencing and producer ids."""

from dataclasses import replace

import pytest

from oncelog.core.limits import PRODUCER_EPOCH_MAX
from oncelog.simulation.final import TransactionEntry
from oncelog.simulation.history import (
    Acked,
    ProducerInitialized,
    Sent,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    Value,
)
from tests.unit.simulation.checkers.model import T0, T1, Model


def committed(version: int = 1) -> Model:
    model = Model()
    producer = model.producer("p", "id", version)
    producer.begin()
    producer.send(T0)
    producer.send(T1)
    producer.commit()
    return model


def entries(*states: str) -> Model:
    model = Model()
    model.entries = [TransactionEntry("id", 1, 0, state, ()) for state in states]
    return model


@pytest.mark.parametrize("version", [1, 2])
def test_both_protocols_are_passed(version: int) -> None:
    assert committed(version).signatures() == set()


@pytest.mark.parametrize(
    "states",
    [
        ("PrepareCommit", "CompleteAbort"),
        ("PrepareAbort", "CompleteCommit"),
        ("PrepareCommit", "Ongoing", "PrepareAbort", "CompleteAbort"),
        ("Empty", "PrepareCommit", "CompleteCommit"),
        ("Empty", "CompleteCommit"),
        ("PrepareCommit", "", "Empty"),
    ],
)
def test_a_move_that_kafka_does_not_allow_is_found(states: tuple[str, ...]) -> None:
    found = entries(*states).judge()
    assert {a.kind for a in found} == {"INV-4"}
    assert all("was followed by" in a.detail for a in found)


@pytest.mark.parametrize(
    "states",
    [
        ("Empty", "Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit", "Ongoing"),
        ("Empty", "PrepareAbort", "CompleteAbort", "", "Empty"),
        ("EMPTY", "ONGOING", "PREPARE_ABORT", "COMPLETE_ABORT"),
    ],
)
def test_a_legal_life_is_passed(states: tuple[str, ...]) -> None:
    assert entries(*states).signatures() == set()


def test_nothing_is_left_prepared() -> None:
    found = entries("Empty", "Ongoing", "PrepareCommit").signatures()
    assert found == {"INV-4: a transaction was left prepared"}


def test_complete_has_the_epoch_of_its_prepare() -> None:
    model = entries("Ongoing", "PrepareCommit", "CompleteCommit")
    model.entries[2] = replace(model.entries[2], producer_epoch=1)
    assert model.signatures() == {"INV-4: COMPLETE is not of its PREPARE"}


def test_complete_moves_to_a_fresh_producer_id_when_epochs_are_used_up() -> None:
    model = entries("Ongoing", "PrepareCommit", "CompleteCommit")
    model.entries[0] = replace(model.entries[0], producer_epoch=PRODUCER_EPOCH_MAX - 1)
    model.entries[1] = replace(model.entries[1], producer_epoch=PRODUCER_EPOCH_MAX)
    model.entries[2] = replace(model.entries[2], producer_id=2)
    assert model.signatures() == set()


def test_a_commit_is_prepared_for_its_own_epoch() -> None:
    model = entries("Ongoing", "PrepareCommit", "CompleteCommit")
    for place in (1, 2):
        model.entries[place] = replace(model.entries[place], producer_epoch=2)
    assert model.signatures() == {"INV-4: a commit of another epoch was prepared"}


def test_an_epoch_does_not_go_back_in_the_transaction_log() -> None:
    model = entries("Empty", "Empty")
    model.entries[0] = replace(model.entries[0], producer_epoch=4)
    assert model.signatures() == {"INV-4: an epoch went back in the transaction log"}


def test_a_marker_does_not_contradict_its_prepare() -> None:
    model = committed()
    model.logs[T0][-1] = replace(model.logs[T0][-1], marker="abort")
    assert "INV-4: a marker contradicts its PREPARE" in model.signatures()


def test_a_marker_may_stand_there_repeatedly() -> None:
    model = committed()
    marker = model.logs[T0][-1]
    model.append(T0, (), (marker.producer_id, marker.producer_epoch), marker="commit")
    assert model.signatures() == set()


def test_markers_stand_in_the_order_of_their_decisions() -> None:
    model = Model()
    producer = model.producer("p", "id")
    for end in (producer.commit, producer.abort, producer.commit):
        producer.begin()
        producer.send(T0)
        end()
    assert model.signatures() == set()
    model.logs[T0][1] = replace(model.logs[T0][1], marker="abort")
    model.logs[T0][3] = replace(model.logs[T0][3], marker="commit")
    assert "INV-4: a marker contradicts its PREPARE" in model.signatures()


def test_a_marker_without_a_prepare_is_found() -> None:
    model = committed()
    model.append(T0, (), (77, 0), marker="abort")
    assert model.signatures() == {"INV-4: nobody prepared a marker"}
    lost = {"flush_every_message": False, "power_losses_s": (0.1,)}
    assert model.kinds(**lost) == set()


def test_a_completed_transaction_has_its_markers() -> None:
    model = committed()
    model.logs[T0].pop()
    assert "INV-4: a completed transaction has no marker" in model.signatures()


def test_a_marker_below_the_log_start_is_not_missed() -> None:
    model = committed()
    model.delete_records(T0, 2)
    assert model.signatures() == set()


def test_epochs_do_not_go_back_in_a_partition() -> None:
    model = committed(version=2)
    last = model.logs[T0][-1]
    model.append(T0, (), (last.producer_id, 0), marker="commit")
    assert "INV-5: a producer's epoch goes back in a partition" in model.signatures()


def test_a_superseded_producer_adds_no_record() -> None:
    model = Model()
    producer = model.producer("p", "id")
    producer.begin()
    old = producer.ids
    zombie = Value("p", 50, 0)
    model.producer("q", "id")
    model.record(Sent, "p", zombie, T0)
    model.append(T0, [zombie], old, 0, transactional=True)
    model.record(Acked, "p", zombie, T0, 0)
    assert "INV-5: a superseded producer added a record" in model.signatures()


def test_a_record_sent_before_the_take_over_may_be_in_the_log() -> None:
    model = Model()
    producer = model.producer("p", "id")
    producer.begin()
    value = producer.hand_over(T0)
    producer.land(T0, value)
    model.producer("q", "id")
    producer.fail(value)
    assert model.signatures() == set()


def test_a_superseded_producer_of_an_older_producer_id_adds_no_record() -> None:
    model = Model()
    model.record(ProducerInitialized, "p", "id", 5, 0)
    model.record(ProducerInitialized, "q", "id", 6, 0)
    value = Value("p", 0)
    model.record(Sent, "p", value, T0)
    model.append(T0, [value], (5, 0), 0)
    assert model.signatures() == {"INV-5: a superseded producer added a record"}


def test_a_producer_id_that_power_took_may_write_beside_its_successor() -> None:
    model = Model()
    model.record(ProducerInitialized, "p", "id", 5, 0)
    at_s = model.now_s
    model.record(ProducerInitialized, "q", "id", 6, 0)
    value = Value("p", 0)
    model.record(Sent, "p", value, T0)
    model.append(T0, [value], (5, 0), 0)
    model.record(Acked, "p", value, T0, 0)
    assert model.signatures(flush_every_message=False, power_losses_s=(at_s,)) == set()
    assert model.signatures() == {"INV-5: a superseded producer added a record"}


def fenced_commit(asked_late: bool) -> Model:
    model = Model()
    model.record(ProducerInitialized, "p", "id", 5, 0)
    model.record(TransactionBegan, "p", 0, "id")
    model.record(Sent, "p", Value("p", 0, 0), T0)
    if not asked_late:
        model.record(TransactionEnding, "p", 0, True)
    model.record(ProducerInitialized, "q", "id", 5, 1)
    if asked_late:
        model.record(TransactionEnding, "p", 0, True)
    model.record(TransactionEnded, "p", 0, True)
    return model


def test_a_superseded_producers_commit_is_not_acknowledged() -> None:
    found = fenced_commit(asked_late=True)
    assert found.signatures() == {"INV-5: a superseded producer's commit was acknowledged"}
    assert found.kinds(flush_every_message=False, power_losses_s=(0.045,)) == set()
    # One before may have had an epoch handed out twice; one after the answer has not.
    assert found.kinds(flush_every_message=False, power_losses_s=(0.035,)) == set()
    assert found.kinds(flush_every_message=False, power_losses_s=(5.0,)) == {"INV-5"}


def test_a_commit_asked_for_before_the_take_over_may_be_answered_after() -> None:
    assert fenced_commit(asked_late=False).signatures() == set()


def test_an_older_epoch_whose_answer_is_late_takes_nothing_over() -> None:
    model = Model()
    model.record(ProducerInitialized, "p", "id", 5, 1)
    model.record(TransactionBegan, "p", 0, "id")
    model.record(ProducerInitialized, "q", "id", 5, 0)
    model.record(TransactionEnding, "p", 0, True)
    model.record(TransactionEnded, "p", 0, True)
    assert model.signatures() == set()


def test_a_response_may_be_on_its_way_when_power_is_lost() -> None:
    model = Model()
    model.record(Sent, "p", Value("p", 0), T0)
    lost_s = model.now_s + 0.005
    model.record(ProducerInitialized, "p", "id", 5, 0)
    model.record(ProducerInitialized, "q", "id", 5, 0)
    lost = {"flush_every_message": False}
    assert model.kinds(**lost, power_losses_s=(lost_s,)) == set()
    assert model.kinds(**lost, power_losses_s=(lost_s - 0.006,)) == {"INV-11"}


@pytest.mark.parametrize(
    ("second", "what"),
    [
        (("q", "other", 5, 1), "one producer id for two transactional ids"),
        (("q", "", 5, 1), "one producer id for a transactional and an idempotent producer"),
        (("q", "id", 5, 0), "one epoch of a producer id was handed out twice"),
        (("p", "id", 5, 0), "one epoch of a producer id was handed out twice"),
    ],
)
def test_nothing_is_handed_out_twice(second: tuple[object, ...], what: str) -> None:
    model = Model()
    model.record(ProducerInitialized, "p", "id", 5, 0)
    who, *rest = second
    model.record(ProducerInitialized, str(who), *rest)
    assert model.signatures() == {f"INV-11: {what}"}


def test_two_idempotent_producers_share_no_id() -> None:
    model = Model()
    model.record(ProducerInitialized, "p", "", 5, 0)
    model.record(ProducerInitialized, "q", "", 5, 1)
    assert model.signatures() == {"INV-11: one producer id for two idempotent producers"}


def test_the_next_epoch_of_one_id_is_no_repeat() -> None:
    model = Model()
    model.record(ProducerInitialized, "p", "id", 5, 0)
    model.record(ProducerInitialized, "q", "id", 5, 1)
    assert model.signatures() == set()


def test_power_may_take_an_epoch_that_was_handed_out_but_no_producer_id() -> None:
    model = Model()
    model.record(ProducerInitialized, "p", "id", 5, 0)
    model.record(ProducerInitialized, "q", "id", 5, 0)
    assert model.kinds(flush_every_message=False, power_losses_s=(0.015,)) == set()
    model.record(ProducerInitialized, "r", "other", 5, 3)
    assert model.kinds(flush_every_message=False, power_losses_s=(0.015,)) == {"INV-11"}
