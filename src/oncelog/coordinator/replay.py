"""What a coordinator has to apply of its log when it loads: a stretch at a time, reduced first.

Most of an internal partition is history: values that a later record of the same key replaced. A
`ReplayBuffer` is given every record and every end marker of a stretch in the order of the log, and
gives back those that still count (`rest`), in the order of the log again. Applying them leaves a
shard in the state that applying everything would. So a stretch may end anywhere, and its length
bounds the memory.

Pure: it knows keys as bytes, and not what they mean. It relies on what holds for every shard: a
value says all there is to say of its key; a tombstone ends what was said of its key before, inside
open transactions too; what a transaction wrote counts from the place of its record on, once its
commit marker is there, and never without one (INV-6). So within a stretch

- of the values of a key only the last stays, and none in front of its last tombstone;
- of the tombstones of a key only the last stays: a shard may hold something of it from an earlier
  stretch;
- a transaction that ends is settled here: aborted records go, committed ones become plain values of
  their place in the log;
- a producer's first marker stays, as a shard may hold a transaction of it from an earlier
  stretch. Later markers have nothing left to do.

One trace of history is lost, as it is when the log is compacted: that there was a group of which
nothing is left.
"""

from collections.abc import Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

from oncelog.coordinator.shard import CoordinatorRecord, RecordContext
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId
from oncelog.protocol.records.scan import DamagedRecord, ScannedRecord

__all__ = ["EndTransactionMarker", "RecordToReplay", "ReplayBuffer"]

_offset_of = itemgetter(0)


class RecordToReplay(NamedTuple):
    """A record that still counts."""

    offset: int
    record: CoordinatorRecord
    context: RecordContext


class EndTransactionMarker(NamedTuple):
    """An end marker: how a producer's transaction ended."""

    offset: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commit: bool


class _Pending(NamedTuple):
    """A record of a transaction that has not ended yet."""

    record: ScannedRecord
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class ReplayBuffer:
    """One stretch of the log; see the module."""

    def __init__(self) -> None:
        self._values: dict[bytes, ScannedRecord] = {}
        """The last value of each key, where no tombstone came after it."""
        self._tombstones: dict[bytes, ScannedRecord] = {}
        self._pending: dict[ProducerId, dict[bytes, _Pending]] = {}
        self._pending_count = 0
        self._ends: dict[ProducerId, EndTransactionMarker] = {}

    def __len__(self) -> int:
        """How many records and markers of the stretch still count."""
        plain_count = len(self._values) + len(self._tombstones)
        return plain_count + self._pending_count + len(self._ends)

    def add(self, records: Sequence[ScannedRecord]) -> None:
        """Take in the records of a batch that belongs to no transaction.

        Raises `DamagedRecord` for a record without a key.
        """
        values = self._values
        for record in records:
            key = record[2]
            if record[3] is None or key is None:
                self._bury(record)
            else:
                # Taken out first, so that the values stay in the order of the log.
                values.pop(key, None)
                values[key] = record

    def add_transactional(
        self,
        records: Sequence[ScannedRecord],
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
    ) -> None:
        """Take in the records of a transaction's batch. Raises as `add`."""
        pending = self._pending.setdefault(producer_id, {})
        self._pending_count -= len(pending)
        for record in records:
            key = record[2]
            if record[3] is None or key is None:
                self._bury(record)
            else:
                pending[key] = _Pending(record, producer_id, producer_epoch)
        self._pending_count += len(pending)

    def end_transaction(self, end: EndTransactionMarker) -> None:
        """Take in an end marker."""
        self._ends.setdefault(end.producer_id, end)
        settled = self._pending.pop(end.producer_id, {})
        self._pending_count -= len(settled)
        if end.commit:
            for key, pending in settled.items():
                if not self._is_superseded(key, pending.record):
                    self._values[key] = pending.record

    def rest(self) -> Iterator[RecordToReplay | EndTransactionMarker]:
        """Return what still counts, in the order of the log."""
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
        self._tombstones.pop(key, None)
        self._tombstones[key] = tombstone

    def _is_superseded(self, key: bytes, record: ScannedRecord) -> bool:
        """Whether a plain record or a tombstone of the key stands behind a transaction's record."""
        value, tombstone = self._values.get(key), self._tombstones.get(key)
        return (value is not None and value[0] > record[0]) or (
            tombstone is not None and tombstone[0] > record[0]
        )


def _plain(record: ScannedRecord) -> RecordToReplay:
    offset, timestamp_ms, key, value = record
    return RecordToReplay(
        offset, CoordinatorRecord(key or b"", value), RecordContext(Offset(offset), timestamp_ms)
    )


def _transactional(pending: _Pending) -> RecordToReplay:
    offset, timestamp_ms, key, value = pending.record
    ids = (pending.producer_id, pending.producer_epoch)
    context = RecordContext(Offset(offset), timestamp_ms, *ids, transactional=True)
    return RecordToReplay(offset, CoordinatorRecord(key or b"", value), context)
