"""What the confluent-kafka tests share: clients with their settings, and waits that end."""

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.interop import fresh
from tests.support.interop.base import wait_until
from tests.support.interop.librdkafka import given

__all__ = [
    "WAIT_S",
    "committed",
    "consumer",
    "create_topic",
    "fresh",
    "given",
    "producer",
    "read_all",
    "send",
    "transactional",
    "wait_until",
]

WAIT_S = 20


def create_topic(bootstrap_servers: str, partitions: int = 1, /, **config: str) -> str:
    name = fresh("topic")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    futures = admin.create_topics([NewTopic(name, partitions, 1, config=config)])
    futures[name].result(WAIT_S)
    return name


def producer(bootstrap_servers: str, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, **settings})


def transactional(bootstrap_servers: str, transactional_id: str, **settings: object) -> Producer:
    made = producer(bootstrap_servers, **{"transactional.id": transactional_id, **settings})
    made.init_transactions(WAIT_S)
    return made


def consumer(bootstrap_servers: str, group: str | None = None, /, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group or fresh("group"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **settings,
        }
    )


def send(to: Producer, topic: str, values: list[bytes], partition: int = 0) -> list[Message]:
    """Produce and wait; returns the delivered messages in the order of their delivery."""
    delivered: list[Message] = []
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            failed.append(error)

    for value in values:
        to.produce(topic, value, partition=partition, on_delivery=on_delivery)
    assert to.flush(WAIT_S) == 0
    assert failed == []
    return delivered


def read_all(
    bootstrap_servers: str,
    topic: str,
    partitions: int = 1,
    *,
    isolation_level: str = "read_committed",
) -> list[bytes]:
    """Every value from the start to the end of each partition, as this isolation level sees it."""
    reader = consumer(bootstrap_servers, **{"isolation.level": isolation_level})
    reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    ended: set[int] = set()

    def step() -> bool:
        message = reader.poll(0.2)
        if message is None:
            return False
        error = message.error()
        if error is None:
            values.append(given(message.value()))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(given(message.partition()))
        else:
            raise AssertionError(error)
        return len(ended) == partitions

    wait_until(step, f"the end of {topic}")
    reader.close()
    return values


def committed(bootstrap_servers: str, group: str, topic: str, partition: int = 0) -> int:
    """The group's committed offset, -1001 (librdkafka's "invalid") when there is none."""
    reader = consumer(bootstrap_servers, group)
    (found,) = reader.committed([TopicPartition(topic, partition)], timeout=WAIT_S)
    reader.close()
    return int(found.offset)
