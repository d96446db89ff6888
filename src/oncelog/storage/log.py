"""One partition's log: appends, reads, and the state of producers and transactions.

`PartitionLog` is what Kafka calls UnifiedLog: it checks batches, assigns offsets, and keeps the
log's start, its end and its recovery point. The files are its `LocalLog`'s; `recovery` repairs them
after a crash; `cleaning` is what compaction may do with them. It must not know replication: the
high watermark and the leader epoch are arguments.

Invariants: INV-2 and INV-5 (a batch is checked before it is written), INV-3 and INV-7 (last stable
offset, aborted transactions), INV-9 (one write per append, then memory). A `StorageFailure` is
final for the log: later appends raise it again.

Threads: the event loop appends and reads; the executor may call `flush`, `read_cold`,
`delete_old_segments`, `truncate_to`, `restart_at` and `close`. Fsyncs and cold reads hold no lock
(see `local_log`), but those of truncations do. Flushes and truncations of one log run one after the
other: a flush without work has waited for the fsync that did it, and none moves the recovery point
above the end of a log that was cut meanwhile.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import CONTROL_MASK
from oncelog.protocol.record import control_batch
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.aborted import AbortedTxn
from oncelog.storage.config import LogConfig
from oncelog.storage.leader_epochs import EpochEnd, LeaderEpochs
from oncelog.storage.local_log import LocalLog
from oncelog.storage.log_cleaning import LogCleaning
from oncelog.storage.lookup import TimestampOffset, find_timestamp
from oncelog.storage.new_log import begin_log
from oncelog.storage.placement import PlacedBatch, assign_offsets, keep_offsets
from oncelog.storage.producer_state import Origin, ProducerStates, Rejection
from oncelog.storage.recovery import Recovered, RecoveryReport, recover
from oncelog.storage.results import AppendResult, OffsetOutOfRange, answer_to
from oncelog.storage.validation import LOG_APPEND_TIME, apply_log_append_time, check_batches

__all__ = ["AppendResult", "OffsetOutOfRange", "PartitionLog"]

Buffer = bytes | bytearray | memoryview
Note = Callable[[], None]
"""Writes the checkpoints before a truncation removes anything: by a recovery point above the end
the next start would report the removed records as damage. And again after one that has lowered the
log's start: by the old one a start would hide new records, by the new one show deleted ones before.
"""
_NONE = ErrorCode.none
_new = tuple.__new__
"""It takes half the time of a named tuple's own constructor."""


