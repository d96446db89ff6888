"""A consumer with a rack reads from the replica there, and from the leader when that is away."""

from __future__ import annotations

from oncelog.broker.partitions.partition import Partition
from oncelog.client import Consumer, Producer, TopicPartition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config_keys import RACK_AWARE_SELECTOR
from tests.support.members import Cluster, members

LEADER, NEAR = 2, 1
T0 = TopicPartition("t", 0)
CONFIG = {
    "replica.selector.class": RACK_AWARE_SELECTOR,
    "replica.fetch.wait.max.ms": 50,
    "controlled.shutdown.enable": "false",
}


def replica(cluster: Cluster, broker_id: int) -> Partition:
    partition = cluster[broker_id].broker.partitions.get("t", 0)
    assert partition is not None
    return partition


async def write(cluster: Cluster, begin: int, end: int) -> None:
    async with Producer(cluster[LEADER].broker.bootstrap_servers) as producer:
        for number in range(begin, end):
            await producer.send("t", b"%d" % number, partition=0)
        await producer.flush()


async def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [int(record.value or b"-1") for record in await consumer.poll(1000)]
    return found


async def test_a_consumer_leaves_the_replica_in_its_rack_when_that_dies() -> None:
    async with members(3, CONFIG, starts=False) as cluster:
        for broker_id in (1, 2, 3):
            cluster[broker_id].config["broker.rack"] = f"rack-{broker_id}"
            await cluster.start(broker_id)
        topic = TopicToCreate("t", assignment={0: (LEADER, NEAR, 3)})
        await cluster[LEADER].broker.controller.create_topics([topic])
        await cluster.agreed()
        await write(cluster, 0, 50)
        servers = cluster[LEADER].broker.bootstrap_servers
        async with Consumer(servers, client_rack=f"rack-{NEAR}", fetch_max_wait_ms=50) as consumer:
            consumer.assign([T0])
            assert await read(consumer, 50) == list(range(50))
            assert replica(cluster, NEAR).meter.bytes_out > 0
            assert replica(cluster, LEADER).meter.bytes_out == 0
            await cluster.kill(NEAR)
            cluster.expire(NEAR)
            await cluster.until(lambda: replica(cluster, LEADER).state.isr == {LEADER, 3})
            await write(cluster, 50, 60)
            assert await read(consumer, 10) == list(range(50, 60))
            assert replica(cluster, LEADER).meter.bytes_out > 0


async def test_whole_batches_come_from_the_replica_in_the_rack_as_well() -> None:
    """As Spark's source reads; a replica that has died costs no fetch, whoever knows of it."""
    async with members(3, CONFIG, starts=False) as cluster:
        for broker_id in (1, 2, 3):
            cluster[broker_id].config["broker.rack"] = f"rack-{broker_id}"
            await cluster.start(broker_id)
        topic = TopicToCreate("t", assignment={0: (LEADER, NEAR, 3)})
        await cluster[LEADER].broker.controller.create_topics([topic])
        await cluster.agreed()
        await write(cluster, 0, 50)
        await cluster.until(lambda: replica(cluster, NEAR).state.high_watermark == 50)
        servers = cluster[LEADER].broker.bootstrap_servers
        async with Consumer(servers, client_rack=f"rack-{NEAR}", fetch_max_wait_ms=50) as consumer:
            assert (await consumer.fetch_batches(T0, 0)).next_offset == 50
            assert replica(cluster, NEAR).meter.bytes_out > 0
            assert replica(cluster, LEADER).meter.bytes_out == 0
            await cluster.kill(NEAR)
            assert (await consumer.fetch_batches(T0, 0)).next_offset == 50
            assert replica(cluster, LEADER).meter.bytes_out > 0


async def test_a_replica_that_came_later_than_the_consumer_is_read_from() -> None:
    """Its address is not in the consumer's metadata when the leader names it first."""
    async with members(2, CONFIG, starts=False) as cluster:
        for broker_id in (1, 2):
            cluster[broker_id].config["broker.rack"] = f"rack-{broker_id}"
            await cluster.start(broker_id)
        topic = TopicToCreate("t", assignment={0: (LEADER, NEAR)})
        await cluster[LEADER].broker.controller.create_topics([topic])
        await cluster.agreed()
        await cluster.stop(NEAR)
        await cluster.until(lambda: replica(cluster, LEADER).state.isr == {LEADER})
        await write(cluster, 0, 50)
        servers = cluster[LEADER].broker.bootstrap_servers
        async with Consumer(servers, client_rack=f"rack-{NEAR}", fetch_max_wait_ms=50) as consumer:
            consumer.assign([T0])
            assert await read(consumer, 50) == list(range(50))
            await cluster.start(NEAR)
            await cluster.until(lambda: replica(cluster, LEADER).state.isr == {LEADER, NEAR})
            await write(cluster, 50, 60)
            assert await read(consumer, 10) == list(range(50, 60))
            assert replica(cluster, NEAR).meter.bytes_out > 0


async def test_an_offset_that_a_replica_does_not_have_is_asked_of_the_leader() -> None:
    # The replica leaves the ISR, and what is written then is acknowledged without it.
    config = {**CONFIG, "replica.lag.time.max.ms": 500}
    async with members(2, config, starts=False) as cluster:
        for broker_id in (1, 2):
            cluster[broker_id].config["broker.rack"] = f"rack-{broker_id}"
            await cluster.start(broker_id)
        topic = TopicToCreate("t", assignment={0: (LEADER, NEAR)})
        await cluster[LEADER].broker.controller.create_topics([topic])
        await cluster.agreed()
        await write(cluster, 0, 10)
        servers = cluster[LEADER].broker.bootstrap_servers
        rack = f"rack-{NEAR}"
        async with Consumer(
            servers, client_rack=rack, fetch_max_wait_ms=50, auto_offset_reset="none"
        ) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            assert await read(consumer, 10) == list(range(10))
            # As if the replica had lost its end: what is not there is no reason to begin anew.
            near = replica(cluster, NEAR)
            await cluster.until(lambda: near.log.log_end_offset == 10)
            near.log.restart_at(20, now_ms=0, note=lambda *_: None)
            await write(cluster, 10, 15)
            assert await read(consumer, 5) == list(range(10, 15))
