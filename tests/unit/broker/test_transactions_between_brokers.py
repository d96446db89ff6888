"""Transactions whose coordinator and partitions are led by different brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncelog.client import Consumer, Producer
from oncelog.controller.topics import TopicToCreate
from oncelog.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from tests.support.members import Cluster, members
from tests.unit.broker.test_several_brokers import controller_of

LABELS = tuple(TopicPartition("t", number) for number in range(3))
ASSIGNMENT = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}


@asynccontextmanager
async def three(**config: object) -> AsyncIterator[Cluster]:
    """Each broker leads a partition of `t`; the first one coordinates."""
    async with members(3, {"min.insync.replicas": 2, **config}) as cluster:
        topics = [
            TopicToCreate("t", assignment=ASSIGNMENT),
            TopicToCreate(TRANSACTION_STATE_TOPIC, assignment={0: (1, 2, 3)}),
        ]
        for outcome in await controller_of(cluster).create_topics(topics):
            assert not outcome.error, outcome
        await cluster.agreed()
        yield cluster


def servers(cluster: Cluster) -> str:
    return ",".join(member.broker.bootstrap_servers for member in cluster)


async def write(producer: Producer, value: bytes) -> None:
    """One record in each partition."""
    for label in LABELS:
        await producer.send(label.topic, value, partition=label.partition)
    await producer.flush()


async def committed(cluster: Cluster, count: int) -> list[tuple[int, bytes | None]]:
    """So many records as a read_committed consumer gets them: partition and value."""
    found: list[tuple[int, bytes | None]] = []
    async with Consumer(
        servers(cluster), isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(LABELS)
        async with asyncio.timeout(20):
            while len(found) < count:
                found += [(one.partition, one.value) for one in await consumer.poll(500)]
    return sorted(found)


async def test_no_step_of_a_transaction_waits_for_a_fetch_to_end() -> None:
    """Each append wakes the followers that have to commit it."""
    async with three(**{"replica.fetch.wait.max.ms": 25_000}) as cluster:
        async with (
            asyncio.timeout(20),
            Producer(servers(cluster), transactional_id="x") as producer,
        ):
            await producer.init_transactions()
            for number in range(6):
                await producer.begin_transaction()
                await write(producer, b"%d" % number)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
            found = await committed(cluster, 9)
        assert found == [(label.partition, b"%d" % n) for label in LABELS for n in (0, 2, 4)]
