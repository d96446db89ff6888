"""Decides what a cleaning retains of each batch (`Cleaner.cleanInto`, `shouldRetainRecord`).

- A record is retained while it is the newest of its key among the decided ones; a tombstone also
  until its batch's delete horizon has passed.
- Records of aborted transactions are removed. `CleanedTransactions` decides about end markers.
- The last batch of each producer that the log remembers is retained, emptied if need be (INV-2),
  and so is the last batch below the high watermark, which keeps the log's end offset.
- A batch that is retained whole is copied as bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from oncelog.protocol.batch import BatchHeader
from oncelog.protocol.record_slices import (
    RecordSlice,
    delete_horizon_ms,
    emptied_batch,
    iter_slices,
    thinned_batch,
    unpacked,
)
from oncelog.storage.cleaner.marks import Marks
from oncelog.storage.cleaner.offset_map import OffsetMap
from oncelog.storage.cleaner.transactions import CleanedTransactions
from oncelog.storage.producer_state import LastRecord
from oncelog.storage.replay import end_marker_of

__all__ = ["BatchFilter", "CleanerStats"]

Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class CleanerStats:
    """The counts of one cleaning, for one line in the broker's log."""

    bytes_mapped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    records_compared: int = 0
    """How often the key of a record was looked up, or noted."""
    records_without_key: int = 0
    keys_count: int = 0


@dataclass(frozen=True, slots=True)
class BatchFilter:
    """Judges the batches of one cleaning, in the order of the log."""

    keys: OffsetMap
    marks: Marks
    """Offsets of the newest records, in the part of the log whose keys are in the offset map."""
    transactions: CleanedTransactions
    last_records: Mapping[int, LastRecord]
    high_watermark: int
    now_ms: int
    delete_retention_ms: int
    stats: CleanerStats

    def keep(self, buffer: Buffer, position: int, header: BatchHeader) -> Buffer | None:
        """Return what is retained of the batch at `position`, or None.

        Raises `ProtocolError` for damage.
        """
        if header.is_control:
            return self._keep_control(buffer, position, header)
        self.stats.records_read += header.record_count
        if self.transactions.is_aborted(header):
            return self._keep_empty(header)
        if header.base_offset > self.keys.latest_offset:
            self.stats.records_written += header.record_count
            return _whole(buffer, position, header)
        if self.marks.none_between(header.base_offset, header.last_offset):
            return self._keep_empty(header)
        return self._keep_records(buffer, position, header)

    def _keep_control(self, buffer: Buffer, position: int, header: BatchHeader) -> Buffer | None:
        is_over = self.transactions.is_over(header, end_marker_of(buffer, position, header))
        horizon = delete_horizon_ms(header)
        if not header.record_count:
            return self._keep_empty(header)
        # Kafka empties the marker that began a producer's epoch. A broker that rebuilds producer
        # state from the log would then not know the epoch, nor fence (INV-5).
        if not is_over or self._is_last_of_producer(header):
            return _whole(buffer, position, header)
        if horizon is not None:
            if horizon <= self.now_ms:
                return self._keep_empty(header)
            return _whole(buffer, position, header)
        data = unpacked(buffer, position, header)
        return thinned_batch(header, data, list(iter_slices(data, header)), self._new_horizon_ms)

    def _keep_records(self, buffer: Buffer, position: int, header: BatchHeader) -> Buffer | None:
        data = unpacked(buffer, position, header)
        self.stats.records_compared += header.record_count
        horizon = delete_horizon_ms(header)
        tombstones_stay = horizon is None or self.now_ms < horizon
        kept: list[RecordSlice] = []
        has_tombstone = False
        for record in iter_slices(data, header):
            if self._stays(record, tombstones_stay):
                kept.append(record)
                has_tombstone = has_tombstone or not record.has_value
        if not kept:
            return self._keep_empty(header)
        self.stats.records_written += len(kept)
        needs_horizon = has_tombstone and horizon is None
        if len(kept) == header.record_count and not needs_horizon:
            return _whole(buffer, position, header)
        return thinned_batch(header, data, kept, self._new_horizon_ms if needs_horizon else None)

    def _stays(self, record: RecordSlice, tombstones_stay: bool) -> bool:
        keys = self.keys
        if record.offset > keys.latest_offset:
            return True
        if record.key is None:
            if record.offset < self.marks.first_offset:  # Later ones were counted with the keys.
                self.stats.records_without_key += 1
            return False
        return (record.has_value or tombstones_stay) and record.offset >= keys.get(record.key)

    @property
    def _new_horizon_ms(self) -> int:
        return self.now_ms + self.delete_retention_ms

    def _keep_empty(self, header: BatchHeader) -> Buffer | None:
        if self._is_last_of_producer(header) or header.next_offset == self.high_watermark:
            return emptied_batch(header)
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.last_records.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.epoch


def _whole(buffer: Buffer, position: int, header: BatchHeader) -> Buffer:
    return memoryview(buffer)[position : position + header.length]
