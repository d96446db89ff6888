"""A broker's life begins when no other life of it can be going on."""

from __future__ import annotations

import asyncio
import random

from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.membership.registration import ClusterMembership
from oncelog.controller import layout
from oncelog.controller.image import BrokerImage, ImageDelta
from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import SessionId, Write
from oncelog.runtime.clock import SystemClock


async def new_life(store: MemoryStore) -> ClusterMembership:
    """The next process of broker 1, which knows of no life that is over."""

    async def apply(delta: ImageDelta) -> None:
        """It has no folders."""

    feed = MetadataFeed(store, 1, apply, SystemClock(), random.Random(1))
    await feed.load("c")
    return ClusterMembership(1, store, feed, 9_000, lambda _: False)


async def register(membership: ClusterMembership, incarnation: str) -> BrokerImage:
    described = BrokerImage(1, "h", 9092, incarnation=incarnation)
    return await membership.register(lambda _: described, lambda _: ())


async def test_a_life_waits_for_the_end_of_the_one_before_whatever_else_changes() -> None:
    store = MemoryStore()
    before = await new_life(store)
    assert (await register(before, "i")).broker_epoch == 1
    waiting = asyncio.create_task(register(await new_life(store), "j"))
    for version in range(3):
        await asyncio.sleep(0.01)
        value = layout.encode_number(version)
        await store.write_all([Write(layout.broker_epoch_path(2), value, version)])
    await asyncio.sleep(0.01)
    assert not waiting.done()
    store.expire(before.session_id or SessionId(""))
    assert (await asyncio.wait_for(waiting, 10)).broker_epoch == 2
