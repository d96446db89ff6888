"""Groups whose coordinator moves to another broker: no member is expelled, no offset lost.

A generation, and a member's epoch, go on with the next coordinator; its sessions begin anew there
(`tests/simulation/test_group_sessions.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from oncelog.client import Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition
from oncelog.client.group_session import GroupProtocol
from oncelog.controller.events import ElectLeaders
from oncelog.controller.topics import TopicToCreate, new_internal_topic
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.core.ids import TopicPartition as Label
from oncelog.group.shard import GroupCoordinatorShard
from oncelog.protocol.api import ApiKey
from tests.support.members import Cluster, members

pytestmark = pytest.mark.slow

PROTOCOLS: tuple[GroupProtocol, ...] = ("classic", "consumer")
CONTROLLER, COORDINATOR, NEXT = 1, 2, 3
GROUP, TOPIC = "g", "t"
PARTITIONS = 4
HEARTBEATS = (ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "replica.fetch.wait.max.ms": 50,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 50,
}


class Told(RebalanceListener):
    """Notes what a member is told."""

    def __init__(self) -> None:
        self.changes: list[str] = []

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.changes.append("revoked")

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.changes.append("assigned")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.changes.append("lost")


class World:
    """Three brokers, and members of one group that poll in the background."""

    def __init__(self, cluster: Cluster, exits: AsyncExitStack) -> None:
        self.cluster = cluster
        self.consumers: list[Consumer] = []
        self.told: list[Told] = []
        self._exits = exits
        self._polls: dict[Consumer, asyncio.Task[None]] = {}

    async def create_topics(self) -> None:
        config = self.cluster[CONTROLLER].broker.config
        new = new_internal_topic(CONSUMER_OFFSETS_TOPIC, config, 3)
        placed = {0: (COORDINATOR, NEXT, CONTROLLER)}
        topics = [
            TopicToCreate(TOPIC, assignment=dict.fromkeys(range(PARTITIONS), (1, 2, 3))),
            replace(new, partitions=-1, replication_factor=-1, assignment=placed),
        ]
        outcomes = await self.cluster[CONTROLLER].broker.controller.create_topics(topics)
        assert all(outcome.error is ErrorCode.none for outcome in outcomes), outcomes
        await self.cluster.agreed()

    async def join(self, protocol: GroupProtocol, **options: Any) -> Consumer:
        """A member that polls from now on."""
        servers = ",".join(f"127.0.0.1:{member.port}" for member in self.cluster)
        options = {"heartbeat_interval_ms": 50, "retry_backoff_ms": 10, **options}
        consumer = Consumer(
            servers, group_id=GROUP, group_protocol=protocol, enable_auto_commit=False, **options
        )
        await self._exits.enter_async_context(consumer)
        self.told.append(Told())
        consumer.subscribe([TOPIC], listener=self.told[-1])
        self.consumers.append(consumer)
        self.go_on(consumer)
        return consumer

    async def _poll(self, consumer: Consumer) -> None:
        while True:
            await consumer.poll(20)

    async def leave_alone(self, consumer: Consumer) -> None:
        """Poll no more; its heartbeats go on."""
        poll = self._polls.pop(consumer)
        poll.cancel()
        await asyncio.wait([poll])

    def go_on(self, consumer: Consumer) -> None:
        """Poll again."""
        self._polls[consumer] = asyncio.create_task(self._poll(consumer))

    def joins_waiting(self, broker_id: int) -> int:
        """How many members of the group a coordinator keeps waiting for others to join."""
        if broker_id not in [member.broker_id for member in self.cluster]:
            return 0
        return sum(
            member.awaits_join
            for shard in self.cluster[broker_id].broker.groups.shards()
            if isinstance(shard, GroupCoordinatorShard)
            for group in shard.store.groups.values()
            for member in group.members.values()
        )

    async def shared(self) -> None:
        """Return when the partitions are shared out evenly."""
        count = PARTITIONS // len(self.consumers)
        await self.until(
            lambda: all(len(consumer.assignment()) == count for consumer in self.consumers)
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        await self.cluster.until(lambda: condition() or self._has_failed())

    def _has_failed(self) -> bool:
        for poll in self._polls.values():
            if poll.done():
                poll.result()
        return False

    async def commit(self, offset: int) -> None:
        for consumer in self.consumers:
            own = consumer.assignment()
            await consumer.commit(dict.fromkeys(own, OffsetAndMetadata(offset)))

    async def offsets(self) -> list[int]:
        labels = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        found = await self.consumers[0].committed(labels)
        return [-1 if each is None else each.offset for each in found.values()]

    def heartbeats_count(self) -> int:
        """How many the present coordinator was sent in this life."""
        leader = self.cluster.leader_of(CONSUMER_OFFSETS_TOPIC, 0)
        if leader not in [member.broker_id for member in self.cluster]:
            return 0
        meters = self.cluster[leader].broker.dispatcher.meters.items()
        return sum(meter.count for (key, _), meter in meters if key in HEARTBEATS)

    async def heartbeats(self, count: int = 6) -> None:
        """Return when the present coordinator has got so many more."""
        before = self.heartbeats_count()
        await self.until(lambda: self.heartbeats_count() >= before + count)

    async def close(self) -> None:
        for consumer in list(self._polls):
            await self.leave_alone(consumer)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with members(3, SETTINGS) as cluster, AsyncExitStack() as exits:
        made = World(cluster, exits)
        exits.push_async_callback(made.close)
        await made.create_topics()
        yield made
        await made.close()


async def kill(on: World) -> None:
    await on.cluster.kill(COORDINATOR)
    on.cluster.expire(COORDINATOR)


async def stop(on: World) -> None:
    await on.cluster.stop(COORDINATOR)


async def elect_there_and_back(on: World) -> None:
    """The coordinator is stopped and started, and preferred again."""
    await on.cluster.restart(COORDINATOR)
    partition = Label(CONSUMER_OFFSETS_TOPIC, 0)
    in_sync = lambda: (  # noqa: E731 - read once, below
        len(on.cluster[1].broker.image.topics[CONSUMER_OFFSETS_TOPIC].partitions[0].isr) == 3
    )
    await on.until(in_sync)
    controller = on.cluster[CONTROLLER].broker.controller
    await controller.submit(ElectLeaders((partition,)))
    await on.cluster.agreed()


Move = Callable[[World], Awaitable[None]]
MOVES: dict[str, tuple[Move, int]] = {
    "killed": (kill, NEXT),
    "stopped": (stop, NEXT),
    "elected back": (elect_there_and_back, COORDINATOR),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("move", MOVES)
async def test_a_group_goes_on_with_the_next_coordinator(
    protocol: GroupProtocol, move: str
) -> None:
    """No rebalance: each member keeps its id, its generation and its partitions."""
    carry_out, expected = MOVES[move]
    async with world() as on:
        await on.join(protocol)
        await on.join(protocol)
        await on.shared()
        await on.heartbeats()
        await on.commit(1)
        before = [consumer.group_metadata() for consumer in on.consumers]
        told = [list(each.changes) for each in on.told]
        await carry_out(on)
        await on.until(lambda: on.cluster.leader_of(CONSUMER_OFFSETS_TOPIC, 0) == expected)
        assert await on.offsets() == [1] * PARTITIONS
        await on.heartbeats()
        await on.commit(2)
        assert await on.offsets() == [2] * PARTITIONS
        assert [consumer.group_metadata() for consumer in on.consumers] == before
        assert [each.changes for each in on.told] == told


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_static_member_returns_to_the_next_coordinator(protocol: GroupProtocol) -> None:
    """The group is not told of it: another process has its name, and the same partitions."""
    async with world() as on:
        await on.join(protocol, group_instance_id="one")
        second = await on.join(protocol, group_instance_id="two")
        await on.shared()
        await on.heartbeats()
        own, told = second.assignment(), list(on.told[0].changes)
        generation = on.consumers[0].group_metadata().generation
        await on.leave_alone(second)
        await second.close()
        on.consumers.remove(second)
        await kill(on)
        again = await on.join(protocol, group_instance_id="two")
        await on.shared()
        assert again.assignment() == own
        await on.heartbeats()
        assert on.told[0].changes == told
        if protocol == "classic":
            assert on.consumers[0].group_metadata().generation == generation
        await on.commit(3)
        assert await on.offsets() == [3] * PARTITIONS


async def test_a_join_that_waits_goes_on_with_the_next_coordinator() -> None:
    """The rebalance was not over: the next coordinator has the generation before, with its members.

    Who had not joined is no more in a hurry than before, and who had joins again.
    """
    async with world() as on:
        first = await on.join("classic")
        await on.until(lambda: len(first.assignment()) == PARTITIONS)
        await on.leave_alone(first)
        await on.join("classic")
        await on.until(lambda: on.joins_waiting(COORDINATOR) == 1)
        await kill(on)
        await on.until(lambda: on.joins_waiting(NEXT) == 1)
        on.go_on(first)
        await on.shared()
        await on.commit(4)
        assert await on.offsets() == [4] * PARTITIONS
