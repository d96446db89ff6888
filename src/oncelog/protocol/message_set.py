"""Reads messages of the formats v0 and v1, which Kafka wrote before 0.11.

A broker of today stores them as they are and sends them as they are. Oncelog's broker does not
serve them; the client converts each to a batch of v2 (`as_batch`), so that nothing else has to know
them.

Layout (`LegacyRecord.java`): offset i64, size i32, CRC-32 of what follows it, magic i8, attributes
i8, in v1 timestamp i64, key and value each with a length i32 (-1 for null). A compressed message's
value is a message set. Its own offset is the last inner one; inner offsets are absolute in v0, and
in v1 relative to the first.
"""

import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.integers import integers
from oncelog.core.limits import BATCH_DECOMPRESSED_BYTES_MAX, INT32_MAX
from oncelog.protocol import compression
from oncelog.protocol.batch import (
    CODEC_MASK,
    CODEC_NAMES,
    CREATE_TIME,
    LENGTH_PREFIX_SIZE,
    LOG_APPEND_TIME,
    TIMESTAMP_TYPE_MASK,
)
from oncelog.protocol.record import NO_TIMESTAMP, Record, build_batch

__all__ = ["MESSAGE_SIZE_MIN", "as_batch", "magic_at", "message_length", "sound_magic"]

MESSAGE_SIZE_MIN: Final = 26
"""The empty message of format v0, with its offset and size."""

Buffer = bytes | bytearray | memoryview

_INT64: Final = integers(">q")
_INT32: Final = integers(">i")
_UINT32: Final = integers(">I")
_SIZE_POSITION: Final = 8
_CRC_POSITION: Final = 12
_MAGIC_POSITION: Final = 16
_ATTRIBUTES_POSITION: Final = 17
_TIMESTAMP_POSITION: Final = 18
_KEY_POSITIONS: Final = (18, 26)
"""Of format v0 and v1."""
_ZSTD: Final = CODEC_NAMES.index("zstd")


class _Message(NamedTuple):
    """One message; `value` of a compressed one is a message set."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def magic_at(buffer: Buffer, position: int) -> int:
    """Return the format of the batch or message at `position`; -1 where the buffer ends before."""
    place = position + _MAGIC_POSITION
    return buffer[place] if place < len(buffer) else -1


def message_length(buffer: Buffer, position: int) -> int:
    """Return the bytes of the message, or the batch, at `position`, with offset and size."""
    return LENGTH_PREFIX_SIZE + _INT32.unpack_from(buffer, position + _SIZE_POSITION)[0]


def sound_magic(message: Buffer) -> int | None:
    """Return the format, 0 or 1, of a buffer that begins with a sound message.

    None if it does not: the message's own CRC decides, which covers the format.
    """
    if len(message) < MESSAGE_SIZE_MIN or message[_MAGIC_POSITION] > 1:
        return None
    length = message_length(message, 0)
    if not MESSAGE_SIZE_MIN <= length <= len(message) or not _check_crc(message, 0, length):
        return None
    return message[_MAGIC_POSITION]


def as_batch(
    buffer: Buffer, position: int, *, limit_bytes: int = BATCH_DECOMPRESSED_BYTES_MAX
) -> bytearray:
    """Return the message at `position`, or the messages in it, as an uncompressed batch of v2.

    Offsets, keys, values and timestamps stay; -1 is the timestamp of format v0. As in Kafka's
    clients the CRC of each message is checked. Raises `ProtocolError`: corrupt_message,
    message_too_large.
    """
    outer = _read(buffer, position)
    stamped = bool(outer.magic and outer.attributes & TIMESTAMP_TYPE_MASK)
    records = [
        Record(message.offset, message.timestamp, message.key, message.value)
        for message in _inner(outer, stamped, limit_bytes)
    ]
    offsets = [record.offset for record in records]
    if any(after <= before for before, after in pairwise(offsets)):
        raise _corrupt("offsets of a message set do not ascend")
    if offsets[-1] - offsets[0] > INT32_MAX:
        raise _corrupt(f"offsets {offsets[0]} to {offsets[-1]} in one message set")
    return build_batch(
        records,
        base_offset=offsets[0],
        timestamp_type=LOG_APPEND_TIME if stamped else CREATE_TIME,
        keep_offsets=True,
    )


def _inner(outer: _Message, stamped: bool, limit_bytes: int) -> list[_Message]:
    """Return the messages of a wrapper with their own offsets; a plain message is its only one."""
    codec_id = outer.attributes & CODEC_MASK
    if not codec_id:
        return [outer]
    if codec_id >= _ZSTD or outer.value is None:
        raise _corrupt(f"a message set with codec {codec_id}, or none in it")
    checks_header = outer.magic > 0
    codec = CODEC_NAMES[codec_id]
    data = compression.decompress(codec, outer.value, limit_bytes, check_lz4_header=checks_header)
    found = list(_messages(data, outer.magic))
    if not found:
        raise _corrupt("an empty message set")
    if outer.magic == 0:
        return found
    first = 0
    if outer.offset:  # Some versions of librdkafka left 0 there, and inner offsets from 0 on.
        first = outer.offset - found[-1].offset
        if first < 0:
            raise _corrupt(f"offset {outer.offset} of a message set is below those in it")
    return [
        message._replace(
            offset=first + message.offset,
            timestamp=outer.timestamp if stamped else message.timestamp,
        )
        for message in found
    ]


def _messages(data: bytes, magic: int) -> Iterator[_Message]:
    position = 0
    while position < len(data):
        message = _read(data, position)
        if message.magic != magic or message.attributes & CODEC_MASK:
            raise _corrupt("a message set holds a message of another format, or a compressed one")
        yield message
        position += message_length(data, position)


def _read(buffer: Buffer, position: int) -> _Message:
    if len(buffer) - position < MESSAGE_SIZE_MIN:
        raise _corrupt(f"{len(buffer) - position} bytes are too few for a message")
    length, magic = message_length(buffer, position), magic_at(buffer, position)
    if magic > 1 or not MESSAGE_SIZE_MIN <= length <= len(buffer) - position:
        raise _corrupt(f"a message of format v{magic} and {length} bytes")
    if not _check_crc(buffer, position, length):
        raise _corrupt("a message has another CRC than it says")
    end = position + length
    timestamp = NO_TIMESTAMP
    if magic and length >= MESSAGE_SIZE_MIN + _INT64.size:
        timestamp = _INT64.unpack_from(buffer, position + _TIMESTAMP_POSITION)[0]
    key, place = _read_bytes(buffer, position + _KEY_POSITIONS[magic], end)
    value, place = _read_bytes(buffer, place, end)
    offset = _INT64.unpack_from(buffer, position)[0]
    attributes = buffer[position + _ATTRIBUTES_POSITION]
    return _Message(offset, magic, attributes, timestamp, key, value)


def _read_bytes(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    if position + _INT32.size > end:
        raise _corrupt("a message ends within its fields")
    size = _INT32.unpack_from(buffer, position)[0]
    position += _INT32.size
    if size < 0:
        return None, position
    if position + size > end:
        raise _corrupt(f"a field of {size} bytes")
    return bytes(buffer[position : position + size]), position + size


def _check_crc(buffer: Buffer, position: int, length: int) -> bool:
    with memoryview(buffer) as view:
        covered = view[position + _MAGIC_POSITION : position + length]
        found = zlib.crc32(covered)
        covered.release()
    return found == _UINT32.unpack_from(buffer, position + _CRC_POSITION)[0]


def _corrupt(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.corrupt_message, message)
