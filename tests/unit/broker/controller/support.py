"""A controller's shell on a store in memory, and stores that misbehave for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from oncelog.broker.controller.shell import ControllerShell
from oncelog.broker.membership.feed import FolderTask, MetadataFeed
from oncelog.controller.events import BrokerRegistered
from oncelog.controller.image import BrokerImage, ImageDelta
from oncelog.core.config import BrokerConfig
from oncelog.core.ids import TopicPartition
from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import Changes, Check, Stored, StoreFailure, Write
from oncelog.runtime.clock import SystemClock
from oncelog.runtime.disk import StorageFailure


def registration(broker_id: int) -> BrokerRegistered:
    """A broker without logs."""
    return BrokerRegistered(
        broker_id, 0, frozenset({"d"}), True, {}, {}, {"min.insync.replicas": "1"}
    )


REGISTRATION = registration(1)


class HandClock(SystemClock):
    """Time that passes only where somebody waits for it."""

    def __init__(self) -> None:
        self.ms = 0.0

    def monotonic_ms(self) -> float:
        return self.ms

    async def sleep(self, delay_ms: float) -> None:
        self.ms += delay_ms
        await asyncio.sleep(0)


class TroubledStore(MemoryStore):
    """Does once, before or after a write, what a test puts there."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[list[str]] = []
        self.rivals: list[Write] = []
        """Writes of another broker, each before the next write here."""
        self.is_away = False
        self.answer_is_lost = False

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        self._fail_if_away()
        if self.rivals:
            await super().write_all([self.rivals.pop(0)])
        await super().write_all(writes, checks=checks, fence=fence)
        self.written.append([write.path for write in writes])
        if self.answer_is_lost:
            self.answer_is_lost = False
            raise StoreFailure("the answer is lost")

    async def get(self, path: str) -> Stored | None:
        self._fail_if_away()
        return await super().get(path)

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        self._fail_if_away()
        return await super().changes(after_revision, wait_ms=wait_ms)

    def _fail_if_away(self) -> None:
        if self.is_away:
            raise StoreFailure("no route to the store")


class Shell:
    """A shell with its feed; `gate` holds up what is made in the folders."""

    def __init__(self, store: MemoryStore, broker_id: int = 1) -> None:
        self.store = store
        self.broker_id = broker_id
        self.deltas: list[ImageDelta] = []
        self.served: dict[str, int] = {}
        """How many partitions of a topic have their folders; of others none."""
        self.bug: Exception | None = None
        self.unmade: dict[TopicPartition, StorageFailure] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        rng = random.Random(1)
        self.clock = HandClock()
        self.feed = MetadataFeed(store, broker_id, self._apply, self.clock, rng)
        self.controller = ControllerShell(BrokerConfig({}), store, self.feed, rng)

    async def _apply(self, delta: ImageDelta) -> FolderTask | None:
        self.deltas.append(delta)
        new = {
            one.topic.topic_id: frozenset(one.partitions[self.served.get(one.topic.name, 0) :])
            for one in delta.assigned()
        }
        return FolderTask(new, self._make) if new or delta.deleted else None

    async def _make(self) -> Mapping[TopicPartition, StorageFailure]:
        await self.gate.wait()
        if self.bug is not None:
            raise self.bug
        unmade, self.unmade = self.unmade, {}
        return unmade


async def started(store: MemoryStore | None = None, broker_id: int = 1) -> Shell:
    """A shell whose broker is registered and announced."""
    shell = Shell(store or TroubledStore(), broker_id)
    await shell.feed.load("c")
    await shell.controller.start(registration(broker_id))
    await shell.feed.start(())
    shell.feed.announce(BrokerImage(broker_id, "h", 9091 + broker_id))
    await shell.feed.follow_known()
    return shell
