"""What the configuration did not promise, as narrowly as it can be justified."""

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers import Evidence, Promise
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.history import BrokerDied, BrokerStarted, Event, Fault, History, Watermarks
from tests.unit.simulation.checkers.model import T0, T1, Model


def excuses(*events: Event, **stated: object) -> Excuses:
    history = History()
    for event in events:
        history.record(event)
    promised = {"flush_every_message": False, "settle_bound_s": 1.0} | stated
    return Excuses(Evidence(history, Model().final(), Promise(**promised)))  # type: ignore[arg-type]


def promise(*power_losses_s: float) -> Promise:
    return Promise(flush_every_message=False, settle_bound_s=1.0, power_losses_s=power_losses_s)


def test_the_death_of_a_process_excuses_nothing() -> None:
    found = excuses(BrokerDied(1.0, "b", 0, "kill"), BrokerStarted(2.0, "b", 1))
    assert found.between(0.0, 9.0, T0) == ""


def test_a_loss_of_power_excuses_what_was_known_before_it_only() -> None:
    found = excuses(power_losses_s=(5.0,))
    assert found.between(4.0, 6.0, T0)
    assert not found.between(5.1, 9.0, T0)
    assert not found.between(1.0, 4.9, T0)


def test_a_loss_of_power_excuses_nothing_where_every_message_is_flushed() -> None:
    assert not excuses(flush_every_message=True, power_losses_s=(5.0,)).between(4.0, 6.0, T0)


def led(partition: TopicPartition, who: str) -> Watermarks:
    return Watermarks(0.5, who, 0, partition, 0, 0, 0, 0, 0)


def test_a_loss_of_power_excuses_nothing_of_another_broker() -> None:
    found = excuses(
        *(BrokerStarted(0.1, "broker-0", 0), BrokerStarted(0.2, "broker-1", 0)),
        *(led(T0, "broker-0"), led(T1, "broker-1")),
        Fault(5.0, "", "power-loss", "broker-1"),
        BrokerDied(5.0, "broker-1", 0, "power"),
        power_losses_s=(5.0,),
    )
    assert not found.between(4.0, 6.0, T0)
    assert found.between(4.0, 6.0, T1)
    assert found.between(4.0, 6.0, T0.topic), "the topic has partitions on both"
    assert (found.loss_s(4.0, 6.0, T0), found.loss_s(4.0, 6.0, T1)) == (4.0, 5.0)


def test_only_the_broker_whose_storage_failed_is_excused_and_restarts() -> None:
    failed = (
        *(BrokerStarted(0.1, "broker-0", 0), BrokerStarted(0.2, "broker-1", 0)),
        Fault(5.0, "", "failed-write", "broker-1"),
        BrokerStarted(7.0, "broker-0", 1),
    )
    found = excuses(*failed, storage_failures_s=(5.0,))
    assert found.storage_failed((5.0,), "broker-1.0", 6.0) == 5.0
    assert found.storage_failed((5.0,), "broker-0.0", 6.0) is None
    assert not found.restarted_after(5.0)
    again = excuses(*failed, BrokerStarted(8.0, "broker-1", 1), storage_failures_s=(5.0,))
    assert again.restarted_after(5.0)


def test_power_is_lost_when_the_broker_dies_of_it() -> None:
    found = excuses(BrokerDied(7.0, "b", 0, "power"), power_losses_s=(5.0,))
    assert "7.000" in found.between(6.0, 9.0, T0)
    assert found.loss_s(6.0, 9.0) == 7.0
    assert found.loss_s(8.0, 9.0) == 8.0


@pytest.mark.parametrize(("kind", "is_excused"), [("failed-fsync", True), ("disk-full", False)])
def test_of_storage_failures_only_a_failed_fsync_excuses(kind: str, is_excused: bool) -> None:
    found = excuses(Fault(5.0, "", kind, "disk"), storage_failures_s=(5.0,))
    assert bool(found.between(4.0, 6.0, T0)) is is_excused


def test_what_is_left_behind_a_place_is_known_since() -> None:
    model = Model()
    producer = model.producer("p")
    for _ in range(3):
        producer.send(T0)
    evidence = Evidence(model.history, model.final(), promise())
    known = Excuses(evidence)
    acked_s = [evidence.tracked["p", number].acked_s for number in range(3)]
    found = [known.known_beyond_s(T0, offset) for offset in range(-1, 3)]
    assert found == [*acked_s, float("inf")]
    assert known.known_beyond_s(TopicPartition("another", 0), 0) == float("inf")


def test_a_record_that_is_not_acknowledged_may_have_two_places_in_time() -> None:
    """Power took what a reader had seen, and the producer's retry got the same offset."""
    model = Model()
    producer, reader = model.producer("p"), model.reader("r")
    value = producer.hand_over(T0)
    producer.land(T0, value)
    reader.poll(T0)
    polled_s = model.now_s
    model.cut(T0, 0)
    lost_s = model.now_s
    producer.ack(T0, producer.land(T0, value), value)
    evidence = Evidence(model.history, model.final(), promise(lost_s))
    record = evidence.tracked["p", 0]
    assert record.known_s(0) == polled_s
    assert Excuses(evidence).placed_s(record, 0) == record.acked_s > lost_s
    kept = Evidence(model.history, model.final(), promise())
    assert Excuses(kept).placed_s(kept.tracked["p", 0], 0) == polled_s


def test_what_was_seen_after_the_acknowledgement_is_its_place() -> None:
    model = Model()
    model.producer("p").send(T0)
    lost_s = model.now_s + 0.005
    evidence = Evidence(model.history, model.final(), promise(lost_s))
    record = evidence.tracked["p", 0]
    assert Excuses(evidence).placed_s(record, 0) == record.acked_s < lost_s


def test_damage_strikes_when_a_broker_starts() -> None:
    found = excuses(
        BrokerStarted(1.0, "b", 0),
        Fault(5.0, "", "flip-bit", "/data/t-0/0.log"),
        BrokerStarted(8.0, "b", 1),
        flush_every_message=True,
        damage_s=(5.0,),
    )
    assert found.any_damage
    assert found.between(2.0, 9.0, T0)
    assert not found.between(2.0, 7.0, T0)
    assert not found.between(8.5, 9.0, T0)
    assert not found.between(2.0, 9.0, T1)
    assert not found.coordinator(2.0, 9.0)


def test_damage_that_names_no_folder_may_be_anywhere() -> None:
    found = excuses(BrokerStarted(8.0, "b", 1), damage_s=(5.0,))
    assert found.between(2.0, 9.0, T1)
    assert found.offsets(2.0, 9.0)


def test_damage_of_the_transaction_log_excuses_the_coordinator() -> None:
    found = excuses(
        Fault(5.0, "", "flip-bit", "/data/__transaction_state-3/0.log"),
        BrokerStarted(8.0, "b", 1),
        damage_s=(5.0,),
    )
    assert found.coordinator(2.0, 9.0)
    assert not found.between(2.0, 9.0, T0)


def test_an_unclean_election_excuses_at_a_new_leader_epoch() -> None:
    looks = [Watermarks(at, "b", 0, T0, epoch, 0, 0, 0, 0) for at, epoch in ((1.0, 0), (5.0, 1))]
    found = excuses(*looks, unclean_elections=True)
    assert found.between(2.0, 6.0, T0)
    assert not found.between(2.0, 4.0, T0)
    assert not found.between(6.0, 9.0, T0)
    assert not excuses(*looks).between(2.0, 6.0, T0)
