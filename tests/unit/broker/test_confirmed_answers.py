"""Answers of group coordinators in a cluster: they were so after the request came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.support.members import Cluster, members
from tests.unit.broker.context import Client
from tests.unit.broker.metrics.test_replication import read
from tests.unit.broker.test_several_brokers import asked, controller_of

LONG = {"replica.fetch.wait.max.ms": 20_000, "min.insync.replicas": 2}
"""A follower's fetch waits for longer than a reply waits to be confirmed."""
NONE = ErrorCode.none
UNCONFIRMED = "oncelog_coordinator_unconfirmed_replies"


@asynccontextmanager
async def three() -> AsyncIterator[Cluster]:
    """Three brokers, of which the first is the coordinator of all groups."""
    async with members(3, LONG) as cluster:
        topics = [TopicToCreate("t"), TopicToCreate(CONSUMER_OFFSETS_TOPIC, assignment={0: IDS})]
        for outcome in await controller_of(cluster).create_topics(topics):
            assert outcome.error is NONE, outcome
        await cluster.agreed()
        yield cluster


IDS = (1, 2, 3)


def shard(cluster: Cluster, broker_id: int) -> Partition:
    found = cluster[broker_id].broker.partitions.get(CONSUMER_OFFSETS_TOPIC, 0)
    assert found is not None
    return found


async def commit(cluster: Cluster, broker_id: int, offset: int) -> None:
    async with asked(cluster, broker_id) as client:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name="t", partitions=(partition,))
        answer = await client.ask(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=(topic,))
    assert answer.topics[0].partitions[0].error_code is NONE


async def committed(client: Client) -> Any:
    """The group's error, or its offset."""
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=(0,))
    group = OffsetFetchRequestGroup(group_id="g", topics=(topic,))
    (found,) = (await client.ask(ApiKey.OFFSET_FETCH, 9, groups=(group,))).groups
    return found.error_code or found.topics[0].partitions[0].committed_offset


async def heartbeat(client: Client) -> Any:
    fields: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    return (await client.ask(ApiKey.HEARTBEAT, **fields)).error_code


async def described(client: Client) -> Any:
    return (await client.ask(ApiKey.DESCRIBE_GROUPS, groups=("g",))).groups[0].error_code


async def test_an_answer_is_confirmed_sooner_than_a_fetch_has_waited() -> None:
    """Else it would be refused: the followers' fetches are answered for it."""
    async with three() as cluster:
        await commit(cluster, 1, 5)
        async with asked(cluster, 1) as client:
            for _ in range(3):
                assert await committed(client) == 5
            assert await heartbeat(client) is ErrorCode.unknown_member_id


async def test_a_replaced_group_coordinator_that_wakes_up_tells_nothing_old() -> None:
    """In Kafka it tells the old offset, and a batch is processed twice."""
    async with three() as cluster, asked(cluster, 1) as first, asked(cluster, 1) as second:
        await commit(cluster, 1, 5)
        cluster[1].link.is_open.clear()
        cluster.expire(1)
        await cluster.until(lambda: any(shard(cluster, each).state.is_leader for each in (2, 3)))
        (leader,) = (each for each in (2, 3) if shard(cluster, each).state.is_leader)
        await commit(cluster, leader, 9)
        assert shard(cluster, 1).state.is_leader, "it has not heard of that"
        async with asked(cluster, 1) as third, asyncio.TaskGroup() as tasks:
            answers = [
                tasks.create_task(committed(first)),
                tasks.create_task(heartbeat(second)),
                tasks.create_task(described(third)),
            ]
            await cluster.until(lambda: read(cluster, 1, UNCONFIRMED) == 3)
            cluster[1].link.is_open.set()
        assert [answer.result() for answer in answers] == [ErrorCode.not_coordinator] * 3
        async with asked(cluster, leader) as client:
            assert await committed(client) == 9
