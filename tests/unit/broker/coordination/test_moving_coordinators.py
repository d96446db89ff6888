"""A transaction over three brokers survives the death of each of them, at every step of its end.

INV-2 to INV-6: its client sees no error, every replica has each record and each end once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from oncelog.client import Consumer, Producer, TopicPartition
from oncelog.protocol.hashing import coordinator_partition
from oncelog.testing.moments import TransactionWriteKind
from tests.support.members import members
from tests.support.transaction_stage import (
    COORDINATOR,
    GROUPS,
    OFFICE,
    SETTINGS,
    TOPIC,
    Stage,
    Step,
    by_leader,
    stage,
)

pytestmark = pytest.mark.slow

PREPARE, MARKER, COMPLETE = TransactionWriteKind
SOON = {"replica.lag.time.max.ms": 500}
"""After so long a dead follower is out of the ISR, while its session goes on."""
VICTIMS = {COORDINATOR: "coordinator", GROUPS: "groups", OFFICE: "controller"}


def by_follower(kind: TransactionWriteKind) -> Callable[[Step], bool]:
    """The first copy: what its leader has written is about to be committed."""
    return lambda step: step.kind is kind and not step.is_leader


MOMENTS: dict[str, tuple[Callable[[Step], bool], bool]] = {
    "before PREPARE": (by_leader(PREPARE), True),
    "PREPARE is written and not committed": (by_leader(PREPARE), False),
    "PREPARE is copied": (by_follower(PREPARE), False),
    "before the first marker": (by_leader(MARKER), True),
    "after the first marker": (by_leader(MARKER), False),
    "before COMPLETE": (by_leader(COMPLETE), True),
    "COMPLETE is written and not committed": (by_leader(COMPLETE), False),
    "COMPLETE is copied": (by_follower(COMPLETE), False),
}


@pytest.mark.parametrize("victim", VICTIMS, ids=VICTIMS.get)
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_commit_survives_a_death_at_each_of_its_steps(moment: str, victim: int) -> None:
    version = 1 + (list(MOMENTS).index(moment) + victim) % 2
    async with stage() as on:
        wanted, is_coming = MOMENTS[moment]
        async with on.producer(version) as producer:
            await producer.init_transactions()
            await on.write(producer, b"one", 1)
            on.kill_at(victim, wanted, is_coming=is_coming)
            await producer.commit_transaction()
            await on.cluster.until(lambda: victim in on.dead)
            await on.write(producer, b"two", 2)
            await producer.abort_transaction()
            await on.write(producer, b"three", 3)
            await producer.commit_transaction()
        await is_as_wanted(on)


async def is_as_wanted(on: Stage) -> None:
    await on.settle()
    assert on.logs() == [["one", "COMMIT", "two", "ABORT", "three", "COMMIT"]] * 3
    assert await on.offset() == 3


async def commit_without_the_leader_of_a_partition(on: Stage, producer: Producer) -> None:
    """Its session goes on, so that no other leads; what it copied is committed without it soon."""
    on.ends_sessions = False
    await producer.init_transactions()
    await on.write(producer, b"one", 1)
    on.kill_at(GROUPS, by_leader(PREPARE), is_coming=True)
    await producer.commit_transaction()


async def test_a_partition_that_is_away_holds_up_no_other() -> None:
    """Its marker stays owed, and the next transaction waits for it; the others are readable."""
    async with stage(SOON) as on, on.producer() as producer:
        await commit_without_the_leader_of_a_partition(on, producer)
        replicas = [on.replica(leader, TOPIC, number) for number, leader in ((0, 1), (1, 2))]
        await on.cluster.until(lambda: all(map(on.has_ended, replicas)))
        following = asyncio.create_task(on.write(producer, b"two", 2))
        await on.cluster.until(lambda: on.waiting_count() > 0)
        assert not on.has_ended(on.replica(COORDINATOR, TOPIC, 2))
        assert on.leader_of(TOPIC, 2) == 0
        on.cluster.expire(GROUPS)
        await following
        await producer.commit_transaction()
        await on.settle()
        assert on.logs() == [["one", "COMMIT", "two", "COMMIT"]] * 3
        assert await on.offset() == 2


async def test_who_waits_at_a_coordinator_that_stops_is_served_by_the_next_one() -> None:
    """D7: a request that waits for the end of the last transaction takes effect once."""
    async with stage(SOON) as on, on.producer() as producer:
        await commit_without_the_leader_of_a_partition(on, producer)
        following = asyncio.create_task(on.write(producer, b"two", 2))
        await on.cluster.until(lambda: on.waiting_count() > 0)
        await on.cluster.stop(COORDINATOR)
        await on.buried()
        await on.start(GROUPS)
        on.dead[:] = [COORDINATOR]
        await following
        await producer.commit_transaction()
        await on.settle()
        assert on.logs() == [["one", "COMMIT", "two", "COMMIT"]] * 3
        assert await on.offset() == 2


@pytest.mark.parametrize("version", [1, 2])
async def test_a_decision_that_was_not_committed_is_none(version: int) -> None:
    """INV-4: its client is gone as well, so the next coordinator aborts what it had prepared."""
    async with stage() as on:
        client = on.producer(version)
        await client.init_transactions()
        await on.write(client, b"one", 1)
        on.kill_at(COORDINATOR, by_leader(PREPARE))
        committing = asyncio.create_task(client.commit_transaction())
        await on.cluster.until(lambda: on.dead == [COORDINATOR])
        committing.cancel()
        await asyncio.wait([committing])
        await client.close()
        async with on.producer(version) as producer:
            await producer.init_transactions()
            await on.write(producer, b"two", 2)
            await producer.commit_transaction()
        await on.settle()
        assert on.logs() == [["one", "ABORT", "two", "COMMIT"]] * 3
        assert await on.offset() == 2


async def test_ids_of_other_coordinators_go_on_when_one_dies() -> None:
    config = {"transaction.state.log.num.partitions": 3, "default.replication.factor": 3}
    ids = {coordinator_partition(each, 3): each for each in map(str, range(20))}
    async with members(3, {**SETTINGS, **config}) as cluster, AsyncExitStack() as opened:
        servers = ",".join(f"127.0.0.1:{cluster[each].port}" for each in (1, 2, 3))
        producers = [
            await opened.enter_async_context(
                Producer(servers, transactional_id=each, retry_backoff_ms=10)
            )
            for each in ids.values()
        ]
        for producer in producers:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("t", b"one")
        leaders = {cluster.leader_of("__transaction_state", each) for each in ids}
        assert leaders == {1, 2, 3}
        await cluster.kill(3)
        cluster.expire(3)
        for producer in producers:
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send("t", b"two")
            await producer.commit_transaction()
        async with Consumer(servers) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            found: list[bytes | None] = []
            while len(found) < 6:
                found += [record.value for record in await consumer.poll(1_000)]
        assert sorted(map(bytes, filter(None, found))) == [b"one"] * 3 + [b"two"] * 3
