"""A life that may have lost records is noted once the controller has decided on it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from oncelog.broker.member import ClusterMember
from oncelog.broker.membership.feed import FolderTask, MetadataFeed
from oncelog.broker.peers.connections import PeerNetwork
from oncelog.controller import layout
from oncelog.controller.events import BrokerRegistered
from oncelog.controller.image import BrokerImage, ImageDelta, MetadataImage
from oncelog.core.config import BrokerConfig
from oncelog.core.ids import TopicPartition
from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import Session, Write
from oncelog.runtime.clock import SystemClock
from oncelog.runtime.network import SystemNetwork
from tests.unit.broker.raw import until

OFFICE_OF_ANOTHER = layout.encode_controller(9)


class Member:
    """A member that may have lost records; `lives` are the epochs that its folders would note."""

    def __init__(self, store: MemoryStore) -> None:
        self.off_line: frozenset[TopicPartition] = frozenset()
        self.lives: list[tuple[int, bool]] = []
        """Each with whether the controller had decided on it."""
        rng, clock = random.Random(1), SystemClock()
        self.feed = MetadataFeed(store, 1, self._apply, clock, rng)
        self.member = ClusterMember(
            BrokerConfig({"node.id": "1"}),
            store,
            self.feed,
            PeerNetwork(SystemNetwork(), "PLAINTEXT"),
            clock,
            rng,
            lambda epoch: False,
            self._fail,
        )

    async def _apply(self, delta: ImageDelta) -> FolderTask | None:
        return None

    def _fail(self, error: BaseException) -> None:
        raise error

    def describe(self, image: MetadataImage) -> tuple[BrokerImage, BrokerRegistered]:
        own = BrokerImage(1, "h", 9092, is_clean=False, incarnation="i")
        return own, BrokerRegistered(1, -1, frozenset({"d"}), False, {}, {}, {}, self.off_line)

    def note(self, epoch: int) -> None:
        own = self.feed.known.stored.brokers.get(1)
        self.lives.append((epoch, own is not None and own.is_clean))

    def registered(self) -> BrokerImage | None:
        return self.feed.known.stored.brokers.get(1)


@asynccontextmanager
async def joining(
    store: MemoryStore, off_line: frozenset[TopicPartition] = frozenset()
) -> AsyncIterator[tuple[Member, asyncio.Task[Any]]]:
    one = Member(store)
    one.off_line = off_line
    await one.feed.load("c")
    join = asyncio.create_task(one.member.join(one.describe, one.note))
    try:
        yield one, join
    finally:
        join.cancel()
        await asyncio.wait([join])
        await one.member.stop()


async def hold_office(store: MemoryStore) -> Session:
    """Another broker is the controller, and never answers."""
    session = await store.open_session(60_000)
    await store.write_all([Write(layout.CONTROLLER_PATH, OFFICE_OF_ANOTHER, 0, session.session_id)])
    return session


async def test_an_unclean_life_is_noted_once_the_controller_has_decided_on_it() -> None:
    store = MemoryStore()
    office = await hold_office(store)
    async with joining(store) as (one, join):
        await until(lambda: one.registered() is not None)
        assert one.lives == []
        await office.close()
        await join
        assert one.lives == [(1, True)]


async def test_what_is_off_line_is_what_the_controller_was_told() -> None:
    """It has decided by that who leads: the metadata of later may say something else of a disk."""
    store = MemoryStore()
    office = await hold_office(store)
    async with joining(store) as (one, join):
        await until(lambda: one.registered() is not None)
        one.off_line = frozenset({TopicPartition("t", 0)})
        await office.close()
        assert await join == frozenset()
    async with joining(MemoryStore(), one.off_line) as (_, join):
        assert await join == one.off_line


async def test_the_next_life_of_a_process_is_as_unclean_as_an_undecided_one() -> None:
    store = MemoryStore()
    office = await hold_office(store)
    async with joining(store) as (one, join):
        await until(lambda: one.registered() is not None)
        session_id = one.member.membership.session_id
        assert session_id is not None
        store.expire(session_id)
        await until(lambda: (own := one.registered()) is not None and own.broker_epoch == 2)
        own = one.registered()
        assert own is not None
        assert not own.is_clean
        assert one.lives == []
        await office.close()
        await join
        assert one.lives == [(2, True)]
        session_id = one.member.membership.session_id
        assert session_id is not None
        store.expire(session_id)
        await until(lambda: len(one.lives) == 2)
        own = one.registered()
        assert own is not None
        assert own.is_clean
