"""The upkeep of logs: retention, flushes, checkpoints, and the expiry of producers.

What blocks runs in the executor (D12), one plan of the event loop at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from oncelog.broker.partitions.partition import Partition
from oncelog.broker.partitions.removals import Removals, Retained, delete_old_segments
from oncelog.core.config import BrokerConfig
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.core.limits import PRODUCERS_SWEPT_PER_TURN_COUNT_MAX, TIMER_MS_MAX
from oncelog.replication.replica import OfflineState, ReplicaState
from oncelog.runtime.clock import Clock, SteadyClock
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage import PartitionLog
from oncelog.storage.log_manager import LogManager

if TYPE_CHECKING:
    from oncelog.broker.partitions.absence import CaughtUpTimes

__all__ = ["Upkeep"]


class Upkeep:
    """Looks after the logs of `partitions`, which are those that are served now."""

    def __init__(
        self,
        partitions: Iterable[Partition],
        config: BrokerConfig,
        logs: LogManager,
        disk: Disk,
        clock: Clock,
        removals: Removals,
        folder_failed: Callable[[StorageFailure], None],
    ) -> None:
        self.high_watermarks = logs.read_high_watermarks()
        """The high watermarks last written."""
        self.moving: dict[TopicPartition, ReplicaState] = {}
        """What partitions were that are being moved, until they are served again."""
        self.caught_up: CaughtUpTimes | None = None
        """Where this broker follows others: since when it may have missed deletions."""
        self._partitions = partitions
        self._config = config
        self._logs = logs
        self._disk = disk
        self._clock = clock
        self._removals = removals
        self._folder_failed = folder_failed
        self._flushed_ms: dict[TopicPartition, int] = {}

    def workers(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Return what has to run until cancelled."""
        config = self._config
        yield self._expire_producers()
        retention_ms = config.get_int("log.retention.check.interval.ms")
        if retention_ms <= TIMER_MS_MAX:
            yield self._retain_every(retention_ms)
        for key, work in (
            ("log.flush.scheduler.interval.ms", self._flush),
            ("log.flush.offset.checkpoint.interval.ms", self._checkpoint),
            ("log.flush.start.offset.checkpoint.interval.ms", self._write_log_starts),
            ("replica.high.watermark.checkpoint.interval.ms", self.note_high_watermarks),
        ):
            interval_ms = config.get_int(key)
            if interval_ms <= TIMER_MS_MAX:
                yield self._every(interval_ms, work)

    def lower_high_watermark(self, topic_partition: TopicPartition, offset: int) -> None:
        """Have no checkpoint that is written from now on name a higher one."""
        known = self.high_watermarks.get(topic_partition, 0)
        if known > offset:
            self.high_watermarks[topic_partition] = offset  # In place: a plan may be under way.

    def first_state(
        self, broker_id: int, topic_partition: TopicPartition, topic_id: TopicId, log: PartitionLog
    ) -> OfflineState:
        """Return the state in which a partition is served from now on, without a role yet."""
        # Where every message is synced, a consumer gets no message before its sync.
        end = log.recovery_point if log.flush_is_due else log.log_end_offset
        before = self.moving.pop(topic_partition, None)
        if isinstance(before, OfflineState) and before.topic_id == topic_id:
            return before.with_log(end)
        known = self.high_watermarks.get(topic_partition, 0)
        return OfflineState.unassigned(
            broker_id,
            topic_id,
            log_end_offset=end,
            high_watermark=max(known, log.log_start_offset),
        )

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget a partition whose folder goes."""
        self.high_watermarks.pop(topic_partition, None)
        self._flushed_ms.pop(topic_partition, None)

    async def _every(self, interval_ms: int, work: Callable[[], Callable[[], None]]) -> None:
        """Plan periodically in the event loop, which owns the partitions; block in the executor."""
        while True:
            await self._clock.sleep(interval_ms)
            try:
                await self._disk.run(work())
            except StorageFailure as failure:
                self._folder_failed(failure)

    async def _retain_every(self, interval_ms: int) -> None:
        """Apply retention; renamed files are removed after their delay."""
        while True:
            await self._clock.sleep(interval_ms)
            found, failures = await self._disk.run(self._retain())
            for deleted, delay_ms in found:
                self._removals.add(deleted, delay_ms)
            for failure in failures:
                self._folder_failed(failure)
            for partition in self._partitions:
                partition.log_start_moved()

    async def _expire_producers(self) -> None:
        """Expire idle producers, in the event loop because appends use the same tables.

        A limited number per turn: there may be thousands of partitions, or of producers in one.
        """
        interval_ms = self._config.get_int("producer.id.expiration.check.interval.ms")
        steady = SteadyClock(self._clock)
        while True:
            await self._clock.sleep(interval_ms)
            # Their times are wall time: setting the clock forward expires no producer.
            now_ms = min(self._clock.now_ms(), steady.now_ms())
            seen_count = 0
            for partition in self._partitions:
                producers = partition.log.producers
                entries = producers.entries()
                expiration_ms = partition.log.config.producer_id_expiration_ms
                for begin in range(0, max(1, len(entries)), PRODUCERS_SWEPT_PER_TURN_COUNT_MAX):
                    part = entries[begin : begin + PRODUCERS_SWEPT_PER_TURN_COUNT_MAX]
                    producers.remove_expired(part, now_ms, expiration_ms)
                    seen_count += 1 + len(part)
                    if seen_count >= PRODUCERS_SWEPT_PER_TURN_COUNT_MAX:
                        seen_count = 0
                        await self._clock.sleep(0)

    def _retain(self) -> Callable[[], Retained]:
        now_ms = self._clock.now_ms()
        # Whatever the policy, segments below the log start offset are deleted.
        due = [(partition.log, partition.state.high_watermark) for partition in self._partitions]
        return lambda: delete_old_segments(due, now_ms)

    def _flush(self) -> Callable[[], None]:
        now_ms = self._clock.now_ms()
        due = []
        for partition in self._partitions:
            since_ms = now_ms - self._flushed_ms.setdefault(partition.topic_partition, now_ms)
            if since_ms >= partition.log.config.flush_ms and _is_dirty(partition.log):
                self._flushed_ms[partition.topic_partition] = now_ms
                due.append(partition.log)
        return lambda: _flush_all(due)

    def _checkpoint(self) -> Callable[[], None]:
        """Flush sealed segments, which the next start then need not scan, and write checkpoints."""
        sealed = [
            partition.log
            for partition in self._partitions
            if partition.log.recovery_point < partition.log.segment_base_offsets[-1]
        ]

        def work() -> None:
            _flush_all(sealed)
            self._logs.checkpoint()

        return work

    def _write_log_starts(self) -> Callable[[], None]:
        return self._logs.write_log_starts

    def note_high_watermarks(self, *, is_last: bool = False) -> Callable[[], None]:
        """Plan the checkpoint of high watermarks, and of when followers had caught up."""
        noted = {label: state.high_watermark for label, state in self.moving.items()}
        noted |= {p.topic_partition: p.state.high_watermark for p in self._partitions}
        is_new = noted != self.high_watermarks
        self.high_watermarks = noted
        times = None
        if self.caught_up is not None:
            now_ms = self._clock.now_ms()
            times = self.caught_up.plan(self._partitions, now_ms, is_last=is_last)

        def work() -> None:
            if is_new:
                self._logs.write_high_watermarks(noted)
            if times is not None:
                times()

        return work


def _is_dirty(held: PartitionLog) -> bool:
    return held.recovery_point < held.log_end_offset


def _flush_all(logs: list[PartitionLog]) -> None:
    for held in logs:
        held.flush()
