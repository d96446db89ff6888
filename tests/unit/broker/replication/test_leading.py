"""Three real brokers: acks=all, and how the ISR follows what the brokers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from tests.support.members import Cluster, members
from tests.unit.broker.context import Client, Running
from tests.unit.broker.raw import error_of, produce, receive_produce, send_produce
from tests.unit.broker.support import batch

OFFICE, LEADER, THIRD = 1, 2, 3
"""The first broker that starts is the controller: changes of the ISR are forwarded to it."""
ALL = {OFFICE, LEADER, THIRD}
NO_CONFIG: Mapping[str, str] = {}
CALM = {"replica.fetch.wait.max.ms": 50, "controlled.shutdown.enable": "false"}
SOON = {**CALM, "replica.lag.time.max.ms": 500}
"""After so long a follower is out of the ISR, in tests that wait for it."""
TOO_FEW = {ErrorCode.not_enough_replicas, ErrorCode.not_enough_replicas_after_append}
quickly = pytest.mark.parametrize("config", [SOON])


@pytest.fixture
def config() -> Mapping[str, object]:
    """What the brokers are started with."""
    return CALM


@pytest.fixture
async def cluster(config: Mapping[str, object]) -> AsyncIterator[Cluster]:
    async with members(3, config) as begun:
        yield begun


async def led_topic(cluster: Cluster, config: Mapping[str, str] = NO_CONFIG) -> str:
    """Create a topic with a replica on each broker that is led by `LEADER`; return its name."""
    topic = TopicToCreate("t", assignment={0: (LEADER, THIRD, OFFICE)}, config=config)
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


async def acknowledged(client: Client, sequence: int, topic: str) -> None:
    """Produce until it is acknowledged: a busy machine may take followers out for a moment."""
    told = await produce(client, 9, numbered(sequence), topic=topic)
    while error_of(told) in TOO_FEW:
        told = await produce(client, 9, numbered(sequence), topic=topic)
    assert error_of(told) is ErrorCode.none


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
    for follower in (OFFICE, THIRD):
        other = replica(cluster, follower, topic)
        assert records(other) == records(leader)
        await cluster.until(partial(_has_committed, other, 5))


@quickly
async def test_a_dead_follower_leaves_the_isr_and_comes_back_into_it(
    cluster: Cluster, client: Client
) -> None:
    """acks=all waits for it until it is out, as long as its session has not ended."""
    topic = await led_topic(cluster)
    await cluster.kill(THIRD)
    assert (await produce(client, 9, numbered(0), topic=topic)).base_offset == 0
    # A busy machine may take the living follower out for a moment, too.
    await cluster.until(lambda: isr(cluster, topic) == {LEADER, OFFICE})
    await cluster.restart(THIRD)
    await cluster.until(lambda: isr(cluster, topic) == ALL)
    assert (await produce(client, 9, numbered(1), topic=topic)).base_offset == 1
    leader, third = (replica(cluster, each, topic) for each in (LEADER, THIRD))
    await cluster.until(lambda: records(third) == records(leader))


@quickly
async def test_alone_below_min_insync_replicas_nothing_is_committed(
    cluster: Cluster, client: Client
) -> None:
    topic = await led_topic(cluster, {"min.insync.replicas": "2"})
    await acknowledged(client, 0, topic)
    for follower in (OFFICE, THIRD):
        await cluster.kill(follower)
        cluster.expire(follower)
    await send_produce(client, 9, numbered(1), topic=topic)
    told = await receive_produce(client, 9)
    assert error_of(told) in TOO_FEW
    await cluster.until(lambda: isr(cluster, topic) == {LEADER})
    refused = await produce(client, 9, numbered(2), topic=topic)
    assert error_of(refused) is ErrorCode.not_enough_replicas
    assert replica(cluster, LEADER, topic).state.high_watermark == 1
    await cluster.restart(THIRD)
    await cluster.until(lambda: isr(cluster, topic) == {LEADER, THIRD})
    await acknowledged(client, 1, topic)
    assert replica(cluster, LEADER, topic).state.high_watermark == 2


@quickly
async def test_a_change_of_the_isr_whose_answer_is_lost_is_learned_all_the_same(
    cluster: Cluster, client: Client
) -> None:
    topic = await led_topic(cluster)
    cluster[OFFICE].link.answers_lost_count = 1
    await cluster.kill(THIRD)
    assert (await produce(client, 9, numbered(0), topic=topic)).base_offset == 0
    # A busy machine may take the living follower out for a moment, too.
    await cluster.until(lambda: isr(cluster, topic) == {LEADER, OFFICE})
    assert cluster[OFFICE].link.answers_lost_count == 0


async def test_inv1_a_leader_that_was_replaced_and_does_not_know_commits_nothing(
    cluster: Cluster, client: Client
) -> None:
    """It is cut off from the store, not from its clients and followers."""
    topic = await led_topic(cluster)
    await produce(client, 9, numbered(0), topic=topic)
    old = replica(cluster, LEADER, topic)
    cluster[LEADER].link.cut()
    cluster.expire(LEADER)
    await cluster.until(lambda: cluster.leader_of(topic, 0) == THIRD)
    await cluster.until(lambda: replica(cluster, THIRD, topic).state.is_leader)
    new = Running(cluster[THIRD].broker)
    other = await new.connect()
    await send_produce(client, 9, numbered(1), topic=topic)
    await cluster.until(lambda: old.waiting_count == 1)
    assert old.state.is_leader
    for sequence in (1, 2):
        done = await produce(other, 9, numbered(sequence), topic=topic)
        assert (error_of(done), done.base_offset) == (ErrorCode.none, sequence)
    assert old.state.high_watermark == 1
    cluster[LEADER].link.heal()
    told = await receive_produce(client, 9)
    assert error_of(told) is ErrorCode.not_leader_or_follower
    await cluster.until(lambda: records(old) == records(replica(cluster, THIRD, topic)))
    await new.close()


async def test_inv7_the_high_watermark_waits_for_the_slowest_in_sync(
    cluster: Cluster, client: Client
) -> None:
    topic = await led_topic(cluster)
    leader = replica(cluster, LEADER, topic)
    await send_produce(client, 9, numbered(0), topic=topic)
    seen: list[int] = []
    while not seen or seen[-1] < 1:
        ends = [replica(cluster, each, topic).log.log_end_offset for each in (OFFICE, THIRD)]
        seen.append(leader.state.high_watermark)
        assert seen[-1] <= min(ends)
        await asyncio.sleep(0)
    assert (await receive_produce(client, 9)).base_offset == 0
