"""Record batches for Produce: good ones, and all the ways in which one can be wrong."""

from __future__ import annotations

import gzip
import random
import struct
import time
from collections.abc import Callable
from functools import cache

import cramjam

from oncelog.core.crc import crc32c
from oncelog.protocol.batch import CODEC_NAMES, CRC_START, HEADER, HEADER_SIZE
from oncelog.protocol.compression import compress
from oncelog.protocol.record import Record, build_batch
from oncelog.protocol.wire import varint
from tests.support.old_formats import later_batch, message_set

CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
BOMB_BYTES = 8 * 1024 * 1024
"""What the small bombs unpack to; the large ones are in `bombs`."""

_LENGTH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _COUNT_AT = 8, 16, 17, 21, 57
_BASE_TIMESTAMP_AT = 27

_HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (),
    (("h", b"1"), ("h", None)),
    (("\udcff\udc80 no text", b""),),
)

Producer = tuple[int, int]
"""Its id and epoch, (-1, -1) for none."""


def good(r: random.Random, producer: Producer) -> bytes:
    """A batch that a broker takes (unless its producer is fenced or out of sequence)."""
    now_ms = time.time_ns() // 1_000_000
    records = [
        Record(
            index,
            now_ms + index,
            r.choice((None, b"k", b"key")),
            r.choice((None, b"value")),
            r.choice(_HEADERS),
        )
        for index in range(r.choice((1, 1, 2, 7)))
    ]
    producer_id, epoch = producer
    sequence, transactional = -1, False
    if producer_id >= 0:
        sequence = r.choice((0, 0, 0, 1, 2, 5, 2**31 - 1))
        transactional = r.random() < 0.6
    return bytes(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
            codec=r.choice(CODECS),
        )
    )


def bad(r: random.Random, producer: Producer) -> bytes:
    """A batch with something wrong; often with a CRC that is right all the same."""
    batch = bytearray(good(r, producer))
    r.choice(_FAULTS)(r, batch)
    return bytes(batch)


def with_crc(batch: bytearray) -> bytearray:
    """Make the CRC right, so that what is wrong gets past it."""
    struct.pack_into(">I", batch, _CRC_AT, crc32c(batch[CRC_START:]))
    return batch


def around(records: bytes, codec_id: int, record_count: int) -> bytes:
    """A batch with a right header and CRC around any bytes."""
    now_ms = time.time_ns() // 1_000_000
    batch = bytearray(HEADER_SIZE) + records
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - 12,
        -1,
        2,
        0,
        codec_id,
        record_count - 1,
        now_ms,
        now_ms,
        -1,
        -1,
        -1,
        record_count,
    )
    return bytes(with_crc(batch))


