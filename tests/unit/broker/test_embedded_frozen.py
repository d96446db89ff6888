"""A test that freezes the time of its process: broker and clients in it keep the machine's."""

from __future__ import annotations

import time
from collections.abc import Callable

import confluent_kafka
import kafka
import pytest

from oncelog import EmbeddedBroker, TopicPartition, sync
from tests.support.frozen import FREEZERS, PAST, Freezer

WAIT_S = 30


def by_confluent(servers: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    failures: list[object] = []
    producer.produce("t", b"v", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failures == [None]


def by_kafka_python(servers: str) -> None:
    with kafka.KafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        producer.send("t", b"v").get(WAIT_S)


def by_us(servers: str) -> None:
    with sync.Producer(servers) as producer:
        producer.send("t", b"v").result(WAIT_S)


def produced_at_ms(freezer: Freezer, produce: Callable[[str], None]) -> float:
    """Produce a record to a broker of a frozen process; returns its timestamp, as it is read."""
    with freezer(PAST), EmbeddedBroker() as broker:
        produce(broker.bootstrap_servers)
        with sync.Consumer(broker.bootstrap_servers) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            return next(iter(consumer)).timestamp_ms


@pytest.mark.parametrize("freezer", FREEZERS.values(), ids=FREEZERS)
@pytest.mark.parametrize("produce", [by_confluent, by_us], ids=["confluent-kafka", "oncelog"])
def test_a_client_with_its_own_clock_works_in_a_frozen_test(
    freezer: Freezer, produce: Callable[[str], None]
) -> None:
    real_ms = time.time() * 1000
    assert produced_at_ms(freezer, produce) > real_ms - 1000


def test_a_client_with_the_clock_of_a_frozen_test_works() -> None:
    """It stamps its records by that clock, and the broker takes them as any other would.

    Not under freezegun, which stops the monotonic time on which kafka-python waits.
    """
    produced_ms = produced_at_ms(FREEZERS["time-machine"], by_kafka_python)
    assert produced_ms == PAST.timestamp() * 1000
