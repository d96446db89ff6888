"""One partition on this broker: its log, its replication state, and waiting operations.

Handlers and coordinators access a log only through its `Partition`. Every append goes through it,
so that the high watermark, the last stable offset and the delayed operations always follow (INV-7).

Nothing here knows the wire protocol. Appends do not await: they are one call into the log, and
commit waiters are called back within it when the high watermark moves.

An append that has to be synced (`flush.messages`) counts as appended after the sync: until then the
high watermark does not advance, and the records are neither acknowledged nor returned to consumers
(INV-1, INV-7). One fsync at a time runs, off the event loop, and the next one covers all appends
made meanwhile (group commit).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from oncelog.broker.partitions.delayed import (
    Alive,
    CommitCallback,
    CommitWaiters,
    DelayedFetch,
    Drop,
    FetchIsolation,
    FetchPurgatory,
    OnReached,
    StartWaiters,
    Watch,
)
from oncelog.broker.partitions.disk_queue import DiskQueue
from oncelog.broker.partitions.meters import TopicMeter
from oncelog.core.errors import ErrorCode, InvariantViolation, require
from oncelog.core.ids import INTERNAL_TOPICS, TopicPartition
from oncelog.replication.replica import Assignment, IsrMembers, OfflineState, ReplicaState
from oncelog.replication.roles import assign, fail, resign
from oncelog.runtime.disk import StorageFailure
from oncelog.storage import AppendResult, Origin, PartitionLog

if TYPE_CHECKING:
    from oncelog.broker.partitions.rounds import RoundWaiters
    from oncelog.replication.follower import FollowerState

__all__ = ["FollowerWatch", "MarkerListener", "Partition"]

_NOTHING_APPENDED: Final = AppendResult(ErrorCode.none)
_MARKER_BYTES = 78
"""Size of a control batch with one end marker: header 61, record 17."""

FollowerWatch = Callable[["Partition", int], None]
"""Called with each follower whose fetch was recorded: it may join the ISR, or have to leave it."""

MarkerListener = Callable[[int, int, bool, int], None]
"""Called as (producer_id, producer_epoch, commit, offset) once a marker is below the high
watermark.
"""


class Partition:
    """One partition on this broker."""

    __slots__ = (
        "_commit_waiters",
        "_purgatory",
        "_replication_waiters",
        "_sync_waiters",
        "_syncs",
        "fetches",
        "follower_watch",
        "is_being_cut",
        "is_internal",
        "is_syncing",
        "last_stable_offset",
        "log",
        "meter",
        "named_damage",
        "on_failure",
        "on_marker",
        "role_given",
        "rounds",
        "start_waiters",
        "state",
        "topic_partition",
        "watches",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: PartitionLog,
        state: ReplicaState,
        purgatory: FetchPurgatory,
        on_failure: Callable[[StorageFailure], None],
        syncs: DiskQueue,
        meter: TopicMeter | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.is_internal = topic_partition.topic in INTERNAL_TOPICS
        self.log = log
        self.meter = meter or TopicMeter()
        self.state = state
        self.fetches: dict[DelayedFetch, None] = {}
        self.watches: dict[Watch, None] | None = None
        """Those who are told once, at the next change that a consumer could see."""
        self.on_marker: MarkerListener | None = None
        self.last_stable_offset = log.last_stable_offset(state.high_watermark)
        # Created for the first append that has to wait: with a single replica none does.
        self._commit_waiters: CommitWaiters | None = None
        self.is_being_cut = False
        self.role_given: tuple[Assignment, float] | None = None
        """What was assigned while the log is being cut; who has it cut assigns it then."""
        self.named_damage: set[str] = set()
        self._purgatory = purgatory
        self.on_failure = on_failure
        self._syncs = syncs
        self._sync_waiters: CommitWaiters | None = None
        self._replication_waiters: CommitWaiters | None = None
        self.rounds: RoundWaiters | None = None
        self.start_waiters = StartWaiters()
        """Those who wait until records are deleted on all live replicas."""
        self.follower_watch: FollowerWatch | None = None
        self.is_syncing = False
        """Whether a part of the log has to be synced before it counts."""
        log.flushes_on_append = False
        if log.flush_is_due:
            self._sync()

    def append(
        self,
        batches: bytearray | memoryview,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append batches as the leader; `state.leader_error()` was asked before."""
        meter = self.meter
        meter.produces += 1
        try:
            result = self.log.append(
                batches,
                leader_epoch=self.state.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                transaction_version=transaction_version,
            )
        except StorageFailure as failure:
            return self._failed(failure)
        if result.error is not ErrorCode.none:
            meter.failed_produces += 1
            if result.error is ErrorCode.message_too_large:
                meter.bytes_rejected += len(batches)
        elif not result.duplicate:
            meter.bytes_in += len(batches)
            meter.messages_in += result.last_offset - result.base_offset + 1
            self._purgatory.changes_count += 1
            if self.fetches:
                self._grown(len(batches))
            log = self.log
            end = log.log_end_offset
            if self.is_syncing or end - log.recovery_point >= log.config.flush_messages:
                self._sync()
            elif self.state.local_end_moved(end):
                self._advanced()
        return result

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        now_ms: int,
        transaction_version: int,
    ) -> AppendResult:
        """Append the end marker of a transaction; the log voids the transaction's verification."""
        try:
            result = self.log.append_marker(
                producer_id,
                producer_epoch,
                coordinator_epoch,
                commit,
                leader_epoch=self.state.leader_epoch,
                now_ms=now_ms,
                transaction_version=transaction_version,
            )
        except StorageFailure as failure:
            return self._failed(failure)
        if result.error is ErrorCode.none and not result.duplicate:
            listener = self.on_marker
            if listener is not None:
                offset = result.last_offset
                told = partial(listener, producer_id, producer_epoch, commit, offset)
                self.on_committed(offset + 1, lambda error: None if error else told())
            self.meter.messages_in += 1
            self.meter.bytes_in += _MARKER_BYTES
            self._purgatory.changes_count += 1
            if self.fetches:
                self._grown(_MARKER_BYTES)
            if self.is_syncing or self.log.flush_is_due:
                self._sync()
            elif self.state.local_end_moved(self.log.log_end_offset):
                self._advanced()
        return result

    def append_as_follower(
        self,
        batches: memoryview,
        *,
        high_watermark: int,
        log_start_offset: int,
        now_ms: int,
    ) -> AppendResult:
        """Append batches, or none, as the leader has them that it follows; know what that told."""
        log = self.log
        result = _NOTHING_APPENDED
        if batches:
            try:
                result = log.append(
                    batches, leader_epoch=-1, now_ms=now_ms, origin=Origin.REPLICATION
                )
            except StorageFailure as failure:
                return self._failed(failure)
            if result.error is not ErrorCode.none:
                return result
            if self.fetches:
                self._grown(len(batches))
            self._follow_end()
        state = cast("FollowerState", self.state)
        if state.leader_high_watermark(high_watermark):
            self._advanced()
        start = min(log_start_offset, state.high_watermark)
        if start > log.log_start_offset:
            try:
                self.delete_records(start)
            except StorageFailure as failure:
                return self._failed(failure)
        return result

    def _follow_end(self) -> None:
        """Count what is in the log as appended, once that need not be synced."""
        if self.is_syncing or self.log.flush_is_due:
            self._sync()
        elif self.state.local_end_moved(self.log.log_end_offset):
            self._advanced()

    def delete_records(self, offset: int) -> int:
        """Advance the log start to `offset`, at most the high watermark; return the start."""
        require(offset <= self.state.high_watermark, "INV-7: log start above the high watermark")
        start = self.log.delete_records(offset)
        self.log_start_moved()
        return start

    def log_start_moved(self) -> None:
        """Raise the last stable offset to the log's start (INV-7)."""
        self.last_stable_offset = self.log.last_stable_offset(self.state.high_watermark)
        if self.watches:
            self._purgatory.tell(self)

    def on_committed(self, end_offset: int, callback: CommitCallback) -> Drop | None:
        """Call back when the high watermark reaches `end_offset`.

        At once if it has reached it, with an error if it never will.
        """
        if self.state.high_watermark >= end_offset:
            callback(ErrorCode.none)
            return None
        if self._commit_waiters is None:
            self._commit_waiters = CommitWaiters()
        return self._when_leading(self._commit_waiters.add, end_offset, callback)

    def on_replicated(self, end_offset: int, callback: CommitCallback) -> Drop | None:
        """Like `on_committed`, but with NOT_ENOUGH_REPLICAS_AFTER_APPEND once the ISR is too small.

        The records may be committed all the same, when there are enough again.
        """
        if self.state.high_watermark >= end_offset:
            callback(ErrorCode.none)
            return None
        if self._replication_waiters is None:
            self._replication_waiters = CommitWaiters()
        return self._when_leading(self._replication_waiters.add, end_offset, callback)

    def on_synced(self, end_offset: int, callback: CommitCallback) -> Drop | None:
        """Call back when all below `end_offset` counts as appended here, whatever the replicas."""
        if self.state.log_end_offset >= end_offset:
            callback(ErrorCode.none)
            return None
        if self._sync_waiters is None:
            self._sync_waiters = CommitWaiters()
        return self._sync_waiters.add(end_offset, callback)

    def on_started(self, alive: Alive, offset: int, callback: CommitCallback) -> Drop | None:
        """Like `on_committed`, when the logs of all live replicas start at `offset` or above."""
        drop = self._when_leading(partial(self.start_waiters.add, alive), offset, callback)
        self.start_waiters.release(self.low_watermark)
        return drop

    def on_confirmed(self, callback: CommitCallback) -> Drop | None:
        """Call back once this broker is known to lead after this call; see `RoundWaiters`."""
        if self.rounds is None:
            from oncelog.broker.partitions.rounds import RoundWaiters

            self.rounds = RoundWaiters()
        drop = self.rounds.add(self.state, callback)
        if drop is not None:
            self._purgatory.changes_count += 1
            self.wake_fetches()
        return drop

    def _when_leading(self, add: OnReached, offset: int, callback: CommitCallback) -> Drop | None:
        """Wait, or call back with an error: on a follower the offset may be another record's."""
        error = self.state.leader_error()
        if error is ErrorCode.none:
            return add(offset, callback)
        callback(error)
        return None

    def low_watermark(self, alive: Alive) -> int:
        """Return the smallest log start of the live replicas; -1 while one is not known."""
        return self.state.low_watermark(self.log.log_start_offset, alive())

    def follower_fetched(
        self,
        broker_id: int,
        offset: int,
        now_ms: float,
        *,
        broker_epoch: int = -1,
        log_start_offset: int = -1,
        confirmed_round: int = 0,
    ) -> ErrorCode:
        """Record that a follower has everything below `offset`, or return why its fetch errs."""
        state = self.state
        before = state.high_watermark
        error = state.follower_fetched(
            broker_id,
            offset,
            log_end_offset=self.log.log_end_offset,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
            log_start_offset=log_start_offset,
            confirmed_round=confirmed_round,
        )
        if state.high_watermark > before:
            self._advanced()
        if self.start_waiters.waiting:
            self.start_waiters.release(self.low_watermark)
        if self.rounds:
            self.rounds.advance(state.confirmed_round)
        if self.follower_watch is not None and error is ErrorCode.none:
            self.follower_watch(self, broker_id)
        return error

    def isr_refused(self, members: IsrMembers) -> None:
        """Count those no more whom the controller will never add to the ISR."""
        before = self.state.high_watermark
        self.state.refused(members)
        if self.state.high_watermark > before:
            self._advanced()
        if self.rounds:
            self.rounds.advance(self.state.confirmed_round)

    def readable_end(self, read_committed: bool) -> int:
        """No consumer gets an offset at or above this one (INV-7)."""
        return self.last_stable_offset if read_committed else self.state.high_watermark

    def stop(self, error: ErrorCode) -> None:
        """Answer all operations parked here: leadership ended, or the partition is deleted."""
        self.log.producers.verifications.clear()
        self._fail_waiters(error)
        self.wake_fetches()

    def wake_fetches(self) -> None:
        """Let every parked fetch read again, however many bytes it still misses."""
        for fetch in self.fetches:
            self._purgatory.wake(fetch)
        if self.watches:
            self._purgatory.tell(self)

    def resign(self, error: ErrorCode) -> None:
        """Give the role up, and answer all operations parked here."""
        self.state = resign(self.state)
        self.stop(error)

    def fail(self) -> None:
        """Give the role up, for the log directory has failed. `stop` follows."""
        self.state = fail(self.state)

    def assign(self, given: Assignment, now_ms: float) -> None:
        """Take the role that the metadata gives; `now_ms` is of the monotonic clock.

        Operations that waited under another role are answered. While the log is being cut, the role
        waits.
        """
        if self.is_being_cut:
            self.role_given = given, now_ms
            return
        end, before = self.log.log_end_offset, self.state
        self.state = assign(self.state, given, log_end_offset=end, now_ms=now_ms)
        if not self.state.is_leader:
            self.stop(ErrorCode.not_leader_or_follower)
            if not self.state.is_failed:
                self._follow_end()
        else:
            self.log.begin_epoch(self.state.leader_epoch)
            self._advanced()
            if self._replication_waiters is not None and not self.state.has_enough_replicas:
                self._replication_waiters.fail(ErrorCode.not_enough_replicas_after_append)
            self.start_waiters.release(self.low_watermark)
            if self.rounds:
                self.rounds.role_taken(self.state, before)
            self.wake_fetches()

    @property
    def waiting_count(self) -> int:
        """The count of appends that wait for their replicas or for a sync."""
        return sum(map(len, self._waiters()))

    def _sync(self) -> None:
        """Start a sync, unless one is running: it starts the next one when it ends."""
        if not self.is_syncing:
            self.is_syncing = True
            self._syncs.start(self.log.flush, self._synced)

    def _synced(self, failure: Exception | None) -> None:
        self.is_syncing = False
        if isinstance(failure, StorageFailure):
            self._failed(failure)
            self._fail_waiters(failure.code)
            return
        if failure is not None:
            raise failure
        if isinstance(self.state, OfflineState):
            return
        log = self.log
        end = log.log_end_offset
        if log.flush_is_due:
            end = log.recovery_point
            self._sync()
        moved = self.state.local_end_moved(end)
        if self._sync_waiters is not None:
            self._sync_waiters.advance(end)
        if moved:
            self._advanced()

    def _waiters(self) -> Iterator[CommitWaiters]:
        lists = (self._commit_waiters, self._replication_waiters, self._sync_waiters)
        return filter(None, lists)

    def _fail_waiters(self, error: ErrorCode) -> None:
        for waiters in self._waiters():
            waiters.fail(error)
        if self.rounds:
            self.rounds.fail(error)
        self.start_waiters.fail(error)

    def _failed(self, failure: StorageFailure) -> AppendResult:
        """Take the log directory off line (D12): the write may be torn and is not acknowledged."""
        self.on_failure(failure)
        return AppendResult(ErrorCode.kafka_storage_error, message=str(failure))

    def _grown(self, byte_count: int) -> None:
        """Subtract the appended bytes from those that the parked fetches miss.

        Those that read to the log's end need not wait for the high watermark.
        """
        for fetch in self.fetches:
            fetch.missing_bytes -= byte_count
            if fetch.isolation is FetchIsolation.LOG_END and fetch.missing_bytes <= 0:
                self._purgatory.wake(fetch)

    def _advanced(self) -> None:
        """Apply a new high watermark: first to commit waiters, then to readers."""
        high_watermark = self.state.high_watermark
        stable_before = self.last_stable_offset
        stable = self.log.last_stable_offset(high_watermark)
        if stable > high_watermark:
            raise InvariantViolation("INV-7: LSO above the high watermark")
        self.last_stable_offset = stable
        if self._commit_waiters is not None:
            self._commit_waiters.advance(high_watermark)
        if self._replication_waiters is not None:
            self._replication_waiters.advance(high_watermark)
        if self.fetches:
            stable_moved = stable > stable_before
            for fetch in self.fetches:
                reads_committed = fetch.isolation is FetchIsolation.TXN_COMMITTED
                has_enough = fetch.missing_bytes <= 0 and (stable_moved or not reads_committed)
                if has_enough or fetch.wants_high_watermark:
                    self._purgatory.wake(fetch)
        if self.watches:
            self._purgatory.tell(self)
