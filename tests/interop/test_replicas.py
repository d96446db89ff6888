"""librdkafka over three brokers: idempotent acks=all, and reads from the replica in its rack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from confluent_kafka import TopicPartition

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config_keys import RACK_AWARE_SELECTOR
from tests.interop.confluent import consumer, producer, read_all, send
from tests.support.members import Cluster, members

pytestmark = [pytest.mark.interop, pytest.mark.slow]

LEADER, SECOND, THIRD = 2, 1, 3
MIN_ISR = {"min.insync.replicas": "2"}
NO_MOVES = {"controlled.shutdown.enable": "false"}
T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """Do it in a thread, while the brokers run in this one."""
    return await asyncio.get_running_loop().run_in_executor(None, work)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def create(cluster: Cluster) -> str:
    topic = TopicToCreate("t", assignment={0: (LEADER, SECOND, THIRD)}, config=MIN_ISR)
    await cluster[LEADER].broker.controller.create_topics([topic])
    await cluster.agreed()
    return topic.name


def replica(cluster: Cluster, broker_id: int) -> Partition:
    partition = cluster[broker_id].broker.partitions.get("t", 0)
    assert partition is not None
    return partition


async def test_an_idempotent_producer_loses_and_repeats_nothing_with_a_follower_away() -> None:
    """It is out of the ISR after half a second; two are in sync, as many as have to be."""
    async with members(3, {"replica.lag.time.max.ms": 500, **NO_MOVES}) as cluster:
        topic = await create(cluster)
        servers = cluster[LEADER].broker.bootstrap_servers
        idempotent = producer(servers, **{"enable.idempotence": True, "linger.ms": 1})
        sending = asyncio.create_task(aside(lambda: send(idempotent, topic, numbered(2000))))
        await cluster.until(lambda: replica(cluster, LEADER).state.high_watermark > 100)
        await cluster.kill(THIRD)
        delivered = await sending
        assert sorted(message.offset() or 0 for message in delivered) == list(range(2000))
        assert await aside(lambda: read_all(servers, topic)) == numbered(2000)
        await cluster.until(lambda: replica(cluster, LEADER).state.isr == {LEADER, SECOND})


async def test_a_consumer_reads_from_the_replica_in_its_rack() -> None:
    config = {
        "replica.selector.class": RACK_AWARE_SELECTOR,
        "replica.fetch.wait.max.ms": 50,
        **NO_MOVES,
    }
    async with members(3, config, starts=False) as cluster:
        for broker_id in (SECOND, LEADER, THIRD):
            cluster[broker_id].config["broker.rack"] = f"rack-{broker_id}"
            await cluster.start(broker_id)
        topic = await create(cluster)
        servers = cluster[LEADER].broker.bootstrap_servers
        await aside(lambda: send(producer(servers, acks="all"), topic, numbered(100)))
        reader = consumer(
            servers, **{"client.rack": f"rack-{SECOND}", "enable.partition.eof": False}
        )
        reader.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []

        def read() -> None:
            while len(found) < 100:
                message = reader.poll(1)
                assert message is None or message.error() is None
                found.extend([] if message is None else [message.value() or b""])
            reader.close()

        await asyncio.wait_for(aside(read), 20)
        assert found == numbered(100)
        assert replica(cluster, SECOND).meter.bytes_out > 0
        assert replica(cluster, LEADER).meter.bytes_out == 0
