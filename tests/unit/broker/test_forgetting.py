"""A broker that is gone for good, and what waits for it until it is forgotten."""

from __future__ import annotations

import pytest

from oncelog.client import Admin, FatalError
from oncelog.controller.events import ElectLeaders
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from tests.support.members import Cluster, members

SHARED = TopicPartition("shared", 0)


async def create(cluster: Cluster, name: str, *replicas: int) -> None:
    new = TopicToCreate(name, assignment={0: replicas})
    (outcome,) = await cluster[1].broker.controller.create_topics([new])
    assert outcome.error is ErrorCode.none, outcome
    await cluster.agreed()


async def lose(cluster: Cluster, broker_id: int) -> None:
    """A broker dies, and the others know it."""
    await cluster.kill(broker_id)
    cluster.expire(broker_id)
    await cluster.until(lambda: all(broker_id not in one.broker.image.brokers for one in cluster))
    await cluster.agreed()


async def refusal(admin: Admin, broker_id: int) -> tuple[ErrorCode | None, str]:
    with pytest.raises(FatalError) as caught:
        await admin.unregister_broker(broker_id)
    return caught.value.code, str(caught.value)


async def test_a_deletion_waits_for_a_lost_broker_until_it_is_forgotten() -> None:
    async with members(3) as cluster:
        await create(cluster, "t", 1, 2, 3)
        topic_id = cluster[1].broker.image.topics["t"].topic_id
        await lose(cluster, 3)
        await cluster[1].broker.controller.delete_topic(topic_id)
        assert 3 in cluster[1].broker.image.deleted["t"][topic_id]
        for member in cluster:
            async with Admin(member.broker.bootstrap_servers) as admin:
                await admin.unregister_broker(3)
        await cluster.agreed()
        for member in cluster:
            assert 3 not in member.broker.image.deleted["t"][topic_id]
            assert 3 not in member.broker.image.directories


async def test_a_forgotten_broker_that_returns_is_a_follower_again() -> None:
    async with members(3) as cluster:
        await create(cluster, "t", 1, 2, 3)
        await lose(cluster, 3)
        async with Admin(cluster[2].broker.bootstrap_servers) as admin:
            await admin.unregister_broker(3)
        await cluster.start(3)
        await cluster.until(
            lambda: set(cluster[1].broker.image.topics["t"].partitions[0].isr) == {1, 2, 3}
        )


async def test_only_a_broker_that_is_gone_and_known_is_forgotten() -> None:
    async with members(2) as cluster, Admin(cluster[1].broker.bootstrap_servers) as admin:
        code, text = await refusal(admin, 2)
        assert (code, "Broker 2 is registered" in text) == (ErrorCode.invalid_request, True)
        assert (await refusal(admin, 9))[0] is ErrorCode.broker_id_not_registered


async def test_a_broker_that_alone_has_records_is_not_forgotten() -> None:
    """An unclean election, or the deletion of the topic, gives the records up; only then."""
    async with members(3) as cluster, Admin(cluster[1].broker.bootstrap_servers) as admin:
        await create(cluster, "alone", 3)
        await create(cluster, "shared", 3, 2)
        await lose(cluster, 2)
        await lose(cluster, 3)
        await cluster.start(2)
        code, text = await refusal(admin, 3)
        assert code is ErrorCode.invalid_request
        assert "alone may have records of alone-0, shared-0." in text
        controller = cluster[1].broker.controller
        ((_, error, _),) = await controller.submit(ElectLeaders((SHARED,), is_unclean=True))
        assert error is ErrorCode.none
        assert "alone may have records of alone-0." in (await refusal(admin, 3))[1]
        await admin.delete_topics(["alone"])
        await admin.unregister_broker(3)
        await cluster.agreed()
        assert cluster.leader_of("shared", 0) == 2
