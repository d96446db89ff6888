"""Follows the metadata store's feed, and has the broker apply what it brings (D9).

`known.image` is what the store says; its revision only increases. `image` is what the broker has
applied, and the only source of what it answers: a leader or coordinator that it names serves.

Roles are applied at once and in order, folders are made after: a disk that hangs never keeps this
broker from hearing that it leads or no longer does. What waits for a folder is shown as before.

Absence of room on this broker's disks changes no metadata: a partition that cannot be made here is
shown without a leader, and tried again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from oncelog.broker.membership.known_metadata import KnownMetadata
from oncelog.broker.membership.store_health import StoreHealth
from oncelog.controller.image import (
    BrokerImage,
    ImageDelta,
    MetadataImage,
    TopicDelta,
    TopicImage,
    while_applying,
)
from oncelog.core.cluster_limits import CATCH_UP_MS_MAX
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.core.limits import (
    METADATA_FEED_WAIT_MS,
    UNMADE_RETRY_INTERVAL_MS,
)
from oncelog.metadata.store import MetadataStore, StoreFailure
from oncelog.runtime.clock import Clock
from oncelog.runtime.disk import StorageFailure

__all__ = ["Apply", "FolderTask", "MetadataFeed"]

T = TypeVar("T")


class FolderTask(NamedTuple):
    """What a step leaves to do in this broker's folders."""

    unserved: Mapping[TopicId, frozenset[int]]
    """The numbers of the partitions of each topic that are not served as it says before that."""
    carry_out: Callable[[], Awaitable[Mapping[TopicPartition, StorageFailure]]]
    """Returns the partitions that no log directory has room for."""


Apply = Callable[[ImageDelta], Awaitable[FolderTask | None]]
"""Applies a step but for the folders, and without waiting for a disk."""


