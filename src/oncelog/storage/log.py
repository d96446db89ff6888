"""One partition's log: appends, reads, and the state of producers and transactions.

`PartitionLog` joins the parts of this package: segments store the bytes, `DerivedState` follows
from them, `recovery` repairs the log after a crash, `LogView` answers queries. It must not know
replication: the high watermark and the leader epoch are arguments.

Invariants: INV-2 and INV-5 (a batch is checked before it is written), INV-3 and INV-7 (last stable
offset, aborted transactions), INV-9 (one write per append, then memory). A `StorageFailure` is
final for the log: later appends raise it again, because the end of the file is unknown until
recovery has read it.

Threads: the event loop appends and reads; the executor may call `flush`, `read_cold`,
`delete_old_segments` and `close`. The lock covers the list of segments and nothing slower than one
write; fsyncs and cold reads run outside of it. Flushes of one log run one after the other, so that
a flush without work has waited for the fsync that did it. `_upkeep` (see `log_cleaning`) serialises
operations that replace or remove files.
"""

from collections.abc import Callable

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import CONTROL_MASK
from oncelog.protocol.record import control_batch
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.config import LogConfig
from oncelog.storage.log_cleaning import CleanableLog
from oncelog.storage.new_log import begin_log
from oncelog.storage.placement import PlacedBatch, assign_offsets, keep_offsets
from oncelog.storage.producer_state import Origin, Rejection
from oncelog.storage.recovery import recover
from oncelog.storage.recovery_files import remove_segment_files, rename_segment_files
from oncelog.storage.replay import state_before
from oncelog.storage.results import AppendResult, OffsetOutOfRange, answer_to
from oncelog.storage.retention import expired_segments_count
from oncelog.storage.segment import Segment
from oncelog.storage.validation import (
    LOG_APPEND_TIME,
    RecordErrors,
    apply_log_append_time,
    check_batches,
)

__all__ = ["AppendResult", "OffsetOutOfRange", "PartitionLog"]

Buffer = bytes | bytearray | memoryview
Read = Buffer
_NONE = ErrorCode.none
_new = tuple.__new__
"""It takes half the time of a named tuple's own constructor."""


