"""`oncelog.Producer`, `Consumer` and `Admin`, held to what the stock clients are held to."""

from collections.abc import Sequence
from typing import Any, ClassVar

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from oncelog.client.errors import ClientError
from oncelog.client.values import OffsetAndMetadata
from tests.support.interop.aio import LoopReader, LoopSender, LoopThread
from tests.support.interop.base import POLL_S, Client, Reader, Received, Record, Refused, Sender

NEW_PROTOCOL = "consumer"
"""Not an assignor: the group's protocol of KIP-848, under which the broker assigns."""


class OwnRunner(LoopThread):
    """Raises what our clients raise as the suite's verdicts."""

    def run(self, work: Any) -> Any:
        try:
            return super().run(work)
        except ClientError as error:
            raise Refused(error.code.name.upper(), error) from error


class OwnSender(LoopSender):
    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        async def work() -> list[int]:
            sent = [
                self.producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [(await each).offset for each in sent]

        found: list[int] = self.runner.run(work())
        return found

    def send_offsets(self, topic: str, offsets: dict[int, int], reader: Reader) -> None:
        assert isinstance(reader, OwnReader)
        positions = {
            TopicPartition(topic, part): OffsetAndMetadata(offset)
            for part, offset in offsets.items()
        }
        who = reader.consumer.group_metadata()
        self.runner.run(self.producer.send_offsets_to_transaction(positions, who))

    def close(self) -> None:
        try:
            self.runner.run(self.producer.close())
        except Refused:
            # A fenced producer cannot say good-bye.
            return


class OwnReader(LoopReader):
    def __init__(
        self, runner: OwnRunner, consumer: Consumer, admin: Admin, settings: dict[str, Any]
    ) -> None:
        super().__init__(runner, consumer, settings.get("group_id"))
        self.admin = admin
        self._isolation = settings.get("isolation_level", "read_committed")

    def assign(self, topic: str, partitions: Sequence[int]) -> None:
        self._call(self.consumer.assign, [TopicPartition(topic, part) for part in partitions])

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._call(self.consumer.seek, TopicPartition(topic, partition), offset)

    def poll(self, timeout_s: float = POLL_S) -> list[Received]:
        found = self.runner.run(self.consumer.poll(timeout_s * 1000))
        return [
            Received(
                r.partition,
                r.offset,
                r.value,
                r.key,
                tuple((name, value or b"") for name, value in r.headers),
                r.timestamp_ms,
            )
            for r in found
        ]

    def commit(self, topic: str, offsets: dict[int, int]) -> None:
        wanted = {
            TopicPartition(topic, part): OffsetAndMetadata(offset)
            for part, offset in offsets.items()
        }
        self.runner.run(self.consumer.commit(wanted))

    def committed(self, topic: str, partition: int) -> int | None:
        at = TopicPartition(topic, partition)
        found = self.runner.run(self.consumer.committed([at])).get(at)
        return None if found is None else int(found.offset)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        at = TopicPartition(topic, partition)
        found = int(self.runner.run(self.admin.list_offsets({at: timestamp_ms}))[at])
        return None if found < 0 else found

    def reached(self, topic: str, partition: int, end: int) -> bool:
        return int(self.runner.run(self.consumer.position(TopicPartition(topic, partition)))) >= end

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        at = TopicPartition(topic, partition)

        async def work() -> tuple[int, int]:
            low = await self.admin.list_offsets({at: "earliest"}, self._isolation)
            high = await self.admin.list_offsets({at: "latest"}, self._isolation)
            return low[at], high[at]

        found: tuple[int, int] = self.runner.run(work())
        return found

    def close(self) -> None:
        self.runner.run(self.consumer.close())


class Own(Client):
    name: ClassVar[str] = "oncelog"
    codecs: ClassVar[tuple[str, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
    strategies: ClassVar[tuple[str, ...]] = (
        "range",
        "roundrobin",
        "sticky",
        "cooperative-sticky",
        NEW_PROTOCOL,
    )

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.runner = OwnRunner()
        self._open.callback(self.runner.close)
        self.admin: Admin = self._started(Admin(bootstrap_servers))

    def _started(self, made: Any) -> Any:
        self.runner.run(made.start())
        self._open.callback(lambda: self.runner.run(made.close()))
        return made

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
            "compression_type": codec,
            "acks": acks,
            "enable_idempotence": idempotent,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": transaction_timeout_ms,
        }
        settings = {key: value for key, value in named.items() if value is not None}
        producer = self._started(Producer(self.bootstrap_servers, **settings))
        if transactional_id is not None:
            self.runner.run(producer.init_transactions())
        return OwnSender(self.runner, producer)

    def reader(
        self,
        *,
        group: str | None = None,
        isolation_level: str | None = None,
        strategy: str | None = None,
        instance_id: str | None = None,
    ) -> Reader:
        settings: dict[str, Any] = {"enable_auto_commit": False, "heartbeat_interval_ms": 200}
        if strategy == NEW_PROTOCOL:
            settings["group_protocol"] = NEW_PROTOCOL
        elif strategy is not None:
            settings["partition_assignment_strategy"] = strategy
        named = {"group_id": group, "group_instance_id": instance_id}
        named["isolation_level"] = isolation_level
        settings |= {key: value for key, value in named.items() if value is not None}
        consumer = self._started(Consumer(self.bootstrap_servers, **settings))
        return OwnReader(self.runner, consumer, self.admin, settings)

    def create_topic(
        self, name: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        self.runner.run(self.admin.create_topics([NewTopic(name, partitions, 1, config or {})]))

    def create_partitions(self, name: str, count: int) -> None:
        self.runner.run(self.admin.create_partitions({name: count}))

    def delete_topic(self, name: str) -> None:
        self.runner.run(self.admin.delete_topics([name]))

    def topics(self) -> dict[str, int]:
        found = self.runner.run(self.admin.list_topics())
        return {name: len(topic.partitions) for name, topic in found.items()}

    def topic_config(self, name: str) -> dict[str, str]:
        found = self.runner.run(self.admin.describe_configs([name]))[name]
        return {key: entry.value for key, entry in found.items()}

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        self.runner.run(self.admin.incremental_alter_configs(name, {key: value}))

    def group_state(self, group: str) -> tuple[str, int]:
        found = self.runner.run(self.admin.describe_group(group))
        return found.state, len(found.members)

    def groups(self) -> set[str]:
        return {each.group_id for each in self.runner.run(self.admin.list_groups())}
