"""Stock clients on one of two listeners, behind a port mapping as a container has it.

After Apache's MultipleListenersWithSameSecurityProtocolTest: each listener serves a producer and a
consumer, which never come to an address of the other one.
"""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import AdminClient

from oncelog.controller.topics import TopicToCreate
from tests.support.interop import CLIENTS, Record, read_to_end
from tests.support.members import Cluster, members
from tests.support.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = [pytest.mark.interop, pytest.mark.slow]

LISTENERS = {
    "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
TIMEOUT_S = 10


async def start(cluster: Cluster, ports: list[TcpProxy]) -> None:
    """Start brokers whose EXTERNAL listeners are reached by mapped ports only."""
    for broker_id, mapped in enumerate(ports, 1):
        told = f"INTERNAL://127.0.0.1:0,EXTERNAL://localhost:{mapped.port}"
        cluster[broker_id].config |= {**LISTENERS, "advertised.listeners": told}
        broker = await cluster[broker_id].start()
        mapped.server_port = broker.server.listeners[1].address.port
    controller = cluster[cluster[1].broker.image.controller_id].broker.controller
    await controller.create_topics([TopicToCreate("t", assignment={0: (1, 2), 1: (2, 1)})])
    await cluster.agreed()


def known_to(server: str) -> list[tuple[str, int]]:
    """The brokers' addresses as a client is told them."""
    listed = AdminClient({"bootstrap.servers": server}).list_topics(timeout=TIMEOUT_S)
    return sorted((str(each.host), each.port) for each in listed.brokers.values())


def use(server: str, name: str) -> list[bytes | None]:
    """Write a record into both partitions by a stock client, and read what is there."""
    client = CLIENTS[name](server)
    try:
        client.sender().send("t", [Record(name.encode(), partition=each) for each in (0, 1)])
        return [each.value for each in read_to_end(client, "t", 2)]
    finally:
        client.close()


async def test_clients_of_each_listener_stay_on_its_addresses() -> None:
    async with (
        members(2, starts=False) as cluster,
        tcp_proxy(0) as first,
        tcp_proxy(0) as second,
    ):
        await start(cluster, [first, second])
        brokers = [cluster[broker_id].broker.server.listeners for broker_id in (1, 2)]
        inside = [str(internal.address) for internal, _ in brokers]
        addresses = sorted(("127.0.0.1", internal.address.port) for internal, _ in brokers)
        assert await asyncio.to_thread(known_to, inside[0]) == addresses
        mapped = sorted(("localhost", each.port) for each in (first, second))
        assert await asyncio.to_thread(known_to, f"127.0.0.1:{first.port}") == mapped
        for number in (1, 2):
            # By now the brokers have their connections to each other.
            new = [TopicToCreate(f"of-{number}", 1, 1)]
            await cluster[number].broker.controller.create_topics(new)
        before = [internal.opened_count for internal, _ in brokers]
        for name in CLIENTS:
            found = await asyncio.to_thread(use, f"127.0.0.1:{second.port}", name)
            assert found.count(name.encode()) == 2
        assert [internal.opened_count for internal, _ in brokers] == before
        found = await asyncio.to_thread(use, inside[1], "confluent-kafka")
        assert found.count(b"confluent-kafka") == 4
        assert all(external.opened_count for _, external in brokers)