class PartitionLog(CleanableLog):
    """One partition's log; see the module's docstring. Create one with `open`."""

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
        rescan: bool = False,
    ) -> "PartitionLog":
        """Open or create the log in `directory` (INV-9). Blocking: call it in the executor.

        `clean`: the log was closed cleanly. `recovery_point`: all below it was flushed; a lower one
        is safe, as is `clean` being false. `rescan`: read all of it. Raises `StorageFailure`.
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
                rescan=rescan,
            )
        log = cls(disk, directory, topic_partition, config, recovered)
        # Recovery has synced what it accepted.
        log.recovery_point = log.log_end_offset
        log._changed = recovered.changed
        log.remove_expired_producers(log.active_producers(), now_ms)
        if log._state.epochs.changed:
            log._write_epochs()
        if log.flush_is_due:
            # Readers see from now on what a killed process wrote and did not sync.
            log.flush()
        return log

    def begin_epoch(self, leader_epoch: int) -> None:
        """Set the leader epoch of the following appends (KIP-101).

        It is written with the first of them; an epoch without records begins again at a restart.
        """
        with self._lock:
            self._state.epochs.assign(leader_epoch, self.log_end_offset)

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
        if self._failure is not None:
            raise self._failure
        config = self.config
        headers, error, message, record_errors, rewritten = check_batches(
            batches, config, origin, now_ms
        )
        if error is not _NONE:
            return self._refused(error, message, record_errors)
        if rewritten is not None:
            batches = rewritten
        for _, header in headers if origin is not Origin.REPLICATION else ():
            if header.producer_id >= 0 and not header.attributes & CONTROL_MASK:
                rejection = self._state.producers.check_batch(header, origin, transaction_version)
                if rejection is not None:
                    return self._rejected(rejection)
        log_append_time_ms = -1
        if config.message_timestamp_type == LOG_APPEND_TIME and origin is not Origin.REPLICATION:
            headers = apply_log_append_time(batches, headers, now_ms)
            log_append_time_ms = now_ms
        with self._lock:
            if origin is not Origin.REPLICATION:
                placed = assign_offsets(batches, headers, self.log_end_offset, leader_epoch)
            elif headers[0][1].base_offset >= self.log_end_offset:
                placed = keep_offsets(headers)
            else:
                return self._refused(
                    ErrorCode.corrupt_message,
                    f"replicated batches begin below {self.log_end_offset}",
                )
            self._write(batches, placed, now_ms)
            self._state.note_appended(batches, headers, placed, leader_epoch, origin, now_ms)
        if self._state.epochs.changed or (
            self.flushes_on_append
            and self.log_end_offset - self.recovery_point >= config.flush_messages
        ):
            self._make_durable()
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

        Codes: invalid_producer_epoch, transaction_coordinator_fenced. `transaction_version` is 0 to
        2 as the coordinator sent it (KIP-1228); from 2 on a marker must carry a bumped epoch.
        """
        if self._failure is not None:
            raise self._failure
        state = self._state
        end = (producer_id, producer_epoch, coordinator_epoch)
        rejection = state.producers.check_marker(*end, transaction_version)
        if rejection is not None:
            return self._rejected(rejection)
        with self._lock:
            offset = self.log_end_offset
            batch = control_batch(
                commit, *end, now_ms, base_offset=offset, leader_epoch=leader_epoch
            )
            # The broker built it, so it is not validated: max.message.bytes must not stop a marker.
            self._write(batch, [PlacedBatch(0, len(batch), offset, offset, now_ms)], now_ms)
            if leader_epoch > state.epochs.latest:
                state.epochs.assign(leader_epoch, offset)
            state.note_marker(*end, offset, commit=commit, now_ms=now_ms)
        if state.epochs.changed or self.flushes_on_append:
            self._make_durable()
        return AppendResult(_NONE, offset, offset, -1, self.log_start_offset)

    def _write(self, data: Buffer, placed: list[PlacedBatch], now_ms: int) -> None:
        last = placed[-1]
        try:
            active = self._segments.active
            if not active.fits(last, len(data), self.config, now_ms):
                active = self._roll(max(self.log_end_offset, placed[0].base_offset))
            if not active.size:
                active.begun_ms = now_ms
            active.append(data, placed, self.config)
        except StorageFailure as failure:
            self._failure = failure
            raise
        self._changed = True
        end_offset = last.last_offset + 1
        self.log_end_offset = end_offset

    def _make_durable(self) -> None:
        """After an append: write the epoch that it began, and flush if `flush.messages` is due."""
        with self._failing():
            if self._state.epochs.changed:
                self._write_epochs()
            if self.flushes_on_append and self.flush_is_due:
                self.flush()

    def _write_epochs(self) -> None:
        with self._lock:
            self._files.write_epochs(self._state)
            self._folder_changed = True

    def _roll(self, base_offset: int) -> Segment:
        """Seal the active segment and begin the next.

        A crash in between leaves an empty last segment.
        """
        sealed = self._segments.active
        sealed.end_offset = base_offset
        self._files.seal(self._state, sealed)
        self._snapshots.write(self._state.producers, base_offset, sync=False)
        segment = Segment(self._disk, self.directory, base_offset)
        segment.create()
        self._segments.add(segment)
        self._folder_changed = self._changed = True
        return segment

    def _refused(
        self, error: ErrorCode, message: str | None, record_errors: RecordErrors = ()
    ) -> AppendResult:
        return AppendResult(
            error,
            log_start_offset=self.log_start_offset,
            message=message,
            record_errors=record_errors,
        )

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
    ) -> Read:
        """Return whole batches from the one that contains `offset`, below `upper_bound` (INV-7).

        The bound is the high watermark or the last stable offset. At most `max_bytes`, except that
        with `min_one` the first batch is whole. A read ends with its segment. Empty when no batch
        qualifies. Raises `OffsetOutOfRange`, `StorageFailure`; with `cached_only` `NotCached` where
        it would wait for the disk: use `read_cold` in the executor then.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset >= upper_bound or offset == self.log_end_offset:
            return b""
        with self._lock:
            return self._segments.read(offset, max_bytes, upper_bound, min_one, cached_only)

    def read_cold(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one: bool = True
    ) -> Read:
        """Like `read`, in the executor: it waits for the disk without the log's lock.

        So appends continue, and segments may be deleted or cut meanwhile: then it reads again.
        """

        def look() -> Read:
            with self._lock:
                if not self.log_start_offset <= offset <= self.log_end_offset:
                    raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
                segment: Segment | None = self._segments.holding(offset)
            while segment is not None and segment.base_offset < upper_bound:
                data = segment.read_indexed(offset, max_bytes, upper_bound, min_one)
                if data or segment.has_batch_at(offset):
                    return data
                with self._lock:
                    segment = self._segments.after(segment)
            return b""

        return self._without_lock(look)

    # ---- upkeep ----

    def delete_old_segments(
        self, now_ms: int, high_watermark: int, deleted: list[str] | None = None
    ) -> int:
        """Delete whole segments below the high watermark by age, size or log start.

        Returns how many. The paths of their files, renamed, are added to `deleted` for its owner to
        remove; without one they are removed at once.
        """
        with self._upkeep, self._failing():
            return self._delete_old_segments(now_ms, high_watermark, deleted)

    def _delete_old_segments(
        self, now_ms: int, high_watermark: int, deleted: list[str] | None
    ) -> int:
        with self._lock:
            if self._closed:
                return 0
            count = expired_segments_count(
                list(self._segments), self.config, now_ms, high_watermark, self.log_start_offset
            )
            if count == len(self._segments):
                self._roll(self.log_end_offset)
            if not count:
                return 0
            removed = self._segments.drop_oldest(count)
            self._removals_count += 1
            self._move_start(max(self.log_start_offset, self._segments.first_base_offset))
            self._snapshots.remove(below=self._segments.first_base_offset)
        for segment in removed:
            segment.close()
            if deleted is None:
                remove_segment_files(self._disk, segment.prefix)
            else:
                deleted += rename_segment_files(self._disk, segment.prefix)
        return count

    def delete_records(self, offset: int) -> int:
        """Move the log's start forward to `offset`; returns the start.

        Segments go with the next retention.

        Raises `OffsetOutOfRange` beyond the end. The caller has checked the high watermark.
        """
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        with self._lock:
            if offset > self.log_start_offset:
                self._move_start(offset)
        return self.log_start_offset

    def _move_start(self, offset: int) -> None:
        self.log_start_offset = offset
        # Records before the start are in the first segment still, and no seal of it may forget that
        # they were aborted: a start without the checkpoint of log starts shows them again (INV-3).
        self._state.aborted.truncate_from_start(self._segments.first_base_offset)
        self._state.epochs.truncate_from_start(offset)
        if self._state.epochs.changed:
            self._write_epochs()

    def truncate_to(self, offset: int, now_ms: int = 0) -> None:
        """Remove all records from `offset` on, as a follower does with those its leader lacks.

        Blocking: when it returns, the truncation survives a loss of power.

        A batch that contains `offset` is removed whole. Producer state is rebuilt from the snapshot
        before it. The caller must have written a recovery point that is not above the new end:
        with a higher one, the next start would report the removed records as damage.
        """
        if offset >= self.log_end_offset:
            return
        with self._upkeep, self._lock, self._failing():
            self._truncate_to(offset, now_ms)

    def _truncate_to(self, offset: int, now_ms: int) -> None:
        self._removals_count += 1
        self._snapshots.remove(above=offset)
        for segment in self._segments.drop_newest(offset):
            segment.close()
            remove_segment_files(self._disk, segment.prefix)
        self._segments.active.truncate(offset)
        # The segment that is active again may later be sealed with the same end and other records.
        self._files.register.keep_only(self._segments.base_offsets[:-1])
        self._files.register.write()
        self._folder_changed = self._changed = True
        self.log_end_offset = max(
            self._segments.active.end_offset, self._segments.active.base_offset
        )
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self._state = state_before(
            self.log_end_offset, self._state, self._segments, self._snapshots, now_ms
        )
        self._write_epochs()
        # Otherwise a loss of power could leave bytes of the removed history after new batches.
        self._segments.active.kept.sync_plan()()
        self._files.sync_names()

    @property
    def flush_is_due(self) -> bool:
        """Whether `flush.messages` records or more may not survive a loss of power."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def flush(self) -> None:
        """Sync all that was appended before this call. Blocking.

        A failed fsync is final: the log accepts no more appends (D12). Raises `StorageFailure`.
        """
        with self._flush_lock:
            if self._deleted:
                return
            if self._failure is not None:
                raise self._failure
            with self._lock:
                end, active = self.log_end_offset, self._segments.active
                dirty = [s for s in self._segments if s.end_offset >= self.recovery_point]
                folder_changed, self._folder_changed = self._folder_changed, False
                syncs = [(segment, segment.kept.sync_plan()) for segment in dirty]
            with self._failing():
                try:
                    for segment, sync in syncs:
                        self._sync_segment(segment, sync, is_sealed=segment is not active)
                    if folder_changed:
                        self._files.sync_names()
                except StorageFailure:
                    if self.is_deleted:
                        return
                    raise
            self.recovery_point = max(self.recovery_point, end)

    def _sync_segment(self, segment: Segment, sync: Callable[[], None], *, is_sealed: bool) -> None:
        try:
            sync()
        except StorageFailure as failure:
            # Retention deleted the segment during the sync; a deleted file needs no sync.
            if failure.missing and segment not in tuple(self._segments):
                return
            raise
        if is_sealed:
            self._files.sync_indexes(segment)

    def close(self) -> None:
        """Flush, write indexes and a producer snapshot, so that the next start need not scan.

        Blocking.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with self._upkeep:
            if self._failure is None and self._changed:
                # A failure keeps the folder from counting as cleanly closed.
                with self._failing():
                    self.flush()
                    # Unsynced: after a loss of power a start rebuilds the index files, and uses an
                    # older snapshot.
                    self._files.seal(self._state, self._segments.active)
                    self._snapshots.write(self._state.producers, self.log_end_offset, sync=False)
            for segment in self._segments:
                segment.close()

    def fail(self, failure: StorageFailure) -> None:
        """Accept no more appends: the log directory went off line."""
        self._failure = self._failure or failure

    def abandon(self) -> None:
        """Close without saving anything: the log is about to be deleted.

        Later appends are refused.
        """
        self._closed = self._deleted = True
        self._failure = StorageFailure("append to", self.directory, "the log was deleted")
        with self._lock:
            self._removals_count += 1
            for segment in self._segments:
                segment.close()
