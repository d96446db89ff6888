"""aiokafka, with its event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import BrokerResponseError, KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata

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

T = TypeVar("T")

STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


def refused(error: KafkaError) -> Refused:
    if isinstance(error, ProducerFenced):
        return Refused("PRODUCER_FENCED", error)
    if isinstance(error, BrokerResponseError):
        return Refused(error_name(error.errno), error)
    return Refused(type(error).__name__, error)


def check(code: int, detail: object) -> None:
    """aiokafka's admin returns responses and leaves the error codes in them to the caller."""
    if code:
        raise Refused(error_name(code), detail)


class LoopThread:
    """An event loop that runs coroutines for synchronous callers."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop).result(2 * WAIT_S)
        except KafkaError as error:
            raise refused(error) from error

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT_S)
        self.loop.close()


class LoopSender(Sender):
    """A producer of asyncio, `producer`, on the loop of `runner`."""

    def __init__(self, runner: LoopThread, producer: Any) -> None:
        self.runner = runner
        self.producer = producer

    def begin(self) -> None:
        self.runner.run(self.producer.begin_transaction())

    def commit(self) -> None:
        self.runner.run(self.producer.commit_transaction())

    def abort(self) -> None:
        self.runner.run(self.producer.abort_transaction())


class LoopReader(Reader):
    """A consumer of asyncio, `consumer`, on the loop of `runner`."""

    def __init__(self, runner: LoopThread, consumer: Any, group: str | None) -> None:
        self.runner = runner
        self.consumer = consumer
        self.group = group

    def _call(self, function: Any, *args: object) -> Any:
        """Run a plain method of the consumer on its loop."""

        async def work() -> Any:
            return function(*args)

        return self.runner.run(work())

    def subscribe(self, topic: str) -> None:
        self._call(self.consumer.subscribe, [topic])

    def assignment(self) -> list[int]:
        return sorted(part.partition for part in self.consumer.assignment())


class AiokafkaSender(LoopSender):
    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        async def work() -> list[int]:
            sent = [
                await self.producer.send(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    record.timestamp_ms,
                    list(record.headers),
                )
                for record in records
            ]
            # acks=0 has no answer, so no metadata either.
            return [-1 if found is None else found.offset for found in await asyncio.gather(*sent)]

        return self.runner.run(work())

    def send_offsets(self, topic: str, offsets: dict[int, int], reader: Reader) -> None:
        positions = {
            TopicPartition(topic, part): OffsetAndMetadata(offset, "")
            for part, offset in offsets.items()
        }
        self.runner.run(self.producer.send_offsets_to_transaction(positions, reader.group))

    def close(self) -> None:
        async def work() -> None:
            async with asyncio.timeout(2):
                await self.producer.stop()

        try:
            self.runner.run(work())
        except (Refused, TimeoutError):
            # A fenced producer cannot say good-bye.
            return


class AiokafkaReader(LoopReader):
    def assign(self, topic: str, partitions: Sequence[int]) -> None:
        self._call(self.consumer.assign, [TopicPartition(topic, part) for part in partitions])

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._call(self.consumer.seek, TopicPartition(topic, partition), offset)

    def poll(self, timeout_s: float = POLL_S) -> list[Received]:
        found = self.runner.run(self.consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [
            Received(r.partition, r.offset, r.value, r.key, tuple(r.headers), r.timestamp)
            for records in found.values()
            for r in records
        ]

    def commit(self, topic: str, offsets: dict[int, int]) -> None:
        self.runner.run(
            self.consumer.commit(
                {TopicPartition(topic, part): offset for part, offset in offsets.items()}
            )
        )

    def committed(self, topic: str, partition: int) -> int | None:
        found: int | None = self.runner.run(
            self.consumer.committed(TopicPartition(topic, partition))
        )
        return found

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        at = TopicPartition(topic, partition)
        found = self.runner.run(self.consumer.offsets_for_times({at: timestamp_ms}))[at]
        return None if found is None else found.offset

    def reached(self, topic: str, partition: int, end: int) -> bool:
        at = TopicPartition(topic, partition)
        return end == 0 or int(self.runner.run(self.consumer.position(at))) >= end

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        at = TopicPartition(topic, partition)
        low = self.runner.run(self.consumer.beginning_offsets([at]))[at]
        return low, self.runner.run(self.consumer.end_offsets([at]))[at]

    def close(self) -> None:
        self.runner.run(self.consumer.stop())


class Aiokafka(Client):
    name: ClassVar[str] = "aiokafka"
    codecs: ClassVar[tuple[str, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
    strategies: ClassVar[tuple[str, ...]] = tuple(STRATEGIES)

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.runner = LoopThread()
        self._open.callback(self.runner.close)
        self._admin: AIOKafkaAdminClient | None = None

    @property
    def admin(self) -> AIOKafkaAdminClient:
        if self._admin is None:

            async def work() -> AIOKafkaAdminClient:
                made = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
                await made.start()
                return made

            self._admin = self.runner.run(work())
            admin = self._admin
            self._open.callback(lambda: self.runner.run(admin.close()))
        return self._admin

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
            "enable_idempotence": idempotent,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": transaction_timeout_ms,
        }
        settings = {key: value for key, value in named.items() if value is not None}

        async def work() -> AIOKafkaProducer:
            made = AIOKafkaProducer(bootstrap_servers=self.bootstrap_servers, **settings)
            try:
                await made.start()
            except KafkaError:
                await made.stop()
                raise
            return made

        made = AiokafkaSender(self.runner, self.runner.run(work()))
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
        named: dict[str, Any] = {
            "group_id": group,
            "isolation_level": isolation_level,
            "partition_assignment_strategy": [STRATEGIES[strategy]] if strategy else None,
            "group_instance_id": instance_id,
        }
        settings = {key: value for key, value in named.items() if value is not None}

        async def work() -> AIOKafkaConsumer:
            made = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap_servers,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=200,
                **settings,
            )
            await made.start()
            return made

        made = AiokafkaReader(self.runner, self.runner.run(work()), group)
        self._open.callback(made.close)
        return made

    def create_topic(
        self, name: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        topic = NewTopic(name, partitions, 1, topic_configs=config or {})
        answer = self.runner.run(self.admin.create_topics([topic]))
        for _name, code, *message in answer.topic_errors:
            check(code, message)

    def create_partitions(self, name: str, count: int) -> None:
        answer = self.runner.run(self.admin.create_partitions({name: NewPartitions(count)}))
        for _name, code, message in answer.topic_errors:
            check(code, message)

    def delete_topic(self, name: str) -> None:
        answer = self.runner.run(self.admin.delete_topics([name]))
        for _name, code in answer.topic_error_codes:
            check(code, name)

    def topics(self) -> dict[str, int]:
        found = self.runner.run(self.admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in found}

    def topic_config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        (answer,) = self.runner.run(self.admin.describe_configs([resource]))
        ((code, message, _kind, _name, entries),) = answer.resources
        check(code, message)
        return {entry[0]: entry[1] for entry in entries}

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, {key: value})
        (answer,) = self.runner.run(self.admin.alter_configs([resource]))
        ((code, message, _kind, _name),) = answer.resources
        check(code, message)

    def group_state(self, group: str) -> tuple[str, int]:
        (answer,) = self.runner.run(self.admin.describe_consumer_groups([group]))
        (found,) = answer.groups
        check(found[0], group)
        return found[2], len(found[5])

    def groups(self) -> set[str]:
        found = self.runner.run(self.admin.list_consumer_groups())
        return {name for name, _kind in found}
