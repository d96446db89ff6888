"""Follows the metadata store's feed, and has the broker apply what it brings (D9).

`known.image` is what the store says; its revision only increases. `image` is what the broker has
applied, and the only source of what it answers: a leader or coordinator that it names serves.

Absence of room on this broker's disks changes no metadata: a partition that cannot be made here is
shown without a leader, and tried again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from oncelog.broker.membership.known_metadata import KnownMetadata
from oncelog.broker.membership.store_health import StoreHealth
from oncelog.controller.image import (
    BrokerImage,
    ImageDelta,
    MetadataImage,
    TopicDelta,
    while_applying,
)
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import (
    METADATA_FEED_WAIT_MS,
    UNMADE_RETRY_INTERVAL_MS,
)
from oncelog.metadata.store import MetadataStore, StoreFailure
from oncelog.runtime.clock import Clock
from oncelog.runtime.disk import StorageFailure

__all__ = ["Apply", "MetadataFeed"]

T = TypeVar("T")

Apply = Callable[[ImageDelta], Awaitable[Mapping[TopicPartition, StorageFailure]]]
"""Applies a step; returns the partitions that no log directory of this broker has room for."""


class MetadataFeed:
    """Owns the broker's metadata images; `apply` is called with each step of what is known."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        apply: Apply,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.known = KnownMetadata(store, broker_id)
        self.image = self.known.image
        self.health = StoreHealth(clock, rng)
        self.unmade: dict[TopicPartition, StorageFailure] = {}
        """Partitions that no log directory had room for."""
        self._store = store
        self._apply = apply
        self._clock = clock
        self._has_unmade = asyncio.Event()
        # Keep images in the order of revisions when a writer and the feed follow at the same time.
        self._reading = asyncio.Lock()
        self._following = asyncio.Lock()
        self._steps: set[asyncio.Task[Any]] = set()

    async def load(self, cluster_id: str) -> None:
        """Read the metadata without applying it. Raises `StoreFailure`."""
        self.known.belongs_to(cluster_id)
        await self.known.read()
        self.image = self.known.image

    async def start(self, off_line: Iterable[TopicPartition]) -> None:
        """Have the broker apply what is known; those `off_line` have no leader."""
        self.known.take_off_line(off_line)
        self.known.begin()
        # Before it is applied, because no request comes until this has returned.
        self.image = self.known.image
        await self.follow_known()

    def announce(self, broker: BrokerImage) -> None:
        """Add this broker's address to the metadata images."""
        self.known.announce(broker)
        self.image = self.known.shown(self.image)

    def take_off_line(self, partitions: Iterable[TopicPartition]) -> None:
        """Show partitions of a failed log directory without a leader, until a restart.

        Only the images change, at once. The next start finds the directory's state again.
        """
        self.known.take_off_line(partitions)
        self.image = self.known.shown(self.image)
        self._start(self._follow_known())

    async def tell_again(self, name: str) -> None:
        """Make the broker apply a topic again: its folders have changed."""
        async with self._following:
            topic = self.image.topic(name)
            if topic is not None:
                again = TopicDelta(topic, range(len(topic.partitions)))
                self._note_unmade(await self._apply(ImageDelta(changed=(again,))))
        await self.follow_known()

    async def read(self) -> bool:
        """Bring what is known up to the store. False when it was. Raises `StoreFailure`."""
        async with self._reading:
            has_moved = await self.known.read()
        self.health.answered()
        return has_moved

    async def follow_known(self) -> None:
        """Return when what is known now is in effect."""
        # Once what is known has moved, all must follow it, also if the caller is cancelled.
        await asyncio.shield(self._start(self._follow_known()))

    async def run(self) -> None:
        """Follow the feed until cancelled. While the store fails, it is asked again and again."""
        while True:
            try:
                await self._store.changes(self.known.image.revision, wait_ms=METADATA_FEED_WAIT_MS)
                await self.read()
            except StoreFailure as failure:
                self.health.failed(failure)
                await self._clock.sleep(self.health.pause_ms)
            await self.follow_known()

    async def make_unmade(self) -> None:
        """Try again, until cancelled, to make the partitions that there was no room for."""
        while True:
            await self._has_unmade.wait()
            await self._clock.sleep(UNMADE_RETRY_INTERVAL_MS)
            await self.try_unmade()

    async def try_unmade(self) -> None:
        """Try once to make the partitions that there was no room for."""
        self.known.bring_back(self.unmade)
        self.unmade.clear()
        self._has_unmade.clear()
        await self.follow_known()

    async def close(self) -> None:
        """Wait for steps that are under way. None is started after this."""
        if self._steps:
            await asyncio.wait(self._steps)

    def _start(self, step: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(step)
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        return task

    async def _follow_known(self) -> None:
        async with self._following:
            # More may come meanwhile: an address is announced, a folder goes off line.
            while self.known.steps:
                await self._apply_step(*self.known.steps.popleft())

    async def _apply_step(self, delta: ImageDelta, target: MetadataImage) -> None:
        """Have the broker apply a change, and then answer from the image after it.

        What is deleted is named no more from the beginning; what is new or changed is named once
        its partitions are served and its coordinators ready.
        """
        self.image = while_applying(delta, self.image)
        self._note_unmade(await self._apply(delta))
        self.image = self.known.shown(target)

    def _note_unmade(self, unmade: Mapping[TopicPartition, StorageFailure]) -> None:
        if unmade:
            self.unmade |= unmade
            self._has_unmade.set()
            self.known.take_off_line(unmade)
