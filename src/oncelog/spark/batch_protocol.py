"""The protocol of one micro-batch: output, source offsets and marker in one transaction (INV-10).

`BatchProtocol.process` is called once per micro-batch, on Spark's driver. It knows neither Spark
nor sockets: the batch is a `MicroBatch`, the transaction a `Transaction`, and both have fakes in
the tests. The protocol for batch N, where the marker names the last committed batch:

1. At the start InitProducerId ends the transaction of an earlier run. Then the marker is final: it
   is the newer one of the marker topic's and of that in the group's stable offsets.
2. marker = N: compute the batch and write nothing. marker = N - 1: continue. Any other marker fails
   closed (`marker.compare`).
3. A new epoch, so that a zombie is fenced (INV-5) and sequences restart at 0.
4. The write stage, every record acknowledged, each task in its first attempt. A partition has one
   task, or tasks that take turns (`oncelog.spark.turns`) and one report.
5. The marker's record, the source offsets and the marker beside them join the transaction;
   EndTxn(commit). Partitions that were deleted are left out: brokers refuse their offsets.
6. If the outcome is unknown, steps 1 and 2 settle it: InitProducerId waits for a commit that is in
   progress, or aborts, and then the marker shows which.
7. A failed stage goes back to 3, a few times. At the end the transaction is never left open: it
   would hold the last stable offset for all readers. A failure that no attempt can avoid, such as a
   user's mistake or a missing permission, is tried once. An attempt that found out how the next one
   has to write (smaller record batches, newer metadata) does not count.
8. Between batches, `renew` commits marker and offsets again once an hour, by 3 and 5 without 4. So
   neither the group's offsets nor the transactional id of an idle query expires.
9. A marker that is missing, though this run committed or read it less than a day ago, was
   deleted: no rival's marker can have been written and expired since. This run's copy is trusted.
10. Before batch 0 is written the marker topic gets the query's opening, in a transaction of its
   own. Without a marker, an old batch 0 runs only if the opening is there (`marker.opening`).
"""

import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from oncelog.client.errors import ClientError, RetriableError
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import (
    AdjustedError,
    DataLossError,
    StoppedError,
    UsageError,
    WriteStageError,
)
from oncelog.spark.marker import (
    UNMARKED_AGE_S_MAX,
    BatchIdentity,
    Marker,
    Verdict,
    check_start,
    compare,
    latest,
    opened_query,
    opening,
    sources_hash,
)
from oncelog.spark.offsets_log import cluster_ids, kafka_offsets
from oncelog.spark.parties import MicroBatch, ProducerIdentity, Runner, TaskReport, Transaction
from oncelog.spark.progress import ProgressLog
from oncelog.spark.protocol_options import ProtocolOptions

__all__ = ["BatchProtocol", "another_cluster"]

T = TypeVar("T")

log = logging.getLogger("oncelog.spark")

RENEWAL_S: Final = 3600.0
"""Age of marker and offsets at which an idle query commits them again."""

LOOK_S: Final = 30.0
"""Deleted source partitions are looked for again after this time, and at each `_open`."""

PREPARED_LOOK_S: Final = 0.05
"""How often `prepare` looks whether a batch that runs meanwhile has opened the transaction."""

MEMORY_TRUST_S: Final = UNMARKED_AGE_S_MAX
"""For so long after a run read or wrote a marker it trusts it, if the cluster has none."""

ADJUSTMENTS_COUNT_MAX: Final = 64
"""So many attempts of a batch may end with an adjustment; then they count as failed.

A topic's record batches are halved at most thirty times or so until each has one record.
"""

_EXPIRED: Final = (ErrorCode.invalid_producer_id_mapping, ErrorCode.unknown_producer_id)
"""The coordinator forgot the transactional id (``transactional.id.expiration.ms``)."""

_HOPELESS: Final = frozenset(
    {
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.topic_authorization_failed,
        ErrorCode.sasl_authentication_failed,
        ErrorCode.unsupported_version,
        ErrorCode.invalid_transaction_timeout,
        ErrorCode.offset_metadata_too_large,
        ErrorCode.invalid_topic_exception,
    }
)
"""Errors that another attempt cannot avoid."""


_FAILURES: Final = (DataLossError, UsageError, WriteStageError, RetriableError, StoppedError)


