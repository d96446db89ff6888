"""confluent-kafka (librdkafka)."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.support.interop.base import (
    POLL_S,
    WAIT_S,
    Client,
    Reader,
    Received,
    Record,
    Refused,
    Sender,
    error_name,
)


def refused(error: KafkaError) -> Refused:
    """librdkafka has a code of its own for being fenced."""
    if error.code() == KafkaError._FENCED:
        return Refused("PRODUCER_FENCED", error)
    if error.code() < 0:
        return Refused(error.name(), error)
    return Refused(error_name(error.code()), error)


class translated:  # noqa: N801 - used as a statement
    """Turns librdkafka's exception into the suite's."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, SystemError):
            # flush() may have an error at hand already while it calls back about the messages.
            error = error.__cause__
        if isinstance(error, KafkaException):
            raise refused(error.args[0]) from error


class ConfluentSender(Sender):
    def __init__(self, producer: Producer, *, transactional: bool) -> None:
        self.producer = producer
        if transactional:
            with translated():
                producer.init_transactions(WAIT_S)

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        offsets: list[int] = [-1] * len(records)
        failed: list[KafkaError] = []

        def report(index: int) -> Callable[[KafkaError | None, Message], None]:
            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    failed.append(error)
                elif (offset := message.offset()) is not None:
                    offsets[index] = offset

            return delivered

        with translated():
            for index, record in enumerate(records):
                stamp: dict[str, Any] = (
                    {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
                )
                self.producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    headers=list(record.headers),
                    on_delivery=report(index),
                    **stamp,
                )
                self.producer.poll(0)
            left = self.producer.flush(WAIT_S)
        if failed:
            raise refused(failed[0])
        assert left == 0
        return offsets

    def begin(self) -> None:
        with translated():
            self.producer.begin_transaction()

    def commit(self) -> None:
        with translated():
            self.producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        with translated():
            self.producer.abort_transaction(WAIT_S)

    def send_offsets(self, topic: str, offsets: dict[int, int], reader: Reader) -> None:
        assert isinstance(reader, ConfluentReader)
        positions = [TopicPartition(topic, part, offset) for part, offset in offsets.items()]
        metadata = reader.consumer.consumer_group_metadata()
        with translated():
            self.producer.send_offsets_to_transaction(positions, metadata, WAIT_S)

    def close(self) -> None:
        self.producer.purge()