@cache
def bombs(size_bytes: int = BOMB_BYTES) -> tuple[bytes, ...]:
    """Batches of a few KB that unpack to `size_bytes`: zeros, which are records of no size, and the
    smallest valid records.
    """
    smallest = b"\x0c\0\0\0\1\1\0"
    zeros = bytes(size_bytes)
    many = smallest * (size_bytes // len(smallest))
    made = []
    for data, count in ((zeros, 1), (zeros, size_bytes // 7), (many, size_bytes // len(smallest))):
        packed = (
            gzip.compress(data, 1),
            bytes(cramjam.snappy.compress_raw(data)),
            compress("lz4", data),
            bytes(cramjam.zstd.compress(data)),
        )
        made += [around(body, codec, count) for codec, body in enumerate(packed, 1)]
    return tuple(batch for batch in made if len(batch) < 1024 * 1024)


def _wrong_crc(r: random.Random, batch: bytearray) -> None:
    batch[r.randrange(_CRC_AT, len(batch))] ^= 1 << r.randrange(8)


def _wrong_length(r: random.Random, batch: bytearray) -> None:
    length = len(batch) - 12
    wrong = r.choice((0, -1, -(2**31), 2**31 - 1, length - 1, length + 1, 48, 49, 50, 12))
    struct.pack_into(">i", batch, _LENGTH_AT, wrong)


def _wrong_magic(r: random.Random, batch: bytearray) -> None:
    batch[_MAGIC_AT] = r.choice((0, 1, 3, 127, 255))


def _wrong_count(r: random.Random, batch: bytearray) -> None:
    count = r.choice((0, -1, -(2**31), 2**31 - 1, 2**31 - 2, 1_000_000, 2))
    struct.pack_into(">i", batch, _COUNT_AT, count)
    if r.random() < 0.7:
        struct.pack_into(">i", batch, _ATTRIBUTES_AT + 2, max(count - 1, -(2**31)))
    with_crc(batch)


def _wrong_field(r: random.Random, batch: bytearray) -> None:
    """Any field of the header, with a right CRC."""
    position = r.randrange(_ATTRIBUTES_AT, HEADER_SIZE)
    batch[position] = r.choice((0, 1, 0x7F, 0x80, 0xFF))
    with_crc(batch)


def _wrong_attributes(r: random.Random, batch: bytearray) -> None:
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, r.randrange(-(2**15), 2**15))
    with_crc(batch)


def _wrong_records(r: random.Random, batch: bytearray) -> None:
    if len(batch) > HEADER_SIZE:
        batch[r.randrange(HEADER_SIZE, len(batch))] = r.randrange(256)
    with_crc(batch)


def _cut(r: random.Random, batch: bytearray) -> None:
    del batch[r.randrange(len(batch)) :]


def _garbage(r: random.Random, batch: bytearray) -> None:
    batch[:] = r.randbytes(r.choice((1, 12, 60, 61, 62, 200)))


def _two(r: random.Random, batch: bytearray) -> None:
    batch += bytes(batch) if r.random() < 0.5 else r.randbytes(30)


def _more_frames(r: random.Random, batch: bytearray) -> None:
    """Something behind the first frame of a codec: another one, a part of it, or garbage."""
    codec = r.choice(CODECS[2:])
    record = b"\x0c\0\0\0\1\1\0"
    frame = compress(codec, record * r.choice((0, 1, 3)))
    more = r.choice((frame, frame[: r.randrange(len(frame))], r.randbytes(r.choice((1, 5, 40)))))
    skippable = bytes.fromhex("502a4d18") + b"\3\0\0\0abc"
    body = r.choice((b"", b"", skippable)) + frame + more * r.choice((1, 2))
    batch[:] = around(body, CODEC_NAMES.index(codec), r.choice((1, 3, 4, 6)))


def _old_format(r: random.Random, batch: bytearray) -> None:
    """A message set from before Kafka 0.11, sound or with a byte changed, alone or behind v2."""
    old = message_set(r.choice((0, 1)), r.choice((0, 7)), r.choice((1, 3)), r.choice(CODECS[1:5]))
    if r.random() < 0.5:
        old[r.randrange(len(old))] ^= 1 << r.randrange(8)
    batch[:] = r.choice((old, bytes(batch) + old, old + bytes(batch)))


def _later_format(r: random.Random, batch: bytearray) -> None:
    later = later_batch(r.choice((0, 5)), r.choice((1, 3)), crc_of_v2=r.random() < 0.5)
    batch[:] = r.choice((later, bytes(batch) + later, later * 2))


def _codec_garbage(r: random.Random, batch: bytearray) -> None:
    batch[:] = around(r.randbytes(r.choice((0, 1, 5, 80))), r.randrange(8), r.choice((1, 3)))


def _bomb(r: random.Random, batch: bytearray) -> None:
    # Large ones are rare: each costs the broker what a million small frames cost.
    batch[:] = r.choice(bombs()) if r.random() < 0.002 else r.choice(bombs(16 * 1024))


def _lying_times(r: random.Random, batch: bytearray) -> None:
    """Timestamps in the header that are not those of the records."""
    now_ms = time.time_ns() // 1_000_000
    for position in (_BASE_TIMESTAMP_AT, _BASE_TIMESTAMP_AT + 8):
        if r.random() < 0.7:
            value = r.choice((-1, 0, -2, now_ms, now_ms + 10**7, -(2**63), 2**63 - 1))
            struct.pack_into(">q", batch, position, value)
    with_crc(batch)


def _lying_records(r: random.Random, batch: bytearray) -> None:
    """Records with deltas and lengths of their own, under any codec and with about their count."""
    numbers = (0, 0, 0, 1, 2, -1, 63, 64, 2**31 - 1, -(2**31), 2**62, -(2**63), 2**63 - 1)
    body = bytearray()
    count = r.choice((1, 2, 3, 9))
    for index in range(count):
        record = b"\0" + varint(r.choice(numbers)) + varint(r.choice((index, r.choice(numbers))))
        for field in (b"k", b"value"):
            size = r.choice((-1, len(field), len(field), r.choice(numbers)))
            record += varint(size) + (field if size >= 0 else b"")
        record += r.choice((b"\0", b"\0", b"\0", b"\2\2h\1", varint(r.choice(numbers))))
        body += varint(len(record) + r.choice((0, 0, 0, 0, 1, -1))) + record
    codec = r.choice(CODECS)
    packed = body if codec == "none" else compress(codec, body)
    number = CODEC_NAMES.index(codec)
    batch[:] = around(bytes(packed), number, max(1, count + r.choice((0, 0, 0, 1, -1))))


_FAULTS: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _wrong_crc,
    _wrong_length,
    _wrong_magic,
    _wrong_count,
    _wrong_field,
    _wrong_attributes,
    _wrong_records,
    _cut,
    _garbage,
    _two,
    _more_frames,
    _old_format,
    _later_format,
    _codec_garbage,
    _bomb,
    _lying_times,
    _lying_records,
)
