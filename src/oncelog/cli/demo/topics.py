"""The demo's records: loading the flights, and reading the results as any Kafka consumer would.

Both go through confluent-kafka, a stock client, so that what is compared is what users see.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from oncelog.cli.demo.expected import Daily
from oncelog.cli.demo.flights import Flight
from oncelog.cli.demo.processes import DemoFailed

INPUT_PARTITIONS = 4
OUTPUT_PARTITIONS = 2
CALL_TIMEOUT_S = 30
READ_IDLE_S_MAX = 30


@dataclass(frozen=True, slots=True)
class DemoTopics:
    """The three topics of one run."""

    flights: str
    delayed: str
    daily: str


def create(bootstrap_servers: str, topics: DemoTopics, replicas_count: int) -> None:
    """Make the topics; on a cluster that already has them from an earlier run this is an error."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = [
        NewTopic(topics.flights, INPUT_PARTITIONS, replicas_count),
        NewTopic(topics.delayed, OUTPUT_PARTITIONS, replicas_count),
        NewTopic(topics.daily, OUTPUT_PARTITIONS, replicas_count),
    ]
    for name, future in admin.create_topics(wanted).items():
        try:
            future.result(CALL_TIMEOUT_S)
        except KafkaException as error:
            raise DemoFailed(f"topic {name} cannot be created: {error.args[0].str()}") from None


def load(
    bootstrap_servers: str, topic: str, flights: list[Flight], loaded: Callable[[int], None]
) -> None:
    """Produce every flight as JSON keyed by carrier, in order, idempotently."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 20}
    )
    for number, flight in enumerate(flights):
        value = json.dumps(flight.as_json(), separators=(",", ":")).encode()
        while True:
            try:
                producer.produce(topic, value, flight.carrier.encode(), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
            loaded(number)
    producer.flush(CALL_TIMEOUT_S)
    if failures or len(producer):
        raise DemoFailed(f"loading failed: {failures[0] if failures else 'not acknowledged'}")
    loaded(len(flights))


def read(bootstrap_servers: str, topic: str, isolation_level: str) -> Iterator[Message]:
    """Every record up to the topic's present end at this isolation level."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "oncelog-demo-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation_level,
        }
    )
    metadata = consumer.list_topics(topic, CALL_TIMEOUT_S).topics[topic]
    partitions = [TopicPartition(topic, partition, 0) for partition in metadata.partitions]
    ends = {p.partition: consumer.get_watermark_offsets(p, CALL_TIMEOUT_S)[1] for p in partitions}
    consumer.assign(partitions)
    behind = {partition for partition, end in ends.items() if end > 0}
    idle_s = 0.0
    while behind:
        messages = consumer.consume(2000, 0.25)
        idle_s = 0.0 if messages else idle_s + 0.25
        yield from (message for message in messages if message.error() is None)
        for at in consumer.position(partitions):
            if at.offset >= ends[at.partition]:
                behind.discard(at.partition)
        if idle_s > READ_IDLE_S_MAX:
            raise DemoFailed(f"{topic}: {isolation_level} readers are held by an open transaction")
    consumer.close()


def read_delayed(bootstrap_servers: str, topic: str) -> list[int]:
    """The ids in the topic of delayed flights, as a read_committed consumer sees them."""
    return [
        int(json.loads(value(message))["id"])
        for message in read(bootstrap_servers, topic, "read_committed")
    ]


def read_daily(bootstrap_servers: str, topic: str) -> list[tuple[tuple[str, str], Daily]]:
    """All updates of the aggregate in order, as a read_committed consumer sees them."""
    updates = []
    for message in read(bootstrap_servers, topic, "read_committed"):
        row = json.loads(value(message))
        daily = Daily(row["flights"], row["delayed"], row["cancelled"], row["delay_minutes"])
        updates.append(((row["carrier"], row["date"]), daily))
    return updates


def count_uncommitted(bootstrap_servers: str, topic: str) -> int:
    """Records that a read_uncommitted consumer sees: committed and aborted ones alike."""
    return sum(1 for _ in read(bootstrap_servers, topic, "read_uncommitted"))


def value(message: Message) -> bytes:
    """The value of a record that must have one."""
    data = message.value()
    if data is None:
        raise DemoFailed(f"a record of {message.topic()} has no value")
    return data
