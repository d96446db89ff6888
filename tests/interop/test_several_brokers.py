"""What stock clients see of several brokers: each broker that they ask says the same."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from oncelog.controller.topics import TopicToCreate
from tests.support.members import Cluster, members

T = TypeVar("T")

pytestmark = [pytest.mark.interop, pytest.mark.slow]

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
TIMEOUT_S = 10


async def started(cluster: Cluster) -> list[str]:
    """A topic with three partitions of three replicas; returns the brokers' addresses."""
    for broker_id in (1, 2, 3):
        cluster[broker_id].config["broker.rack"] = f"rack-{broker_id}"
    await cluster.start(1, 2, 3)
    controller = cluster[cluster[1].broker.image.controller_id].broker.controller
    await controller.create_topics([TopicToCreate("t", 3, 3)])
    await cluster.agreed()
    return [cluster[broker_id].broker.bootstrap_servers for broker_id in (1, 2, 3)]


async def of_each(servers: list[str], ask: Callable[[str], T]) -> T:
    """Ask each broker in a thread of its own; all have to say the same."""
    answers = [await asyncio.to_thread(ask, server) for server in servers]
    assert all(answer == answers[0] for answer in answers), answers
    return answers[0]


def by_librdkafka(server: str) -> Any:
    listed = AdminClient({"bootstrap.servers": server}).list_topics("t", timeout=TIMEOUT_S)
    partitions = listed.topics["t"].partitions.values()
    return (
        sorted((each.id, each.host, each.port) for each in listed.brokers.values()),
        listed.controller_id,
        sorted(
            (each.id, each.leader, tuple(each.replicas), tuple(each.isrs)) for each in partitions
        ),
    )


def by_kafka_python(server: str) -> Any:
    client = KafkaAdminClient(bootstrap_servers=server)
    try:
        cluster = client.describe_cluster()
        (topic,) = client.describe_topics(["t"])
    finally:
        client.close()
    brokers = sorted(
        (each["broker_id"], each["host"], each["port"], each["rack"]) for each in cluster["brokers"]
    )
    partitions = sorted(
        (
            each["partition_index"],
            each["leader_id"],
            tuple(each["replica_nodes"]),
            tuple(each["isr_nodes"]),
            tuple(each["offline_replicas"]),
        )
        for each in topic["partitions"]
    )
    return brokers, cluster["controller_id"], partitions


def by_kcat(server: str) -> str:
    assert KCAT is not None
    done = subprocess.run(
        [KCAT, "-b", server, "-L", "-t", "t"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    # The first line names the broker that was asked.
    return done.stdout.partition("\n")[2]


@pytest.mark.parametrize("ask", [by_librdkafka, by_kafka_python])
async def test_a_stock_client_sees_the_same_whichever_broker_it_asks(
    ask: Callable[[str], Any],
) -> None:
    async with members(3, starts=False) as cluster:
        servers = await started(cluster)
        image = cluster[1].broker.image
        brokers, controller_id, partitions = await of_each(servers, ask)
        ports = [cluster[each].port for each in (1, 2, 3)]
        assert [each[:3] for each in brokers] == [
            (number, "127.0.0.1", port) for number, port in enumerate(ports, 1)
        ]
        assert controller_id == image.controller_id
        assert [each[1] for each in partitions] == [
            each.leader for each in image.topics["t"].partitions
        ]


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: apt install kcat)")
async def test_kcat_lists_three_brokers_and_their_replicas() -> None:
    async with members(3, starts=False) as cluster:
        listing = await of_each(await started(cluster), by_kcat)
        assert "3 brokers:" in listing
        assert listing.count("partition ") == 3
        assert "(controller)" in listing


async def test_librdkafka_finds_each_leader_from_any_broker() -> None:
    async with members(3, starts=False) as cluster:
        servers = await started(cluster)

        def send(server: str) -> None:
            problems: list[object] = []
            producer = Producer(
                {"bootstrap.servers": server, "acks": "all", "enable.idempotence": True}
            )
            for partition in range(3):
                producer.produce(
                    "t", b"x", partition=partition, on_delivery=lambda e, _: problems.append(e)
                )
            assert producer.flush(TIMEOUT_S) == 0
            assert problems == [None] * 3

        for server in servers:
            await asyncio.to_thread(send, server)
        for number in range(3):
            leader = cluster[cluster.leader_of("t", number)].broker.partitions.get("t", number)
            assert leader is not None
            assert (leader.log.log_end_offset, leader.state.high_watermark) == (3, 3)
