"""Brokers with different listeners: how clients of each see the cluster, and brokers each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsTopic
from oncelog.protocol.messages.metadata import MetadataRequestTopic
from tests.support.certificates import Authority
from tests.support.members import Cluster, members
from tests.unit.broker.context import Client
from tests.unit.broker.test_several_brokers import controller_of

BOTH = {
    "listeners": "EXTERNAL://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
HALF = {**BOTH, "listeners": "INTERNAL://127.0.0.1:0"}


@asynccontextmanager
async def two() -> AsyncIterator[Cluster]:
    """Broker 1 with both listeners, broker 2 with the inter-broker one."""
    async with members(2, starts=False) as cluster:
        for broker_id, config in ((1, BOTH), (2, HALF)):
            cluster[broker_id].config |= config
        await cluster.start(1, 2)
        await controller_of(cluster).create_topics([TopicToCreate("t", 2, 2)])
        await cluster.agreed()
        yield cluster


async def ask(cluster: Cluster, listener: str, api: ApiKey, version: int, **fields: Any) -> Any:
    """What a client of a listener of broker 1 is told."""
    server = cluster[1].broker.server
    (address,) = [each.address for each in server.listeners if each.name == listener]
    client = Client(*await asyncio.open_connection(*address))
    try:
        return await client.ask(api, version, **fields)
    finally:
        client.writer.close()


async def test_a_broker_without_the_listener_is_left_out_and_its_partitions_say_why() -> None:
    async with two() as cluster:
        led = {cluster.leader_of("t", number): number for number in (0, 1)}
        asked = {"topics": (MetadataRequestTopic(name="t"),)}
        errors = {5: ErrorCode.leader_not_available, 6: ErrorCode.listener_not_found}
        for version, error in errors.items():
            found = await ask(cluster, "EXTERNAL", ApiKey.METADATA, version, **asked)
            assert [each.node_id for each in found.brokers] == [1]
            assert found.controller_id == 1
            partitions = {each.partition_index: each for each in found.topics[0].partitions}
            assert partitions[led[1]].leader_id == 1
            assert (partitions[led[2]].leader_id, partitions[led[2]].error_code) == (-1, error)
            assert {each.offline_replicas for each in partitions.values()} == {(2,)}
        found = await ask(
            cluster,
            *("EXTERNAL", ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0),
            topics=(DescribeTopicPartitionsTopic(name="t"),),
        )
        told = {each.partition_index: each.error_code for each in found.topics[0].partitions}
        assert told == {led[1]: ErrorCode.none, led[2]: ErrorCode.listener_not_found}
        found = await ask(cluster, "INTERNAL", ApiKey.METADATA, 12, **asked)
        assert [each.node_id for each in found.brokers] == [1, 2]
        assert {each.error_code for each in found.topics[0].partitions} == {ErrorCode.none}


async def test_brokers_reach_each_other_by_the_inter_broker_listener() -> None:
    async with two() as cluster:
        await cluster.until(lambda: inbound(cluster, 1, "INTERNAL") > 0)
        await cluster.until(lambda: inbound(cluster, 2, "INTERNAL") > 0)
        assert inbound(cluster, 1, "EXTERNAL") == 0


def inbound(cluster: Cluster, broker_id: int, listener: str) -> int:
    """The count of connections that a listener of a broker has open."""
    listeners = cluster[broker_id].broker.server.listeners
    return sum(each.connections_count for each in listeners if each.name == listener)


async def test_brokers_reach_each_other_with_tls(tmp_path: Path) -> None:
    authority = Authority.make()
    (tmp_path / "authority.pem").write_text(authority.pem)
    given = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.truststore.location": str(tmp_path / "authority.pem"),
        "ssl.client.auth": "required",
    }
    async with members(2, starts=False) as cluster:
        for broker_id in (1, 2):
            own = authority.sign(f"broker{broker_id}", "127.0.0.1")
            file = own.write(tmp_path / f"{broker_id}.pem")
            cluster[broker_id].config |= {**given, "ssl.keystore.location": file}
        await cluster.start(1, 2)
        await controller_of(cluster).create_topics([TopicToCreate("t", 2, 2)])
        await cluster.agreed()
        for broker_id in (1, 2):
            await cluster.until(lambda each=broker_id: inbound(cluster, each, "SSL") > 0)  # type: ignore[misc]
            connections = cluster[broker_id].broker.server.connections
            assert {each.principal for each in connections} == {f"CN=broker{3 - broker_id}"}