@dataclass(slots=True)
class _Unserved:
    """A topic with partitions that wait for the disk: their folders are made, or logs cut."""

    before: TopicImage | None
    """What was shown of it; None: nothing."""
    numbers: set[int] = field(default_factory=set)
    tasks_count: int = 0

    def shown(self, topic: TopicImage) -> TopicImage | None:
        """Return what to show of its newest state: new partitions last, and all at once."""
        if self.before is None:
            return None
        pairs = zip(self.before.partitions, topic.partitions, strict=False)
        kept = tuple(
            old if number in self.numbers else new for number, (old, new) in enumerate(pairs)
        )
        return replace(topic, partitions=kept)


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
        self._broker_id = broker_id
        self._apply = apply
        self._clock = clock
        self._has_unmade = asyncio.Event()
        self._applied = self.image
        """The last one that was applied but for the folders."""
        self._unserved: dict[TopicId, _Unserved] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Keep images in the order of revisions when a writer and the feed follow at the same time.
        self._reading = asyncio.Lock()
        self._asked_count = 0
        """Calls of `catch_up`, and how many of them the last read came after."""
        self._read_count = 0
        self._following = asyncio.Lock()
        self._steps: set[asyncio.Task[Any]] = set()
        self._bug: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._has_started = False
        self._moved = asyncio.Event()
        """Set, and replaced, when what is known moves."""

    async def load(self, cluster_id: str) -> None:
        """Read the metadata without applying it. Raises `StoreFailure`."""
        self.known.belongs_to(cluster_id)
        await self.known.read()
        self.image = self.known.image

    async def start(self, off_line: Iterable[TopicPartition]) -> None:
        """Have the broker apply what is known; those `off_line` have no leader."""
        self._has_started = True
        self.known.take_off_line(off_line)
        self.known.begin()
        # Before it is applied, because no request comes until this has returned.
        self.image = self.known.image
        await self.follow_known()

    def announce(self, broker: BrokerImage) -> None:
        """Show this broker in the metadata images as long as it runs."""
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
            # Not from `image`, which holds back what waits for its folder.
            topic = self._applied.topic(name)
            if topic is not None:
                again = TopicDelta(topic, range(len(topic.partitions)))
                self._begin(await self._apply(ImageDelta(changed=(again,))))
        await self.follow_known()

    async def read(self) -> bool:
        """Bring what is known up to the store. False when it was. Raises `StoreFailure`."""
        async with self._reading:
            return await self._read()

    async def _read(self) -> bool:
        has_moved = await self.known.read()
        self.health.answered()
        if has_moved:
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()
        return has_moved

    async def catch_up(self) -> None:
        """Apply what the store says now, folders and all: other brokers may name it already.

        It gives up after `CATCH_UP_MS_MAX`, and at once where the store does not answer. Those who
        call at the same time share one read: the first that begins after them.
        """
        if self.health.pause_ms:
            return
        self._asked_count += 1
        try:
            async with asyncio.timeout(CATCH_UP_MS_MAX / 1000):
                await self._read_after(self._asked_count)
                await self.follow_known()
        except StoreFailure as failure:
            self.health.failed(failure)
        except TimeoutError:
            pass  # The feed goes on, and what it brings is found by the next request.

    async def _read_after(self, number: int) -> None:
        async with self._reading:
            if self._read_count < number:
                asked_count = self._asked_count
                await self._read()
                self._read_count = asked_count

    async def moved_past(self, revision: int) -> None:
        """Return once what is known is newer than `revision`. `run` makes it so."""
        while self.known.stored.revision <= revision:
            await self._moved.wait()

    async def reach(self, revision: int) -> None:
        """Return once this broker has applied the metadata of `revision`."""
        while (known_revision := self.known.stored.revision) < revision:
            try:
                await self.read()
            except StoreFailure as failure:
                self.health.failed(failure)
            # Another reader may have been faster, or another server of the store knows more.
            await self.moved_past(known_revision)
        await self.follow_known()

    async def follow_known(self) -> None:
        """Return when what is known now is in effect, folders and all."""
        await self.follow_roles()
        if self._tasks:
            # They go on also if the caller is cancelled.
            await asyncio.wait(tuple(self._tasks))
        if self._bug.done() and not self._bug.cancelled():
            raise self._bug.result()

    async def follow_roles(self) -> None:
        """Return when what is known now is in effect but for the folders."""
        # Once what is known has moved, all must follow it, also if the caller is cancelled.
        await asyncio.shield(self._start(self._follow_known()))

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do in the folders for what was applied."""
        return not self._tasks

    async def run(self) -> None:
        """Follow the feed until cancelled. While the store fails, it is asked again and again.

        What it brings is applied from `start` on.
        """
        while True:
            # Another reader may bring a change between the end of a step and the next wait.
            while self._has_started and self.known.steps:
                await self.follow_roles()
            try:
                await self.next()
            except StoreFailure as failure:
                self.health.failed(failure)
                await self._clock.sleep(self.health.pause_ms)

    async def next(self) -> None:
        """Wait for the store's next change, and read it. Raises `StoreFailure`."""
        await self._store.changes(self.known.stored.revision, wait_ms=METADATA_FEED_WAIT_MS)
        await self.read()

    async def watch(self) -> None:
        """Raise what ended a step or a work in the folders, which is a bug. Never return."""
        raise await self._bug

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
        while self._steps:
            await asyncio.wait(self._steps)
        self._bug.cancel()

    def _start(self, step: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(step)
        self._steps.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._steps.discard(task)
        bug = None if task.cancelled() else task.exception()
        if bug is not None and not self._bug.done():
            self._bug.set_result(bug)

    async def _follow_known(self) -> None:
        async with self._following:
            # Before the start, a broker may still wait for its registration, and leads nothing.
            if self._has_started:
                await self._apply_steps()

    async def _apply_steps(self) -> None:
        # More may come meanwhile: an address is announced, a folder goes off line.
        while self.known.steps:
            await self._apply_step(*self.known.steps.popleft())

    async def _apply_step(self, delta: ImageDelta, target: MetadataImage) -> None:
        """Have the broker apply a change, and then answer from the image after it.

        What is deleted or no longer led is named no more from the beginning; what is new or changed
        is named once its partitions are served and its coordinators ready.
        """
        self.image = while_applying(delta, self.image, self._broker_id)
        self._begin(await self._apply(delta))
        self._applied = target
        self._show()

    def _begin(self, task: FolderTask | None) -> None:
        """Have the folders made, and hold back meanwhile what waits for them."""
        if task is None:
            return
        for topic_id, numbers in task.unserved.items():
            unserved = self._unserved.setdefault(topic_id, _Unserved(None))
            # As it is shown now, with what waits already as it was before that.
            unserved.before = self.image.topic_by_id(topic_id)
            unserved.numbers |= numbers
            unserved.tasks_count += 1
        running = self._start(self._carry_out(task))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    async def _carry_out(self, task: FolderTask) -> None:
        unmade = await task.carry_out()
        async with self._following:
            for topic_id in task.unserved:
                unserved = self._unserved[topic_id]
                unserved.tasks_count -= 1
                if not unserved.tasks_count:
                    del self._unserved[topic_id]
            self._note_unmade(unmade)
            self._show()
            await self._apply_steps()

    def _show(self) -> None:
        """Answer from what is applied, without what waits for its folder."""
        hidden: list[TopicImage] = []
        held_back: list[TopicDelta] = []
        for topic_id, unserved in self._unserved.items():
            topic = self._applied.topic_by_id(topic_id)
            if topic is None:
                # It was deleted since.
                continue
            shown = unserved.shown(topic)
            if shown is None:
                hidden.append(topic)
            else:
                held_back.append(TopicDelta(shown, ()))
        delta = ImageDelta(deleted=tuple(hidden), changed=tuple(held_back))
        image = self._applied.after(delta) if self._unserved else self._applied
        self.image = self.known.shown(image)

    def _note_unmade(self, unmade: Mapping[TopicPartition, StorageFailure]) -> None:
        if unmade:
            self.unmade |= unmade
            self._has_unmade.set()
            self.known.take_off_line(unmade)