class ConfluentReader(Reader):
    def __init__(self, consumer: Consumer, group: str | None, isolation_level: str | None) -> None:
        self.consumer = consumer
        self.group = group
        self.isolation_level = isolation_level
        self._ended: dict[tuple[str, int], int] = {}
        self._closed = False

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe([topic])

    def assign(self, topic: str, partitions: Sequence[int]) -> None:
        self.consumer.assign([TopicPartition(topic, part) for part in partitions])

    def seek(self, topic: str, partition: int, offset: int) -> None:
        with translated():
            # An assignment that has not started yet cannot be sought in.
            self.consumer.assign([TopicPartition(topic, partition, offset)])

    def seek_all(self, topic: str, offsets: dict[int, int]) -> None:
        with translated():
            self.consumer.assign([TopicPartition(topic, *place) for place in offsets.items()])

    def poll(self, timeout_s: float = POLL_S) -> list[Received]:
        found: list[Received] = []
        for message in self.consumer.consume(500, timeout_s):
            error = message.error()
            if error is None:
                found.append(received(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                place = (given(message.topic()), given(message.partition()))
                self._ended[place] = given(message.offset())
            else:
                raise refused(error)
        return found

    def assignment(self) -> list[int]:
        return sorted(part.partition for part in self.consumer.assignment())

    def commit(self, topic: str, offsets: dict[int, int]) -> None:
        positions = [TopicPartition(topic, part, offset) for part, offset in offsets.items()]
        with translated():
            self.consumer.commit(offsets=positions, asynchronous=False)

    def committed(self, topic: str, partition: int) -> int | None:
        with translated():
            (found,) = self.consumer.committed([TopicPartition(topic, partition)], timeout=WAIT_S)
        return found.offset if found.offset >= 0 else None

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        wanted = [TopicPartition(topic, partition, timestamp_ms)]
        with translated():
            (found,) = self.consumer.offsets_for_times(wanted, timeout=WAIT_S)
        return found.offset if found.offset >= 0 else None

    def reached(self, topic: str, partition: int, end: int) -> bool:
        return end == 0 or self._ended.get((topic, partition), -1) >= end

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        with translated():
            low, high = self.consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=WAIT_S
            )
        return low, high

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.consumer.close()


T = TypeVar("T")


def given(value: T | None) -> T:
    """A field that librdkafka sets in every message it hands out."""
    assert value is not None
    return value


def received(message: Message) -> Received:
    headers: Any = message.headers() or ()
    return Received(
        given(message.partition()),
        given(message.offset()),
        message.value(),
        message.key(),
        tuple(headers),
        message.timestamp()[1],
    )


class ConfluentKafka(Client):
    name: ClassVar[str] = "confluent-kafka"
    codecs: ClassVar[tuple[str, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
    strategies: ClassVar[tuple[str, ...]] = ("range", "roundrobin", "cooperative-sticky")

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def sender(
        self,
        *,
        codec: str | None = None,
        acks: int | str | None = None,
        idempotent: bool | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int | None = None,
    ) -> Sender:
        named: dict[str, Any] = {
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": idempotent,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": transaction_timeout_ms,
        }
        if transaction_timeout_ms is not None and transaction_timeout_ms < 300_000:
            named["message.timeout.ms"] = transaction_timeout_ms
        settings = {key: value for key, value in named.items() if value is not None}
        # Without a listener flush() raises what the delivery reports say as well.
        settings |= {"bootstrap.servers": self.bootstrap_servers, "error_cb": lambda _error: None}
        made = ConfluentSender(Producer(settings), transactional=transactional_id is not None)
        self._open.callback(made.close)
        return made

    def reader(
        self,
        *,
        group: str | None = None,
        isolation_level: str | None = None,
        strategy: str | None = None,
        instance_id: str | None = None,
    ) -> Reader:
        named = {
            "isolation.level": isolation_level,
            "partition.assignment.strategy": strategy,
            "group.instance.id": instance_id,
        }
        settings: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
        settings |= {
            "bootstrap.servers": self.bootstrap_servers,
            # librdkafka cannot do without a group.
            "group.id": group or "nobody",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 6_000,
        }
        made = ConfluentReader(Consumer(settings), group, isolation_level)
        self._open.callback(made.close)
        return made

    def create_topic(
        self, name: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        topic = NewTopic(name, partitions, 1, config=config or {})
        with translated():
            self.admin.create_topics([topic])[name].result(WAIT_S)

    def create_partitions(self, name: str, count: int) -> None:
        with translated():
            self.admin.create_partitions([NewPartitions(name, count)])[name].result(WAIT_S)

    def delete_topic(self, name: str) -> None:
        with translated():
            self.admin.delete_topics([name])[name].result(WAIT_S)

    def topics(self) -> dict[str, int]:
        with translated():
            found = self.admin.list_topics(timeout=WAIT_S).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def topic_config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        with translated():
            found = self.admin.describe_configs([resource])[resource].result(WAIT_S)
        return {key: entry.value for key, entry in found.items()}

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        with translated():
            self.admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def group_state(self, group: str) -> tuple[str, int]:
        with translated():
            found = self.admin.describe_consumer_groups([group])[group].result(WAIT_S)
        return found.state.name.title().replace("_", ""), len(found.members)

    def groups(self) -> set[str]:
        with translated():
            found = self.admin.list_consumer_groups().result(WAIT_S)
        return {group.group_id for group in found.valid}

    def group_offset(self, group: str, topic: str) -> int | None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
        with translated():
            found = self.admin.list_consumer_group_offsets([wanted])[group].result(WAIT_S)
        (place,) = found.topic_partitions
        return int(place.offset)
