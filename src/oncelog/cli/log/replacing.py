"""Makes the batches that replace a damaged range of a log.

These are one empty batch for its offsets, and a marker for each transaction that ended within the
range, as a sound `.txnindex` proves. Without it the producer's next marker would end that
transaction too: read_committed readers would see aborted records, or miss committed ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncelog.protocol.batch import HEADER, HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC, renew_crc
from oncelog.protocol.record import control_batch
from oncelog.storage.aborted import AbortedTxn
from oncelog.storage.producer_state import ProducerEntry

__all__ = ["empty_batch", "fill", "lost_ends"]


def empty_batch(first_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """A batch without records that takes the offsets from the first to the last."""
    length = HEADER_SIZE - LENGTH_PREFIX_SIZE
    delta = last_offset - first_offset
    no_producer = (-1, -1, -1)
    header = (first_offset, length, leader_epoch, MAGIC, 0, 0, delta, -1, -1, *no_producer, 0)
    batch = bytearray(HEADER.pack(*header))
    renew_crc(batch, 0, HEADER_SIZE)
    return bytes(batch)


def lost_ends(
    open_before: Mapping[int, ProducerEntry],
    aborted: Sequence[AbortedTxn],
    first_offset: int,
    last_offset: int,
) -> dict[int, tuple[ProducerEntry, bool]]:
    """Offset -> (producer, whether it committed) of the markers that must have stood there.

    `aborted`: all that the index files of the partition know, by rising marker. An abort in the
    range is named there. A transaction that is older than the producer's next aborted one ended
    too, and as that is not named as aborted, it committed; its marker may have stood anywhere, so
    it takes the last offset that is free.
    """
    ends: dict[int, tuple[ProducerEntry, bool]] = {}
    for entry in aborted:
        producer = open_before.get(entry.producer_id)
        if producer is not None and first_offset <= entry.last_offset <= last_offset:
            ends[entry.last_offset] = (producer, False)
    ended = {producer.producer_id for producer, _ in ends.values()}
    free = last_offset
    for producer_id in sorted(open_before.keys() - ended):
        following = next(
            (e for e in aborted if e.producer_id == producer_id and e.last_offset > last_offset),
            None,
        )
        while free in ends:
            free -= 1
        if following is not None and following.first_offset >= first_offset <= free:
            ends[free] = (open_before[producer_id], True)
    return ends


def fill(
    first_offset: int,
    last_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    ends: Mapping[int, tuple[ProducerEntry, bool]],
) -> bytes:
    """The bytes that take the offsets from the first to the last: these markers, else nothing."""
    parts = []
    cursor = first_offset
    for offset, (producer, committed) in sorted(ends.items()):
        if offset > cursor:
            parts.append(empty_batch(cursor, offset - 1, leader_epoch))
        marker = control_batch(
            committed,
            producer.producer_id,
            producer.epoch,
            max(producer.coordinator_epoch, 0),
            timestamp_ms,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
        parts.append(bytes(marker))
        cursor = offset + 1
    if cursor <= last_offset:
        parts.append(empty_batch(cursor, last_offset, leader_epoch))
    return b"".join(parts)
