"""Three real brokers: acks=all, and how the ISR follows what the brokers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate
from tests.support.members import Cluster, members
from tests.unit.broker.context import Client, Running
from tests.unit.broker.raw import produce, receive_produce, send_produce
from tests.unit.broker.support import batch

LEADER, SECOND, THIRD = 3, 1, 2
ALL = {LEADER, SECOND, THIRD}
NO_CONFIG: Mapping[str, str] = {}
SOON = {"replica.lag.time.max.ms": 500, "replica.fetch.wait.max.ms": 50}
"""After so long a follower is out of the ISR, in tests that wait for it."""
quickly = pytest.mark.parametrize("config", [SOON])


@pytest.fixture
def config() -> Mapping[str, object]:
    """What the brokers are started with."""
    return {"replica.fetch.wait.max.ms": 50}


@pytest.fixture
async def cluster(config: Mapping[str, object]) -> AsyncIterator[Cluster]:
    async with members(3, config) as begun:
        yield begun


async def led_topic(cluster: Cluster, config: Mapping[str, str] = NO_CONFIG) -> str:
    """Create a topic with a replica on each broker that is led by `LEADER`; return its name."""
    topic = TopicToCreate("t", assignment={0: (LEADER, SECOND, THIRD)}, config=config)
    await cluster[LEADER].broker.controller.create_topics([topic])
    await cluster.agreed()
    return topic.name


def _has_committed(partition: Partition, end: int) -> bool:
    return partition.state.high_watermark == end


def replica(cluster: Cluster, broker_id: int, topic: str) -> Partition:
    partition = cluster[broker_id].broker.partitions.get(topic, 0)
    assert partition is not None
    return partition


def isr(cluster: Cluster, topic: str) -> frozenset[int]:
    return replica(cluster, LEADER, topic).state.isr


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    """A client of the leader."""
    running = Running(cluster[LEADER].broker)
    yield await running.connect()
    await running.close()


def numbered(sequence: int) -> bytearray:
    return batch(producer_id=9, epoch=0, sequence=sequence)


def records(partition: Partition) -> bytes:
    log = partition.log
    return bytes(log.read(0, 2**20, upper_bound=log.log_end_offset))


async def test_inv1_what_is_acknowledged_is_in_every_log(cluster: Cluster, client: Client) -> None:
    topic = await led_topic(cluster)
    for sequence in range(5):
        answer = await produce(client, 9, numbered(sequence), topic=topic)
        assert answer.base_offset == sequence
    leader = replica(cluster, LEADER, topic)
    assert leader.state.high_watermark == 5
    for follower in (SECOND, THIRD):
        other = replica(cluster, follower, topic)
        assert records(other) == records(leader)
        await cluster.until(partial(_has_committed, other, 5))


@quickly
async def test_a_change_of_the_isr_whose_answer_is_lost_is_learned_all_the_same(
    cluster: Cluster, client: Client
) -> None:
    topic = await led_topic(cluster)
    for member in cluster:
        member.link.answers_lost_count = 1
    await cluster.kill(SECOND)
    assert (await produce(client, 9, numbered(0), topic=topic)).base_offset == 0
    assert isr(cluster, topic) == {LEADER, THIRD}


async def test_inv7_the_high_watermark_waits_for_the_slowest_in_sync(
    cluster: Cluster, client: Client
) -> None:
    topic = await led_topic(cluster)
    leader = replica(cluster, LEADER, topic)
    await send_produce(client, 9, numbered(0), topic=topic)
    seen: list[int] = []
    while not seen or seen[-1] < 1:
        ends = [replica(cluster, each, topic).log.log_end_offset for each in (SECOND, THIRD)]
        seen.append(leader.state.high_watermark)
        assert seen[-1] <= min(ends)
        await asyncio.sleep(0)
    assert (await receive_produce(client, 9)).base_offset == 0
