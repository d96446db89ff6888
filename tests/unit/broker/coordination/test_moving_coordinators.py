"""A transaction over three brokers survives the death of each of them, at every step of its end.

INV-2 to INV-6: its client sees no error, every replica has each record and each end once.
`tests/scenarios/cluster` tells the single cases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from oncelog.client import Producer
from oncelog.testing.moments import TransactionWriteKind
from tests.support.transaction_stage import (
    COORDINATOR,
    GROUPS,
    OFFICE,
    Stage,
    Step,
    by_leader,
    stage,
)

pytestmark = pytest.mark.slow

PREPARE, MARKER, COMPLETE = TransactionWriteKind
SOON = {"replica.lag.time.max.ms": 500}
"""After so long a dead follower is out of the ISR, while its session goes on."""
VICTIMS = (COORDINATOR, GROUPS, OFFICE)


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


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_commit_survives_a_death_at_each_of_its_steps(moment: str) -> None:
    """By our own producer; `tests/scenarios/cluster` has each victim at each step."""
    number = list(MOMENTS).index(moment)
    victim, version = VICTIMS[number % 3], 1 + number % 2
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
