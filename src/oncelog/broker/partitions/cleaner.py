"""Compacts this broker's partitions in the background (Kafka's `LogCleaner`).

Each of `log.cleaner.threads` workers takes the dirtiest log, cleans it step by step in the
executor, and pauses for `log.cleaner.backoff.ms` when none is due. A step takes about as long as a
turn of the event loop, and one turn runs between any two steps. `cleaner-offset-checkpoint` stores
how far each log is clean; if it is lost, logs are cleaned from their start again.

A log that cannot be cleaned is reported and left unchanged until the broker restarts; the others
are cleaned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, NamedTuple

from oncelog.broker.partitions.partition import Partition
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.runtime.clock import Clock
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage import CorruptBatch, PartitionLog
from oncelog.storage.cleaner import (
    CleanerSettings,
    CleanerStats,
    Cleaning,
    LogToClean,
    Uncleanable,
    filthiest,
    log_to_clean,
    read_clean_offsets,
    write_clean_offsets,
)
from oncelog.storage.log_cleaning import LogChanged

__all__ = ["PartitionCleaner"]

log = logging.getLogger(__name__)

OnFailure = Callable[[StorageFailure], None]


class _Candidate(NamedTuple):
    """A compacted log and its replication state at the time of selection."""

    log: PartitionLog
    last_stable_offset: int
    high_watermark: int


class PartitionCleaner:
    """Cleans the logs of `partitions`, which is called each time."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Iterable[Partition],
        disk: Disk,
        clock: Clock,
        on_failure: OnFailure,
    ) -> None:
        enabled = config.get_bool("log.cleaner.enable")
        self._workers_count = config.get_int("log.cleaner.threads") if enabled else 0
        self._backoff_ms = max(config.get_int("log.cleaner.backoff.ms"), 1)
        self._bytes_per_second = config.get_float("log.cleaner.io.max.bytes.per.second")
        workers_count = max(self._workers_count, 1)
        self._settings = CleanerSettings(
            config.get_int("log.cleaner.dedupe.buffer.size") // workers_count,
            config.get_float("log.cleaner.io.buffer.load.factor"),
            # One half to read into, the other to write from.
            config.get_int("log.cleaner.io.buffer.size") // workers_count // 2,
        )
        self._partitions = partitions
        self._disk = disk
        self._clock = clock
        self._on_failure = on_failure
        self._clean_offsets: dict[TopicPartition, int] | None = None
        self.in_progress: set[PartitionLog] = set()
        """Logs that are being cleaned."""
        self._paused: set[TopicPartition] = set()
        self._forgotten: set[TopicPartition] = set()
        """Those whose log was deleted or restarted while it is being cleaned."""
        self._ended = asyncio.Event()
        self._throttled_until_ms = 0.0
        self.uncleanable: set[PartitionLog] = set()
        """Logs that are not tried again."""
        self.cleanings_count = 0

    def workers(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return the workers, to run until cancelled."""
        return [self._work() for _ in range(self._workers_count)]

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget the partition's clean offset: its log was deleted or restarted."""
        if self._clean_offsets is not None:
            self._clean_offsets.pop(topic_partition, None)
        if any(held.topic_partition == topic_partition for held in self.in_progress):
            self._forgotten.add(topic_partition)

    async def pause(self, topic_partition: TopicPartition) -> None:
        """End a cleaning of the partition, and begin none until `resume`.

        Its log is copied then: the copy would not be as clean as the log's clean offset says.
        """
        self._paused.add(topic_partition)
        while any(held.topic_partition == topic_partition for held in self.in_progress):
            self._ended.clear()
            await self._ended.wait()

    def resume(self, topic_partition: TopicPartition) -> None:
        """Clean the partition again."""
        self._paused.discard(topic_partition)

    async def _work(self) -> None:
        while True:
            try:
                is_busy = await self._clean_one()
            except StorageFailure as failure:
                # It takes one log directory off line; the logs of the others are cleaned.
                self._on_failure(failure)
                is_busy = False
            if not is_busy:
                await self._clock.sleep(self._backoff_ms)

    async def _clean_one(self) -> bool:
        """Clean the dirtiest log; False when none is due. Raises `StorageFailure`."""
        candidates = self._candidates()
        if not candidates:
            return False
        now_ms = self._clock.now_ms()
        offsets = dict(await self._known_offsets())
        target = await self._disk.run(partial(_choose, self._disk, candidates, offsets, now_ms))
        if target is None:
            return False
        held = target.log
        label = held.topic_partition
        is_as_chosen = (await self._known_offsets()).get(label) == offsets.get(label)
        # Another worker may have taken it first, it is about to be moved, or began again.
        if is_as_chosen and held not in self.in_progress and label not in self._paused:
            self.in_progress.add(held)
            try:
                high_watermark = next(c.high_watermark for c in candidates if c.log is held)
                await self._clean(target, high_watermark, now_ms)
            finally:
                self.in_progress.discard(held)
                self._forgotten.discard(label)
                self._ended.set()
        return True

    async def _known_offsets(self) -> dict[TopicPartition, int]:
        if self._clean_offsets is None:
            folders: dict[str, set[TopicPartition]] = {}
            for partition in self._open_partitions():
                held = folders.setdefault(_folder(partition.log), set())
                held.add(partition.topic_partition)
            found = await self._disk.run(partial(read_clean_offsets, self._disk, folders))
            if self._clean_offsets is None:  # Another worker may have taken it first.
                self._forget_what_is_lost(found)
                self._clean_offsets = found
        return self._clean_offsets

    def _forget_what_is_lost(self, clean_offsets: dict[TopicPartition, int]) -> None:
        """Remove offsets that a loss of power took from the end of a log, once for all."""
        for partition in self._partitions:
            label, end = partition.topic_partition, partition.log.log_end_offset
            if clean_offsets.get(label, 0) > end:
                log.warning(
                    "%s: cleaned up to offset %d by its checkpoint, but it ends at %d; "
                    "it is cleaned from its start",
                    label,
                    clean_offsets.pop(label),
                    end,
                )

    def _open_partitions(self) -> list[Partition]:
        """Return the partitions without those in a log directory that is off line."""
        return [partition for partition in self._partitions if partition.log.cleaning.is_open]

    def _candidates(self) -> list[_Candidate]:
        present = self._open_partitions()
        self.uncleanable.intersection_update([partition.log for partition in present])
        passed_over = self.in_progress | self.uncleanable
        return [
            _Candidate(partition.log, partition.last_stable_offset, partition.state.high_watermark)
            for partition in present
            if partition.log.config.is_compacted and partition.log not in passed_over
            if partition.topic_partition not in self._paused
        ]

    async def _clean(self, target: LogToClean, high_watermark: int, now_ms: int) -> None:
        held = target.log
        begin = partial(Cleaning, self._disk, target, self._settings, high_watermark, now_ms)
        try:
            cleaning = await self._disk.run(begin)
            await self._run_steps(cleaning, held.topic_partition)
            await self._note(held, cleaning.end_offset)
        except LogChanged as reason:
            log.debug("the cleaning of %s ends: %s", held.topic_partition, reason)
        except (ProtocolError, Uncleanable) as reason:
            self._give_up(held, target, reason)
        except StorageFailure:
            if not held.is_deleted:
                raise
        else:
            self.cleanings_count += 1
            _report(held, cleaning.end_offset, cleaning.stats)

    async def _run_steps(self, cleaning: Cleaning, topic_partition: TopicPartition) -> None:
        steps = cleaning.steps()
        while (size := await self._disk.run(partial(next, steps, None))) is not None:
            await self._throttle(size)
            if topic_partition in self._paused:
                reason = LogChanged(f"{topic_partition} is being moved")
                await self._disk.run(partial(steps.throw, reason))
        if topic_partition in self._forgotten:
            raise LogChanged(f"{topic_partition} begins again: it is not as clean as it was")

    async def _throttle(self, size: int) -> None:
        """Wait until so many more bytes are within the rate that all workers share."""
        now_ms = self._clock.monotonic_ms()
        begin_ms = max(self._throttled_until_ms, now_ms)
        self._throttled_until_ms = begin_ms + 1000 * size / self._bytes_per_second
        if self._throttled_until_ms - now_ms >= 1:
            await self._clock.sleep(self._throttled_until_ms - now_ms)

    async def _note(self, held: PartitionLog, end_offset: int) -> None:
        offsets = self._clean_offsets
        if offsets is None or not held.cleaning.is_open:
            return
        offsets[held.topic_partition] = end_offset
        folder = _folder(held)
        here = {
            partition.topic_partition: offsets[partition.topic_partition]
            for partition in self._partitions
            if partition.topic_partition in offsets and _folder(partition.log) == folder
        }
        await self._disk.run(partial(write_clean_offsets, self._disk, folder, here))

    def _give_up(self, held: PartitionLog, target: LogToClean, reason: Exception) -> None:
        self.uncleanable.add(held)
        offset = reason.offset if isinstance(reason, CorruptBatch) else target.first_dirty_offset
        log.error(
            "%s cannot be cleaned and keeps all its records until the broker starts again: "
            "at offset %d: %s",
            held.topic_partition,
            offset,
            reason.message if isinstance(reason, ProtocolError) else reason,
        )


def _choose(
    disk: Disk,
    candidates: list[_Candidate],
    clean_offsets: dict[TopicPartition, int],
    now_ms: int,
) -> LogToClean | None:
    found = []
    for held, stable_offset, _ in candidates:
        clean_offset = clean_offsets.get(held.topic_partition)
        try:
            found.append(log_to_clean(disk, held, clean_offset, stable_offset, now_ms))
        except StorageFailure as failure:
            if not failure.missing:
                raise
            # Retention removed a segment meanwhile; the next check finds the log's new state.
    return filthiest(found)


def _folder(held: PartitionLog) -> str:
    return held.directory.rpartition("/")[0]


def _report(held: PartitionLog, end_offset: int, stats: CleanerStats) -> None:
    log.info(
        "%s is clean up to offset %d: %d of %d records and %d of %d bytes stay, for %d keys",
        held.topic_partition,
        end_offset,
        stats.records_written,
        stats.records_read,
        stats.bytes_written,
        stats.bytes_read,
        stats.keys_count,
    )
    if stats.records_without_key:
        log.warning(
            "%s: %d records without a key were removed: compaction keeps one record for each key",
            held.topic_partition,
            stats.records_without_key,
        )
