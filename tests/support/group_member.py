"""One consumer of a group as a process of its own, which is killed sooner or later.

Run as ``python -m tests.support.group_member CLIENT SERVERS TOPIC GROUP NAME NOTES SETTINGS``, with
the settings of `Membership` as JSON. It notes each record that it processed in the file NOTES, and
commits afterwards: at least once. A note is one `write` of whole lines, which a SIGKILL leaves
whole.

Each client commits within the generation in which it was given the records: a rebalance that came
between the two would let a member commit for a partition that it has lost, which no broker can
tell from a right commit. It imports the one client that it needs, because processes start once a
second.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

POLL_S = 0.2
PYTHON_POLL_MS = 30_000
"""kafka-python 3.0 forgets an assignment when a poll ends in the middle of a rebalance: it goes on
with the former one, at the positions that it had then, and commits them. A poll ends with the first
record anyway."""
BATCH_COUNT_MAX = 200
HEARTBEAT_MS = 500


@dataclass(frozen=True, slots=True)
class Membership:
    """How a consumer takes part in its group."""

    protocol: str
    assignor: str
    session_ms: int
    instance_id: str | None = None


class Notes:
    """What a process has done, in a file that survives it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def processed(self, places: Iterable[tuple[int, int]]) -> None:
        """Partitions and offsets of records."""
        self._write("".join(f"processed {partition} {offset}\n" for partition, offset in places))

    def refused(self, reason: object) -> None:
        """A commit that was refused: the group has moved on."""
        self._write(f"refused {type(reason).__name__} {str(reason)[:100].splitlines()[:1]}\n")

    def _write(self, text: str) -> None:
        if text:
            os.write(self._file, text.encode())


def ends(places: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The offsets to commit."""
    found: dict[int, int] = {}
    for partition, offset in places:
        found[partition] = max(found.get(partition, 0), offset + 1)
    return found


def end_if_fatal(error: KafkaError) -> None:
    """End the process: a client that had a fatal error does nothing any more."""
    from confluent_kafka import KafkaError

    if error.fatal() or error.code() == KafkaError._FATAL:
        print(error.str(), file=sys.stderr, flush=True)
        os._exit(1)


class Member(Protocol):
    """A consumer that runs until its process is killed."""

    def run(self) -> None: ...


class ConfluentMember:
    """librdkafka: revocations come out of `poll`, where a callback takes part in them."""

    def __init__(
        self, servers: str, topic: str, group: str, name: str, notes: Notes, how: Membership
    ) -> None:
        from confluent_kafka import Consumer

        self._topic = topic
        self._notes = notes
        self._batch: list[tuple[int, int]] = []
        self._due: dict[int, int] = {}
        """What is processed and not committed: it is refused while the group rebalances."""
        settings: dict[str, object] = {
            "bootstrap.servers": servers,
            "group.id": group,
            "client.id": name,
            "group.protocol": how.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        if how.instance_id is not None:
            settings["group.instance.id"] = how.instance_id
        if how.protocol == "classic":
            settings["partition.assignment.strategy"] = how.assignor
            settings["session.timeout.ms"] = how.session_ms
            settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        else:
            settings["group.remote.assignor"] = how.assignor
        self._consumer = Consumer(settings)

    def run(self) -> None:
        self._consumer.subscribe([self._topic], on_revoke=self._revoked, on_lost=self._lost)
        while True:
            self._take(self._consumer.poll(POLL_S))
            while self._batch and len(self._batch) < BATCH_COUNT_MAX:
                message = self._consumer.poll(0)
                if message is None:
                    break
                self._take(message)
            self._finish()

    def _take(self, message: Message | None) -> None:
        if message is None:
            return
        error = message.error()
        if error is not None:
            end_if_fatal(error)
            return
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None:
            self._batch.append((partition, offset))

    def _finish(self) -> None:
        """Process what was read, then commit it."""
        from confluent_kafka import KafkaException, TopicPartition

        batch, self._batch = self._batch, []
        self._notes.processed(batch)
        self._due |= ends(batch)
        if not self._due:
            return
        places = [TopicPartition(self._topic, *place) for place in self._due.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
            self._due.clear()
        except KafkaException as reason:
            self._notes.refused(reason)

    def _revoked(self, _consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        self._finish()
        self._forget(partitions)

    def _lost(self, _consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        self._batch.clear()
        self._forget(partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Another member has these partitions now, and may have committed more."""
        for place in partitions:
            self._due.pop(place.partition, None)


class KafkaPythonMember:
    """kafka-python: it rebalances within `poll` alone."""

    def __init__(
        self, servers: str, topic: str, group: str, name: str, notes: Notes, how: Membership
    ) -> None:
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        self._topic = topic
        self._notes = notes
        static = {"group_instance_id": how.instance_id} if how.instance_id is not None else {}
        self._consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            client_id=name,
            partition_assignment_strategy=[assignors[how.assignor]],
            session_timeout_ms=how.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **static,
        )

    def run(self) -> None:
        from kafka.errors import KafkaError
        from kafka.structs import OffsetAndMetadata, TopicPartition

        self._consumer.subscribe([self._topic])
        # It has to know the topic before it joins; see `KafkaPythonReader.subscribe`.
        self._consumer.topics()
        while True:
            found = self._consumer.poll(PYTHON_POLL_MS, max_records=BATCH_COUNT_MAX)
            batch = [(r.partition, r.offset) for records in found.values() for r in records]
            self._notes.processed(batch)
            offsets = {
                TopicPartition(self._topic, partition): OffsetAndMetadata(end, "", -1)
                for partition, end in ends(batch).items()
            }
            try:
                if offsets:
                    self._consumer.commit(offsets)
            except KafkaError as reason:
                self._notes.refused(reason)


