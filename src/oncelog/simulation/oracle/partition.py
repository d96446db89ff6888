"""What the batches of one partition imply: producers, transactions and leader epochs.

Sources: `ProducerStateEntry`, `ProducerAppendInfo`, `ProducerStateManager`, `TransactionIndex` and
`LeaderEpochFileCache` of Apache Kafka. Every question is answered by a scan over all that is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.simulation.oracle.batches import RawBatch

__all__ = ["CachedRange", "EndedTransaction", "LogState", "RawProducer"]

BATCHES_KEPT_COUNT = 5
NONE = -1


class CachedRange(NamedTuple):
    """One of a producer's last five batches."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class EndedTransaction(NamedTuple):
    """A transaction with its marker, and the last stable offset right after that marker."""

    producer_id: int
    first_offset: int
    marker_offset: int
    last_stable_offset: int
    is_commit: bool
    record_count: int
    """Its records that are left; compaction may have emptied its batches."""


@dataclass(slots=True)
class RawProducer:
    """A producer as its batches and markers leave it; -1 for none."""

    epoch: int = NONE
    coordinator_epoch: int = NONE
    open_from: int = NONE
    open_record_count: int = 0
    batches: list[CachedRange] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        """Whether a marker was written, and no transaction is open since."""
        return self.open_from == NONE and self.coordinator_epoch != NONE


@dataclass(slots=True)
class LogState:
    """The state after some batches, which are added in the order of the log."""

    producers: dict[int, RawProducer] = field(default_factory=dict)
    ended: list[EndedTransaction] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Each leader epoch with the first offset that it wrote."""
    epoch_ends: dict[int, int] = field(default_factory=dict)
    """The end of the last batch of each leader epoch."""
    end_offset: int = 0

    @classmethod
    def of(cls, batches: Iterable[RawBatch]) -> LogState:
        """Return the state after all of these."""
        state = cls()
        for batch in batches:
            state.add(batch)
        return state

    def add(self, batch: RawBatch) -> None:
        """Apply the next batch."""
        self.end_offset = batch.last_offset + 1
        if not self.epochs or batch.leader_epoch > self.epochs[-1][0]:
            self.epochs.append((batch.leader_epoch, batch.base_offset))
        self.epoch_ends[self.epochs[-1][0]] = self.end_offset
        if batch.producer_id < 0:
            return
        if batch.is_control:
            self._end(batch)
            return
        producer = self._producer_at(batch)
        cached = CachedRange(
            batch.base_sequence,
            batch.last_sequence,
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp_ms,
        )
        producer.batches = [*producer.batches, cached][-BATCHES_KEPT_COUNT:]
        if batch.is_transactional:
            producer.open_record_count += batch.record_count
            if producer.open_from == NONE:
                producer.open_from = batch.base_offset

    def _end(self, batch: RawBatch) -> None:
        marker = batch.end_marker()
        if marker is None:
            return
        producer = self._producer_at(batch)
        producer.coordinator_epoch = max(marker.coordinator_epoch, producer.coordinator_epoch)
        first_offset, producer.open_from = producer.open_from, NONE
        record_count, producer.open_record_count = producer.open_record_count, 0
        if first_offset == NONE:
            return
        offset = batch.base_offset
        stable = min(self.open_transactions(), default=offset + 1)
        self.ended.append(
            EndedTransaction(
                batch.producer_id, first_offset, offset, stable, marker.is_commit, record_count
            )
        )

    def _producer_at(self, batch: RawBatch) -> RawProducer:
        """Return a batch's producer; a higher epoch restarts its sequences."""
        producer = self.producers.setdefault(batch.producer_id, RawProducer())
        if batch.producer_epoch > producer.epoch:
            producer.epoch = batch.producer_epoch
            producer.batches = []
        return producer

    def open_transactions(self) -> list[int]:
        """Return the first offset of each transaction without a marker."""
        return [p.open_from for p in self.producers.values() if p.open_from != NONE]

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the first offset that is undecided below the high watermark, else that.

        A transaction is undecided until its marker is below the high watermark.
        """
        undecided = [
            transaction.first_offset
            for transaction in self.ended
            if transaction.marker_offset >= high_watermark
        ]
        return min([high_watermark, *undecided, *self.open_transactions()])

    def aborted(self, from_offset: int, to_offset: int) -> list[EndedTransaction]:
        """Return the aborted transactions that a reader of [from, to) has to know, by marker."""
        return [
            transaction
            for transaction in self.ended
            if not transaction.is_commit
            and transaction.marker_offset >= from_offset
            and transaction.first_offset < to_offset
        ]
