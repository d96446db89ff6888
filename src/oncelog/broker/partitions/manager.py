"""Keeps this broker's partitions in step with the metadata image, and maintains their logs.

Retention, flushes and checkpoints run in the executor (D12), never in the event loop. The image
determines which partitions are here: a folder of another topic with the same name is set aside
(topic ids are identity, D9; D14). A log directory that fails takes its partitions off line until a
restart; the failure of the last one ends `run`, and with it the broker.

This module does not know the wire protocol, nor the content of a log.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from oncelog.broker.partitions.assignments import assignment_of
from oncelog.broker.partitions.cleaner import PartitionCleaner
from oncelog.broker.partitions.delayed import FetchPurgatory
from oncelog.broker.partitions.disk_queue import DiskQueue
from oncelog.broker.partitions.folders import (
    FolderWork,
    Intake,
    delete_logs,
    make_in_turn,
    removed_logs,
)
from oncelog.broker.partitions.log_settings import log_config
from oncelog.broker.partitions.meters import IsrMeter, TopicMeters
from oncelog.broker.partitions.partition import Partition
from oncelog.broker.partitions.refused import RefusedSequences
from oncelog.broker.partitions.removals import Removals
from oncelog.broker.partitions.upkeep import Upkeep
from oncelog.controller.image import ImageDelta, MetadataImage, PartitionImage, TopicImage
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.core.limits import (
    COLD_READS_COUNT_MAX,
    DISK_EXECUTOR_THREAD_COUNT,
    PARTITIONS_PER_TURN_COUNT_MAX,
    PARTITIONS_TAKEN_IN_TOGETHER_COUNT,
    PRODUCERS_COUNT_MAX,
)
from oncelog.runtime.clock import Clock
from oncelog.runtime.disk import Disk, Lane, StorageFailure
from oncelog.storage import LogConfig, PartitionLog
from oncelog.storage.log_manager import LogManager
from oncelog.storage.producer_limit import ProducerLimit

if TYPE_CHECKING:
    from oncelog.broker.partitions.fetch_sessions import FetchSessions
    from oncelog.broker.partitions.following import Following, ReplicaFetchers

__all__ = ["Partition", "PartitionManager"]

log = logging.getLogger(__name__)


class PartitionManager:
    """Finds, creates and drops partitions. Operations wait in `loop` and `purgatory`."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        logs: LogManager,
        disk: Disk,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = clock
        self.purgatory = FetchPurgatory(self.loop)
        self.fetch_bytes_max = config.get_int("fetch.max.bytes")
        self.selects_by_rack = bool(config.get_str("replica.selector.class"))
        """Whether consumers are sent to replicas in their rack (KIP-392)."""
        self._broker_id = broker_id
        self._config = config
        self._logs = logs
        self._rng = rng
        self.disk = disk
        self.meters = TopicMeters()
        self.isr_meter = IsrMeter()
        self.refused = RefusedSequences()
        self._producer_limit = ProducerLimit(PRODUCERS_COUNT_MAX, self._count_producers)
        self._cluster_config: Mapping[str, str] = {}
        """The configs that are the cluster's, as of the step applied last."""
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._topics: dict[TopicId, TopicImage] = {}
        """The newest state of each topic, until the metadata names it deleted."""
        self._missing: set[TopicId] = set()
        """Those of `_topics` that the metadata shows no more."""
        self._folders = asyncio.Lock()
        """Keeps the works in the folders in the order of the steps."""
        self._failure: asyncio.Future[StorageFailure] = self.loop.create_future()
        self.cleaner = PartitionCleaner(config, self, disk, clock, self.folder_failed)
        self.removals = Removals(disk, clock)
        self.removals.add(logs.deleted, 0)
        self._upkeep = Upkeep(self, config, logs, disk, clock, self.removals, self.folder_failed)
        self._syncs = DiskQueue(self.loop, disk, Lane.SYNC, DISK_EXECUTOR_THREAD_COUNT)
        self._moving: set[TopicPartition] = set()
        self.on_off_line: Callable[[list[TopicPartition]], None] = lambda partitions: None
        """Called with partitions whose log directory failed, in a later turn of the loop."""
        self.on_leading: Callable[[Partition], None] = lambda partition: None
        """Called with a partition that leads other replicas, by a state that was just taken."""
        self.on_folder_failed: Callable[[], None] = lambda: None
        """Called when a log directory has failed, also one without partitions."""
        self.make_fetchers: Callable[[Following], ReplicaFetchers] | None = None
        """Called with the first partition that has other replicas."""
        self._following: Following | None = None
        self._tasks: asyncio.TaskGroup | None = None

    @cached_property
    def cold_reads(self) -> DiskQueue:
        """The queue of reads from disk."""
        return DiskQueue(self.loop, self.disk, Lane.READ, COLD_READS_COUNT_MAX)

    @cached_property
    def fetch_sessions(self) -> FetchSessions:
        """The fetch sessions of clients. Imported with the first fetch."""
        from oncelog.broker.partitions.fetch_sessions import FetchSessions

        slots = self._config.get_int("max.incremental.fetch.session.cache.slots")
        return FetchSessions(slots, rng=self._rng)

    @cached_property
    def follower_sessions(self) -> FetchSessions:
        """The fetch sessions of followers, which no client's can evict."""
        from oncelog.broker.partitions.fetch_sessions import FetchSessions
        from oncelog.core.cluster_limits import FOLLOWER_FETCH_SESSIONS_COUNT_MAX

        return FetchSessions(FOLLOWER_FETCH_SESSIONS_COUNT_MAX, rng=self._rng)

    @property
    def fetch_sessions_count(self) -> int:
        """The count of fetch sessions."""
        return len(self.fetch_sessions) if "fetch_sessions" in self.__dict__ else 0

    def get(self, topic: str, index: int) -> Partition | None:
        """Return the partition, also off line, if this broker has a replica of it."""
        return self._partitions.get((topic, index))

    def __iter__(self) -> Iterator[Partition]:
        """Iterate over the partitions that are not off line."""
        return iter([p for p in self._partitions.values() if not p.state.is_failed])

    def __len__(self) -> int:
        return len(self._partitions)

    def _count_producers(self) -> int:
        return sum(len(partition.log.producers) for partition in self._partitions.values())

    # --- the metadata image

    async def take_roles(self, delta: ImageDelta, image: MetadataImage) -> FolderWork:
        """Apply roles and configs to what is served, and drop what `image` names deleted.

        No disk is waited for: one that hangs never keeps this broker from hearing that it leads or
        no longer does. What is left to do in the folders is for `make_folders`, in this order.

        A topic that the metadata shows no more, and does not name deleted, is unknown: its
        partitions keep their last role and their folders (D14).
        """
        self._cluster_config = image.cluster_config
        deleted = self._named_deleted(delta, image)
        for topic in deleted:
            await self._drop(topic)
        wanted: dict[TopicId, frozenset[int]] = {}
        removed: dict[TopicId, frozenset[int]] = {}
        cut: list[Partition] = []
        for change in delta.assigned():
            topic, numbers = change.topic, change.partitions
            self._topics[topic.topic_id] = topic
            self._missing.discard(topic.topic_id)
            async for newest, part in self._in_turns(topic.topic_id, numbers):
                self._assign_served(newest, part)
            self._give_up(topic, numbers)
            if new := self._new_of(topic, numbers):
                wanted[topic.topic_id] = frozenset(label.partition for label in new)
            if gone := removed_logs(self._logs, self._broker_id, topic, numbers):
                removed[topic.topic_id] = frozenset(label.partition for label in gone)
            if self._following is not None:
                found = [self._partitions.get((topic.name, number)) for number in numbers]
                cut += [one for one in found if one and self._following.is_to_lead(one)]
        return FolderWork(deleted, wanted, removed, cut)

    def _named_deleted(self, delta: ImageDelta, image: MetadataImage) -> list[TopicImage]:
        """Return what is to be deleted; say once which other topics are missing."""
        named = {topic_id for ids in image.deleted.values() for topic_id in ids}
        for topic in delta.deleted:
            if topic.topic_id not in named and topic.topic_id in self._topics:
                self._missing.add(topic.topic_id)
                log.error(
                    "the metadata shows topic %s (%s) no more, and names no deletion of it: its "
                    "partitions are kept",
                    *(topic.name, topic.topic_id),
                )
        late = [self._topics[topic_id] for topic_id in self._missing & named]
        return late + [topic for topic in delta.deleted if topic.topic_id in named]

    async def make_folders(self, work: FolderWork) -> dict[TopicPartition, StorageFailure]:
        """Delete folders, and make those of new partitions, which are then served.

        Files are renamed and created in the executor, one work after the other. The new partitions
        of a topic are served together once all of them exist, by its newest state; where one cannot
        be created, none is, no files of the others remain, and the failure of each is returned.
        Those that this broker leads once their logs are cut, it leads when this returns.
        """
        async with self._folders:
            for topic in work.deleted:
                await self._delete(topic, topic.topic_partitions())
            await self._delete_removed(work.removed)
            unmade: dict[TopicPartition, StorageFailure] = {}
            waiting: list[Intake] = []
            count = 0
            for topic_id, numbers in work.wanted.items():
                wanted = self._topics.get(topic_id)
                if wanted is None:
                    continue  # A later step has deleted it.
                new = self._new_of(wanted, sorted(numbers))
                # One of a deleted topic of that name: a start refuses two folders of one name.
                if held := [label for label in new if self._logs.is_off_line(label)]:
                    self.on_off_line(held)
                    new = [label for label in new if label not in held]
                waiting.append(Intake(wanted, log_config(self._config, wanted.config), new))
                count += len(new)
                if count >= PARTITIONS_TAKEN_IN_TOGETHER_COUNT:
                    unmade |= await self._take_in(waiting)
                    waiting, count = [], 0
            unmade |= await self._take_in(waiting)
            await self._delete_removed(work.wanted)
        if self._following is not None:
            await self._following.cuts_ended(work.cut)
        return unmade

    def has_topic(self, topic_id: TopicId) -> bool:
        """Whether the metadata has shown this topic, and has not named it deleted since."""
        return topic_id in self._topics

    def _ours(
        self, topic: TopicImage, numbers: Iterable[int]
    ) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        """Iterate over those partitions of a topic that belong into the folders of this broker."""
        me = self._broker_id
        for number in numbers:
            label, image = topic.label(number), topic.partitions[number]
            is_here = me in image.replicas and me not in image.offline_replicas
            if is_here and label not in self._moving:
                yield label, image

    def _new_of(self, topic: TopicImage, numbers: Iterable[int]) -> list[TopicPartition]:
        return [label for label, _ in self._ours(topic, numbers) if label not in self._partitions]

    def _give_up(self, topic: TopicImage, numbers: Iterable[int]) -> None:
        """Serve no more what has no replica here. Its log stays unless it is noted as removed."""
        for number in numbers:
            if self._broker_id not in topic.partitions[number].replicas:
                partition = self._partitions.get((topic.name, number))
                if partition is not None and partition.state.topic_id == topic.topic_id:
                    self._forget(partition.topic_partition, ErrorCode.not_leader_or_follower)

    async def _in_turns(
        self, topic_id: TopicId, numbers: Iterable[int]
    ) -> AsyncIterator[tuple[TopicImage, Sequence[int]]]:
        """Give some of these partitions in each turn, and the topic by then; none once it goes."""
        left = list(numbers)
        while left and (topic := self._topics.get(topic_id)) is not None:
            yield topic, left[:PARTITIONS_PER_TURN_COUNT_MAX]
            if left := left[PARTITIONS_PER_TURN_COUNT_MAX:]:
                await self.clock.sleep(0)

    def _assign_served(self, topic: TopicImage, numbers: Iterable[int]) -> None:
        """Apply a topic's state to those of these partitions that are served."""
        config = log_config(self._config, topic.config)
        for label, image in self._ours(topic, numbers):
            partition = self._partitions.get(label)
            if partition is None:
                continue
            if partition.state.topic_id == topic.topic_id:
                self._assign(topic, partition, image, config)
            else:
                # Another topic of that name is missing: its folder is set aside.
                self._forget(label, ErrorCode.not_leader_or_follower)

    async def _take_in(self, intakes: list[Intake]) -> dict[TopicPartition, StorageFailure]:
        """Make what is new of some topics in one piece of work, then serve it."""
        unmade: dict[TopicPartition, StorageFailure] = {}
        now_ms = self.clock.now_ms()
        logs = await make_in_turn(self._logs, intakes, self.disk, now_ms, self.folder_failed)
        for one, made in zip(intakes, logs, strict=True):
            if isinstance(made, StorageFailure):
                log.warning("new partitions of topic %s are not made: %s", one.topic.name, made)
                unmade |= dict.fromkeys(one.new, made)
                continue
            # If it is deleted meanwhile, what was made is deleted next.
            async for topic, part in self._in_turns(one.topic.topic_id, [n for _, n in made]):
                labels = [label for label, _ in self._ours(topic, part)]
                for label in labels:
                    made[label].config = one.config
                    self._begin(topic, label, made[label])
                # A directory that failed since it made them has told of no partition served here.
                lost = [label for label in labels if self._logs.get(label) is not made[label]]
                self._fail([self._partitions[label] for label in lost])
                self._assign_served(topic, part)
        return unmade

    def _assign(
        self, topic: TopicImage, partition: Partition, image: PartitionImage, config: LogConfig
    ) -> None:
        partition.log.config = config
        latest_epoch = partition.log.latest_epoch
        if image.leader == self._broker_id and latest_epoch > image.leader_epoch:
            # Its records would be lost in every replica that follows.
            log.error(
                "%s is not led: its log has leader epoch %d, and the metadata gives epoch %d: the "
                "metadata store is older than the logs, and a restart begins a later epoch",
                *(partition.topic_partition, latest_epoch, image.leader_epoch),
            )
            self._fail([partition])
            return
        given = assignment_of(topic, image, self._cluster_config)
        partition.assign(given, self.clock.monotonic_ms())
        self._role_taken(partition)

    def _role_taken(self, partition: Partition) -> None:
        """Begin what goes with a role among other replicas, and end what went with the last one."""
        if len(partition.state.replicas) > 1:
            if partition.state.is_leader:
                self.on_leading(partition)
            if self._following is None and self.make_fetchers is not None:
                from oncelog.broker.partitions.following import Following

                self._following = Following(
                    *(self.make_fetchers, self._logs, self._upkeep, self._syncs, self.clock),
                    *(self.cleaner.forget, self.folder_failed, self._role_taken),
                )
                if self._tasks is not None:
                    self._tasks.create_task(self._following.run())
        if self._following is not None:
            self._following.role_taken(partition)

    def _begin(
        self, topic: TopicImage, topic_partition: TopicPartition, made: PartitionLog
    ) -> None:
        """Serve a partition, without a role yet."""
        made.producers.producer_limit = self._producer_limit
        self._partitions[topic_partition] = Partition(
            topic_partition,
            made,
            self._upkeep.first_state(self._broker_id, topic_partition, topic.topic_id, made),
            self.purgatory,
            self.folder_failed,
            self._syncs,
            self.meters.of(topic.name),
        )
        if not made.log_end_offset:
            self.cleaner.forget(topic_partition)

    async def _drop(self, topic: TopicImage) -> None:
        """Stop serving the partitions of a deleted topic."""
        self._topics.pop(topic.topic_id, None)
        self._missing.discard(topic.topic_id)
        dropped_count = 0
        for label in topic.topic_partitions():
            partition = self._partitions.get(label)
            if partition is not None and partition.state.topic_id == topic.topic_id:
                self._forget(label, ErrorCode.unknown_topic_or_partition)
                dropped_count += 1
                if dropped_count % PARTITIONS_PER_TURN_COUNT_MAX == 0:
                    await self.clock.sleep(0)
        if dropped_count:
            self.meters.drop(topic.name)

    def _forget(self, topic_partition: TopicPartition, error: ErrorCode) -> None:
        """Serve a partition no more, whose folder goes."""
        partition = self._partitions.pop(topic_partition)
        self._upkeep.forget(topic_partition)
        self.cleaner.forget(topic_partition)
        self._follow_no_more(topic_partition)
        partition.resign(error)

    def _follow_no_more(self, label: TopicPartition) -> None:
        if self._following is not None:
            self._following.forget(label)

    async def _delete(self, topic: TopicImage, labels: Iterable[TopicPartition]) -> None:
        """Rename folders of a topic as deleted. A move that is under way does its own.

        The name may be another topic's by now, and a folder of that one stays.
        """
        doomed = [
            label
            for label in labels
            if self._logs.topic_id(label) == topic.topic_id and label not in self._moving
        ]
        if doomed:
            paths, failures = await self.disk.run(partial(delete_logs, self._logs, doomed))
            delay_ms = self._config.topic_int(topic.config, "file.delete.delay.ms")
            self.removals.add(paths, delay_ms)
            for failure in failures:
                self.folder_failed(failure)

    async def _delete_removed(self, numbers: Mapping[TopicId, Iterable[int]]) -> None:
        """Delete the logs of those that are noted as removed from here, by the newest metadata."""
        for topic_id, given in numbers.items():
            # A later step may have deleted the topic, or have a replica here again.
            if (left := self._topics.get(topic_id)) is not None:
                doomed = removed_logs(self._logs, self._broker_id, left, given)
                await self._delete(left, doomed)

    # --- background work

    async def run(self) -> None:
        """Run all background work; raises `StorageFailure` when the last log directory fails."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                if self._following is not None:
                    tasks.create_task(self._following.run())
                tasks.create_task(self._watch())
                tasks.create_task(self.removals.run())
                for worker in (*self._upkeep.workers(), *self.cleaner.workers()):
                    tasks.create_task(worker)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _watch(self) -> None:
        raise await self._failure

    def leave(self, topic_partition: TopicPartition) -> None:
        """Stop serving the partition until `rejoin`: its log is being moved."""
        partition = self._partitions.pop(topic_partition)
        self._moving.add(topic_partition)
        self._follow_no_more(topic_partition)
        partition.resign(ErrorCode.not_leader_or_follower)
        self._upkeep.moving[topic_partition] = partition.state

    def rejoin(self, topic_partition: TopicPartition) -> None:
        """Let the partition follow the image again."""
        self._moving.discard(topic_partition)

    def folder_failed(self, failure: StorageFailure) -> None:
        """Take the log directory of this failure off line (D12).

        The caller is still at work: others are notified in the next turn of the event loop.
        """
        folder = self._logs.take_off_line(failure)
        if folder is None:
            return
        log.error("the log directory %s is off line: %s", folder.directory, failure)
        self.on_folder_failed()
        if not self._logs.online:
            if not self._failure.done():
                self._failure.set_result(failure)
            return
        self._fail([p for p in self._partitions.values() if p.topic_partition in folder])

    def _fail(self, gone: list[Partition]) -> None:
        for partition in gone:
            partition.fail()
            self._follow_no_more(partition.topic_partition)
        if gone:
            self.loop.call_soon(self._told_off_line, gone)

    def _told_off_line(self, gone: list[Partition]) -> None:
        for partition in gone:
            partition.stop(ErrorCode.kafka_storage_error)
        self.on_off_line([partition.topic_partition for partition in gone])

    async def note_log_starts(self) -> None:
        """Sync the log start offsets, after records were deleted."""
        await self.disk.run(self._logs.write_log_starts)

    def close(self) -> None:
        """Answer all waiting operations. The owner of the logs closes them afterwards."""
        note = self._upkeep.note_high_watermarks(is_last=True)
        for partition in self:
            partition.resign(ErrorCode.not_leader_or_follower)
        try:
            note()
        except StorageFailure as failure:
            log.error("high watermarks were not written: %s", failure)
        self._partitions.clear()
        self._syncs.close()
        self.cold_reads.close()
        self._failure.cancel()
