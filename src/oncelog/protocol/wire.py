"""Primitive types of the wire: varints, strings, arrays and tagged fields.

They are functions of (buffer, position), for codecs written by hand. Every reader returns (value,
next position) and never reads past the buffer's end: it raises `ProtocolError` (invalid_request),
`IndexError` or `struct.error`, and the calling codec converts the latter two. No count read from
the wire is used to allocate memory.
"""

from functools import lru_cache
from typing import Final
from uuid import UUID

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.integers import integers
from oncelog.core.limits import STRING_BYTES_MAX, TAGGED_FIELDS_COUNT_MAX

INT8: Final = integers(">b")
INT16: Final = integers(">h")
INT32: Final = integers(">i")
INT64: Final = integers(">q")

Buffer = bytes | bytearray | memoryview

NO_UUID_BYTES: Final = bytes(16)

ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))
"""The unsigned varints of one byte, by value."""

_VARINT_BYTES_MAX: Final = 5
_VARLONG_BYTES_MAX: Final = 10


def malformed(message: str) -> ProtocolError:
    """Return the error for bytes that are not the expected message."""
    return ProtocolError(ErrorCode.invalid_request, message)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Unsigned varint of at most 32 bits."""
    value = buffer[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise malformed("varint longer than 5 bytes")


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Zigzag varint of at most 32 bits."""
    value = buffer[position]
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), position + 1
    more = buffer[position + 1]
    if more < 0x80:
        value = value & 0x7F | more << 7
        return (value >> 1) ^ -(value & 1), position + 2
    value, position = read_uvarint(buffer, position)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Zigzag varint of at most 64 bits."""
    value = buffer[position]
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), position + 1
    value = 0
    for shift in range(0, 7 * _VARLONG_BYTES_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise malformed("varlong longer than 10 bytes")


def uvarint(value: int) -> bytes:
    """Unsigned varint of a value that is not negative."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Zigzag varint; serves 32 and 64 bits alike."""
    return uvarint(value << 1 if value >= 0 else ((-value) << 1) - 1)


def text(buffer: Buffer, position: int, size: int) -> tuple[str, int]:
    """`size` bytes of UTF-8."""
    end = position + size
    if not 0 <= size <= STRING_BYTES_MAX or end > len(buffer):
        raise malformed(f"string of {size} bytes")
    return str(buffer[position:end], "utf-8"), end


def read_string(buffer: Buffer, position: int) -> tuple[str, int]:
    """A string with an int16 length that may not be null."""
    return text(buffer, position + 2, INT16.unpack_from(buffer, position)[0])


def read_nullable_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    """A string with an int16 length, -1 for null."""
    size = INT16.unpack_from(buffer, position)[0]
    if size == -1:
        return None, position + 2
    return text(buffer, position + 2, size)


def read_compact_string(buffer: Buffer, position: int) -> tuple[str, int]:
    """A string whose length plus one is an unsigned varint; not null."""
    size = buffer[position]
    if size < 0x80:
        position += 1
    else:
        size, position = read_uvarint(buffer, position)
    return text(buffer, position, size - 1)


def read_compact_nullable_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    """A string whose length plus one is an unsigned varint, 0 for null."""
    size = buffer[position]
    if size < 0x80:
        position += 1
    else:
        size, position = read_uvarint(buffer, position)
    if size == 0:
        return None, position
    return text(buffer, position, size - 1)


def read_array_count(buffer: Buffer, position: int) -> tuple[int, int]:
    """Count of an array that may not be null, checked against the bytes that are left.

    Every element takes at least one byte.
    """
    count = INT32.unpack_from(buffer, position)[0]
    position += 4
    if not 0 <= count <= len(buffer) - position:
        raise malformed(f"array of {count} elements in {len(buffer) - position} bytes")
    return count, position


def read_compact_array_count(buffer: Buffer, position: int) -> tuple[int, int]:
    """Like `read_array_count`, with the count plus one as an unsigned varint."""
    count = buffer[position]
    if count < 0x80:
        position += 1
    else:
        count, position = read_uvarint(buffer, position)
    if not 0 < count <= len(buffer) - position + 1:
        raise malformed(f"array of {count - 1} elements in {len(buffer) - position} bytes")
    return count - 1, position


def iter_tags(buffer: Buffer, position: int) -> list[tuple[int, int, int]]:
    """Return (tag, start, end) of each tagged field (KIP-482).

    The last item is (-1, end, end), where `end` is the position after all tagged fields. A list,
    as most messages have no tagged field or one: a generator would cost more than it.
    """
    if buffer[position] == 0:
        return [(-1, position + 1, position + 1)]
    count, position = read_uvarint(buffer, position)
    if count > TAGGED_FIELDS_COUNT_MAX:
        raise malformed(f"{count} tagged fields")
    found = []
    for _ in range(count):
        tag, size = buffer[position], buffer[position + 1]
        if tag < 0x80 and size < 0x80:
            position += 2
        else:
            tag, position = read_uvarint(buffer, position)
            size, position = read_uvarint(buffer, position)
        end = position + size
        if end > len(buffer):
            raise malformed(f"tagged field of {size} bytes")
        found.append((tag, position, end))
        position = end
    found.append((-1, position, position))
    return found


def skip_tags(buffer: Buffer, position: int) -> int:
    """The position after the tagged fields, none of which is known."""
    return position + 1 if buffer[position] == 0 else iter_tags(buffer, position)[-1][2]


def string(value: str | None) -> bytes:
    """A string with an int16 length; None becomes null."""
    if value is None:
        return b"\xff\xff"
    raw = value.encode()
    return INT16.pack(len(raw)) + raw


def compact_string(value: str | None) -> bytes:
    """A compact string; None becomes null."""
    if value is None:
        return b"\x00"
    raw = value.encode()
    return uvarint(len(raw) + 1) + raw


def tag(number: int, value: Buffer) -> bytes:
    """One tagged field. Kafka's numbers are small, and so are most values: one call for both."""
    size = len(value)
    head = bytes((number, size)) if number | size < 0x80 else uvarint(number) + uvarint(size)
    return head + value


@lru_cache(maxsize=10_000)
def uuid_of(raw: bytes) -> UUID | None:
    """The UUID of 16 bytes; None for the zero UUID.

    Cached: making a UUID costs more than reading a request.
    """
    return None if raw == NO_UUID_BYTES else UUID(bytes=raw)


def read_uuid(buffer: Buffer, position: int) -> tuple[UUID | None, int]:
    """A topic id; None when it is zero."""
    end = position + 16
    raw = bytes(buffer[position:end])
    if len(raw) != 16:
        raise malformed("cut uuid")
    return uuid_of(raw), end


def uuid_bytes(value: UUID | None) -> bytes:
    """16 bytes; zeros for None."""
    return NO_UUID_BYTES if value is None else value.bytes
