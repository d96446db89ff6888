"""The index over a history and a final state."""

from itertools import islice

from oncelog.simulation.checkers import Evidence, Promise
from oncelog.simulation.checkers.anomaly import Anomaly
from oncelog.simulation.history import Fault, Sent
from tests.unit.simulation.checkers.model import T0, T1, Model

PROMISE = Promise(flush_every_message=True, settle_bound_s=60.0)


def test_a_record_is_found_wherever_it_was_seen() -> None:
    model = Model()
    producer, reader = model.producer("p", "id"), model.reader("r")
    producer.begin()
    value = producer.send(T0)
    producer.commit()
    reader.poll(T0)
    evidence = Evidence(model.history, model.final(), PROMISE)
    record = evidence.tracked["p", 0]
    assert record.value == value
    assert record.places == record.shown == [0]
    assert [(offset, poll.who) for _, offset, poll in record.polls] == [(0, "r")]
    assert record.known_s(0) == record.acked_s
    assert record.known_s(1) == float("inf")
    assert record.transaction is not None
    assert record.transaction.outcome == "committed"
    marker = evidence.logs[T0].closing_marker(0)
    assert marker is not None
    assert marker.marker == "commit"
    assert evidence.logs[T0].record_at(1) is None


def test_a_copy_names_its_source() -> None:
    model = Model()
    producer = model.producer("p")
    value = producer.send(T0, source="a-topic-2@17")
    ((record, partition, offset),) = Evidence(model.history, model.final(), PROMISE).copies
    assert (record.value, str(partition), offset) == (value, "a-topic-2", 17)


def test_events_without_an_index_are_kept_by_class() -> None:
    model = Model()
    model.record(Fault, "", "kill", "broker-0")
    evidence = Evidence(model.history, model.final(), PROMISE)
    assert [event.kind for event in evidence.of(Fault)] == ["kill"]
    assert list(islice(model.history.of(Sent), 1)) == []


def test_a_signature_leaves_out_the_particulars() -> None:
    anomaly = Anomaly("INV-2", "a gap: producer 4: 1..2", 0.0, "", T1, 3, (), "")
    assert anomaly.signature == "INV-2: a gap"