class _InDoubtError(Exception):
    """The transaction's outcome is unknown, or it is lost; the marker decides."""

    def __init__(self, reason: ClientError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class BatchProtocol:
    """Takes the micro-batches of one run of one query through their transactions.

    Spark runs one micro-batch at a time; `renew` may be called from any thread meanwhile.
    """

    def __init__(
        self,
        options: ProtocolOptions,
        transaction: Transaction,
        runner: Runner,
        progress: ProgressLog,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._transaction = transaction
        self._runner = runner
        self._progress = progress
        self._now_s = now_s
        self._marker: Marker | None = None
        self._opened_query: str | None = None
        self._seen_at_s = self._committed_at_s = 0.0
        self._is_superseded = False
        self._offsets: Mapping[TopicPartition, int] = {}
        self._missing: set[TopicPartition] = set()
        self._looked_at_s = 0.0
        self._is_open = False
        self._is_computed = False
        # There is one transaction: a renewal must not begin, nor end, the one of a batch.
        self._lock = threading.Lock()

    @property
    def marker(self) -> Marker | None:
        """The last committed batch, as far as this run knows."""
        return self._marker

    def process(self, batch: MicroBatch) -> None:
        """Complete one micro-batch: commit it, or find it committed and drain it.

        Raises `FailClosedError` when neither is safe, `WriteStageError` or a `ClientError` when the
        attempts are used up; then no record is committed.
        """
        with self._lock:
            self._process(batch)

    def prepare(self, new_query_id: str | None = None) -> None:
        """Fence other drivers and read the marker, before the first batch.

        Then an idle query is renewed too. `new_query_id` is that of a query without a planned
        batch, which is opened at once. Returns once a batch that was quicker has done the same,
        though its rows are still written. Raises as `process`.
        """
        while not self._lock.acquire(timeout=PREPARED_LOOK_S):
            if self._is_open:
                return
        try:
            if self._is_open:
                return
            self._open()
            try:
                if new_query_id is not None:
                    self._write_opening(new_query_id)
            except _InDoubtError as error:
                self._is_open = False
                raise error.reason from error
        finally:
            self._lock.release()

    def renew(self) -> None:
        """Commit the last marker and its offsets again, `RENEWAL_S` after the last commit.

        Does nothing during a batch, which commits its own. Raises `ClientError` when it failed: the
        next batch, or the next renewal, opens the transaction again. After another driver took over
        only a batch may, because that fences it.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            is_due = self._now_s() - self._committed_at_s >= RENEWAL_S
            if not is_due or self._is_superseded or self._marker is None:
                return
            if not self._is_open:
                self._open()
            self._commit_again()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Forget the transaction. None is open between two batches, so no request is sent."""
        self._is_open = False

    def _process(self, batch: MicroBatch) -> None:
        lines = batch.source_lines()
        self._progress.step("wal_written", batch.batch_id)
        identity = BatchIdentity(batch.query_id, batch.batch_id, sources_hash(lines))
        offsets = self._offsets_to_commit(lines)
        self._is_computed = False
        failure: Exception = WriteStageError("no attempt was made")
        attempt = failures = adjustments = 0
        while failures < self._options.write_attempts:
            attempt += 1
            try:
                self._attempt(batch, identity, offsets)
                return
            except _FAILURES as error:
                failure = error
            except _InDoubtError as error:
                failure = error.reason
            # The next `_open` ends this attempt's transaction, and its marker resolves a commit in
            # doubt.
            self._is_open = False
            self._progress.step("failed", batch.batch_id, attempt=attempt, error=_one_line(failure))
            if _is_hopeless(failure) or batch.is_stopping():
                break
            if isinstance(failure, AdjustedError) and adjustments < ADJUSTMENTS_COUNT_MAX:
                adjustments += 1
            else:
                failures += 1
        if isinstance(failure, RetriableError) and batch.is_stopping():
            # Another attempt could have succeeded, but the user wants none.
            failure = StoppedError(
                f"the query was stopped while batch {batch.batch_id} was written ({failure}); the "
                "next start writes it, unless it is committed"
            )
        self._settle_last(batch, identity, failure)

    def _attempt(
        self, batch: MicroBatch, identity: BatchIdentity, offsets: Mapping[TopicPartition, int]
    ) -> None:
        if not self._is_open:
            self._open()
        options = self._options
        verdict = compare(
            self._marker,
            identity,
            accept=options.accept,
            replaces_query=options.replaces_query,
            may_have_expired=self._may_have_expired(batch),
        )
        last = self._marker
        if last is not None and last.batch.query_id != identity.query_id:
            check_start(batch.initial_offsets(), self._offsets, options.accept)
        if verdict is Verdict.DRAIN and self._is_computed:
            # An EndTxn of this very call, in doubt until now, succeeded: the state of that run is
            # valid.
            self._progress.step("txn_ended", batch.batch_id)
            return
        if verdict is Verdict.DRAIN:
            self._progress.step("drain", batch.batch_id)
            batch.drain()
            self._progress.step("drained", batch.batch_id)
            return
        if batch.batch_id == 0:
            self._write_opening(identity.query_id)
        # Tasks of an attempt before this one may still send: brokers refuse them by their epoch
        # (INV-5), and sequences begin at 0 with a new one. Under TV2 it came with the last EndTxn
        # (KIP-890), before by InitProducerId (KIP-360).
        self._guarded(self._transaction.new_epoch())
        transaction = self._transaction
        producer_id, epoch = transaction.producer_id, transaction.producer_epoch
        self._progress.step("after_init", batch.batch_id, producer=producer_id, epoch=epoch)
        self._is_computed = False
        reports = batch.write(ProducerIdentity(producer_id, epoch))
        self._is_computed = True
        _check_reports(reports)
        records = sum(report.record_count for report in reports)
        self._progress.step("tasks_done", batch.batch_id, records=records, partitions=len(reports))
        self._commit(batch, identity, offsets)

    def _commit(
        self, batch: MicroBatch, identity: BatchIdentity, offsets: Mapping[TopicPartition, int]
    ) -> None:
        sequence = 1 if self._marker is None else self._marker.sequence + 1
        marker = Marker(sequence, identity, batch.next_watermark_ms())
        offsets = self._existing(offsets)
        self._add(marker, offsets)
        self._progress.step("offsets_committed", batch.batch_id)
        self._progress.step("ending", batch.batch_id)
        self._guarded(self._transaction.end(commit=True))
        self._marker = marker
        self._offsets = offsets
        self._seen_at_s = self._committed_at_s = self._now_s()
        self._progress.step("txn_ended", batch.batch_id)

    def _add(self, marker: Marker, offsets: Mapping[TopicPartition, int]) -> None:
        """Add the marker and the source offsets to the transaction."""
        group_id, place = self._options.application_id, self._options.marker_partition
        if place is not None:
            value = marker.encode().encode()
            self._guarded(self._transaction.append(place, group_id.encode(), value))
        if offsets:
            committed = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
            # A committed offset has a text beside it, which is part of the transaction: one is
            # enough for the marker.
            carrier = min(committed)
            committed[carrier] = OffsetAndMetadata(offsets[carrier], marker.encode())
            self._guarded(self._transaction.add_offsets(group_id))
            self._guarded(self._transaction.txn_offset_commit(group_id, committed))

    def _existing(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Leave out the offsets of deleted partitions, where another place has the marker."""
        now_s = self._now_s()
        if offsets and now_s - self._looked_at_s > LOOK_S:
            found = self._guarded(self._transaction.missing(offsets, self._missing))
            for tp in sorted(found - self._missing):
                log.warning("partition %s is gone; its offset is not committed to the group", tp)
            self._missing, self._looked_at_s = found, now_s
        existing = {tp: offset for tp, offset in offsets.items() if tp not in self._missing}
        has_place = existing or self._options.marker_partition is not None
        return existing if has_place else offsets

    def _write_opening(self, query_id: str) -> None:
        """Commit the query's opening, unless a batch is committed or the opening is there."""
        options = self._options
        is_needed = options.marker_partition is not None and options.has_group_markers
        if not is_needed or self._marker is not None or self._opened_query == query_id:
            return
        self._commit_alone(opening(query_id), {})
        self._opened_query = query_id

    def _commit_alone(self, marker: Marker, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit a transaction without output."""
        self._guarded(self._transaction.new_epoch())
        self._add(marker, offsets)
        self._guarded(self._transaction.end(commit=True))

    def _commit_again(self) -> None:
        if self._marker is None:
            return
        offsets = self._offsets if self._options.commit_source_offsets else {}
        try:
            offsets = self._existing(offsets)
            self._commit_alone(self._marker, offsets)
        except _InDoubtError as error:
            self._is_open = False
            is_ours = error.reason.code in _EXPIRED or isinstance(error.reason, RetriableError)
            self._is_superseded = not is_ours
            raise error.reason from error
        self._seen_at_s = self._committed_at_s = self._now_s()

    def _open(self) -> None:
        """InitProducerId, then the marker. A cluster that cannot even do this ends the query."""
        self._runner.call(self._transaction.open())
        options = self._options
        stable = self._runner.call(
            self._transaction.fetch_offsets(options.application_id, None, require_stable=True)
        )
        texts = [committed.metadata for committed in stable.values()]
        of_offsets = latest(texts)
        if options.marker_partition is not None:
            key = options.application_id.encode()
            place = options.marker_partition
            value = self._runner.call(self._transaction.committed_value(place, key))
            text = (value or b"").decode()
            texts.append(text)
            self._opened_query = opened_query(text)
        found = latest(texts)
        if found is not None:
            self._seen_at_s = self._now_s()
        if found is not None or self._now_s() - self._seen_at_s > MEMORY_TRUST_S:
            self._marker = found
            # Offsets without its marker are not where the last batch ended: it committed none.
            ends = {tp: committed.offset for tp, committed in stable.items()}
            self._offsets = ends if of_offsets == found else {}
        self._is_open, self._is_superseded = True, False
        self._looked_at_s = 0.0

    def _may_have_expired(self, batch: MicroBatch) -> bool:
        """Whether a marker of this batch in the group's offsets could have expired."""
        options = self._options
        if self._marker is not None or batch.batch_id > 0 or not options.has_group_markers:
            return False
        if self._opened_query == batch.query_id:
            return False
        planned_at_s = batch.planned_at_s()
        return planned_at_s is None or self._now_s() - planned_at_s > UNMARKED_AGE_S_MAX

    def _settle_last(self, batch: MicroBatch, identity: BatchIdentity, failure: Exception) -> None:
        """End the transaction after the last attempt.

        Raises unless the batch turns out to be committed and computed.
        """
        try:
            self._open()
        except (ClientError, StoppedError):
            # The coordinator's timeout will abort what is open; the reason the batch failed is what
            # the user needs.
            raise failure from None
        committed = self._marker is not None and self._marker.batch == identity
        if not (committed and self._is_computed):
            raise failure
        self._progress.step("txn_ended", batch.batch_id)

    def _guarded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.call(coroutine)
        except ClientError as error:
            raise _InDoubtError(error) from error

    def _offsets_to_commit(self, lines: tuple[str, ...]) -> Mapping[TopicPartition, int]:
        options = self._options
        offsets = kafka_offsets(lines) if options.commit_source_offsets else {}
        sources = cluster_ids(lines)
        foreign = sources - {options.cluster_id}
        if offsets and foreign and options.cluster_id is not None:
            raise UsageError(another_cluster(min(foreign), options.cluster_id))
        if len(sources) > 1:
            # A topic of one name may exist in both clusters.
            offsets = {}
        if not offsets and options.marker_partition is None:
            raise UsageError(
                "no offset of a source is committed to this cluster, so nothing but a marker_topic "
                "can carry the batch marker: name one with marker_topic=..."
            )
        return offsets


def another_cluster(source: str, sink: str) -> str:
    """Return why offsets of a source on cluster `source` are not committed to cluster `sink`."""
    return (
        f"a source reads from cluster {source} and the sink writes to cluster {sink}, whose groups "
        "cannot hold that cluster's offsets: pass commit_source_offsets=False, and the "
        "marker_topic alone carries the batch marker"
    )


def _check_reports(reports: list[TaskReport]) -> None:
    """Each target partition has one report: two tasks would both start at sequence 0 (INV-2)."""
    seen: dict[TopicPartition, int] = {}
    for report in reports:
        if report.topic_partition in seen:
            raise WriteStageError(
                f"tasks {seen[report.topic_partition]} and {report.task} both wrote to "
                f"{report.topic_partition}"
            )
        seen[report.topic_partition] = report.task


def _is_hopeless(failure: Exception) -> bool:
    if isinstance(failure, ClientError):
        return failure.code in _HOPELESS
    return isinstance(failure, DataLossError | UsageError | StoppedError)


def _one_line(error: BaseException | None) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
