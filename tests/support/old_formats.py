"""Message sets of the formats that Kafka wrote before 0.11, and batches of one that is unknown.

kafka-python wrote them, which knows nothing of ours.
"""

import struct
import zlib
from typing import Final

from kafka.record.legacy_records import LegacyRecordBatchBuilder

from oncelog.core.crc import crc32c
from oncelog.protocol.compression import compress
from oncelog.protocol.record import Record, build_batch

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
LATER_MAGIC: Final = 3
TIME_MS: Final = 1_400_000_000_000
_LOG_APPEND_TIME: Final = 8
_ATTRIBUTES: Final = 17
_CRC: Final = slice(12, 16)


def fields(offset: int, magic: int) -> tuple[int, int, bytes | None, bytes | None]:
    """Offset, time, key and value of the record that a set has at `offset`."""
    key = None if offset % 4 == 3 else b"key %d" % offset
    value = None if offset % 5 == 4 else b"value %d" % offset
    return offset, TIME_MS + offset if magic else -1, key, value


def message_set(magic: int, first: int, count: int, codec: str = "none") -> bytearray:
    """Records of the offsets from `first` on, as a broker stores them; compressed: in a wrapper."""
    if (magic, codec) == (0, "lz4"):
        return _old_lz4_set(first, count)
    builder = LegacyRecordBatchBuilder(
        magic=magic, compression_type=CODECS[codec], batch_size=1 << 20
    )
    for index in range(count):
        offset, time_ms, key, value = fields(first + index, magic)
        # Of v1, inner offsets are relative to the first.
        inner = index if magic and codec != "none" else offset
        builder.append(inner, timestamp=time_ms if magic else None, key=key, value=value)
    built = bytearray(builder.build())
    if codec != "none":
        built[:8] = (first + count - 1).to_bytes(8, "big")
    return built


def _old_lz4_set(first: int, count: int) -> bytearray:
    """A wrapper as clients of v0 wrote it: the checksum of the frame's header was wrong."""
    frame = bytearray(compress("lz4", message_set(0, first, count)))
    frame[6] ^= 0xFF
    body = b"\0" + bytes((CODECS["lz4"],)) + struct.pack(">ii", -1, len(frame)) + frame
    head = struct.pack(">qiI", first + count - 1, 4 + len(body), zlib.crc32(body))
    return bytearray(head + body)


def stamped(wrapper: bytearray, time_ms: int) -> bytearray:
    """The message of v1 with LogAppendTime, as a broker marks it."""
    changed = bytearray(wrapper)
    changed[_ATTRIBUTES] |= _LOG_APPEND_TIME
    changed[18:26] = time_ms.to_bytes(8, "big")
    changed[_CRC] = zlib.crc32(changed[16:]).to_bytes(4, "big")
    return changed


def later_batch(first: int, count: int = 1, *, crc_of_v2: bool = False) -> bytearray:
    """A batch of a format to come: it begins as those of v2 do, and goes on otherwise."""
    batch = build_batch([Record(0, TIME_MS, b"k", b"v")] * count, base_offset=first)
    batch[16] = LATER_MAGIC
    if not crc_of_v2:
        batch[17:21] = (crc32c(batch[21:]) ^ 1).to_bytes(4, "big")
    return batch
