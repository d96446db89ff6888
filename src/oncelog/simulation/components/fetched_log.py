"""A partition's log as a list of batches of which all is known, for `reader_records`.

Producers write with and without transactions. Compaction has left gaps and empty batches, some
batches are compressed, some are messages of old formats, and some are damaged.
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from oncelog.client.values import ConsumerRecord
from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import HEADER_SIZE, read_header, renew_crc, set_log_append_time
from oncelog.protocol.record import Record, build_batch, control_batch

__all__ = ["PLACE", "Answered", "FetchedLog", "LaidBatch", "LaidTransaction"]

PLACE: Final = TopicPartition("t", 3)
PRODUCERS: Final = (7, 8, 9)
_KEYS: Final = (None, b"a", b"b", b"c")
_BATCH_LENGTH = struct.Struct(">i")
_LENGTH_AT, _MAGIC_AT, _CRC_AT, _CODEC_AT, _LAST_DELTA_AT, _COUNT_AT = 8, 16, 17, 22, 23, 57


@dataclass(slots=True, eq=False)
class LaidTransaction:
    """A transaction; `first` and `marker` are offsets, `marker` -1 while it is open."""

    producer_id: int
    first: int = -1
    marker: int = -1
    is_commit: bool = False


@dataclass(slots=True, eq=False)
class LaidBatch:
    """A batch from offset `base` up to `end`, and what a reader can have of it."""

    base: int
    end: int
    payload: bytes
    records: list[ConsumerRecord] = field(default_factory=list)
    epoch: int = -1
    is_control: bool = False
    is_packed: bool = False
    is_old: bool = False
    transaction: LaidTransaction | None = None
    damage: str = ""
    """`crc`: the CRC does not fit; `shape`: it cannot be taken for a batch; `marker`: it does not
    tell what it ends; `record`: no record follows those that `records` has."""

    def is_for(self, is_committed: bool) -> bool:
        """Whether readers of that isolation level have its records."""
        is_refused = is_committed and self.transaction and not self.transaction.is_commit
        return not self.is_control and not is_refused


@dataclass(slots=True)
class Answered:
    """What a broker answers to a fetch, and the whole batches in it."""

    buffer: bytes
    aborted: list[tuple[int, int]] | None
    """The first offset and the producer id of each; None where they were not asked for."""
    batches: Sequence[LaidBatch]


class FetchedLog:
    """The log, which grows."""

    def __init__(self, rng: random.Random, *, is_sound: bool) -> None:
        self.batches: list[LaidBatch] = []
        self.end = rng.choice((0, 0, 5))
        self._rng = rng
        self._is_sound = is_sound
        self._is_old = rng.random() < 0.2
        self._epoch = 0
        self._open: dict[int, LaidTransaction] = {}
        self._ended: list[LaidTransaction] = []
        self._serial = 0

    def stable_end(self, is_committed: bool) -> int:
        """Up to which offset a reader of that isolation level may have the log."""
        begun = [each.first for each in self._open.values()] if is_committed else []
        return min(begun, default=self.end)

    def grow(self) -> None:
        """Something is written, or a leader begins, or compaction takes something away."""
        rng = self._rng
        chance = rng.random()
        if chance < 0.08:
            self._epoch += rng.choice((1, 3))
        elif chance < 0.14:
            self.end += rng.choice((1, 4))
        elif chance < 0.2:
            self._add_control(rng.choice(PRODUCERS))
        elif chance < 0.26 and self._is_old:
            self._add_old()
        elif chance < 0.4:
            self._add(None, rng.choice((-1, *PRODUCERS)))
        elif chance < 0.6 and self._open:
            self._finish(self._open.pop(rng.choice(sorted(self._open))))
        else:
            producer_id = rng.choice(PRODUCERS)
            transaction = self._open.get(producer_id) or LaidTransaction(producer_id, self.end)
            self._open[producer_id] = transaction
            if rng.random() < 0.1:
                self.end += 2  # Compaction took these records.
            else:
                self._add(transaction, producer_id)

    def answer(self, position: int, is_committed: bool) -> Answered:
        """What a broker may answer: whole batches, a piece of one, or nothing."""
        rng = self._rng
        limit = self.stable_end(is_committed)
        after = [each for each in self.batches if position < each.end and each.base < limit]
        count = min(len(after), rng.choice((0, 1, 1, 2, 3, 8)))
        before = [each for each in self.batches if each.end <= position and not each.damage]
        given = after[:count]
        if rng.random() < 0.15:
            given = before[-rng.choice((1, 3)) :] + given
        buffer = b"".join(each.payload for each in given)
        if count < len(after) and not after[count].damage and rng.random() < 0.5:
            following = after[count].payload
            buffer += following[: rng.randrange(len(following))]
        aborted = None
        if is_committed:
            told_to = limit if rng.random() < 0.5 else max((each.end for each in given), default=0)
            aborted = [
                (each.first, each.producer_id)
                for each in self._ended
                if not each.is_commit and position <= each.marker and each.first < told_to
            ]
            rng.shuffle(aborted)
        return Answered(buffer, aborted, given)

    # --- batches

    def _lay(self, batch: LaidBatch) -> None:
        self.end = batch.end
        self.batches.append(batch)

    def _records(self, count: int) -> list[Record]:
        rng = self._rng
        records = []
        for index in range(count):
            self._serial += 1
            value = None if rng.random() < 0.1 else b"%d" % self._serial
            headers = (("h", b"1"), ("i", None)) if rng.random() < 0.2 else ()
            at_ms = 1_000 + rng.randrange(50)
            key = rng.choice(_KEYS)
            records.append(Record(self.end + index, at_ms, key, value, headers))
        return records

    def _add(self, transaction: LaidTransaction | None, producer_id: int) -> None:
        """A batch as a producer wrote it, or what compaction left of it."""
        rng = self._rng
        base, count = self.end, rng.choice((1, 2, 3, 5))
        records = self._records(count)
        if rng.random() < 0.25:
            records = [records[0], *(each for each in records[1:] if rng.random() < 0.5)]
        codec = "gzip" if rng.random() < 0.15 else "none"
        payload = self._built(records, base, codec, transaction, producer_id)
        _BATCH_LENGTH.pack_into(payload, _LAST_DELTA_AT, count - 1)
        renew_crc(payload, 0, len(payload))
        stamped_ms = -1
        if rng.random() < 0.2:
            stamped_ms = 5_000 + base
            set_log_append_time(payload, 0, read_header(payload), stamped_ms)
        if rng.random() < 0.08:
            records, payload, codec = [], _emptied(payload), "none"
        batch = LaidBatch(
            base,
            base + count,
            bytes(payload),
            [_read(each, self._epoch, stamped_ms) for each in records],
            self._epoch,
            is_packed=codec != "none",
            transaction=transaction,
        )
        self._lay(self._perhaps_damaged(batch, records, codec))

    def _built(
        self,
        records: Sequence[Record],
        base: int,
        codec: str,
        transaction: LaidTransaction | None,
        producer_id: int,
    ) -> bytearray:
        return build_batch(
            records,
            base_offset=base,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=transaction is not None,
            codec=codec,
            leader_epoch=self._epoch,
            keep_offsets=True,
        )

    def _finish(self, transaction: LaidTransaction) -> None:
        """Write the marker that ends a transaction."""
        rng = self._rng
        transaction.is_commit = rng.random() < 0.5
        transaction.marker = self.end
        self._ended.append(transaction)
        marker = control_batch(
            transaction.is_commit,
            transaction.producer_id,
            0,
            4,
            1_000,
            base_offset=self.end,
            leader_epoch=self._epoch,
        )
        batch = LaidBatch(
            self.end, self.end + 1, bytes(marker), [], self._epoch, True, transaction=transaction
        )
        if not self._is_sound and rng.random() < 0.06:
            batch.payload = self._control(b"\0", b"", transaction.producer_id)
            batch.damage = "marker"
        self._lay(self._perhaps_damaged(batch, [], "none"))

    def _add_control(self, producer_id: int) -> None:
        """A control batch that ends nothing: of another type, or emptied by compaction."""
        is_empty = self._rng.random() < 0.5 and producer_id not in self._open
        payload = self._control(b"\0\0\0\2", b"\0\0\0\0\0\0", producer_id)
        if is_empty:
            payload = bytes(_emptied(bytearray(payload)))
        self._lay(LaidBatch(self.end, self.end + 1, payload, [], self._epoch, True))

    def _control(self, key: bytes, value: bytes, producer_id: int) -> bytes:
        batch = build_batch(
            [Record(self.end, 1_000, key, value)],
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
            leader_epoch=self._epoch,
        )
        return bytes(batch)

    def _add_old(self) -> None:
        """A message of format v0 or v1, or a compressed set of some."""
        rng = self._rng
        magic, count = rng.choice((0, 1)), rng.choice((1, 1, 3))
        records = [_without_headers(each) for each in self._records(count)]
        if not magic:
            records = [each._replace(timestamp=-1) for each in records]
        first = records[0].offset if magic and count > 1 else 0
        parts = [_message(each.offset - first, magic, 0, each) for each in records]
        payload = b"".join(parts)
        if count > 1:
            packed = gzip.compress(payload, mtime=0)
            outer = Record(0, max(each.timestamp for each in records), None, packed)
            payload = _message(records[-1].offset, magic, 1, outer)
        batch = LaidBatch(self.end, self.end + count, payload, is_old=True)
        batch.records = [_read(each, -1, -1) for each in records]
        if not self._is_sound and rng.random() < 0.1:
            batch.payload = payload[:-1] + bytes((payload[-1] ^ 1,))
            batch.damage = "shape"
        self._lay(batch)

    # --- damage

    def _perhaps_damaged(
        self, batch: LaidBatch, records: Sequence[Record], codec: str
    ) -> LaidBatch:
        rng = self._rng
        if self._is_sound or batch.damage or rng.random() > 0.08:
            return batch
        payload = bytearray(batch.payload)
        batch.damage = rng.choice(("crc", "shape", "record") if records else ("crc", "shape"))
        if batch.damage == "crc":
            payload[_CRC_AT] ^= 1
        elif batch.damage == "shape":
            if rng.random() < 0.5:
                payload[_MAGIC_AT] = 9
            else:
                _BATCH_LENGTH.pack_into(payload, _LENGTH_AT, 20)
        elif codec != "none":
            payload[HEADER_SIZE:] = bytes(len(payload) - HEADER_SIZE)
            batch.records = []
            renew_crc(payload, 0, len(payload))
        else:
            sound = rng.randrange(len(records))
            before = records[:sound]
            start = HEADER_SIZE
            if before:
                start = len(build_batch(before, base_offset=batch.base, keep_offsets=True))
            payload[start] = 1  # A record of -1 bytes.
            batch.records = batch.records[:sound]
            renew_crc(payload, 0, len(payload))
        return replace(batch, payload=bytes(payload))


def _without_headers(record: Record) -> Record:
    """The record without headers, which old formats do not have."""
    return record._replace(headers=())


def _read(record: Record, epoch: int, stamped_ms: int) -> ConsumerRecord:
    is_stamped = stamped_ms >= 0
    return ConsumerRecord(
        PLACE.topic,
        PLACE.partition,
        record.offset,
        stamped_ms if is_stamped else record.timestamp,
        int(is_stamped),
        record.key,
        record.value,
        tuple(record.headers),
        epoch,
    )


def _emptied(batch: bytearray) -> bytearray:
    """What compaction leaves of a batch whose records are all gone; it names no codec."""
    del batch[HEADER_SIZE:]
    batch[_CODEC_AT] &= ~7
    _BATCH_LENGTH.pack_into(batch, _LENGTH_AT, HEADER_SIZE - 12)
    _BATCH_LENGTH.pack_into(batch, _COUNT_AT, 0)
    renew_crc(batch, 0, len(batch))
    return batch


def _message(offset: int, magic: int, attributes: int, record: Record) -> bytes:
    """One message of an old format (`LegacyRecord.java`)."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", record.timestamp)
    for part in (record.key, record.value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
