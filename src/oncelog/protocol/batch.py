"""The header of a record batch (format v2), read and patched in place.

A batch stays bytes from the socket to the disk and back (D4): this module reads the 61 bytes in
front of the records, checks the CRC-32C, and writes the fields that a leader assigns. It does not
parse records; `oncelog.protocol.record` does.

Layout (`DefaultRecordBatch.java`): base offset i64, length i32, partition leader epoch i32, magic
i8, CRC u32, attributes i16, last offset delta i32, base timestamp i64, max timestamp i64, producer
id i64, producer epoch i16, base sequence i32, record count i32. The CRC covers everything from the
attributes on, so offset and leader epoch may be patched freely.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.core.crc import crc32c
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.integers import integers
from oncelog.core.limits import SEQUENCE_MODULUS

HEADER_SIZE: Final = 61
"""Bytes in front of the records."""

LENGTH_PREFIX_SIZE: Final = 12
"""Base offset and length, which the length field itself does not count."""

CRC_START: Final = 21
"""The start of the bytes that the CRC covers, relative to the batch."""

MAGIC: Final = 2

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

HEADER: Final = integers(">qiibIhiqqqhii")

HEADER_TO_CRC: Final = integers(">qiibI")
HEADER_FROM_CRC: Final = integers(">hiqqqhii")
"""The header in two parts. The CRC ends the first; it covers the second and the records."""

HEADER_START: Final = integers(">qii")
"""Base offset, length and leader epoch. A leader writes these; the CRC covers none of them."""

_INT64: Final = integers(">q")
_INT32: Final = integers(">i")
_UINT32: Final = integers(">I")
_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
_CRC_POSITION: Final = 17
_ATTRIBUTES_POSITION: Final = 21
_MAX_TIMESTAMP_POSITION: Final = 35
_PRODUCER_POSITION: Final = 43
_PRODUCER: Final = integers(">qhi")
_INT16: Final = integers(">h")

_unpack_header = HEADER.unpack_from
_new = tuple.__new__

Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview


class BatchHeader(NamedTuple):
    """The header of a record batch. Timestamps are milliseconds since the epoch."""

    base_offset: int
    length: int
    """Bytes of the whole batch; unlike the field on the wire it counts the first 12 too."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """Offset of the last record as the batch was produced (compaction keeps it)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec_id(self) -> int:
        """Compression codec, 0 for none; 5 to 7 are not assigned."""
        return self.attributes & CODEC_MASK

    @property
    def codec(self) -> str:
        """Name of the compression codec.

        Raises `ProtocolError` (unsupported_compression_type) for an unassigned one.
        """
        codec_id = self.attributes & CODEC_MASK
        if codec_id >= len(CODEC_NAMES):
            raise ProtocolError(
                ErrorCode.unsupported_compression_type, f"compression codec {codec_id}"
            )
        return CODEC_NAMES[codec_id]

    @property
    def is_transactional(self) -> bool:
        """Whether the records belong to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Whether it is a control batch, an end-of-transaction marker for example."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent producer or a coordinator wrote it."""
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped at 2^31 (INV-2); -1 when the batch has none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position` and check that the whole batch is within the buffer.

    Raises `ProtocolError`: corrupt_message when the batch is cut or its sizes are impossible,
    unsupported_for_message_format for a magic other than 2. The CRC is not checked.
    """
    available = len(buffer) - position
    if available < HEADER_SIZE:
        raise _too_short(buffer, position, available)
    fields = _unpack_header(buffer, position)
    length = fields[1] + LENGTH_PREFIX_SIZE
    if (
        fields[3] != MAGIC
        or not HEADER_SIZE <= length <= available
        or fields[6] < 0
        or fields[12] < 0
    ):
        raise _bad_header(fields, available)
    return _new(BatchHeader, (fields[0], length, *fields[2:]))


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch's CRC-32C equals the one in its header."""
    covered = memoryview(buffer)[position + CRC_START : position + header.length]
    return crc32c(covered) == header.crc


def iter_headers(
    buffer: Buffer, position: int = 0, *, allow_partial: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch in the buffer, which must hold whole batches only.

    With `allow_partial` a cut batch at the end is left out silently: a broker may cut the last
    batch of a fetch response. Raises as `read_header`.
    """
    end = len(buffer)
    while position < end:
        if allow_partial and _is_partial(buffer, position, end):
            return
        header = read_header(buffer, position)
        yield position, header
        position += header.length


def set_log_append_time(
    buffer: WritableBuffer, position: int, header: BatchHeader, timestamp_ms: int
) -> None:
    """Set LogAppendTime and the timestamp `timestamp_ms` in the header, and renew the CRC.

    The records keep their deltas: readers use the max timestamp for every record of such a batch.
    """
    attributes = header.attributes | TIMESTAMP_TYPE_MASK
    _INT16.pack_into(buffer, position + _ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, timestamp_ms)
    renew_crc(buffer, position, header.length)


def set_max_timestamp(batch: WritableBuffer, timestamp_ms: int) -> None:
    """Correct the max timestamp of the only batch in the buffer, and renew its CRC."""
    _INT64.pack_into(batch, _MAX_TIMESTAMP_POSITION, timestamp_ms)
    renew_crc(batch, 0, len(batch))


def set_codec(header: bytearray, codec_id: int, length: int) -> None:
    """Write the codec and the whole batch's `length` into a header; the CRC is not updated."""
    attributes = _INT16.unpack_from(header, _ATTRIBUTES_POSITION)[0]
    _INT16.pack_into(header, _ATTRIBUTES_POSITION, attributes & ~CODEC_MASK | codec_id)
    _INT32.pack_into(header, _LENGTH_POSITION, length - LENGTH_PREFIX_SIZE)


def set_producer(
    buffer: WritableBuffer,
    position: int,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
) -> None:
    """Write producer id, epoch and sequence into a batch's header, and renew its CRC.

    An idempotent client calls it when it first sends the batch.
    """
    header = read_header(buffer, position)
    _PRODUCER.pack_into(
        buffer, position + _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence
    )
    attributes = header.attributes & ~TRANSACTIONAL_MASK
    if transactional:
        attributes |= TRANSACTIONAL_MASK
    _INT16.pack_into(buffer, position + _ATTRIBUTES_POSITION, attributes)
    renew_crc(buffer, position, header.length)


def renew_crc(buffer: WritableBuffer, position: int, length: int) -> None:
    """Compute the CRC of the batch of `length` bytes at `position` and write it into its header."""
    with memoryview(buffer) as view:
        crc = crc32c(view[position + CRC_START : position + length])
    _UINT32.pack_into(buffer, position + _CRC_POSITION, crc)


def next_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records after `sequence`, wrapped at 2^31 (INV-2)."""
    return (sequence + count) % SEQUENCE_MODULUS


def _is_partial(buffer: Buffer, position: int, end: int) -> bool:
    if end - position < LENGTH_PREFIX_SIZE:
        return True
    length: int = _INT32.unpack_from(buffer, position + 8)[0]
    return length >= 0 and position + LENGTH_PREFIX_SIZE + length > end


def _too_short(buffer: Buffer, position: int, available: int) -> ProtocolError:
    # Formats v0 and v1 are shorter than this header, and have the magic byte at the same
    # position.
    if available > _MAGIC_POSITION and buffer[position + _MAGIC_POSITION] < MAGIC:
        return _old_format(buffer[position + _MAGIC_POSITION])
    return ProtocolError(
        ErrorCode.corrupt_message, f"{available} bytes are too few for a batch header"
    )


def _bad_header(fields: tuple[int, ...], available: int) -> ProtocolError:
    magic = fields[3]
    if magic != MAGIC:
        if magic in (0, 1):
            return _old_format(magic)
        return ProtocolError(ErrorCode.corrupt_message, f"unknown batch magic {magic}")
    length = fields[1] + LENGTH_PREFIX_SIZE
    if not HEADER_SIZE <= length <= available:
        return ProtocolError(
            ErrorCode.corrupt_message,
            f"batch length {length} with {available} bytes at hand",
        )
    return ProtocolError(
        ErrorCode.corrupt_message,
        f"batch with last offset delta {fields[6]} and record count {fields[12]}",
    )


def _old_format(magic: int) -> ProtocolError:
    return ProtocolError(
        ErrorCode.unsupported_for_message_format,
        f"message format v{magic} is not supported, only v2",
    )
