"""Reading an internal partition from end to end, fast: batches checked, records cut out unread.

A coordinator reads its whole partition when it starts, mostly batches of one record that a later
one supersedes. So nothing is decoded here: a record is its offset, timestamp, key and value, as a
plain tuple, and only batches of an unusual shape take the way of `oncelog.protocol.record`.

It must not know what keys and values mean. What compaction leaves is read as well: empty batches,
gaps between offsets, delete horizons.
"""

from collections.abc import Iterator
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Final

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    check_crc,
    iter_headers,
)
from oncelog.protocol.record import iter_records
from oncelog.protocol.wire import read_varint

__all__ = ["DamagedRecord", "ScannedRecord", "scan_batches"]

ScannedRecord = tuple[int, int, bytes | None, bytes | None]
"""(offset, timestamp in ms, key, value)"""

_UNUSUAL: Final = CODEC_MASK | TIMESTAMP_TYPE_MASK
_ONE_BYTE: Final = 0x80
"""A varint below it takes one byte."""


class DamagedRecord(ProtocolError):  # noqa: N818 - names what was found
    """Bytes of an internal partition that cannot be understood, from `offset` on."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(ErrorCode.corrupt_message, f"the record at offset {offset}: {why}")
        self.offset = offset
        self.why = why


def scan_batches(
    batches: bytes, next_offset: int
) -> Iterator[tuple[BatchHeader, list[ScannedRecord]]]:
    """Yield each batch's header and records, in the order of the log.

    `next_offset` is the first offset that is still to come. Raises `DamagedRecord` for a checksum
    or a size that is wrong, and for offsets that do not rise.
    """
    try:
        for position, header in iter_headers(batches):
            if header.base_offset + header.last_offset_delta < next_offset:
                raise ProtocolError(ErrorCode.corrupt_message, "offsets do not rise")
            if not check_crc(batches, position, header):
                raise ProtocolError(ErrorCode.corrupt_message, "the batch's checksum is wrong")
            records = _only_record(batches, position, header)
            if records is None:
                records = [record[:4] for record in iter_records(batches, position, header)]
            next_offset = header.base_offset + header.last_offset_delta + 1
            yield header, records
    except ProtocolError as error:
        raise DamagedRecord(next_offset, error.message) from error


def _only_record(batches: bytes, position: int, header: BatchHeader) -> list[ScannedRecord] | None:
    """Cut out the record of a plain batch of one. None for any other batch, and for damage."""
    if header.record_count != 1 or header.attributes & _UNUSUAL:
        return None
    end = position + header.length
    try:
        size, place = read_varint(batches, position + HEADER_SIZE)
        # Attributes, timestamp delta, offset delta: a byte each where the record is the first.
        if place + size != end or batches[place + 1] or batches[place + 2]:
            return None
        key_size, place = read_varint(batches, place + 3)
        value_place = place + key_size
        value_size, start = read_varint(batches, value_place)
        stop = start + value_size if value_size >= 0 else start
        # One byte is left: the count of headers, none.
        if key_size < 0 or stop + 1 != end or batches[stop]:
            return None
    except (IndexError, StructError, ProtocolError):
        return None
    value = batches[start:stop] if value_size >= 0 else None
    return [(header.base_offset, header.base_timestamp, batches[place:value_place], value)]