class PartitionLog:
    """One partition's log; see the module's docstring. Create one with `open`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        recovered: Recovered,
    ) -> None:
        self._local = LocalLog(disk, directory, recovered)
        self._flush_lock = threading.Lock()
        self.cleaning = LogCleaning(self._local)
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.log_end_offset
        self.recovery: RecoveryReport = recovered.report
        self.recovery_point = recovered.log_end_offset
        """All records below it survive a power loss: recovery has synced what it accepted."""
        self.flushes_on_append = True
        """Whether an append flushes when a flush is due; else its caller does, in the executor."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        now_ms: int,
        clean: bool = False,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
        rescan: bool = False,
    ) -> "PartitionLog":
        """Open or create the log in `directory` (INV-9). Blocking: call it in the executor.

        `clean`: the log was closed cleanly. `recovery_point`: all below it was flushed; a lower one
        is safe, as is `clean` being false. `high_watermark`: the lowest that the last stable offset
        is asked for; None for the log's end. `rescan`: read all of it. Raises `StorageFailure`.
        """
        name = str(topic_partition)
        is_new = not (recovery_point or log_start_offset or disk.exists(directory))
        disk.mkdir(directory)
        if is_new:
            recovered = begin_log(disk, directory, now_ms, partition=name)
        else:
            recovered = recover(
                disk,
                directory,
                config,
                now_ms,
                partition=name,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                high_watermark=high_watermark,
                rescan=rescan,
            )
        log = cls(disk, directory, topic_partition, config, recovered)
        producers = log.producers
        producers.remove_expired(producers.entries(), now_ms, config.producer_id_expiration_ms)
        if log._local.state.epochs.changed:
            log._local.write_epochs()
        if log.flush_is_due:
            # Readers see from now on what a killed process wrote and did not sync.
            log.flush()
        return log

    def begin_epoch(self, leader_epoch: int) -> None:
        """Set the leader epoch of the following appends (KIP-101).

        The first of them writes it; an epoch without records begins again at a restart.
        """
        with self._local.lock:
            self._local.state.epochs.assign(leader_epoch, self.log_end_offset)

    # ---- append ----

    def append(
        self,
        batches: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append whole batches; the buffer is patched in place and must be writable.

        A refused append returns its error code: corrupt_message, message_too_large,
        record_list_too_large, invalid_record, invalid_timestamp, unsupported_compression_type,
        out_of_order_sequence_number, invalid_producer_epoch, invalid_txn_state. REPLICATION appends
        keep the offsets and epochs that the leader wrote. Raises `StorageFailure`.
        """
        local = self._local
        if local.failure is not None:
            raise local.failure
        config, state = self.config, local.state
        headers, error, message, record_errors, rewritten = check_batches(
            batches, config, origin, now_ms
        )
        if error is not _NONE:
            found = (error, -1, -1, -1, self.log_start_offset, False, message, record_errors)
            return _new(AppendResult, found)
        if rewritten is not None:
            batches = rewritten
        is_leader = origin is not Origin.REPLICATION
        log_append_time_ms = -1
        if is_leader:
            # A follower takes what its leader decided; a second opinion could only diverge.
            for _, header in headers:
                if header.producer_id >= 0 and not header.attributes & CONTROL_MASK:
                    rejection = state.producers.check_batch(header, origin, transaction_version)
                    if rejection is not None:
                        return self._rejected(rejection)
            if config.message_timestamp_type == LOG_APPEND_TIME:
                headers = apply_log_append_time(batches, headers, now_ms)
                log_append_time_ms = now_ms
        with local.lock:
            if is_leader:
                placed = assign_offsets(batches, headers, self.log_end_offset, leader_epoch)
            elif headers[0][1].base_offset >= self.log_end_offset or local.begin_below(
                headers[0][1], self.log_end_offset
            ):
                placed = keep_offsets(headers)
            else:
                return AppendResult(
                    ErrorCode.corrupt_message,
                    log_start_offset=self.log_start_offset,
                    message=f"replicated batches begin below {self.log_end_offset}",
                )
            local.write(batches, placed, config, now_ms)
            self.log_end_offset = placed[-1].last_offset + 1
            state.note_appended(batches, headers, placed, leader_epoch, origin, now_ms)
        if (
            self.flushes_on_append
            and self.log_end_offset - self.recovery_point >= config.flush_messages
        ):
            self.flush()
        first, last = placed[0].base_offset, placed[-1].last_offset
        outcome = (_NONE, first, last, log_append_time_ms, self.log_start_offset, False, None, ())
        return _new(AppendResult, outcome)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        *,
        leader_epoch: int,
        now_ms: int,
        transaction_version: int,
    ) -> AppendResult:
        """Append an end-of-transaction marker (INV-3, INV-4).

        Codes: invalid_producer_epoch, transaction_coordinator_fenced. A marker of
        `transaction_version` 2 must carry a bumped epoch (KIP-1228).
        """
        local = self._local
        if local.failure is not None:
            raise local.failure
        state = local.state
        end = (producer_id, producer_epoch, coordinator_epoch)
        rejection = state.producers.check_marker(*end, transaction_version)
        if rejection is not None:
            return self._rejected(rejection)
        with local.lock:
            offset = self.log_end_offset
            batch = control_batch(
                commit, *end, now_ms, base_offset=offset, leader_epoch=leader_epoch
            )
            # Not validated: max.message.bytes must not stop a marker.
            placed = [PlacedBatch(0, len(batch), offset, offset, now_ms)]
            local.write(batch, placed, self.config, now_ms)
            self.log_end_offset = offset + 1
            if leader_epoch > state.epochs.latest:
                state.epochs.assign(leader_epoch, offset)
            state.note_marker(*end, offset, commit=commit, now_ms=now_ms)
        if self.flushes_on_append and self.flush_is_due:
            self.flush()
        return AppendResult(_NONE, offset, offset, -1, self.log_start_offset)

    def roll(self, base_offset: int) -> None:
        """Seal the active segment and begin the next at the log's end."""
        self._local.roll(base_offset)

    def _rejected(self, rejection: Rejection) -> AppendResult:
        is_stamped = self.config.message_timestamp_type == LOG_APPEND_TIME
        return answer_to(rejection, is_stamped, self.log_start_offset)

    # ---- read ----

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound: int,
        min_one: bool = True,
        cached_only: bool = False,
    ) -> Buffer:
        """Return whole batches from the one that contains `offset`, below `upper_bound` (INV-7).

        At most `max_bytes`, except that with `min_one` the first batch is whole. A read ends with
        its segment. Empty when no batch qualifies. Raises `OffsetOutOfRange`, `StorageFailure`;
        with `cached_only` `NotCached` where it would wait for the disk: use `read_cold` then.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset >= upper_bound or offset == self.log_end_offset:
            return b""
        local = self._local
        with local.lock:
            return local.segments.read(offset, max_bytes, upper_bound, min_one, cached_only)

    def read_cold(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one: bool = True
    ) -> Buffer:
        """Like `read`, in the executor without the log's lock, while appends continue.

        Where segments were deleted or cut meanwhile, it reads again.
        """
        local = self._local

        def look() -> Buffer:
            with local.lock:
                if not self.log_start_offset <= offset <= self.log_end_offset:
                    raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
                segment = local.segments.holding(offset)
            return local.read_from(segment, offset, max_bytes, upper_bound, min_one)

        return local.without_lock(look)

    # ---- transactions and producers ----

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset at which read_committed stops (INV-3), at most the high watermark.

        A finished transaction counts as undecided until its marker is below that.
        """
        producers = self._local.state.producers
        if not (producers.undecided or producers.unreplicated):
            return high_watermark
        first = producers.first_unstable_offset(high_watermark)
        if first is None or first >= high_watermark:
            return high_watermark
        # DeleteRecords may pass an open transaction; readers start no lower (KIP-107).
        return max(first, self.log_start_offset)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTxn]:
        """Aborted transactions with records in [from_offset, to_offset)."""
        with self._local.lock:
            return self._local.state.aborted.overlapping(from_offset, to_offset)

    @property
    def producers(self) -> ProducerStates:
        """The state of the producers here; others than this log only read it."""
        return self._local.state.producers

    # ---- offsets ----

    def offset_for_timestamp(self, timestamp_ms: int | None) -> TimestampOffset | None:
        """The first record at or after `timestamp_ms`; with None that of the largest timestamp.

        It reads files: in the loop `cached_offset_for_timestamp` comes first. Raises
        `StorageFailure`, `CorruptBatch`.
        """

        def look() -> TimestampOffset | None:
            with self._local.lock:
                segments, start = tuple(self._local.segments), self.log_start_offset
            return find_timestamp(segments, timestamp_ms, start)

        return self._local.without_lock(look)

    def cached_offset_for_timestamp(self, timestamp_ms: int | None) -> TimestampOffset | None:
        """Like `offset_for_timestamp`; raises `NotCached` where it would wait for the disk."""
        with self._local.lock:
            segments = tuple(self._local.segments)
            return find_timestamp(segments, timestamp_ms, self.log_start_offset, cached_only=True)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """End of the largest epoch not above `epoch` (KIP-101); -1, -1 when unknown."""
        with self._local.lock:
            return self._local.state.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote the batch at `offset`, or -1."""
        with self._local.lock:
            return self._local.state.epochs.epoch_at(offset)

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs that wrote here; others than this log only read them."""
        return self._local.state.epochs

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch that wrote here, or -1."""
        return self._local.state.epochs.latest

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size for segment in self._local.segments)

    @property
    def segment_base_offsets(self) -> list[int]:
        """Base offsets of all segments, rising; the last one is active."""
        return self._local.segments.base_offsets

    @property
    def is_deleted(self) -> bool:
        """Whether it was closed because its partition is deleted."""
        return self._local.is_deleted

    @property
    def failure(self) -> StorageFailure | None:
        """The failure that stopped the log, or None."""
        return self._local.failure

    # ---- upkeep ----

    def delete_old_segments(
        self, now_ms: int, high_watermark: int, deleted: list[str] | None = None
    ) -> int:
        """Delete whole segments below the high watermark by age, size or log start; count them.

        Their files are renamed and added to `deleted` for its owner; without it they are removed.
        """
        local = self._local
        with local.upkeep, local.failing():
            with local.lock:
                start = self.log_start_offset
                removed = local.drop_expired(self.config, now_ms, high_watermark, start)
                if removed:
                    self._move_start(max(start, local.segments.first_base_offset))
            local.remove(removed, deleted)
        return len(removed)

    def delete_records(self, offset: int) -> int:
        """Move the log's start forward to `offset`; returns the start. Retention drops segments.

        Raises `OffsetOutOfRange` beyond the end. The caller has checked the high watermark.
        """
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        with self._local.lock:
            if offset > self.log_start_offset:
                self._move_start(offset)
        return self.log_start_offset

    def _move_start(self, offset: int) -> None:
        self.log_start_offset = offset
        self._local.forget_before(offset)

    def truncate_to(self, offset: int, now_ms: int = 0, note: Note = lambda: None) -> None:
        """Remove all records from `offset` on, as a follower does with those its leader lacks.

        Blocking and durable. A batch that contains `offset` is removed whole.
        """
        if offset < self.log_end_offset:
            with self._cutting(note):
                self.recovery_point = min(self.recovery_point, self._local.boundary_before(offset))
                note()
                self.log_end_offset = end = self._local.truncate(offset)
                self.log_start_offset = min(self.log_start_offset, end)
                self._local.settle_truncation(end, now_ms, self.config.producer_id_expiration_ms)

    def restart_at(self, offset: int, now_ms: int = 0, note: Note = lambda: None) -> None:
        """Remove all records and let the empty log begin at `offset`, as its leader's does.

        Blocking and durable. A crash leaves the beginning of the old log, or an empty one.
        """
        with self._cutting(note):
            first = self._local.segments.first_base_offset
            self.recovery_point = min(self.recovery_point, first, offset)
            note()
            self._local.restart_at(offset, now_ms)
            self.log_start_offset = self.log_end_offset = self.recovery_point = offset

    @contextmanager
    def _cutting(self, note: Note) -> Iterator[None]:
        local, start = self._local, self.log_start_offset
        with local.upkeep, self._flush_lock, local.lock:
            if local.failure is not None or local.is_closed:
                raise local.failure or StorageFailure("truncate", self.directory, "it is closed")
            with local.failing():
                yield
                if self.log_start_offset < start:
                    note()

    @property
    def flush_is_due(self) -> bool:
        """Whether `flush.messages` records or more may not survive a loss of power."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def flush(self) -> None:
        """Sync all that was appended before this call; a failure is final (D12). Blocking."""
        local = self._local
        with self._flush_lock:
            if local.is_deleted:
                return
            if local.failure is not None:
                raise local.failure
            end = self.log_end_offset
            local.sync(self.recovery_point)
            self.recovery_point = max(self.recovery_point, end)

    def close(self) -> None:
        """Flush, write indexes and a snapshot: the next start need not scan. Blocking."""
        local = self._local
        with local.lock:
            if local.is_closed:
                return
            local.is_closed = True
        with local.upkeep:
            if local.failure is None and local.is_changed:
                # A failure keeps the folder from counting as cleanly closed.
                with local.failing():
                    self.flush()
                    local.write_clean_end()
            local.close_files()

    def fail(self, failure: StorageFailure) -> None:
        """Accept no more appends: the directory went off line."""
        self._local.failure = self._local.failure or failure

    def abandon(self) -> None:
        """Close without saving anything, for the log is about to be deleted."""
        self._local.abandon()
