"""A controller's shell on a store in memory, and stores that misbehave for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from oncelog.broker.controller.forwarding import Forwarding
from oncelog.broker.controller.office import EventVerdict, Office
from oncelog.broker.controller.shell import ControllerShell
from oncelog.broker.membership.feed import FolderTask, MetadataFeed
from oncelog.broker.membership.registration import ClusterMembership
from oncelog.controller.decision import ChangeOutcome, ControllerEvent
from oncelog.controller.events import BrokerRegistered
from oncelog.controller.image import BrokerImage, ImageDelta
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import Changes, Check, Stored, StoreFailure, Write
from oncelog.runtime.clock import SystemClock
from oncelog.runtime.disk import StorageFailure

ReplyT = TypeVar("ReplyT")
WAIT_MS_MAX = 60


def registration(broker_id: int, broker_epoch: int = 1) -> BrokerRegistered:
    """A broker without logs."""
    configs = {"min.insync.replicas": "1"}
    return BrokerRegistered(broker_id, broker_epoch, frozenset({"d"}), True, {}, {}, configs)


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


class _Direct:
    """Hands events to the shell that is the controller, without a network."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def send(
        self, controller_id: int, event: ControllerEvent[ReplyT]
    ) -> EventVerdict[ReplyT]:
        sender, other = self._shell, self._shell.others.get(controller_id)
        if other is None:
            return EventVerdict(None, ErrorCode.not_controller, "it is away")
        epoch = sender.membership.broker_epoch
        return await other.controller.take(sender.broker_id, epoch, event)

    async def reach_others(self, revision: int) -> None:
        """The shells follow one store, each by itself."""

    async def close(self) -> None:
        pass


class Shell:
    """A shell with its feed; `gate` holds up what is made in the folders."""

    def __init__(
        self, store: MemoryStore, broker_id: int = 1, others: dict[int, Shell] | None = None
    ) -> None:
        self.store = store
        self.broker_id = broker_id
        self.others = {} if others is None else others
        """The shells that take events of this one, by id; `started` adds it to them."""
        self.deltas: list[ImageDelta] = []
        self.served: dict[str, int] = {}
        """How many partitions of a topic have their folders; of others none."""
        self.bug: Exception | None = None
        self.unmade: dict[TopicPartition, StorageFailure] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        rng = random.Random(1)
        self.clock = HandClock()
        self.feed = feed = MetadataFeed(store, broker_id, self._apply, self.clock, rng)
        self.membership = ClusterMembership(broker_id, store, feed, 9000, lambda epoch: False)
        self.office = Office(BrokerConfig({}), store, feed, self.membership, self.clock, rng)
        forwarding = cast(Forwarding, _Direct(self))
        self.controller = ControllerShell(
            feed, self.membership, self.office, lambda: forwarding, rng, WAIT_MS_MAX
        )

    async def register(self) -> None:
        """Begin a life, and claim the office if it is free; the controller decides on it."""
        described = BrokerImage(self.broker_id, "h", 9091 + self.broker_id, incarnation="i")
        own = await self.membership.register(lambda _: described, self.office.claim)
        self.feed.announce(own)
        event = registration(self.broker_id, own.broker_epoch)
        assert await self.controller.report(event) == ChangeOutcome()

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


async def started(
    store: MemoryStore | None = None, broker_id: int = 1, others: dict[int, Shell] | None = None
) -> Shell:
    """A shell whose broker is registered; the first one of a store is the controller."""
    shell = Shell(store or TroubledStore(), broker_id, others)
    shell.others[broker_id] = shell
    await shell.feed.load("c")
    await shell.register()
    await shell.feed.start(())
    return shell
