"""Answers queries about one partition's log, without changing it.

`PartitionLog` extends it with appends. Invariants: INV-3 and INV-7 (the last stable offset, aborted
transactions).
"""

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.aborted import AbortedTxn
from oncelog.storage.config import LogConfig
from oncelog.storage.leader_epochs import EpochEnd
from oncelog.storage.lookup import TimestampOffset, newest_timestamp, search_timestamp
from oncelog.storage.producer_limit import ProducerLimit
from oncelog.storage.producer_state import ProducerEntry
from oncelog.storage.recovery import Recovered, RecoveryReport
from oncelog.storage.segment import Segment
from oncelog.storage.segment_list import SegmentList
from oncelog.storage.verifications import Verifications

__all__ = ["LogView"]

T = TypeVar("T")


class LogView:
    """The parts of a log, and the queries on them. See `PartitionLog`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        recovered: Recovered,
    ) -> None:
        self._disk = disk
        self._files = recovered.files
        self._segments = SegmentList(recovered.segments)
        self._state = recovered.state
        self._snapshots = recovered.snapshots
        self._lock = threading.RLock()
        self._flush_lock = threading.Lock()
        self._removals_count = 0
        self._upkeep = threading.Lock()
        """Held while files of sealed segments are replaced or removed, and taken before `_lock`.
        Appends and reads do not take it.
        """
        self._folder_changed = True
        self._failure: StorageFailure | None = None
        self._closed = self._deleted = False
        self._changed = True
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.log_end_offset
        self.recovery: RecoveryReport = recovered.report
        self.recovery_point = 0
        """All records below it survive a power loss."""
        self.flushes_on_append = True
        """Whether an append flushes when a flush is due; else its caller does, in the executor."""

    # ---- transactions and producers ----

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset at which read_committed stops (INV-3), at most the high watermark.

        A finished transaction still counts as undecided until its marker is below the high
        watermark. That watermark must not move back within a leader epoch.
        """
        producers = self._state.producers
        if not (producers.undecided or producers.unreplicated):
            return high_watermark
        first = producers.first_unstable_offset(high_watermark)
        if first is None or first >= high_watermark:
            return high_watermark
        return max(first, self.log_start_offset)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTxn]:
        """Aborted transactions with records in [from_offset, to_offset), for a fetch response."""
        with self._lock:
            return self._state.aborted.overlapping(from_offset, to_offset)

    def transaction_is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer epoch has an undecided transaction in this partition."""
        return self._state.producers.transaction_is_open(producer_id, epoch)

    @property
    def verifications(self) -> Verifications:
        """The verified transactions of waiting batches (KIP-890)."""
        return self._state.producers.verifications

    def producer_state(self, producer_id: int) -> ProducerEntry | None:
        """Return the state of a producer; read only."""
        return self._state.producers.entry(producer_id)

    def error_of_late(self, producer_id: int, epoch: int) -> ErrorCode:
        """Return the error of an append that waited while its transaction ended.

        The epoch is compared first (KAFKA-19690): a fenced producer has to learn that it is fenced,
        while INVALID_TXN_STATE would tell it that it made a mistake.
        """
        known = self._state.producers.entry(producer_id)
        is_fenced = known is not None and epoch < known.epoch
        return ErrorCode.invalid_producer_epoch if is_fenced else ErrorCode.invalid_txn_state

    def active_producers(self) -> list[ProducerEntry]:
        """All producers that are remembered; read only."""
        return self._state.producers.entries()

    def limit_producers(self, limit: ProducerLimit) -> None:
        """Apply `limit` to new producers from now on."""
        self._state.producers.producer_limit = limit

    @property
    def producer_count(self) -> int:
        """The count of producers that are remembered."""
        return len(self._state.producers)

    def has_transaction_idle_since(self, time_ms: int) -> bool:
        """Whether a transaction that is open here was last written to before `time_ms`."""
        return self._state.producers.has_transaction_idle_since(time_ms)

    def remove_expired_producers(self, entries: Iterable[ProducerEntry], now_ms: int) -> int:
        """Remove those of `entries` that are idle for `producer.id.expiration.ms`.

        A producer with an open transaction is never removed.

        Returns how many. The entries come from `active_producers`, a part of them at a time.
        """
        expiration_ms = self.config.producer_id_expiration_ms
        return self._state.producers.remove_expired(entries, now_ms, expiration_ms)

    # ---- offsets ----

    def offset_for_timestamp(self, timestamp_ms: int | None) -> TimestampOffset | None:
        """The first record whose timestamp is at or after `timestamp_ms`, or None.

        With None the first record with the largest timestamp of all. It reads files: in the loop
        `cached_offset_for_timestamp` comes first. Raises `StorageFailure`, `CorruptBatch`.
        """

        def look() -> TimestampOffset | None:
            with self._lock:
                segments, start = tuple(self._segments), self.log_start_offset
            return _find_timestamp(segments, timestamp_ms, start)

        return self._without_lock(look)

    def cached_offset_for_timestamp(self, timestamp_ms: int | None) -> TimestampOffset | None:
        """Like `offset_for_timestamp`; raises `NotCached` where it would wait for the disk."""
        with self._lock:
            segments = tuple(self._segments)
            return _find_timestamp(segments, timestamp_ms, self.log_start_offset, cached_only=True)

    def _without_lock(self, look: Callable[[], T]) -> T:
        """Run a lookup of any duration without the lock, while appends continue.

        If segments were removed or cut meanwhile, the result is invalid and the lookup runs again.
        The files of a deleted log are gone for good.
        """
        while True:
            removals_count = self._removals_count
            try:
                found = look()
            except (StorageFailure, ProtocolError):
                if self._deleted or removals_count == self._removals_count:
                    raise
                continue
            if removals_count == self._removals_count:
                return found

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """End of the largest leader epoch not above `epoch` (KIP-101); -1, -1 when unknown."""
        with self._lock:
            return self._state.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote the batch at `offset`, or -1."""
        with self._lock:
            return self._state.epochs.epoch_at(offset)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch that wrote here, or -1."""
        return self._state.epochs.latest

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size for segment in self._segments)

    @property
    def segment_base_offsets(self) -> list[int]:
        """Base offsets of all segments, rising; the last one is active."""
        return self._segments.base_offsets

    @property
    def is_deleted(self) -> bool:
        """Whether it was closed because its partition is deleted."""
        return self._deleted

    @property
    def failure(self) -> StorageFailure | None:
        """The failure that stopped the log, or None."""
        return self._failure


def _find_timestamp(
    segments: Iterable[Segment],
    timestamp_ms: int | None,
    start_offset: int,
    *,
    cached_only: bool = False,
) -> TimestampOffset | None:
    if timestamp_ms is None:
        return newest_timestamp(segments, start_offset, cached_only=cached_only)
    return search_timestamp(segments, timestamp_ms, start_offset, cached_only=cached_only)
