"""High watermarks and last stable offsets, from looks into the brokers."""

import pytest

from oncelog.simulation.history import BrokerDied, Polled, TopicChanged, TopicChanging, Watermarks
from tests.unit.simulation.checkers.model import T0, Model


def look(model: Model, start: int, stable: int, high: int, end: int, epoch: int = 0) -> None:
    model.record(Watermarks, "broker-0", 0, T0, epoch, start, stable, high, end)


@pytest.mark.parametrize(
    ("marks", "what"),
    [
        ((0, 2, 1, 3), "the last stable offset is above the high watermark"),
        ((0, 2, 4, 3), "the high watermark is above the log end"),
        ((5, 4, 4, 6), "the log start is above the high watermark"),
    ],
)
def test_the_marks_are_in_order(marks: tuple[int, int, int, int], what: str) -> None:
    model = Model()
    look(model, *marks)
    assert model.signatures() == {f"INV-7: {what}"}


@pytest.mark.parametrize(
    ("marks", "what"),
    [
        ((1, 2, 3, 9), "the high watermark went back"),
        ((1, 1, 4, 9), "the last stable offset went back"),
        ((0, 2, 4, 9), "the log start went back"),
    ],
)
def test_no_mark_goes_back_in_a_leader_epoch(marks: tuple[int, int, int, int], what: str) -> None:
    model = Model()
    look(model, 1, 2, 4, 9)
    look(model, *marks)
    assert model.signatures() == {f"INV-7: {what}"}


def test_a_mark_may_go_back_in_a_new_leader_epoch() -> None:
    model = Model()
    look(model, 1, 2, 4, 9)
    look(model, 0, 0, 0, 3, epoch=1)
    assert model.signatures() == set()


def test_watermarks_of_a_topic_that_was_created_again_begin_at_0() -> None:
    model = Model()
    look(model, 1, 2, 4, 9)
    model.record(TopicChanging, "admin", "t", "delete")
    look(model, 0, 0, 0, 0)
    model.record(TopicChanged, "admin", "t", "delete")
    model.record(TopicChanging, "admin", "t", "create")
    model.record(TopicChanged, "admin", "t", "create", 2)
    look(model, 0, 0, 0, 0)
    assert model.signatures() == set()
    look(model, 0, 2, 3, 4)
    look(model, 0, 2, 2, 4)
    assert model.signatures() == {"INV-7: the high watermark went back"}


def polled(committed: bool, died: bool = False) -> Model:
    model = Model()
    producer = model.producer("p")
    producer.send(T0)
    producer.send(T0)
    look(model, 0, 0, 1, 2)
    records = tuple((r.offset, r.value) for b in model.logs[T0] for r in b.records)
    model.record(Polled, "r", T0, committed, records[: 1 if committed else 2], 2 - committed)
    if died:
        model.record(BrokerDied, "broker-0", 0, "kill")
    look(model, 0, 0, 1, 2, epoch=1 if died else 0)
    look(model, 0, 2, 2, 2, epoch=1)
    return model


@pytest.mark.parametrize(
    ("committed", "limit"), [(False, "high watermark"), (True, "last stable offset")]
)
def test_no_reader_is_given_what_is_above_its_limit(committed: bool, limit: str) -> None:
    found = polled(committed).signatures()
    assert found == {f"INV-7: a reader was given an offset above the {limit}"}


def test_a_broker_that_died_between_two_looks_may_have_known_more() -> None:
    assert polled(committed=False, died=True).signatures() == set()


def test_what_is_below_the_next_look_may_be_read() -> None:
    model = Model()
    producer, reader = model.producer("p"), model.reader("r")
    model.look()
    producer.send(T0)
    reader.poll(T0)
    model.look()
    assert model.signatures() == set()
