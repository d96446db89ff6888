"""Keeps this broker's partitions in step with the metadata image, and maintains their logs.

Retention, flushes and checkpoints run in the executor (D12), never in the event loop. The image
determines which partitions are here: a folder of another topic with the same name is set aside
(topic ids are identity, D9; D14). A log directory that fails takes its partitions off line until a
restart; the failure of the last one ends `run`, and with it the broker.

This module does not know the wire protocol, nor the content of a log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from oncelog.broker.partitions.cleaner import PartitionCleaner
from oncelog.broker.partitions.delayed import FetchPurgatory
from oncelog.broker.partitions.disk_queue import DiskQueue
from oncelog.broker.partitions.log_settings import log_config
from oncelog.broker.partitions.meters import TopicMeters
from oncelog.broker.partitions.partition import Partition
from oncelog.broker.partitions.removals import Removals, Retained, delete_old_segments
from oncelog.controller.cluster_config import min_insync_replicas
from oncelog.controller.image import ImageDelta, PartitionImage, TopicDelta, TopicImage
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import (
    COLD_READS_COUNT_MAX,
    DISK_EXECUTOR_THREAD_COUNT,
    PARTITIONS_PER_TURN_COUNT_MAX,
    PARTITIONS_TAKEN_IN_TOGETHER_COUNT,
    PRODUCERS_COUNT_MAX,
    PRODUCERS_SWEPT_PER_TURN_COUNT_MAX,
    TIMER_MS_MAX,
)
from oncelog.replication.replica import Assignment, OfflineState
from oncelog.runtime.clock import Clock, SteadyClock
from oncelog.runtime.disk import Disk, Lane, StorageFailure
from oncelog.storage import LogConfig, PartitionLog
from oncelog.storage.log_manager import LogManager
from oncelog.storage.producer_limit import ProducerLimit

if TYPE_CHECKING:
    from oncelog.broker.partitions.fetch_sessions import FetchSessions

__all__ = ["Partition", "PartitionManager"]

log = logging.getLogger(__name__)


_Made: TypeAlias = dict[TopicPartition, PartitionLog]


class _Intake(NamedTuple):
    """A topic that the image has brought or changed, and its part that belongs here."""

    topic: TopicImage
    config: LogConfig
    ours: list[tuple[TopicPartition, PartitionImage]]
    new: list[TopicPartition]
    """Those of `ours` that are not served yet."""


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
        self._broker_id = broker_id
        self._config = config
        self._logs = logs
        self._rng = rng
        self.disk = disk
        self.meters = TopicMeters()
        self._producer_limit = ProducerLimit(PRODUCERS_COUNT_MAX, self._count_producers)
        self.cluster_config: Mapping[str, str] = {}
        """The configs that are the cluster's, as the metadata has them when it is applied."""
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._high_watermarks = logs.read_high_watermarks()
        self._flushed_ms: dict[TopicPartition, int] = {}
        self._failure: asyncio.Future[StorageFailure] = self.loop.create_future()
        self.cleaner = PartitionCleaner(config, self.__iter__, disk, clock, self.folder_failed)
        self.removals = Removals(disk, clock)
        self.removals.add(logs.deleted, 0)
        self._syncs = DiskQueue(self.loop, disk, Lane.SYNC, DISK_EXECUTOR_THREAD_COUNT)
        self._moving: set[TopicPartition] = set()
        self.on_off_line: Callable[[list[TopicPartition]], None] = lambda partitions: None
        """Called with the partitions whose log directory failed, in a later turn of the loop."""

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

    async def apply(self, delta: ImageDelta) -> dict[TopicPartition, StorageFailure]:
        """Follow the image: drop deleted partitions, create new ones, apply roles and configs.

        Files are renamed and created in the executor. The new partitions of a topic are served
        together once all of them exist; where one cannot be created, none is, no files of the
        others remain, and the failure of each is returned.
        """
        for topic in delta.deleted:
            await self._delete(topic)
        unmade: dict[TopicPartition, StorageFailure] = {}
        waiting: list[_Intake] = []
        count = 0
        for change in delta.assigned():
            waiting.append(self._intake(change))
            count += len(change.partitions)
            if count >= PARTITIONS_TAKEN_IN_TOGETHER_COUNT:
                unmade |= await self._take_in(waiting)
                waiting, count = [], 0
        return unmade | await self._take_in(waiting)

    def _intake(self, change: TopicDelta) -> _Intake:
        topic = change.topic
        numbers = change.partitions
        ours = [
            (label, image)
            for label, image in ((topic.label(n), topic.partitions[n]) for n in numbers)
            if self._broker_id in image.replicas and self._broker_id not in image.offline_replicas
            if label not in self._moving
        ]
        new = [label for label, _ in ours if label not in self._partitions]
        return _Intake(topic, log_config(self._config, topic.config), ours, new)

    async def _take_in(self, intakes: list[_Intake]) -> dict[TopicPartition, StorageFailure]:
        """Make what is new of some topics in one piece of work, then serve it."""
        unmade: dict[TopicPartition, StorageFailure] = {}
        assigned_count = 0
        for one, made in zip(intakes, await self._made(intakes), strict=True):
            if isinstance(made, StorageFailure):
                log.warning("new partitions of topic %s are not made: %s", one.topic.name, made)
                unmade |= dict.fromkeys(one.new, made)
                made = {}
            for label, image in one.ours:
                assigned_count += 1
                if assigned_count % PARTITIONS_PER_TURN_COUNT_MAX == 0:
                    await self.clock.sleep(0)
                self._assign(one.topic, label, image, made.get(label), one.config)
        return unmade

    async def _made(self, intakes: list[_Intake]) -> list[_Made | StorageFailure]:
        """Create logs in the executor, in a log directory that has not failed."""
        made: list[_Made | StorageFailure] = [{} for _ in intakes]
        wanted = [index for index, one in enumerate(intakes) if one.new]
        while wanted:
            work = partial(self._make_all, [intakes[index] for index in wanted])
            results = await self.disk.run(partial(work, self.clock.now_ms()))
            again = []
            for index, result in zip(wanted, results, strict=True):
                made[index] = result
                if isinstance(result, StorageFailure) and not result.refused and self._logs.online:
                    self.folder_failed(result)
                    again.append(index)
            wanted = again
        return made

    def _make_all(self, intakes: list[_Intake], now_ms: int) -> list[_Made | StorageFailure]:
        results: list[_Made | StorageFailure] = []
        for one in intakes:
            try:
                results.append(self._make_logs(one.topic, one.new, one.config, now_ms))
            except StorageFailure as failure:
                results.append(failure)
        return results

    def _make_logs(
        self, topic: TopicImage, new: list[TopicPartition], config: LogConfig, now_ms: int
    ) -> _Made:
        """Find or create the logs of partitions that are not served yet: all of them, or none."""
        logs = self._logs
        made: _Made = {}
        fresh: list[TopicPartition] = []
        try:
            for label in new:
                held = logs.get(label)
                if held is not None and logs.topic_id(label) not in (None, topic.topic_id):
                    logs.set_aside(label, f"it is of another topic, {logs.topic_id(label)}")
                    self._high_watermarks.pop(label, None)
                    held = None
                if held is None:
                    fresh.append(label)
                made[label] = logs.create(label, topic.topic_id, config, now_ms)
        except StorageFailure:
            for label in fresh:
                with contextlib.suppress(StorageFailure):
                    logs.undo(label)
            raise
        return made

    def _assign(
        self,
        topic: TopicImage,
        topic_partition: TopicPartition,
        image: PartitionImage,
        made: PartitionLog | None,
        config: LogConfig,
    ) -> None:
        partition = self._partitions.get(topic_partition)
        if partition is None and made is not None:
            partition = self._begin(topic, topic_partition, made, config)
        if partition is None:
            return
        partition.log.config = config
        given = Assignment(
            image.leader,
            image.leader_epoch,
            frozenset(image.isr),
            image.replicas,
            min_insync_replicas(topic.config, self.cluster_config),
        )
        partition.assign(given, self.clock.monotonic_ms())

    def _begin(
        self,
        topic: TopicImage,
        topic_partition: TopicPartition,
        made: PartitionLog,
        config: LogConfig,
    ) -> Partition:
        made.config = config
        made.producers.producer_limit = self._producer_limit
        state = OfflineState.unassigned(
            self._broker_id,
            topic.topic_id,
            # Where every message is synced, a consumer gets no message before its sync.
            log_end_offset=made.recovery_point if made.flush_is_due else made.log_end_offset,
            high_watermark=max(
                self._high_watermarks.get(topic_partition, 0), made.log_start_offset
            ),
        )
        partition = Partition(
            topic_partition,
            made,
            state,
            self.purgatory,
            self.folder_failed,
            self._syncs,
            self.meters.of(topic.name),
        )
        self._partitions[topic_partition] = partition
        if not made.log_end_offset:
            self.cleaner.forget(topic_partition)
        return partition

    async def _delete(self, topic: TopicImage) -> None:
        """Drop a topic's partitions, then rename their folders as deleted."""
        dropped: list[TopicPartition] = []
        for label in topic.topic_partitions():
            partition = self._partitions.get(label)
            if self._logs.is_unread(label) and self._logs.topic_id(label) == topic.topic_id:
                dropped.append(label)
            if partition is not None and partition.state.topic_id == topic.topic_id:
                del self._partitions[label]
                dropped.append(label)
                self._high_watermarks.pop(label, None)
                self._flushed_ms.pop(label, None)
                self.cleaner.forget(label)
                partition.resign(ErrorCode.unknown_topic_or_partition)
                if len(dropped) % PARTITIONS_PER_TURN_COUNT_MAX == 0:
                    await self.clock.sleep(0)
        if dropped:
            self.meters.drop(topic.name)
            paths = await self.disk.run(lambda: [self._logs.delete(label) for label in dropped])
            delay_ms = self._config.topic_int(topic.config, "file.delete.delay.ms")
            self.removals.add([path for path in paths if path is not None], delay_ms)

    # --- background work

    async def run(self) -> None:
        """Run retention, compaction, flushes, checkpoints and expiry of producers, until cancelled.

        Raises `StorageFailure` when the last log directory fails.
        """
        config = self._config
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                tasks.create_task(self._expire_producers())
                tasks.create_task(self.removals.run())
                retention_ms = config.get_int("log.retention.check.interval.ms")
                if retention_ms <= TIMER_MS_MAX:
                    tasks.create_task(self._retain_every(retention_ms))
                for worker in self.cleaner.workers():
                    tasks.create_task(worker)
                for key, work in (
                    ("log.flush.scheduler.interval.ms", self._flush),
                    ("log.flush.offset.checkpoint.interval.ms", self._checkpoint),
                    ("log.flush.start.offset.checkpoint.interval.ms", self._write_log_starts),
                    ("replica.high.watermark.checkpoint.interval.ms", self._note_high_watermarks),
                ):
                    interval_ms = config.get_int(key)
                    if interval_ms <= TIMER_MS_MAX:
                        tasks.create_task(self._every(interval_ms, work))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _watch(self) -> None:
        raise await self._failure

    async def _every(self, interval_ms: int, work: Callable[[], Callable[[], None]]) -> None:
        """Plan periodically in the event loop, which owns the partitions; block in the executor."""
        while True:
            await self.clock.sleep(interval_ms)
            try:
                await self.disk.run(work())
            except StorageFailure as failure:
                self.folder_failed(failure)

    async def _retain_every(self, interval_ms: int) -> None:
        """Apply retention; renamed files are removed after their delay."""
        while True:
            await self.clock.sleep(interval_ms)
            found, failures = await self.disk.run(self._retain())
            for deleted, delay_ms in found:
                self.removals.add(deleted, delay_ms)
            for failure in failures:
                self.folder_failed(failure)
            for partition in self:
                partition.log_start_moved()

    async def _expire_producers(self) -> None:
        """Expire idle producers, in the event loop because appends use the same tables.

        A limited number per turn: there may be thousands of partitions, or of producers in one.
        """
        interval_ms = self._config.get_int("producer.id.expiration.check.interval.ms")
        steady = SteadyClock(self.clock)
        while True:
            await self.clock.sleep(interval_ms)
            # Their times are wall time: setting the clock forward expires no producer.
            now_ms = min(self.clock.now_ms(), steady.now_ms())
            seen_count = 0
            for partition in self:
                producers = partition.log.producers
                entries = producers.entries()
                expiration_ms = partition.log.config.producer_id_expiration_ms
                for begin in range(0, max(1, len(entries)), PRODUCERS_SWEPT_PER_TURN_COUNT_MAX):
                    part = entries[begin : begin + PRODUCERS_SWEPT_PER_TURN_COUNT_MAX]
                    producers.remove_expired(part, now_ms, expiration_ms)
                    seen_count += 1 + len(part)
                    if seen_count >= PRODUCERS_SWEPT_PER_TURN_COUNT_MAX:
                        seen_count = 0
                        await self.clock.sleep(0)

    def _retain(self) -> Callable[[], Retained]:
        now_ms = self.clock.now_ms()
        # Whatever the policy, segments below the log start offset are deleted.
        due = [(partition.log, partition.state.high_watermark) for partition in self]
        return lambda: delete_old_segments(due, now_ms)

    def _flush(self) -> Callable[[], None]:
        now_ms = self.clock.now_ms()
        due = []
        for partition in self:
            since_ms = now_ms - self._flushed_ms.setdefault(partition.topic_partition, now_ms)
            if since_ms >= partition.log.config.flush_ms and _is_dirty(partition.log):
                self._flushed_ms[partition.topic_partition] = now_ms
                due.append(partition.log)
        return lambda: _flush_all(due)

    def _checkpoint(self) -> Callable[[], None]:
        """Flush sealed segments, which the next start then need not scan, and write checkpoints."""
        sealed = [
            partition.log
            for partition in self
            if partition.log.recovery_point < partition.log.segment_base_offsets[-1]
        ]

        def work() -> None:
            _flush_all(sealed)
            self._logs.checkpoint()

        return work

    def _write_log_starts(self) -> Callable[[], None]:
        return self._logs.write_log_starts

    def _note_high_watermarks(self) -> Callable[[], None]:
        noted = {p.topic_partition: p.state.high_watermark for p in self}
        if noted == self._high_watermarks:
            return lambda: None
        self._high_watermarks = noted
        return lambda: self._logs.write_high_watermarks(noted)

    def leave(self, topic_partition: TopicPartition) -> None:
        """Stop serving the partition until `rejoin`: its log is being moved."""
        partition = self._partitions.pop(topic_partition)
        self._moving.add(topic_partition)
        self._high_watermarks[topic_partition] = partition.state.high_watermark
        partition.resign(ErrorCode.not_leader_or_follower)

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
        log.error("the data folder %s is off line: %s", folder.directory, failure)
        if not self._logs.online:
            if not self._failure.done():
                self._failure.set_result(failure)
            return
        gone = [p for p in self._partitions.values() if p.topic_partition in folder]
        for partition in gone:
            partition.fail()
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
        for partition in self:
            partition.resign(ErrorCode.not_leader_or_follower)
        try:
            self._note_high_watermarks()()
        except StorageFailure as failure:
            log.error("high watermarks were not written: %s", failure)
        self._partitions.clear()
        self._syncs.close()
        self.cold_reads.close()
        self._failure.cancel()


def _is_dirty(held: PartitionLog) -> bool:
    return held.recovery_point < held.log_end_offset


def _flush_all(logs: list[PartitionLog]) -> None:
    for held in logs:
        held.flush()
