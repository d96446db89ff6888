"""Cycles of writes and of information."""

from oncelog.simulation.history import Acked, BrokerStarted, Fault, Sent, TransactionBegan, Value
from tests.unit.simulation.checkers.model import OUT, T0, T1, Model


def test_interleaved_transactions_are_a_cycle_that_kafka_allows() -> None:
    model = Model()
    one, two = model.producer("p", "id-p"), model.producer("q", "id-q")
    one.begin()
    two.begin()
    one.send(T0)
    two.send(T0)
    two.send(T1)
    one.send(T1)
    one.commit()
    two.commit()
    assert model.kinds() == set()
    assert model.allowed() == {"G0"}


def test_transactions_one_after_the_other_are_no_cycle() -> None:
    model = Model()
    for who in ("p", "q", "p"):
        producer = model.producer(who, f"id-{who}")
        producer.numbers = iter(range(100 * len(model.history), 10**6))  # type: ignore[assignment]
        producer.transaction = len(model.history)
        producer.begin()
        producer.send(T0)
        producer.send(T1)
        producer.commit()
    assert model.judge() == []


def test_the_transactions_of_one_producer_are_in_order() -> None:
    model = Model()
    producer = model.producer("p", "id")
    for _ in range(2):
        producer.begin()
        producer.send(T0)
        producer.commit()
    first, second = (model.logs[T0][i].records[0].value for i in (0, 2))
    assert first is not None
    assert second is not None
    model.edit(Sent, 0, value=Value("p", 0, 1))
    model.edit(Sent, 1, value=Value("p", 1, 0))
    model.edit(Acked, 0, value=Value("p", 0, 1))
    model.edit(Acked, 1, value=Value("p", 1, 0))
    what = "G0: a producer's transactions are out of order"
    assert what in model.signatures()


def test_two_transactions_that_read_from_each_other_are_a_cycle() -> None:
    model = Model()
    one, two = model.producer("p", "id-p"), model.producer("q", "id-q")
    one.begin()
    two.begin()
    one.send(T0, source="t-1@0")
    two.send(T1, source="t-0@0")
    one.commit()
    two.commit()
    assert "G1c: transactions read from each other" in model.signatures()


def test_a_chain_of_copies_is_no_cycle() -> None:
    model = Model()
    one, two = model.producer("p", "id-p"), model.producer("q", "id-q")
    one.begin()
    one.send(T0)
    one.commit()
    two.begin()
    two.send(T1, source="t-0@0")
    two.commit()
    assert model.judge() == []


def test_a_copy_stands_behind_the_transaction_it_was_read_from() -> None:
    model = Model()
    one, two = model.producer("p", "id-p"), model.producer("q", "id-q")
    one.begin()
    two.begin()
    one.send(T0)
    two.send(OUT, source="t-0@0")
    one.send(OUT)
    one.commit()
    two.commit()
    assert "G1c: a copy stands before its source's transaction" in model.signatures()
    assert len(list(model.history.of(TransactionBegan))) == 2


def test_a_copy_of_an_offset_that_was_given_again_since_is_not_judged() -> None:
    model = Model()
    copier, later = model.producer("q", "id-q"), model.producer("p", "id-p")
    gone = model.producer("r")
    gone.send(T0)
    copier.begin()
    copier.send(OUT, source="t-0@0")
    copier.commit()
    model.look()
    model.record(Fault, "world", "flip-bit", "/data/t-0/00000000000000000000.log", "byte 7")
    at_s = model.now_s
    model.record(BrokerStarted, "broker-0", 1)
    model.cut(T0, 0)
    later.begin()
    later.send(T0)
    later.send(T1, source="out-0@0")
    later.commit()
    assert "G1c" not in model.kinds(damage_s=(at_s,))
    assert "G1c" in model.kinds()
