"""Three brokers on a real ZooKeeper: what monitors see, and a leader's death."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import oncelog
from oncelog.broker.broker import Broker
from oncelog.controller import layout
from oncelog.controller.image import PartitionImage
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from tests.support.zookeeper import chroot, shared_server

pytestmark = pytest.mark.slow

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "zookeeper.session.timeout.ms": "6000",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    # The last of them have none to hand over to.
    "controlled.shutdown.enable": "false",
}


async def until(condition: Callable[[], bool]) -> None:
    """Return once it is true."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - brokers have no event for a test to wait for
            await asyncio.sleep(0.01)


def state(broker: Broker) -> PartitionImage:
    return broker.image.topics["orders"].partitions[0]


async def produce(brokers: list[Broker], value: bytes) -> None:
    servers = [broker.bootstrap_servers for broker in brokers]
    async with oncelog.Producer(servers) as producer:
        await producer.send("orders", value)


async def test_three_brokers_on_zookeeper_outlive_a_leader(tmp_path: Path) -> None:
    server, connect = shared_server(), chroot()
    async with AsyncExitStack() as exits:
        brokers: dict[int, Broker] = {}

        async def start(number: int) -> None:
            own = {
                "node.id": str(number),
                "log.dirs": str(tmp_path / str(number)),
                "zookeeper.connect": connect,
            }
            brokers[number] = Broker(BrokerConfig({**SETTINGS, **own}))
            await brokers[number].start()
            exits.push_async_callback(brokers[number].stop)

        for number in (1, 2, 3):
            await start(number)
        monitor = KazooClient(connect)
        await asyncio.to_thread(monitor.start)
        await until(lambda: len(brokers[3].image.brokers) == 3)
        assert sorted(monitor.get_children("/brokers/ids")) == ["1", "2", "3"]
        controller = brokers[3].image.controller_id
        assert monitor.get("/controller")[0] == layout.encode_controller(controller)
        await brokers[2].controller.create_topics([TopicToCreate("orders", 1, 3)])
        assert monitor.get("/brokers/topics/orders/partitions/0/state")[0]
        await produce([*brokers.values()], b"1")

        leader = state(brokers[2]).leader
        dead = brokers.pop(leader)
        dead.kill()
        await dead.stop()
        await until(lambda: all(state(one).leader in brokers for one in brokers.values()))
        await produce([*brokers.values()], b"2")
        assert str(leader) not in monitor.get_children("/brokers/ids")
        await asyncio.to_thread(monitor.stop)
        monitor.close()

        await asyncio.to_thread(server.restart)
        await start(leader)
        await until(lambda: len(state(brokers[leader]).isr) == 3)
        await produce([*brokers.values()], b"3")
        async with oncelog.Consumer(brokers[leader].bootstrap_servers) as consumer:
            orders = oncelog.TopicPartition("orders", 0)
            consumer.assign([orders])
            consumer.seek(orders, 0)
            values: list[bytes | None] = []
            while len(values) < 3:
                values += [record.value for record in await consumer.poll(1_000)]
        assert values == [b"1", b"2", b"3"]
