"""A deletion stays noted while a transaction names its topic, wherever its coordinator moves."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.broker.coordination.coordinators import still_named
from oncelog.client import Producer
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from tests.support.members import UNTIL_TIMEOUT_S
from tests.support.transaction_stage import COORDINATOR, GROUPS, OFFICE, Stage, stage

pytestmark = pytest.mark.slow

DELETED = "d"


async def create(on: Stage, partitions: int = 1) -> None:
    new = TopicToCreate(DELETED, assignment=dict.fromkeys(range(partitions), (3, 1, 2)))
    (outcome,) = await on.cluster[OFFICE].broker.controller.create_topics([new])
    assert outcome.error is ErrorCode.none, outcome
    await on.cluster.agreed()


async def delete(on: Stage) -> None:
    topic_id = on.cluster[OFFICE].broker.image.topics[DELETED].topic_id
    assert await on.cluster[OFFICE].broker.controller.delete_topic(topic_id) is ErrorCode.none
    await on.cluster.agreed()


async def confirm(on: Stage, *broker_ids: int) -> None:
    """Have brokers look for the second time."""
    for broker_id in broker_ids:
        broker = on.cluster[broker_id].broker
        await on.cluster.agreed()
        ids = frozenset(one for noted in broker.image.deleted.values() for one in noted)
        await broker.deletions.check(ids)
    await on.cluster.agreed()


async def confirm_all(on: Stage, *broker_ids: int) -> None:
    """Have them look until the coordinators name the topic no more."""
    async with asyncio.timeout(UNTIL_TIMEOUT_S):
        while holders(on):
            await confirm(on, *broker_ids)


def holders(on: Stage) -> list[int]:
    """The brokers that may still hold it."""
    noted = on.cluster[OFFICE].broker.image.deleted.get(DELETED, {})
    return sorted(one for each in noted.values() for one in each)


async def begin(on: Stage, producer: Producer, partition: int = 0) -> None:
    await producer.init_transactions()
    await on.write(producer, b"one", 1)
    await producer.send(DELETED, b"gone", partition=partition)
    await producer.flush()


async def move_coordinator(on: Stage) -> None:
    """Another broker leads its partition; it comes back as a follower."""
    await on.cluster.stop(COORDINATOR)
    await on.start(COORDINATOR)
    await on.cluster.agreed()


async def test_the_next_coordinator_of_a_transaction_is_asked_too() -> None:
    async with stage() as on, on.producer(1) as producer:
        await create(on)
        await begin(on, producer)
        await delete(on)
        await confirm(on, OFFICE, GROUPS, COORDINATOR)
        assert holders(on) == [COORDINATOR]
        await move_coordinator(on)
        assert holders(on) == [COORDINATOR, GROUPS]
        await confirm(on, COORDINATOR, GROUPS)
        assert holders(on) == [GROUPS]
        await producer.commit_transaction()
        await on.settle()
        assert on.logs() == [["one", "COMMIT"]] * 3
        await confirm_all(on, GROUPS)


async def test_a_topic_made_again_keeps_the_note_of_the_first_one() -> None:
    """It has fewer partitions than the transaction names."""
    async with stage() as on, on.producer(1) as producer:
        await create(on, 2)
        await begin(on, producer, partition=1)
        await delete(on)
        await create(on)
        await confirm(on, OFFICE, GROUPS, COORDINATOR)
        await move_coordinator(on)
        await confirm(on, COORDINATOR, GROUPS)
        assert holders(on) == [GROUPS]
        await producer.commit_transaction()
        await on.settle()
        assert on.logs() == [["one", "COMMIT"]] * 3
        await confirm_all(on, GROUPS)
        assert DELETED in on.cluster[OFFICE].broker.image.topics


async def test_a_controller_that_dies_between_confirmations_loses_none() -> None:
    async with stage() as on, on.producer(1) as producer:
        await create(on)
        await begin(on, producer)
        await delete(on)
        await confirm(on, GROUPS)
        await confirm(on, COORDINATOR)
        on.kill(OFFICE)
        await on.buried()
        await on.cluster.until(lambda: on.cluster[GROUPS].broker.image.controller_id in (2, 3))
        await on.start(OFFICE)
        on.dead.clear()
        await on.cluster.agreed()
        assert holders(on) == [OFFICE, COORDINATOR]
        await producer.commit_transaction()
        await on.settle()
        await confirm_all(on, COORDINATOR, OFFICE)
        assert on.logs() == [["one", "COMMIT"]] * 3


async def test_what_a_coordinator_has_not_committed_may_name_a_topic() -> None:
    async with stage() as on, on.producer(1) as producer:
        await create(on)
        await delete(on)
        broker = on.cluster[COORDINATOR].broker
        runtime = broker.transactions

        def named() -> frozenset[str]:
            now_ms = runtime.clock.now_ms()
            return still_named(runtime, broker.groups, broker.image, COORDINATOR, now_ms)

        await producer.init_transactions()
        assert named() == frozenset()
        on.ends_sessions = False
        for broker_id in (OFFICE, GROUPS):
            on.kill(broker_id)
        adding = asyncio.create_task(on.write(producer, b"one", 1))
        await on.cluster.until(lambda: bool(named()))
        assert named() == {DELETED}
        await on.buried()
        for broker_id in (OFFICE, GROUPS):
            await on.start(broker_id)
        on.dead.clear()
        await adding
        await producer.commit_transaction()
        await on.settle()
        assert named() == frozenset()
