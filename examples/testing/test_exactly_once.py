"""Ten tests that every Kafka application should have, with confluent-kafka.

The application here is the smallest that has something to lose: `Mover` moves records from one
topic to another, with its offsets, in transactions. Put yours in its place. Run them by
``pytest examples/testing``; the fixtures are those of Oncelog's pytest plugin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from oncelog.testing import ApiKey, ControlledBroker, ErrorCode, Moment

WAIT_S = 20
PAUSES = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}
"""librdkafka's own pauses, cut short: they suit machines far away, not tests."""
PARTITIONS = 2

pytestmark = pytest.mark.oncelog(partitions=PARTITIONS)


def settings(servers: str) -> dict[str, str | int]:
    """What every client here is given."""
    return {"bootstrap.servers": servers, **PAUSES}


class Poisoned(Exception):  # noqa: N818 - what the record is
    """A record that the application cannot work on."""


class Mover:
    """Moves each record of a topic to another, in capitals; poisoned ones to a third."""

    def __init__(self, servers: str, source: str, target: str, name: str = "mover") -> None:
        self.target = target
        self.consumer = Consumer(
            {
                **settings(servers),
                "group.id": "movers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 1_000,
                "heartbeat.interval.ms": 300,
            }
        )
        self.consumer.subscribe([source])
        self.producer = Producer({**settings(servers), "transactional.id": name})
        self.producer.init_transactions(WAIT_S)

    def move(self, count: int) -> None:
        """Move the next records in one transaction; abort it if anything goes wrong."""
        batch = self.consumer.consume(count, WAIT_S)
        self.producer.begin_transaction()
        try:
            for message in batch:
                self.producer.produce(*self.moved(message.value() or b""))
            self.producer.send_offsets_to_transaction(
                self.consumer.position(self.consumer.assignment()),
                self.consumer.consumer_group_metadata(),
                WAIT_S,
            )
            self.producer.commit_transaction(WAIT_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self.producer.abort_transaction(WAIT_S)
            raise

    def moved(self, value: bytes) -> tuple[str, bytes]:
        """Where a record goes, and what it becomes."""
        try:
            return self.target, self.capital(value)
        except Poisoned:
            return f"{self.target}-poisoned", value

    def capital(self, value: bytes) -> bytes:
        """The application's work on one record."""
        if not value.isalpha():
            raise Poisoned(value)
        return value.upper()

    def close(self) -> None:
        self.consumer.close()


class World:
    """A broker, a source with records, a target, and movers that end with the test."""

    def __init__(self, broker: ControlledBroker, source: str) -> None:
        self.broker = broker
        self.servers = broker.bootstrap_servers
        self.faults = broker.faults
        self.source = source
        self.target = f"{source}-target"
        self.movers: list[Mover] = []
        broker.create_topic(self.target)
        broker.create_topic(f"{self.target}-poisoned")

    def fill(self, *values: str) -> None:
        producer = Producer(settings(self.servers))
        for number, value in enumerate(values):
            producer.produce(self.source, value.encode(), partition=number % PARTITIONS)
        assert producer.flush(WAIT_S) == 0

    def mover(self, name: str = "mover") -> Mover:
        mover = Mover(self.servers, self.source, self.target, name)
        self.movers.append(mover)
        return mover

    def moved(self, topic: str | None = None) -> list[str]:
        """What a reader of committed records sees, up to the end as of now."""
        reader = Consumer({**settings(self.servers), "group.id": "reader"})
        place = TopicPartition(topic or self.target, 0)
        place.offset = 0
        reader.assign([place])
        _, end = reader.get_watermark_offsets(place, WAIT_S)
        values: list[str] = []
        while reader.position([place])[0].offset < end:
            message = reader.poll(0.1)
            if message is not None and message.error() is None:
                values.append((message.value() or b"").decode())
            if end == 0:
                break
        reader.close()
        return sorted(values)


@pytest.fixture
def world(oncelog_own_broker: ControlledBroker, oncelog_topic: str) -> Iterator[World]:
    made = World(oncelog_own_broker, oncelog_topic)
    yield made
    for mover in made.movers:
        mover.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"


def test_1_a_lost_ack_does_not_write_a_record_twice(world: World) -> None:
    lost = world.faults.lose_reply(ApiKey.PRODUCE)
    producer = Producer({**settings(world.servers), "enable.idempotence": True})
    producer.produce(world.target, b"A", partition=0)
    assert producer.flush(WAIT_S) == 0
    lost.wait()
    assert world.moved() == ["A"]


def test_2_a_coordinator_that_moves_is_found_again(world: World) -> None:
    world.fill("a", "b")
    mover = world.mover()
    moved = world.faults.fail(ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.not_coordinator, times=2)
    mover.move(2)
    moved.wait()
    assert world.moved() == ["A", "B"]


@pytest.mark.parametrize("moment", list(Moment), ids=lambda moment: moment.name.lower())
def test_3_a_broker_that_dies_in_a_commit_loses_and_repeats_nothing(
    world: World, moment: Moment
) -> None:
    world.fill("a", "b")
    mover = world.mover()
    death = world.faults.kill(moment, transactional_id="mover")
    mover.move(2)
    death.wait()
    mover.close()
    world.movers.clear()
    world.fill("c", "d")
    world.mover().move(2)
    assert world.moved() == ["A", "B", "C", "D"]


def test_4_the_answer_to_a_commit_may_be_lost(world: World) -> None:
    world.fill("a", "b")
    mover = world.mover()
    lost = world.faults.lose_reply(ApiKey.END_TXN)
    mover.move(2)
    lost.wait()
    assert world.moved() == ["A", "B"]


def test_5_a_zombie_writes_nothing(world: World) -> None:
    world.fill("a", "b", "c", "d")
    zombie = world.mover()
    world.faults.fence("mover")
    with pytest.raises(KafkaException) as refused:
        zombie.move(2)
    assert refused.value.args[0].fatal()
    zombie.close()
    world.movers.clear()
    assert world.moved() == []
    world.mover().move(4)
    assert world.moved() == ["A", "B", "C", "D"]


def test_6_a_transaction_that_takes_too_long_is_aborted(world: World) -> None:
    producer = Producer({**settings(world.servers), "transactional.id": "slow"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(world.target, b"A", partition=0)
    producer.flush(WAIT_S)
    world.faults.expire_transaction("slow")
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(WAIT_S)
    assert refused.value.args[0].fatal()
    assert world.moved() == []


def test_7_a_rebalance_in_mid_batch_moves_nothing_twice(world: World) -> None:
    world.fill("a", "b", "c", "d")
    first = world.mover("first")
    batch = first.consumer.consume(4, WAIT_S)
    assert len(batch) == 4
    first.producer.begin_transaction()
    for message in batch:
        first.producer.produce(*first.moved(message.value() or b""))
    metadata = first.consumer.consumer_group_metadata()
    offsets = first.consumer.position(first.consumer.assignment())
    world.faults.expire_sessions("movers")
    second = world.mover("second")
    second.move(4)
    with pytest.raises(KafkaException) as refused:
        first.producer.send_offsets_to_transaction(offsets, metadata, WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    first.producer.abort_transaction(WAIT_S)
    assert world.moved() == ["A", "B", "C", "D"]


def test_8_a_poison_record_stops_nothing(world: World) -> None:
    world.fill("a", "13", "b")
    world.mover().move(3)
    assert world.moved() == ["A", "B"]
    assert world.moved(f"{world.target}-poisoned") == ["13"]


def test_9_an_aborted_batch_is_seen_by_nobody_and_comes_again(world: World) -> None:
    world.fill("a", "b")
    mover = world.mover()
    world.faults.fail(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.group_authorization_failed)
    with pytest.raises(KafkaException):
        mover.move(2)
    assert world.moved() == []
    mover.close()
    world.movers.clear()
    world.mover().move(2)
    assert world.moved() == ["A", "B"]


def test_10_a_slow_broker_is_waited_for(world: World) -> None:
    world.fill("a", "b")
    mover = world.mover()
    delays = [world.faults.delay(api, 300) for api in (ApiKey.PRODUCE, ApiKey.END_TXN)]
    mover.move(2)
    for delay in delays:
        delay.wait()
    assert world.moved() == ["A", "B"]
