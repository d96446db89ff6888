"""Producer snapshots: Kafka's `.snapshot` file, and our `.batches` file beside it.

Kafka's format (`ProducerSnapshot.json`, version 1) keeps one batch per producer. After a restart
Kafka therefore refuses a retry of the fourth-last batch as out of order. INV-2 asks for the last
five across restarts, so a second file holds the others. Kafka's file also names open transactions
only. One that ended counts as undecided until its marker is below the high watermark (INV-7), so
our file lists these too, in rows of no producer: first the offset since which it has all markers.
Kafka ignores our file, and without it a snapshot is read as Kafka reads it. Both carry a CRC-32C: a
file torn by a loss of power is refused and an older one is used.
"""

from collections import defaultdict
from typing import NamedTuple

from oncelog.core.crc import crc32c
from oncelog.core.integers import Integers, integers
from oncelog.core.limits import SEQUENCE_MODULUS
from oncelog.storage.producer_state import CachedBatch, EndedTransactions, ProducerEntry

__all__ = ["BatchesFile", "format_batches", "format_snapshot", "parse_batches", "parse_snapshot"]

_PREFIX = integers(">hI")
_COUNT = integers(">i")
_ENTRY = integers(">qhiqiqiq")
_BATCH = integers(">qiiqqq")
_SNAPSHOT_VERSION = 1
_BATCHES_VERSION = 1
_NO_PRODUCER = -1


class BatchesFile(NamedTuple):
    """What our file holds."""

    batches: dict[int, list[CachedBatch]]
    """By producer id."""
    ended: EndedTransactions | None
    """None: an earlier version of Oncelog wrote it."""


def _format(version: int, parts: list[bytes]) -> bytes:
    body = _COUNT.pack(len(parts)) + b"".join(parts)
    return _PREFIX.pack(version, crc32c(body)) + body


def _body(data: bytes, version: int, entry: Integers) -> bytes | None:
    if len(data) < _PREFIX.size + _COUNT.size:
        return None
    found, crc = _PREFIX.unpack_from(data)
    body = data[_PREFIX.size :]
    if found != version or crc32c(body) != crc:
        return None
    entries = body[_COUNT.size :]
    return entries if len(entries) == _COUNT.unpack_from(body)[0] * entry.size else None


def format_snapshot(entries: list[ProducerEntry]) -> bytes:
    """Kafka's file."""
    parts = []
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        parts.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last.last_sequence if last else -1,
                last.last_offset if last else -1,
                last.last_offset - last.first_offset if last else 0,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        )
    return _format(_SNAPSHOT_VERSION, parts)


def parse_snapshot(data: bytes | None) -> list[ProducerEntry] | None:
    """Producers of Kafka's file, with at most one batch each.

    None when it is missing or damaged.
    """
    entries = _body(data, _SNAPSHOT_VERSION, _ENTRY) if data is not None else None
    if entries is None:
        return None
    producers = []
    for fields in _ENTRY.iter_unpack(entries):
        producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, txn = fields
        batches = []
        if offset >= 0:
            # Sequences wrap from 2^31 - 1 to 0 (DefaultRecordBatch.decrementSequence).
            first = (sequence - delta) % SEQUENCE_MODULUS if sequence >= 0 else sequence
            batches = [CachedBatch(first, sequence, offset - delta, offset, timestamp_ms)]
        producers.append(
            ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp_ms, txn, batches)
        )
    return producers


def format_batches(entries: list[ProducerEntry], ended: EndedTransactions) -> bytes:
    """Our file: the transactions that ended, and every cached batch, in order."""
    rows = [(ended.since, -1), *ended.markers.items()]
    parts = [_BATCH.pack(_NO_PRODUCER, -1, -1, first, last, -1) for first, last in rows]
    parts += [
        _BATCH.pack(entry.producer_id, *batch) for entry in entries for batch in entry.batches
    ]
    return _format(_BATCHES_VERSION, parts)


def parse_batches(data: bytes | None) -> BatchesFile | None:
    """Parse our file; None when it is missing or damaged."""
    batches = _body(data, _BATCHES_VERSION, _BATCH) if data is not None else None
    if batches is None:
        return None
    found = defaultdict(list)
    for producer_id, *fields in _BATCH.iter_unpack(batches):
        found[producer_id].append(CachedBatch(*fields))
    ended = None
    if rows := found.pop(_NO_PRODUCER, None):
        markers = {row.first_offset: row.last_offset for row in rows[1:]}
        ended = EndedTransactions(rows[0].first_offset, markers)
    return BatchesFile(dict(found), ended)
