"""Transactions and offsets go on while all that they rely on moves to other brokers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from oncelog.client import Consumer, OffsetAndMetadata, Producer
from oncelog.controller.events import AlterReassignments, Reassignment
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from tests.support.members import Cluster, members

SETTINGS = {"min.insync.replicas": 2, "replica.fetch.wait.max.ms": 50}
MOVED = ("t", "__transaction_state", "__consumer_offsets")
IN, OUT = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Load:
    """Transactions one after the other, each with a record and the next offset of a group."""

    servers: str
    committed: int = 0
    has_stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Raises what reaches an application."""
        async with Producer(self.servers, transactional_id="tx") as producer:
            await producer.init_transactions()
            while not self.has_stopped.is_set():
                await producer.begin_transaction()
                await producer.send("t", b"%d" % self.committed, partition=OUT.partition)
                offsets = {IN: OffsetAndMetadata(self.committed + 1)}
                await producer.send_offsets_to_transaction(offsets, "g")
                await producer.commit_transaction()
                self.committed += 1


async def move_all(cluster: Cluster, *replicas: int) -> None:
    """Give every partition these replicas, and return once they have them."""
    controller = next(iter(cluster)).broker.controller
    labels = [
        label for name in MOVED for label in cluster[1].broker.image.topics[name].topic_partitions()
    ]
    asked = tuple(Reassignment(label, replicas) for label in labels)
    for outcome in await controller.submit(AlterReassignments(asked)):
        assert outcome.error is ErrorCode.none, outcome

    def has_moved() -> bool:
        states = [cluster[1].broker.image.topics[name].partitions for name in MOVED]
        return all(state.replicas == replicas for each in states for state in each)

    await cluster.until(has_moved)


async def test_transactions_and_offsets_go_on_while_everything_moves() -> None:
    async with members(4, SETTINGS) as cluster:
        controller = cluster[1].broker.controller
        (outcome,) = await controller.create_topics([TopicToCreate("t", 2, 3)])
        assert outcome.error is ErrorCode.none
        for name in MOVED[1:]:
            await controller.internal_topic(name)
        servers = ",".join(one.broker.bootstrap_servers for one in cluster)
        load = Load(servers)
        running = asyncio.create_task(load.run())

        def has_gone_on(before: int) -> bool:
            return load.committed > before or running.done()

        for replicas in ((2, 3, 4), (4, 1, 3), (1, 2), (3, 4, 2)):
            await cluster.until(partial(has_gone_on, load.committed))
            await move_all(cluster, *replicas)
        load.has_stopped.set()
        await running
        async with Consumer(servers, group_id="g", isolation_level="read_committed") as consumer:
            consumer.assign([OUT])
            found: list[bytes | None] = []
            while len(found) < load.committed:
                found += [record.value for record in await consumer.poll()]
            assert found == [b"%d" % number for number in range(load.committed)]
            offset = (await consumer.committed([IN]))[IN]
        assert offset is not None
        assert offset.offset == load.committed
