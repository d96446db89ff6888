"""The lag of groups: to the high watermark and to the last stable offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.delete_topics import DeleteTopicState
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.members import Cluster, members
from tests.unit.broker.context import Client, running
from tests.unit.broker.metrics.test_catalog import create, values_of
from tests.unit.broker.metrics.test_replication import read
from tests.unit.broker.raw import add_partition, init_producer, produce
from tests.unit.broker.support import batch
from tests.unit.broker.test_several_brokers import asked

LAG = "kafka_consumergroup_lag"
STABLE_LAG = "oncelog_consumergroup_stable_lag"
OFFSET = "kafka_consumergroup_current_offset"
END = "kafka_topic_partition_current_offset"
ONE_PARTITION = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


async def commit(client: Client, offset: int, topic: str = "t") -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = (OffsetCommitRequestTopic(name=topic, partitions=(partition,)),)
    answer = await client.ask(ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=topics)
    assert answer.topics[0].partitions[0].error_code == 0


async def test_a_lone_broker_shows_both_lags_of_a_group(tmp_path: Path) -> None:
    async with running(tmp_path, ONE_PARTITION) as context:
        client = await context.connect()
        await create(client, "t")
        for topic in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
            await context.broker.controller.internal_topic(topic)
        await produce(client, 9, batch(5))
        await commit(client, 2)
        at = ("g", "t", "0")
        values = values_of(context)
        assert (values[OFFSET, at], values[END, ("t", "0")]) == (2, 5)
        assert (values[LAG, at], values[STABLE_LAG, at]) == (3, 3)

        given = await init_producer(client, "id", transaction_timeout_ms=60_000)
        await add_partition(client, "id", given.producer_id, given.producer_epoch)
        opened = batch(
            4,
            producer_id=given.producer_id,
            epoch=given.producer_epoch,
            sequence=0,
            transactional=True,
        )
        await produce(client, 11, opened, transactional_id="id")
        values = values_of(context)
        assert (values[LAG, at], values[STABLE_LAG, at]) == (7, 3)

        # A read_uncommitted consumer may be beyond the last stable offset.
        await commit(client, 9)
        values = values_of(context)
        assert (values[LAG, at], values[STABLE_LAG, at]) == (0, 0)


async def test_a_topic_that_is_gone_has_no_lag(tmp_path: Path) -> None:
    async with running(tmp_path, ONE_PARTITION) as context:
        client = await context.connect()
        await create(client, "t")
        await context.broker.controller.internal_topic(CONSUMER_OFFSETS_TOPIC)
        await commit(client, 0)
        state = DeleteTopicState(name="t", topic_id=None)
        await client.ask(ApiKey.DELETE_TOPICS, 6, topics=(state,), timeout_ms=1000)
        assert not [name for name, _ in values_of(context) if name in (LAG, OFFSET)]


async def test_no_more_offsets_are_shown_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.broker.metrics.lag.METRICS_OFFSETS_COUNT_MAX", 1)
    async with running(tmp_path, ONE_PARTITION) as context:
        client = await context.connect()
        await create(client, "t")
        await create(client, "u")
        await context.broker.controller.internal_topic(CONSUMER_OFFSETS_TOPIC)
        await commit(client, 0)
        await commit(client, 0, "u")
        assert len([name for name, _ in values_of(context) if name == OFFSET]) == 1


def by_broker(cluster: Cluster, name: str) -> list[float]:
    return [read(cluster, each, name) for each in (1, 2, 3)]


async def test_the_coordinator_shows_the_lag_where_it_has_a_replica_in_sync() -> None:
    async with members(3, {"offsets.topic.num.partitions": "1"}) as cluster:
        assignments = {"t": (2, 1), "elsewhere": (2, 3)}
        topics = [TopicToCreate(name, assignment={0: to}) for name, to in assignments.items()]
        topics.append(TopicToCreate(CONSUMER_OFFSETS_TOPIC, assignment={0: (1, 2, 3)}))
        await cluster[1].broker.controller.create_topics(topics)
        await cluster.agreed()
        async with asked(cluster, 1) as client:
            for topic in assignments:
                await commit(client, 0, topic)
        async with asked(cluster, 2) as leader:
            await produce(leader, 9, batch(5))
        await cluster.until(lambda: read(cluster, 1, LAG) == 5)
        # Where "elsewhere" ends is known to its leader alone, as the offset to the coordinator.
        assert by_broker(cluster, LAG) == [5, 0, 0]
        two_commits = 2
        assert by_broker(cluster, END) == [two_commits, 5, 0]
