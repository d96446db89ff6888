"""Load from stock librdkafka clients that outlives its broker: two kinds of writer, and readers.

Every writer is one thread with its own client, records what it did in a `History`, and treats each
error as its client library documents: retriable is tried again, abortable aborts, fatal starts a
new
producer. Nothing here judges; that is the checker's work.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.checker import History, Outcome, Seen, Value

IDEMPOTENT_TOPIC = "idempotent"
TRANSACTIONAL_TOPIC = "transactional"
COPY_TOPIC = "copy"
COPY_GROUP = "copiers"
PARTITION_COUNT = 3
CALL_TIMEOUT_S = 8
CALL_ATTEMPTS_MAX = 3
READ_IDLE_S_MAX = 30

T = TypeVar("T")

QUIET = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 300, "log_level": 0}
"""Come back soon after each kill, and do not tell about every attempt."""


@dataclass
class Writer:
    """What all writers share.

    `problems` are findings of their own. `fatal_errors` of transactional clients are not:
    librdkafka
    has such states of its own (an abort that overtakes AddPartitionsToTxn, also on Apache Kafka),
    and the checker decides whether what came of them was right. They are counted.
    """

    bootstrap_servers: str
    name: str
    seed: int
    stop: threading.Event
    history: History = field(default_factory=History)
    problems: list[str] = field(default_factory=list)
    fatal_errors: list[str] = field(default_factory=list)
    number: int = 0
    transaction: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed}/{self.name}")
        self.thread = threading.Thread(target=self.guarded, name=self.name, daemon=True)

    def guarded(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - the thread's boundary: a dead writer is a finding
            self.problems.append(f"{self.name} died: {error!r}")

    def run(self) -> None:
        raise NotImplementedError

    def report(self, value: Value) -> Callable[[KafkaError | None, Message], None]:
        """A delivery callback that records the acknowledged offset."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                assert offset is not None, "a delivered message has an offset"
                self.history.ack(value, offset)

        return delivered

    def send(self, producer: Producer, topic: str, transaction: int = -1) -> None:
        value = Value(self.name, self.number, transaction)
        self.number += 1
        partition = self.random.randrange(PARTITION_COUNT)
        self.history.send(value, partition)
        while True:
            try:
                producer.produce(
                    topic, value.encode(), partition=partition, on_delivery=self.report(value)
                )
                return
            except BufferError:
                producer.poll(0.1)


class IdempotentWriter(Writer):
    """Bursts of records at no more than `rate` a second; never gives up on one."""

    rate = 500
    settings: Mapping[str, object] = MappingProxyType({})
    """What its client is told besides."""

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "linger.ms": 2,
                "error_cb": self.on_error,
                **QUIET,
                **self.settings,
            }
        )
        while not self.stop.is_set():
            burst = self.random.randrange(1, 60)
            for _ in range(burst):
                self.send(producer, IDEMPOTENT_TOPIC)
            producer.poll(0)
            self.stop.wait(burst / self.rate)
        left = producer.flush(60)
        if left:
            self.problems.append(f"{self.name}: {left} records not acknowledged 60 s after the end")

    def on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.problems.append(f"{self.name}: {error}")


class TransactionalWriter(Writer):
    """Transactions of 1 to 20 records over all partitions; one in five is aborted on purpose."""

    def connect(self) -> Producer:
        """A producer of this writer's transactional.id; ends what an earlier one left open."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 60_000,
                **QUIET,
            }
        )
        retried(lambda: producer.init_transactions(CALL_TIMEOUT_S))
        return producer

    def run(self) -> None:
        producer = self.connect()
        while not self.stop.is_set():
            transaction = self.transaction
            self.transaction += 1
            try:
                producer.begin_transaction()
                self.fill(producer, transaction)
                outcome = self.finish(producer)
            except KafkaException as error:
                outcome = self.recover(producer, error)
            self.history.end(self.name, transaction, outcome)
            if outcome is Outcome.UNKNOWN:
                producer = self.connect()

    def fill(self, producer: Producer, transaction: int) -> None:
        for _ in range(self.random.randrange(1, 21)):
            self.send(producer, TRANSACTIONAL_TOPIC, transaction)
            if self.random.random() < 0.1:
                producer.poll(0.01)

    def finish(self, producer: Producer) -> Outcome:
        if self.random.random() < 0.2:
            producer.flush(self.random.choice([0, 0.05]))
            retried(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
            return Outcome.ABORTED
        retried(lambda: producer.commit_transaction(CALL_TIMEOUT_S))
        return Outcome.COMMITTED

    def recover(self, producer: Producer, error: KafkaException) -> Outcome:
        """Abort where the client says so; in doubt otherwise, and the next producer settles it."""
        if error.args[0].txn_requires_abort():
            try:
                retried(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
                return Outcome.ABORTED
            except KafkaException as second:
                error = second
        self.fatal_errors.append(f"{self.name}: {error}")
        return Outcome.UNKNOWN


def retried(call: Callable[[], T]) -> T:
    """Repeat a call while its client says that this is safe, a few times."""
    for _ in range(CALL_ATTEMPTS_MAX):
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            last = error
    raise last


def create_topics(bootstrap_servers: str) -> None:
    """The topics of the load, three partitions each."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    names = (IDEMPOTENT_TOPIC, TRANSACTIONAL_TOPIC, COPY_TOPIC)
    for future in admin.create_topics([NewTopic(n, PARTITION_COUNT, 1) for n in names]).values():
        future.result(30)


def read_all(bootstrap_servers: str, topic: str, isolation: str) -> list[tuple[int, int, bytes]]:
    """Every (partition, offset, value) up to the end, as a stock consumer is given it.

    Raises TimeoutError when a partition's end is not reached: a transaction that hangs holds it.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    partitions = [TopicPartition(topic, p, 0) for p in range(PARTITION_COUNT)]
    ends = {p.partition: consumer.get_watermark_offsets(p, 20)[1] for p in partitions}
    consumer.assign(partitions)
    records = []
    behind = {p for p, end in ends.items() if end > 0}
    idle_since = time.monotonic()
    while behind:
        messages = consumer.consume(5000, 0.2)
        if messages:
            idle_since = time.monotonic()
        for message in messages:
            partition, offset, value = message.partition(), message.offset(), message.value()
            if message.error() is None:
                assert partition is not None
                assert offset is not None
                assert value is not None
                records.append((partition, offset, value))
        for at in consumer.position(partitions):
            if at.offset >= ends[at.partition]:
                behind.discard(at.partition)
        if time.monotonic() - idle_since > READ_IDLE_S_MAX:
            raise TimeoutError(f"{topic}: {isolation} readers are held in partitions {behind}")
    consumer.close()
    return records


def read_values(bootstrap_servers: str, topic: str, isolation: str) -> list[Seen]:
    """`read_all` with values decoded."""
    records = read_all(bootstrap_servers, topic, isolation)
    return [Seen(p, offset, Value.decode(value)) for p, offset, value in records]


def committed_offsets(bootstrap_servers: str) -> dict[int, int]:
    """Partition -> offset that the copier's group committed for the idempotent topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": COPY_GROUP})
    wanted = [TopicPartition(IDEMPOTENT_TOPIC, p) for p in range(PARTITION_COUNT)]
    found = {at.partition: max(at.offset, 0) for at in consumer.committed(wanted, 20)}
    consumer.close()
    return found
