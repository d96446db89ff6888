"""Leaders, and a group coordinator, whose transactions another broker coordinates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from oncelog.controller.topics import TopicToCreate, new_internal_topic
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tests.support.members import Cluster, members
from tests.unit.broker.apis.producing import ID, TIMEOUT, Producing
from tests.unit.broker.context import Client
from tests.unit.broker.raw import init_producer

pytestmark = pytest.mark.slow

COORDINATOR, LEADER, GROUPS = 1, 2, 3
TV1, TV2 = 1, 2
SETTINGS = {"replica.fetch.wait.max.ms": 50, "auto.leader.rebalance.enable": "false"}


class World:
    """Three brokers, each with one role; a producer with a connection to each of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._clients: list[Client] = []

    async def create_topics(self) -> None:
        config = self.cluster[1].broker.config
        topics = [TopicToCreate("t", assignment={0: (2, 3, 1)})]
        topics.append(TopicToCreate("u", assignment={0: (2, 3, 1)}))
        for name, replicas in (
            (TRANSACTION_STATE_TOPIC, (1, 2, 3)),
            (CONSUMER_OFFSETS_TOPIC, (3, 1, 2)),
        ):
            new = new_internal_topic(name, config, 3)
            assignment = {0: replicas}
            topics.append(replace(new, partitions=-1, replication_factor=-1, assignment=assignment))
        outcomes = await self.cluster[1].broker.controller.create_topics(topics)
        assert all(outcome.error is ErrorCode.none for outcome in outcomes), outcomes
        await self.cluster.agreed()

    async def connect(self, broker_id: int) -> Client:
        host, _, port = self.cluster[broker_id].broker.bootstrap_servers.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        self._clients.append(client)
        return client

    async def start_producer(self) -> None:
        """Begin an epoch at the coordinator, which all three connections have."""
        coordinator = await self.connect(self.cluster.leader_of(TRANSACTION_STATE_TOPIC, 0))
        answer = await init_producer(coordinator, ID, transaction_timeout_ms=TIMEOUT)
        assert answer.error_code == ErrorCode.none
        ids = answer.producer_id, answer.producer_epoch
        self.at_coordinator = Producing(coordinator, *ids)
        self.at_leader = Producing(await self.connect(LEADER), *ids)
        self.at_groups = Producing(await self.connect(GROUPS), *ids)

    async def end(self, version: int, *, commit: bool = True) -> ErrorCode:
        ended = self.at_coordinator
        error = await ended.end(commit, 5 if version == TV2 else 4)
        for other in (self.at_leader, self.at_groups):
            other.producer_id, other.epoch = ended.producer_id, ended.epoch
            other.sequence = 0 if version == TV2 else other.sequence
        return error

    def close(self) -> None:
        for client in self._clients:
            client.writer.close()

    def open_transactions(self, topic: str) -> dict[int, int]:
        partition = self.cluster[LEADER].broker.partitions.get(topic, 0)
        assert partition is not None
        return partition.log.producers.undecided


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with members(3, SETTINGS) as cluster:
        made = World(cluster)
        try:
            await made.create_topics()
            await made.start_producer()
            yield made
        finally:
            made.close()


async def refusal(producing: Producing, version: int, topic: str = "t") -> ErrorCode:
    """Send as a client does, again while the coordinator's refusal was not confirmed in time."""
    while (error := await producing.produce(version, topic=topic)).retriable:
        assert error is ErrorCode.not_enough_replicas
    return error


async def test_tv2_a_leader_elsewhere_adds_its_partition_to_the_transaction() -> None:
    """Transactions back to back: each add meets the end of the one before, and waits (D7)."""
    async with world() as on:
        for number in range(5):
            assert await on.at_leader.produce(12) is ErrorCode.none
            assert await on.at_leader.produce(12, topic="u", sequence=0) is ErrorCode.none
            assert await on.at_groups.commit_offset(number, 5) is ErrorCode.none
            assert await on.end(TV2) is ErrorCode.none
        await on.cluster.until(lambda: not on.open_transactions("t"))
        await on.cluster.until(lambda: not on.open_transactions("u"))


async def test_tv1_a_leader_elsewhere_verifies_what_was_added() -> None:
    async with world() as on:
        assert await on.at_coordinator.add("t") == [ErrorCode.none]
        assert await on.at_coordinator.add_offsets() is ErrorCode.none
        assert await on.at_leader.produce(8) is ErrorCode.none
        assert await refusal(on.at_leader, 8, topic="u") is ErrorCode.invalid_txn_state
        assert await on.at_groups.commit_offset(1, 3) is ErrorCode.none
        assert await on.end(TV1) is ErrorCode.none
        assert await on.at_coordinator.add("u") == [ErrorCode.none], "the one before is complete"
        assert not on.open_transactions("t")
        assert await refusal(on.at_leader, 8) is ErrorCode.invalid_txn_state


async def test_inv5_a_leader_elsewhere_learns_that_a_producer_is_fenced() -> None:
    async with world() as on:
        before = on.at_leader
        await on.start_producer()
        assert await on.at_leader.produce(12) is ErrorCode.none
        assert await refusal(before, 12, topic="u") is ErrorCode.invalid_producer_epoch


@pytest.mark.parametrize("version", [8, 12])
async def test_a_producer_waits_for_the_next_coordinator(version: int) -> None:
    """It is told to send again until there is one, which knows what the last one knew."""
    async with world() as on:
        assert await on.at_coordinator.add("t") == [ErrorCode.none]
        assert await on.at_coordinator.add("u") == [ErrorCode.none]
        assert await on.at_leader.produce(version) is ErrorCode.none
        await on.cluster.kill(COORDINATOR)
        lost = await on.at_leader.produce(version, topic="u", sequence=0)
        assert lost is ErrorCode.not_enough_replicas
        on.cluster.expire(COORDINATOR)
        error: ErrorCode = lost
        async with asyncio.timeout(20):
            while error is ErrorCode.not_enough_replicas:
                error = await on.at_leader.produce(version, topic="u", sequence=0)
        assert error is ErrorCode.none
