"""Holds one partition's producer state: epochs, last sequences, the open transaction.

It decides whether a batch or a marker may be appended (INV-2, INV-5) and where the first undecided
transaction begins (INV-3, INV-7). The rules are those of Kafka's `ProducerAppendInfo`,
`ProducerStateEntry` and `ProducerStateManager`. It knows neither files nor the bytes of batches: it
checks headers, and only `apply_*` changes its state.

Two rules differ from Kafka's. Idle producers expire by the time of their last *append* on the
broker's clock. Kafka uses the records' timestamps: with records of last year it forgets a live
producer at the next sweep, and appends its retries twice.

And a batch whose sequences were those of a transaction that has ended is no duplicate. A retry
belongs to an open transaction, since a client ends one when it has all replies. But under TV1
librdkafka gives the sequences of records that it purges in `abort_transaction` to the next records,
also if the log has them. By its code Kafka acknowledges these as duplicates, and loses them. Here
the error has the client abort and begin a new epoch.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.core.limits import CACHED_BATCHES_PER_PRODUCER_COUNT, INT32_MAX, PRODUCER_EPOCH_MAX
from oncelog.protocol.batch import BatchHeader
from oncelog.storage.producer_limit import ProducerLimit
from oncelog.storage.verifications import NO_SEQUENCE, Verifications

__all__ = [
    "CachedBatch",
    "CompletedTransaction",
    "EndedTransactions",
    "LastRecord",
    "Origin",
    "ProducerEntry",
    "ProducerStates",
    "Rejection",
]

TRANSACTION_VERSION_2 = 2
NO_OFFSET = -1


class Origin(Enum):
    """The appender, which determines how much is checked."""

    CLIENT = "client"
    """A produce request: everything is checked."""
    COORDINATOR = "coordinator"
    """A coordinator's own records, among them transactional offset commits.

    No sequences, so epochs only.
    """
    REPLICATION = "replication"
    """Bytes that a leader has checked already."""


class CachedBatch(NamedTuple):
    """One of a producer's last batches, to recognise its retry."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class CompletedTransaction(NamedTuple):
    """A transaction that a marker at `last_offset` just ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    committed: bool
    last_stable_offset: int


class EndedTransactions(NamedTuple):
    """The transactions whose markers are at offset `since` or later."""

    since: int
    markers: dict[int, int]
    """First offset -> offset of the marker."""


class LastRecord(NamedTuple):
    """The last record of a remembered producer."""

    last_data_offset: int
    """Last offset of its newest data batch under its epoch; -1: a marker began that epoch."""
    epoch: int


class Rejection(NamedTuple):
    """The error of a refused batch; `duplicate` is the batch in the log that it repeats."""

    error: ErrorCode
    message: str
    duplicate: CachedBatch | None = None


class ProducerEntry:
    """One producer's state in this partition. Times in milliseconds; -1 stands for none."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int = -1,
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = -1,
        transaction_first_offset: int = NO_OFFSET,
        batches: Iterable[CachedBatch] = (),
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.transaction_first_offset = transaction_first_offset
        self.batches = list(batches)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record in the log under the current epoch, or -1."""
        return self.batches[-1].last_sequence if self.batches else -1

    def find(self, epoch: int, first_sequence: int, last_sequence: int) -> CachedBatch | None:
        """The cached batch of exactly that epoch and sequence range."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None

    def has_open(self, batch: CachedBatch) -> bool:
        """Whether the transaction of a cached batch has not ended."""
        return NO_OFFSET != self.transaction_first_offset <= batch.first_offset


