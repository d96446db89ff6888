"""The metrics of replicas are what the metadata and the logs say, whatever happens to brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from oncelog.controller.events import AlterReassignments, Reassignment
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.join_group import JoinGroupRequestProtocol
from tests.support.members import Cluster, members
from tests.unit.broker.metrics.test_replication import CONTROLLER, MAX_LAG, REPLICAS, read
from tests.unit.broker.test_several_brokers import asked

pytestmark = pytest.mark.slow

PURGATORY = "kafka_server_delayedoperationpurgatory_purgatorysize"
PLACED: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "t": ((2, 1, 3), (1, 2, 3), (3, 2, 1)),
    "single": ((2,),),
}


def expected(cluster: Cluster, broker_id: int) -> dict[str, float]:
    """What the metrics of a broker have to be, worked out from the metadata that it follows."""
    image = cluster[broker_id].broker.image
    states = [one for topic in image.topics.values() for one in topic.partitions]
    led = [one for one in states if one.leader == broker_id]
    missing = [set(one.replicas) - {*one.isr} - {*one.adding} for one in led]
    min_isr = int(str(cluster[broker_id].config["min.insync.replicas"]))
    return {
        f"{CONTROLLER}activecontrollercount": image.controller_id == broker_id,
        f"{CONTROLLER}offlinepartitionscount": sum(one.leader < 0 for one in states),
        f"{CONTROLLER}globalpartitioncount": len(states),
        f"{CONTROLLER}activebrokercount": len(image.brokers),
        f"{REPLICAS}leadercount": len(led),
        f"{REPLICAS}partitioncount": sum(broker_id in one.replicas for one in states),
        f"{REPLICAS}underreplicatedpartitions": sum(map(bool, missing)),
        f"{REPLICAS}underminisrpartitioncount": sum(
            len(one.isr) < min(min_isr, len(one.replicas)) for one in led
        ),
        f"{REPLICAS}reassigningpartitions": sum(bool(one.adding or one.removing) for one in led),
        MAX_LAG: 0,
    }


def found(cluster: Cluster, broker_id: int) -> dict[str, float]:
    return {name: read(cluster, broker_id, name) for name in expected(cluster, broker_id)}


async def check(cluster: Cluster) -> dict[str, float]:
    """Compare each broker's metrics with the state, once; return the sums over all brokers."""
    await cluster.agreed()
    sums: dict[str, float] = {}
    for member in cluster:
        values = found(cluster, member.broker_id)
        assert values == expected(cluster, member.broker_id), member.broker_id
        for name, value in values.items():
            sums[name] = sums.get(name, 0) + value
    assert sums[f"{CONTROLLER}activecontrollercount"] == 1
    return sums


def isr(cluster: Cluster, partition: int) -> set[int]:
    image = next(iter(cluster)).broker.image.partition("t", partition)
    return set() if image is None else {*image.isr}


async def test_metrics_follow_moves_deletions_and_restarts() -> None:
    async with members(3, {"min.insync.replicas": "2"}) as cluster:
        topics = [TopicToCreate(n, assignment=dict(enumerate(p))) for n, p in PLACED.items()]
        await cluster[1].broker.controller.create_topics(topics)
        sums = await check(cluster)
        assert sums[f"{REPLICAS}leadercount"] == 4
        for broker_id in (2, 1):
            await cluster.kill(broker_id)
            cluster.expire(broker_id)
            await cluster.until(lambda gone=broker_id: gone not in isr(cluster, 2))  # type: ignore[misc]
            sums = await check(cluster)
        assert sums[f"{CONTROLLER}offlinepartitionscount"] == 1
        assert sums[f"{REPLICAS}underreplicatedpartitions"] == 3
        assert sums[f"{REPLICAS}underminisrpartitioncount"] == 3
        await cluster.start(1, 2)
        for number in range(3):
            await cluster.until(lambda each=number: len(isr(cluster, each)) == 3)  # type: ignore[misc]
        sums = await check(cluster)
        assert sums[f"{REPLICAS}underreplicatedpartitions"] == 0
        controller = cluster[3].broker.controller
        deleted = cluster[3].broker.image.topics["t"].topic_id
        assert await controller.delete_topic(deleted) is ErrorCode.none
        sums = await check(cluster)
        assert sums[f"{REPLICAS}leadercount"] == sums[f"{REPLICAS}partitioncount"] == 1


async def test_a_replica_that_is_being_added_is_not_missed() -> None:
    async with members(3, {"min.insync.replicas": "2"}) as cluster:
        topic = TopicToCreate("t", assignment={0: (1, 2)})
        controller = cluster[1].broker.controller
        await controller.create_topics([topic])
        # The store is not told of its end, and it fetches nothing.
        await cluster.kill(3)
        moved = Reassignment(TopicPartition("t", 0), (1, 3))
        (outcome,) = await controller.submit(AlterReassignments((moved,)))
        assert outcome.error is ErrorCode.none
        sums = await check(cluster)
        assert sums[f"{REPLICAS}reassigningpartitions"] == 1
        assert sums[f"{REPLICAS}underreplicatedpartitions"] == 0
        cluster.expire(3)


async def test_members_that_wait_for_a_rebalance_are_counted() -> None:
    config = {"group.initial.rebalance.delay.ms": 300_000}
    async with members(1, config) as cluster, asked(cluster, 1) as client:
        controller = cluster[1].broker.controller
        await controller.internal_topic(CONSUMER_OFFSETS_TOPIC)
        join = client.ask(
            ApiKey.JOIN_GROUP,
            3,
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=300_000,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        joining = asyncio.create_task(join)
        await cluster.until(lambda: read(cluster, 1, PURGATORY) == 1)
        joining.cancel()
        await asyncio.wait([joining])
