"""kafka-python."""

from collections.abc import Sequence
from typing import Any, ClassVar

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import BrokerResponseError, KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata, TopicPartition

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

STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def refused(error: KafkaError) -> Refused:
    if isinstance(error, ProducerFencedError):
        return Refused("PRODUCER_FENCED", error)
    if isinstance(error, BrokerResponseError):
        return Refused(error_name(error.errno), error)
    return Refused(type(error).__name__, error)


class translated:  # noqa: N801 - used as a statement
    """Turns kafka-python's exceptions into the suite's."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, KafkaError):
            raise refused(error) from error


class KafkaPythonSender(Sender):
    def __init__(self, producer: KafkaProducer, *, transactional: bool) -> None:
        self.producer = producer
        if transactional:
            with translated():
                producer.init_transactions()

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        with translated():
            sent = [
                self.producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    record.partition,
                    record.timestamp_ms,
                )
                for record in records
            ]
            self.producer.flush(WAIT_S)
            return [future.get(WAIT_S).offset for future in sent]

    def begin(self) -> None:
        with translated():
            self.producer.begin_transaction()

    def commit(self) -> None:
        with translated():
            self.producer.commit_transaction()

    def abort(self) -> None:
        with translated():
            self.producer.abort_transaction()

    def send_offsets(self, topic: str, offsets: dict[int, int], reader: Reader) -> None:
        assert isinstance(reader, KafkaPythonReader)
        positions = {
            TopicPartition(topic, part): OffsetAndMetadata(offset, "", -1)
            for part, offset in offsets.items()
        }
        with translated():
            self.producer.send_offsets_to_transaction(positions, reader.consumer.group_metadata())

    def close(self) -> None:
        self.producer.close(timeout=1)


class KafkaPythonReader(Reader):
    def __init__(self, consumer: KafkaConsumer, group: str | None) -> None:
        self.consumer = consumer
        self.group = group

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe([topic])
        # Knows the topic before it joins. Otherwise its first assignment, as the leader, is empty,
        # it joins again, and 3.0 forgets that second assignment if a poll ends in between.
        self.consumer.topics()

    def assign(self, topic: str, partitions: Sequence[int]) -> None:
        self.consumer.assign([TopicPartition(topic, part) for part in partitions])

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.consumer.seek(TopicPartition(topic, partition), offset)

    def poll(self, timeout_s: float = POLL_S) -> list[Received]:
        with translated():
            found = self.consumer.poll(int(timeout_s * 1000))
        return [
            Received(r.partition, r.offset, r.value, r.key, tuple(r.headers), r.timestamp)
            for records in found.values()
            for r in records
        ]

    def assignment(self) -> list[int]:
        return sorted(part.partition for part in self.consumer.assignment())

    def commit(self, topic: str, offsets: dict[int, int]) -> None:
        positions = {
            TopicPartition(topic, part): OffsetAndMetadata(offset, "", -1)
            for part, offset in offsets.items()
        }
        with translated():
            self.consumer.commit(positions)

    def committed(self, topic: str, partition: int) -> int | None:
        with translated():
            found: int | None = self.consumer.committed(TopicPartition(topic, partition))
        return found

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        at = TopicPartition(topic, partition)
        with translated():
            found = self.consumer.offsets_for_times({at: timestamp_ms})[at]
        return None if found is None else found.offset

    def reached(self, topic: str, partition: int, end: int) -> bool:
        at = TopicPartition(topic, partition)
        return end == 0 or int(self.consumer.position(at)) >= end

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        at = TopicPartition(topic, partition)
        with translated():
            return (
                self.consumer.beginning_offsets([at])[at],
                self.consumer.end_offsets([at])[at],
            )

    def close(self) -> None:
        self.consumer.close(autocommit=False, timeout_ms=1_000)


class KafkaPython(Client):
    name: ClassVar[str] = "kafka-python"
    codecs: ClassVar[tuple[str, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
    strategies: ClassVar[tuple[str, ...]] = tuple(STRATEGIES)

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
        self._open.callback(self.admin.close)

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
            "compression_type": None if codec == "none" else codec,
            "acks": acks,
            # kafka-python refuses weaker acks while idempotence, its default, is on.
            "enable_idempotence": False if acks in (0, 1) else idempotent,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": transaction_timeout_ms,
        }
        settings = {key: value for key, value in named.items() if value is not None}
        producer = KafkaProducer(bootstrap_servers=self.bootstrap_servers, **settings)
        self._open.callback(producer.close, timeout=1)
        return KafkaPythonSender(producer, transactional=transactional_id is not None)

    def reader(
        self,
        *,
        group: str | None = None,
        isolation_level: str | None = None,
        strategy: str | None = None,
        instance_id: str | None = None,
    ) -> Reader:
        named: dict[str, Any] = {
            "group_id": group,
            "isolation_level": isolation_level,
            "partition_assignment_strategy": [STRATEGIES[strategy]] if strategy else None,
            "group_instance_id": instance_id,
        }
        settings = {key: value for key, value in named.items() if value is not None}
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap_servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            **settings,
        )
        made = KafkaPythonReader(consumer, group)
        self._open.callback(made.close)
        return made

    def create_topic(
        self, name: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": config or {}}
        with translated():
            self.admin.create_topics({name: wanted})

    def create_partitions(self, name: str, count: int) -> None:
        with translated():
            self.admin.create_partitions({name: count})

    def delete_topic(self, name: str) -> None:
        with translated():
            self.admin.delete_topics([name])

    def topics(self) -> dict[str, int]:
        with translated():
            found = self.admin.describe_topics()
        return {topic["name"]: len(topic["partitions"]) for topic in found}

    def topic_config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        with translated():
            found = self.admin.describe_configs([resource], config_filter="all")
        return {key: entry["value"] for key, entry in found["topic"][name].items()}

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, {key: value})
        with translated():
            # Its own check knows only settings that were changed before.
            self.admin.alter_configs([resource], raise_on_unknown=False)

    def group_state(self, group: str) -> tuple[str, int]:
        with translated():
            found = self.admin.describe_groups([group])[group]
        return found["group_state"], len(found["members"])

    def groups(self) -> set[str]:
        with translated():
            return {found["group_id"] for found in self.admin.list_groups()}