class ProducerStates:
    """The producers of one partition, its undecided transactions, and its verifications."""

    __slots__ = (
        "_ended_since",
        "_producers",
        "producer_limit",
        "undecided",
        "unreplicated",
        "verifications",
    )

    def __init__(self) -> None:
        self.verifications = Verifications(self.transaction_opened_at)
        self.producer_limit: ProducerLimit | None = None
        """The limit over all partitions; None for no limit."""
        self._producers: dict[int, ProducerEntry] = {}
        self.undecided: dict[int, int] = {}
        """First offset -> producer id, of the open transactions. Read only.

        Transactions begin at rising offsets, so the first key is the smallest.
        """
        self.unreplicated: dict[int, int] = {}
        """First offset -> offset of the marker, where that may be above the high watermark.

        Read only.
        """
        self._ended_since = 0
        """All markers at this offset or later are in `unreplicated`."""

    def __len__(self) -> int:
        return len(self._producers)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """Return a producer's state, or None when it is unknown (never seen, or expired)."""
        return self._producers.get(producer_id)

    @property
    def largest_id(self) -> int:
        """The largest producer id that is remembered; -1 without one."""
        return max(self._producers, default=-1)

    def entries(self) -> list[ProducerEntry]:
        """All producers that are remembered."""
        return list(self._producers.values())

    def last_records(self) -> dict[int, LastRecord]:
        """The last record of each producer, which compaction must retain (INV-2)."""
        return {
            entry.producer_id: LastRecord(
                entry.batches[-1].last_offset if entry.batches else NO_OFFSET, entry.epoch
            )
            for entry in self._producers.values()
        }

    def transaction_is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer epoch has an undecided transaction here."""
        entry = self._producers.get(producer_id)
        return (
            entry is not None
            and entry.epoch == epoch
            and entry.transaction_first_offset != NO_OFFSET
        )

    def transaction_opened_at(self, producer_id: int, epoch: int) -> int:
        """First offset of the undecided transaction of this producer epoch, or -1."""
        entry = self._producers.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return NO_OFFSET
        return entry.transaction_first_offset

    def has_marker_after(self, producer_id: int, coordinator_epoch: int) -> bool:
        """Whether the producer's last marker here is of a later coordinator than this epoch's.

        Then that coordinator was replaced, and may not know of what has ended since (INV-3).
        """
        entry = self._producers.get(producer_id)
        return entry is not None and coordinator_epoch < entry.coordinator_epoch

    def error_of_late(self, producer_id: int, epoch: int) -> ErrorCode:
        """Return the error of an append that waited while its transaction ended.

        The epoch is compared first (KAFKA-19690): a fenced producer has to learn that it is fenced,
        while INVALID_TXN_STATE would tell it that it made a mistake.
        """
        entry = self._producers.get(producer_id)
        is_fenced = entry is not None and epoch < entry.epoch
        return ErrorCode.invalid_producer_epoch if is_fenced else ErrorCode.invalid_txn_state

    def has_transaction_idle_since(self, time_ms: int) -> bool:
        """Whether an undecided transaction was last written to before `time_ms`."""
        producers = self._producers
        return any(
            producers[producer_id].last_timestamp_ms < time_ms
            for producer_id in self.undecided.values()
        )

    def check_batch(
        self, header: BatchHeader, origin: Origin, transaction_version: int = 0
    ) -> Rejection | None:
        """Judge a data batch of a producer before it is written; None allows it (INV-2, INV-5).

        `transaction_version` >= 2 means the producer speaks TV2: then a first batch whose sequence
        is not 0 proves that records are missing (KAFKA-18202), while an older client's may only
        mean that its state has expired here.
        """
        entry = self._producers.get(header.producer_id)
        is_client = origin is Origin.CLIENT
        if entry is None:
            # Its state may have expired, or gone with old segments, and the producer cannot know:
            # any first sequence is taken (KIP-360), but for what the rules below prove wrong.
            limit = self.producer_limit
            if is_client and limit is not None and not limit.admits():
                return Rejection(ErrorCode.policy_violation, limit.refusal)
            if (
                is_client
                and transaction_version >= TRANSACTION_VERSION_2
                and header.is_transactional
                and header.base_sequence != 0
            ):
                return _out_of_order(header, "expected 0 for a producer without state under TV2")
            return self._check_bounced(header) if is_client and header.is_transactional else None
        epoch = header.producer_epoch
        if is_client and epoch == entry.epoch:
            duplicate = entry.find(epoch, header.base_sequence, header.last_sequence)
            if duplicate is not None:
                if header.is_transactional and not entry.has_open(duplicate):
                    return _taken(header)
                message = "duplicate batch"
                return Rejection(ErrorCode.duplicate_sequence_number, message, duplicate)
        if epoch < entry.epoch:
            return _stale_epoch(header.producer_id, epoch, entry.epoch)
        # A coordinator's batches have no sequences, and a follower's were checked by its leader.
        if is_client:
            sequence, last = header.base_sequence, entry.last_sequence
            if epoch != entry.epoch:
                if sequence != 0:
                    return _out_of_order(header, f"expected 0 for an epoch above {entry.epoch}")
            elif sequence != last + 1 and not (sequence == 0 and last == INT32_MAX):
                return _out_of_order(header, f"the last one in the log is {last}")
        # Readers skip an aborted transaction by its producer id: the batch would vanish with it.
        if entry.transaction_first_offset != NO_OFFSET and not header.is_transactional:
            return Rejection(
                ErrorCode.invalid_txn_state,
                f"producer {header.producer_id} has an open transaction; "
                "expected a transactional batch",
            )
        return None

    def _check_bounced(self, header: BatchHeader) -> Rejection | None:
        """Refuse the first batch of an unknown producer if it is later than a bounced one (INV-2).

        Kafka also applies this to known producers, where the last sequence in the log suffices, and
        where a late bounced batch makes it refuse the right one.
        """
        lowest = self.verifications.lowest_sequence(header.producer_id, header.producer_epoch)
        if lowest != NO_SEQUENCE and header.base_sequence > lowest:
            return _out_of_order(header, f"{lowest} came before, and was not appended")
        return None

    def apply_batch(self, header: BatchHeader, first_offset: int, now_ms: int) -> None:
        """Apply a data batch that is now in the log at `first_offset`."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_id)
        epoch = header.producer_epoch
        if epoch != entry.epoch:
            if epoch < entry.epoch:
                return  # Only in a damaged log; the epoch of a producer never goes back (INV-5).
            entry.epoch = epoch
            entry.batches.clear()  # Sequences restart.
        batches = entry.batches
        # A client has at most five requests in flight (KAFKA-5494), so it repeats none older.
        if len(batches) == CACHED_BATCHES_PER_PRODUCER_COUNT:
            del batches[0]
        batches.append(
            CachedBatch(
                header.base_sequence,
                header.last_sequence,
                first_offset,
                first_offset + header.last_offset_delta,
                header.max_timestamp,
            )
        )
        entry.last_timestamp_ms = now_ms
        if header.is_transactional and entry.transaction_first_offset == NO_OFFSET:
            entry.transaction_first_offset = first_offset
            self.undecided[first_offset] = header.producer_id
            self.verifications.opened(header.producer_id, epoch, first_offset)

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> Rejection | None:
        """Return the error of an end marker before it is written; None allows it (INV-4, INV-5).

        Under TV2 each end bumps the epoch, so a marker's must be above the current one; an equal
        one repeats a marker already written, if no transaction is open (KAFKA-19999), or comes from
        an exhausted epoch.
        """
        entry = self._producers.get(producer_id)
        if entry is None:
            return None
        stale = epoch < entry.epoch
        if transaction_version >= TRANSACTION_VERSION_2 and epoch == entry.epoch:
            nothing_open = entry.transaction_first_offset == NO_OFFSET
            stale = not nothing_open and epoch != PRODUCER_EPOCH_MAX
        if stale:
            return _stale_epoch(producer_id, epoch, entry.epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            return Rejection(
                ErrorCode.transaction_coordinator_fenced,
                f"marker of producer {producer_id} by coordinator epoch {coordinator_epoch}, "
                f"the latest is {entry.coordinator_epoch}",
            )
        return None

    def apply_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        offset: int,
        committed: bool,
        now_ms: int,
    ) -> CompletedTransaction | None:
        """Apply a marker that is now in the log at `offset`.

        Returns the transaction that it ended, if any.
        """
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id)
        if epoch > entry.epoch:
            # The coordinator fences by a marker with the next epoch: under TV2, and at a timeout.
            entry.epoch = epoch
            entry.batches.clear()
        entry.coordinator_epoch = max(coordinator_epoch, entry.coordinator_epoch)
        entry.last_timestamp_ms = now_ms
        self.verifications.marked(producer_id, epoch)
        first_offset = entry.transaction_first_offset
        if first_offset == NO_OFFSET:
            return None
        entry.transaction_first_offset = NO_OFFSET
        if first_offset not in self.undecided:
            raise InvariantViolation("INV-3: a transaction ends that is not open")
        del self.undecided[first_offset]
        # Until the marker is replicated a next leader may lack it (ProducerStateManager's
        # unreplicatedTxns): the last stable offset, which must not move back, waits for it.
        self.unreplicated[first_offset] = offset
        stable = next(iter(self.undecided), offset + 1)
        return CompletedTransaction(producer_id, first_offset, offset, committed, stable)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest undecided transaction.

        One whose marker is not below the high watermark is undecided.
        """
        unreplicated = self.unreplicated
        if unreplicated:
            for first, last in tuple(unreplicated.items()):
                if last < high_watermark:
                    if last >= self._ended_since:
                        self._ended_since = last + 1  # First: see `ended`.
                    del unreplicated[first]
        oldest = next(iter(self.undecided), None)
        if unreplicated:
            first = min(unreplicated)
            return first if oldest is None or first < oldest else oldest
        return oldest

    def remove_expired(
        self, entries: Iterable[ProducerEntry], now_ms: int, expiration_ms: int
    ) -> int:
        """Remove those of `entries` that are idle for `expiration_ms` without an open transaction.

        Returns how many. An entry that its producer has replaced is skipped. Bounced batches of
        that age are forgotten too.
        """
        producers = self._producers
        expired = [
            entry.producer_id
            for entry in entries
            if entry.transaction_first_offset == NO_OFFSET
            and now_ms - entry.last_timestamp_ms >= expiration_ms
            and producers.get(entry.producer_id) is entry
        ]
        for producer_id in expired:
            del producers[producer_id]
        self.verifications.remove_expired(now_ms, expiration_ms)
        return len(expired)

    def ended(self) -> EndedTransactions:
        """What is known of the transactions that have ended."""
        markers = self.unreplicated.copy()  # First: the event loop may forget some meanwhile.
        return EndedTransactions(self._ended_since, markers)

    def load(self, entries: Iterable[ProducerEntry], ended: EndedTransactions) -> None:
        """Replace all state by a snapshot's."""
        self._producers = {entry.producer_id: entry for entry in entries}
        self._ended_since, self.unreplicated = ended
        self.undecided = dict(
            sorted(
                (entry.transaction_first_offset, entry.producer_id)
                for entry in self._producers.values()
                if entry.transaction_first_offset != NO_OFFSET
            )
        )

    def none_ended_since(self, offset: int) -> None:
        """No marker is at `offset` or later but those that are known: no later start need look."""
        self._ended_since = min(self._ended_since, offset)

    def take_unreplicated(self, other: "ProducerStates", end_offset: int) -> None:
        """Take over from another state of this log what has ended below `end_offset`.

        The markers that are below the high watermark are forgotten when that is known.
        """
        since, markers = other.ended()
        self._ended_since = min(self._ended_since, since)
        self.unreplicated |= {first: last for first, last in markers.items() if last < end_offset}


def _stale_epoch(producer_id: int, epoch: int, current: int) -> Rejection:
    return Rejection(
        ErrorCode.invalid_producer_epoch,
        f"epoch {epoch} of producer {producer_id} is not valid, the latest here is {current}",
    )


def _taken(header: BatchHeader) -> Rejection:
    return Rejection(
        ErrorCode.unknown_producer_id,
        f"sequence {header.base_sequence} of producer {header.producer_id} "
        f"epoch {header.producer_epoch} was taken in a transaction that has ended",
    )


def _out_of_order(header: BatchHeader, expectation: str) -> Rejection:
    return Rejection(
        ErrorCode.out_of_order_sequence_number,
        f"sequence {header.base_sequence} of producer {header.producer_id} "
        f"epoch {header.producer_epoch}: {expectation}",
    )
