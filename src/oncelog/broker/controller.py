"""The controller's shell on a broker: it stores decisions and follows the store's feed.

`known.image` is what the store says; its revision only increases, and `follow` is called with each
step. `image` is what the broker has applied, and the only source of what it answers: a leader or
coordinator that it names serves. Both include our own write before its caller gets the reply, so a
client that created a topic can use it at once.

A single broker claims the controller epoch at start. The controller package decides what a topic
may look like.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, TypeVar

from oncelog.broker.controller_claim import claim_controller
from oncelog.broker.finalized import finalize
from oncelog.broker.group_configs import GroupConfigDecision, warn_of, write_group_config
from oncelog.broker.known_metadata import KnownMetadata
from oncelog.broker.topic_creation import write_topics
from oncelog.controller import features, layout
from oncelog.controller.epochs import raise_epochs
from oncelog.controller.group_configs import GroupConfigOutcome
from oncelog.controller.image import (
    BrokerImage,
    ImageDelta,
    MetadataImage,
    TopicImage,
    once_applied,
    while_applying,
)
from oncelog.controller.topics import (
    CreationDefaults,
    TopicOutcome,
    TopicToCreate,
    decide_creations,
    new_internal_topic,
)
from oncelog.core.config import BrokerConfig, topic_warnings
from oncelog.core.config_definition import as_int
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.ids import (
    INTERNAL_TOPICS,
    TopicId,
    TopicPartition,
)
from oncelog.core.limits import (
    METADATA_FEED_WAIT_MS,
    METADATA_WRITE_ATTEMPTS_MAX,
    TOPICS_CREATED_TOGETHER_COUNT_MAX,
)
from oncelog.metadata.store import (
    Check,
    Conflict,
    Fenced,
    MetadataStore,
    Stored,
    Write,
)
from oncelog.runtime.disk import StorageFailure
from oncelog.runtime.ids import fresh_uuid
from oncelog.storage.identity import FolderMismatch

__all__ = ["ControllerShell"]

log = logging.getLogger(__name__)

T = TypeVar("T")

Follow = Callable[[ImageDelta], Awaitable[Mapping[TopicId, StorageFailure]]]


class ControllerShell:
    """Creates and deletes topics; owns the broker's metadata images.

    `follow` is called with each step of what is known, from `start` on, and returns which topics it
    could not make. A creation that fails is undone before its caller gets the error.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        follow: Follow,
        rng: random.Random,
    ) -> None:
        self._broker_id = config.get_int("node.id")
        self.known = KnownMetadata(store, self._broker_id)
        self.image = MetadataImage(cluster_id="")
        self._fence: Check | None = None
        self._config = config
        self._store = store
        self._rng = rng
        self._tell = follow
        self._told = self.image
        """The image of what is known that `follow` was called with last."""
        self._unmade: dict[TopicId, StorageFailure] = {}
        """Topics that could not be made whole, until their creation is taken back."""
        # Keeps images in the order of revisions when a writer and the feed follow at the same time.
        self._following = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()

    async def load(self, cluster_id: str, *, new_folder: bool) -> None:
        """Read the image from the store, without taking part yet.

        Only a new store's name is written. Raises `FolderMismatch` when the store does not belong
        to the log directory.
        """
        stored = await self._store.get(layout.CLUSTER_PATH)
        if stored is None:
            if not new_folder:
                raise FolderMismatch(
                    "the data folder has logs, but the metadata that names their topics is gone"
                )
            try:
                await self._store.write_all([Write(layout.CLUSTER_PATH, cluster_id.encode(), 0)])
            except Conflict:
                log.debug("another broker named the cluster first")
            stored = await self._store.get(layout.CLUSTER_PATH)
        named = stored.value.decode() if stored is not None else None
        if named != cluster_id:
            raise FolderMismatch(
                f"the data folder belongs to cluster {cluster_id}, the metadata to {named}"
            )
        self.known.belongs_to(cluster_id)
        await self.known.read()
        self.image = self.known.image

    async def start(
        self,
        latest_epochs: Mapping[TopicPartition, int],
        off_line: Iterable[TopicPartition] = (),
    ) -> None:
        """Claim the controller's role, and hand the loaded image to the broker.

        A new leader epoch begins first, durably, in the partitions of `latest_epochs`: see
        `raise_epochs`. Those that are `off_line` have no leader.
        """
        self._fence = await claim_controller(self._store)
        level = self._config.get("transaction.version")
        levels = {} if level is None else {features.TRANSACTION_VERSION: as_int(level)}
        if demanded := features.demanded_updates(self.known.contents.features, levels):
            await finalize(self._store, demanded, self._fence)
            await self.known.read()
        await self._raise_epochs(latest_epochs)
        self.known.off_line.update(off_line)
        self.known.renew()
        # Before it is applied, because no request comes until this has returned.
        self.image = self._told = self.known.image
        warn_of(self._config, self.image.group_configs)
        empty = MetadataImage(cluster_id=self.image.cluster_id)
        async with self._following:
            unmade = await self._tell(self.image.delta_from(empty))
        for failure in unmade.values():
            raise failure

    def take_off_line(self, partitions: Iterable[TopicPartition]) -> None:
        """Mark partitions of a failed log directory as without a leader, until a restart.

        Only the images change, at once. The next start finds the directory's state again.
        """
        self.known.off_line.update(partitions)
        self.known.renew()
        self.image = self.known.shown(self.image)
        task = asyncio.get_running_loop().create_task(self._follow_on())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    async def directories(self) -> frozenset[str]:
        """Directory ids of the data folders that this broker had, as last noted."""
        stored = await self._store.get(layout.directories_path(self._broker_id))
        return layout.decode_directories(None if stored is None else stored.value)

    async def note_directories(self, directory_ids: Set[str]) -> None:
        """Store them durably, if they have changed."""
        path = layout.directories_path(self._broker_id)
        stored = await self._store.get(path)
        value = layout.encode_directories(directory_ids)
        if stored is None or stored.value != value:
            version = stored.version if stored is not None else 0
            await self._store.write_all([Write(path, value, version)])

    async def tell_again(self, name: str) -> None:
        """Make the broker apply a topic again: its folders have changed."""
        async with self._following:
            topic = self.image.topic(name)
            changed = () if topic is None else (topic,)
            self._unmade |= await self._tell(ImageDelta(changed=changed))

    async def _raise_epochs(self, latest_epochs: Mapping[TopicPartition, int]) -> None:
        """Write all of it in one atomic step, whatever the number of partitions."""
        names = {partition.topic for partition in latest_epochs}
        for _ in range(METADATA_WRITE_ATTEMPTS_MAX if names else 0):
            writes = []
            for path, stored in (await self._store.list(layout.TOPICS_PREFIX)).items():
                topic = layout.decode_topic(path, stored.value)
                if topic.name in names:
                    raised = raise_epochs(topic, latest_epochs)
                    writes.append(Write(path, layout.encode_topic(raised), stored.version))
            try:
                await self._store.write_all(writes, fence=self._fence)
            except Conflict:
                continue
            await self.known.read()
            log.info("began a new leader epoch in %d partitions", len(latest_epochs))
            return
        if names:
            raise OncelogError("new leader epochs could not be written: too many brokers try")

    async def update_features(
        self, updates: Sequence[features.FeatureUpdate], *, validate_only: bool = False
    ) -> features.UpdateOutcome:
        """Finalize other levels of features; they are in effect when this returns."""
        await self._follow()
        outcome = features.decide_update(self.known.contents.features, updates)
        if outcome.error or validate_only:
            return outcome
        return await self._to_the_end(self._finalize(updates))

    async def _finalize(self, updates: Sequence[features.FeatureUpdate]) -> features.UpdateOutcome:
        outcome = await finalize(self._store, updates, self._fence)
        await self._follow()
        return outcome

    def announce(self, host: str, port: int) -> None:
        """Add this broker's address to the metadata images."""
        rack = self._config.get_str("broker.rack")
        self.known.announce(BrokerImage(self._broker_id, host, port, rack))
        self.image = self.known.shown(self.image)

    async def run(self) -> None:
        """Follow the feed until cancelled."""
        while True:
            await self._follow(METADATA_FEED_WAIT_MS)

    async def create_topics(
        self, topics: Sequence[TopicToCreate], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Create topics, each by itself; what could be created can be used when this returns.

        So can those that existed already. Several are stored and made in one step, because each
        step waits for the disk.
        """
        outcomes: list[TopicOutcome] = []
        for begin in range(0, len(topics), TOPICS_CREATED_TOGETHER_COUNT_MAX):
            part = topics[begin : begin + TOPICS_CREATED_TOGETHER_COUNT_MAX]
            fresh_id = partial(fresh_uuid, self._rng)
            decided = decide_creations(self.known.image, part, fresh_id, self._defaults())
            if not validate_only and any(outcome.topic for outcome in decided):
                decided = await self._to_the_end(self._store_topics(decided))
            elif any(outcome.error is ErrorCode.topic_already_exists for outcome in decided):
                await self._follow()
            outcomes += decided
        return outcomes

    async def change_topic(
        self,
        name: str,
        decide: Callable[[TopicImage | None], TopicOutcome],
        *,
        validate_only: bool = False,
    ) -> TopicOutcome:
        """Make of a topic what `decide` makes of it; the change is in effect when this returns.

        `decide` is pure, and called again when another writer was faster.
        """
        await self._follow()
        outcome = decide(self.image.topic(name))
        if outcome.topic is None or validate_only:
            return outcome
        return await self._to_the_end(self._change(name, decide))

    async def _change(
        self, name: str, decide: Callable[[TopicImage | None], TopicOutcome]
    ) -> TopicOutcome:
        path = layout.topic_path(name)
        for _ in range(METADATA_WRITE_ATTEMPTS_MAX):
            stored = await self._store.get(path)
            topic = None if stored is None else layout.decode_topic(path, stored.value)
            outcome = decide(topic)
            if stored is None or outcome.topic is None or outcome.topic == topic:
                return outcome
            value = layout.encode_topic(outcome.topic)
            try:
                await self._store.write_all([Write(path, value, stored.version)], fence=self._fence)
            except Conflict:
                continue
            except Fenced as error:
                return TopicOutcome(name, ErrorCode.not_controller, str(error))
            await self._follow()
            failure = self._unmade.get(outcome.topic.topic_id)
            if failure is not None:
                await self._undo(path, stored)
                self._unmade.pop(outcome.topic.topic_id, None)
                return TopicOutcome(name, ErrorCode.kafka_storage_error, str(failure))
            log.info("changed topic %s", name)
            for warning in topic_warnings(outcome.topic.config):
                log.warning("topic %s: %s", name, warning)
            return outcome
        text = "Too many brokers change this topic at once."
        return TopicOutcome(name, ErrorCode.request_timed_out, text)

    async def _undo(self, path: str, before: Stored) -> None:
        """Take back a change that could not be carried out, if it is the newest one."""
        try:
            await self._store.write_all(
                [Write(path, before.value, before.version + 1)], fence=self._fence
            )
        except (Conflict, Fenced):
            log.warning("%s was changed again before a failed change could be taken back", path)
        await self._follow()

    async def change_group(
        self, group_id: str, decide: GroupConfigDecision, *, validate_only: bool = False
    ) -> GroupConfigOutcome:
        """Make of a group's settings what `decide` makes of them; in effect when this returns."""
        await self._follow()
        outcome = decide(self.image.group_configs.get(group_id, {}))
        if outcome.error is ErrorCode.none and not validate_only:
            write = write_group_config(self._store, group_id, decide, self._fence)
            outcome = await self._to_the_end(write)
            warn_of(self._config, {group_id: outcome.config})
            await self._follow()
        return outcome

    async def delete_topic(self, topic_id: TopicId) -> ErrorCode:
        """Delete a topic by its identity; `unknown_topic_id` when there is none (any more)."""
        await self._follow()
        topic = self.image.topic_by_id(topic_id)
        if topic is None:
            return ErrorCode.unknown_topic_id
        return await self._to_the_end(self._delete(topic))

    async def _delete(self, topic: TopicImage) -> ErrorCode:
        path, deleted_path = layout.topic_path(topic.name), layout.deleted_path(topic.name)
        for _ in range(METADATA_WRITE_ATTEMPTS_MAX):
            stored = await self._store.get(path)
            if stored is None or layout.decode_topic(path, stored.value).topic_id != topic.topic_id:
                return ErrorCode.unknown_topic_id
            deleted = await self._store.get(deleted_path)
            ids = layout.decode_deleted(deleted.value) if deleted is not None else ()
            writes = [
                Write(path, None, stored.version),
                Write(
                    deleted_path,
                    layout.encode_deleted((*ids, topic.topic_id)),
                    deleted.version if deleted is not None else 0,
                ),
            ]
            try:
                await self._store.write_all(writes, fence=self._fence)
            except Conflict:
                continue
            except Fenced:
                return ErrorCode.not_controller
            await self._follow()
            log.info("deleted topic %s (%s)", topic.name, topic.topic_id)
            return ErrorCode.none
        return ErrorCode.request_timed_out

    async def forget_deleted(self, names: Iterable[str]) -> None:
        """No folder is left of the deleted topics of these names, for good.

        What another writer changes meanwhile is left for the next time.
        """
        writes = []
        for name in names:
            stored = await self._store.get(layout.deleted_path(name))
            known = self.image.deleted.get(name)
            if stored is not None and layout.decode_deleted(stored.value) == known:
                writes.append(Write(layout.deleted_path(name), None, stored.version))
        try:
            await self._store.write_all(writes, fence=self._fence)
        except (Conflict, Fenced):
            log.debug("another controller changed the deleted topics first")
        await self._follow()

    async def internal_topic(self, name: str) -> TopicImage:
        """Return one of Kafka's internal topics, creating it on first use.

        Raises `OncelogError` when that fails.
        """
        topic = self.image.topic(name)
        if topic is None:
            new = new_internal_topic(name, self._config, len(self.image.brokers))
            (outcome,) = await self.create_topics([new])
            topic = outcome.topic or self.image.topic(name)
            if topic is None:
                raise OncelogError(f"cannot create {name}: {outcome.message}")
        return topic

    async def auto_create(self, name: str) -> ErrorCode:
        """Create a topic because a client named it.

        What Metadata answers for it meanwhile comes back.
        """
        if name in INTERNAL_TOPICS:
            await self.internal_topic(name)
            return ErrorCode.none
        (outcome,) = await self.create_topics([TopicToCreate(name)])
        if outcome.error is ErrorCode.topic_already_exists:
            return ErrorCode.none
        return outcome.error

    async def _to_the_end(self, change: Coroutine[Any, Any, T]) -> T:
        """Run a change to its end even if its request was cancelled.

        librdkafka closes its bootstrap connection with a request in flight; its next connection
        should find the whole topic.
        """
        task = asyncio.get_running_loop().create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for changes that are under way. None is started after this."""
        if self._changes:
            await asyncio.wait(self._changes)

    def _defaults(self) -> CreationDefaults:
        config = self._config
        return CreationDefaults(
            config.get_int("num.partitions"), config.get_int("default.replication.factor")
        )

    async def _store_topics(self, decided: Sequence[TopicOutcome]) -> list[TopicOutcome]:
        outcomes = await write_topics(self._store, decided, self._fence)
        await self._follow()
        return [await self._made(outcome) for outcome in outcomes]

    async def _made(self, stored: TopicOutcome) -> TopicOutcome:
        """Return the outcome of a stored topic; one that could not be made is taken back."""
        topic = stored.topic
        if topic is None:
            return stored
        failure = self._unmade.get(topic.topic_id)
        if failure is not None:
            await self._delete(topic)
            self._unmade.pop(topic.topic_id, None)
            return TopicOutcome(topic.name, ErrorCode.kafka_storage_error, str(failure))
        if not topic.is_internal:
            for warning in topic_warnings(topic.config):
                log.warning("topic %s: %s", topic.name, warning)
        log.info(
            "created topic %s (%s), %d partitions",
            topic.name,
            topic.topic_id,
            len(topic.partitions),
        )
        return stored

    async def _follow(self, wait_ms: float = 0) -> None:
        """Apply the store's changes since our image."""
        # The feed waits outside the lock, so that a writer is never held up by it.
        if wait_ms:
            await self._store.changes(self.known.image.revision, wait_ms=wait_ms)
        # Once what is known has moved, all must follow it, also if the caller is cancelled.
        await self._to_the_end(self._follow_on())

    async def _follow_on(self) -> None:
        async with self._following:
            await self.known.read()
            # It may move again meanwhile: an address is announced, a folder goes off line.
            while self.known.image is not self._told:
                await self._apply_known()

    async def _apply_known(self) -> None:
        """Have the broker apply what is known, and then answer from it.

        What is deleted is named no more from the beginning; what is new or changed is named once
        its partitions are served and its coordinators ready.
        """
        target, before = self.known.image, self._told
        delta = target.delta_from(before)
        self._told = target
        self.image = while_applying(delta, self.image)
        unmade = await self._tell(delta)
        for topic in (*delta.created, *delta.changed):
            self._unmade.pop(topic.topic_id, None)
        self._unmade |= unmade
        self.image = self.known.shown(once_applied(target, self.image, self._unmade))
