"""Reduces an internal partition's log to the records that a load has to apply.

Most records of an internal partition are obsolete: a later record of the same key replaced them. A
load adds every record and every end marker of a stretch of the log, in order, to a `ReplayBuffer`,
and takes the records that still count from it (`rest`), in log order again. Applying those leaves a
shard in the same state as applying all. So a stretch may end anywhere, and its length bounds the
memory.

Pure: it compares keys as bytes and does not decode them. It relies on rules that every shard
follows: a value is the whole state of its key; a tombstone removes earlier values of its key,
inside open transactions too; a transactional record takes effect at its own offset, once its commit
marker is there, and never without one (INV-6). So within a stretch

- of the values of a key only the last stays, and none before its last tombstone;
- of the tombstones of a key only the last stays: a shard may hold a value from an earlier stretch;
- a transaction that ends is resolved here: aborted records are dropped, committed ones become plain
  values at their offset;
- a producer's first marker stays, as a shard may hold a transaction of it from an earlier stretch.
  Its later markers have no effect.

As in log compaction, one thing is lost: that a group without remaining records once existed.
"""

from collections.abc import Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

from oncelog.coordinator.shard import CoordinatorRecord, EndTransactionMarker, RecordContext
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId
from oncelog.protocol.records.scan import DamagedRecord, ScannedRecord

__all__ = ["RecordToReplay", "ReplayBuffer"]

_offset_of = itemgetter(0)


class RecordToReplay(NamedTuple):
    """A record that still counts."""

    offset: int
    record: CoordinatorRecord
    context: RecordContext


class _UndecidedRecord(NamedTuple):
    """A record of a transaction that has not ended yet."""

    record: ScannedRecord
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class ReplayBuffer:
    """Reduces one stretch of the log; see the module."""

    def __init__(self) -> None:
        self._values: dict[bytes, ScannedRecord] = {}
        """The last value of each key without a later tombstone."""
        self._tombstones: dict[bytes, ScannedRecord] = {}
        self._pending: dict[ProducerId, dict[bytes, _UndecidedRecord]] = {}
        self._pending_count = 0
        self._ends: dict[ProducerId, EndTransactionMarker] = {}

    def __len__(self) -> int:
        """Count the records and markers of the stretch that still count."""
        plain_count = len(self._values) + len(self._tombstones)
        return plain_count + self._pending_count + len(self._ends)

    def add(self, records: Sequence[ScannedRecord]) -> None:
        """Add the records of a batch that belongs to no transaction.

        Raises `DamagedRecord` for a record without a key.
        """
        values = self._values
        for record in records:
            key = record[2]
            if record[3] is None or key is None:
                self._bury(record)
            else:
                values[key] = record

    def add_transactional(
        self,
        records: Sequence[ScannedRecord],
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
    ) -> None:
        """Add the records of a transaction's batch. Raises as `add` does."""
        pending = self._pending.setdefault(producer_id, {})
        self._pending_count -= len(pending)
        for record in records:
            key = record[2]
            if record[3] is None or key is None:
                self._bury(record)
            else:
                pending[key] = _UndecidedRecord(record, producer_id, producer_epoch)
        self._pending_count += len(pending)

    def end_transaction(self, end: EndTransactionMarker) -> None:
        """Add an end marker."""
        self._ends.setdefault(end.producer_id, end)
        settled = self._pending.pop(end.producer_id, {})
        self._pending_count -= len(settled)
        if end.commit:
            for key, pending in settled.items():
                if not self._is_superseded(key, pending.record):
                    self._values[key] = pending.record

    def rest(self) -> Iterator[RecordToReplay | EndTransactionMarker]:
        """Return the records and markers that still count, in log order."""
        plain = sorted([*self._values.values(), *self._tombstones.values()], key=_offset_of)
        pending = sorted(
            (one for of_producer in self._pending.values() for one in of_producer.values()),
            key=lambda one: one.record[0],
        )
        ends = sorted(self._ends.values())
        return merge(map(_plain, plain), map(_transactional, pending), ends, key=_offset_of)

    def _bury(self, tombstone: ScannedRecord) -> None:
        key = tombstone[2]
        if key is None:
            raise DamagedRecord(tombstone[0], "a record without a key")
        self._values.pop(key, None)
        self._tombstones[key] = tombstone

    def _is_superseded(self, key: bytes, record: ScannedRecord) -> bool:
        """Whether a plain record or tombstone of the key follows a transaction's record."""
        value, tombstone = self._values.get(key), self._tombstones.get(key)
        return (value is not None and value[0] > record[0]) or (
            tombstone is not None and tombstone[0] > record[0]
        )


def _plain(record: ScannedRecord) -> RecordToReplay:
    offset, timestamp_ms, key, value = record
    return RecordToReplay(
        offset, CoordinatorRecord(key or b"", value), RecordContext(Offset(offset), timestamp_ms)
    )


def _transactional(pending: _UndecidedRecord) -> RecordToReplay:
    offset, timestamp_ms, key, value = pending.record
    ids = (pending.producer_id, pending.producer_epoch)
    context = RecordContext(Offset(offset), timestamp_ms, *ids, transactional=True)
    return RecordToReplay(offset, CoordinatorRecord(key or b"", value), context)