class AiokafkaMember:
    """aiokafka rebalances in the background: a lock keeps that out of processing."""

    def __init__(
        self, servers: str, topic: str, group: str, name: str, notes: Notes, how: Membership
    ) -> None:
        self._topic = topic
        self._notes = notes
        static = {"group_instance_id": how.instance_id} if how.instance_id is not None else {}
        self._settings: dict[str, object] = {
            "bootstrap_servers": servers,
            "group_id": group,
            "client_id": name,
            "session_timeout_ms": how.session_ms,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **static,
        }
        self._assignor = how.assignor

    def run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
        from aiokafka.errors import KafkaError

        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
        }
        processing = asyncio.Lock()

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: object) -> None:
                async with processing:
                    pass

            async def on_partitions_assigned(self, assigned: object) -> None:
                return

        consumer = AIOKafkaConsumer(
            partition_assignment_strategy=[assignors[self._assignor]], **self._settings
        )
        await consumer.start()
        consumer.subscribe([self._topic], listener=Listener())
        while True:
            found = await consumer.getmany(
                timeout_ms=int(POLL_S * 1000), max_records=BATCH_COUNT_MAX
            )
            async with processing:
                mine = consumer.assignment()
                batch = [
                    (r.partition, r.offset) for at, rs in found.items() if at in mine for r in rs
                ]
                self._notes.processed(batch)
                at = {each.partition: each for each in found}
                offsets = {at[partition]: end for partition, end in ends(batch).items()}
                try:
                    if offsets:
                        await consumer.commit(offsets)
                except KafkaError as reason:
                    self._notes.refused(reason)


class OwnMember:
    """`oncelog.Consumer`: partitions come and go inside `poll` alone."""

    def __init__(
        self, servers: str, topic: str, group: str, name: str, notes: Notes, how: Membership
    ) -> None:
        self._servers, self._topic, self._notes = servers, topic, notes
        self._settings: dict[str, Any] = {
            "group_id": group,
            "client_id": name,
            "group_protocol": how.protocol,
            "group_instance_id": how.instance_id,
            "enable_auto_commit": False,
            "first_contact_ms": None,  # brokers are killed too
        }
        if how.protocol == "classic":
            self._settings["partition_assignment_strategy"] = [how.assignor]
            self._settings["session_timeout_ms"] = how.session_ms
            self._settings["heartbeat_interval_ms"] = HEARTBEAT_MS
        else:
            self._settings["group_remote_assignor"] = how.assignor

    def run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        from oncelog import ClientError, Consumer

        async with Consumer(self._servers, **self._settings) as consumer:
            consumer.subscribe([self._topic])
            is_due = False
            while True:
                found = await consumer.poll(POLL_S * 1000, BATCH_COUNT_MAX)
                self._notes.processed((r.partition, r.offset) for r in found)
                # A commit is refused while the group rebalances; the positions are still due.
                is_due = is_due or bool(found)
                try:
                    if is_due:
                        await consumer.commit()
                        is_due = False
                except ClientError as reason:
                    self._notes.refused(reason)


MEMBERS: dict[str, Callable[[str, str, str, str, Notes, Membership], Member]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
    "oncelog": OwnMember,
}


def command(
    client: str, servers: str, topic: str, group: str, name: str, notes: Path, how: Membership
) -> list[str]:
    """How such a process is started."""
    module = [sys.executable, "-m", "tests.support.group_member"]
    return [*module, client, servers, topic, group, name, str(notes), json.dumps(asdict(how))]


def main(words: list[str]) -> None:
    """Consume until killed."""
    client, servers, topic, group, name, notes, settings = words
    # It tells of every member that died.
    logging.disable(logging.CRITICAL)
    given: Mapping[str, object] = json.loads(settings)
    how = Membership(**given)  # type: ignore[arg-type]
    MEMBERS[client](servers, topic, group, name, Notes(Path(notes)), how).run()


if __name__ == "__main__":
    main(sys.argv[1:])
