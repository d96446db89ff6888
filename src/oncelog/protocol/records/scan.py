"""Reading an internal partition from end to end, fast: batches checked, records cut out unread.

A coordinator reads its whole partition when it starts, mostly batches of one record that a later
one supersedes. So nothing is decoded here: a record is its offset, timestamp, key and value, as a
plain tuple, and only batches of an unusual shape take the way of `oncelog.protocol.record`.

It must not know what keys and values mean. What compaction leaves is read as well: empty batches,
gaps between offsets, delete horizons.
"""

from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER_SIZE,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    read_header,
)
from oncelog.protocol.record import iter_records

__all__ = ["DamagedRecord", "ScannedRecord", "scan_batches"]

ScannedRecord = tuple[int, int, bytes | None, bytes | None]
"""(offset, timestamp in ms, key, value)"""

_UNUSUAL: Final = CODEC_MASK | TIMESTAMP_TYPE_MASK
_MORE: Final = 0x80
_BITS: Final = 0x7F
"""Of a varint's byte: that another one follows, and what it says itself."""


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
    position, end = 0, len(batches)
    view = memoryview(batches)
    try:
        while position < end:
            header = read_header(batches, position)
            stop = position + header.length
            last_offset = header.base_offset + header.last_offset_delta
            if last_offset < next_offset:
                raise ProtocolError(ErrorCode.corrupt_message, "offsets do not rise")
            if crc32c(view[position + CRC_START : stop]) != header.crc:
                raise ProtocolError(ErrorCode.corrupt_message, "the batch's checksum is wrong")
            records = None
            if header.record_count == 1 and not header.attributes & _UNUSUAL:
                records = _only_record(batches, position + HEADER_SIZE, stop, header)
            if records is None:
                records = [record[:4] for record in iter_records(batches, position, header)]
            next_offset = last_offset + 1
            position = stop
            yield header, records
    except ProtocolError as error:
        raise DamagedRecord(next_offset, error.message) from error


def _only_record(
    batches: bytes, place: int, end: int, header: BatchHeader
) -> list[ScannedRecord] | None:
    """Cut out the only record of a plain batch, from `place` to `end`.

    None, so that the careful way judges it, for damage, for headers, and for a length of more than
    two bytes. Lengths are read in place: a call costs more than the reading.
    """
    try:
        raw = batches[place]
        place += 1
        if raw >= _MORE:
            raw, place = _longer(raw, batches[place]), place + 1
        # Attributes, timestamp delta, offset delta: a byte each where the record is the first.
        if place + (raw >> 1) != end or batches[place + 1] or batches[place + 2]:
            return None
        raw = batches[place + 3]
        key_place = place + 4
        if raw >= _MORE:
            raw, key_place = _longer(raw, batches[key_place]), key_place + 1
        key_end = key_place + (raw >> 1)
        if raw & 1:
            return None
        raw = batches[key_end]
        place = key_end + 1
        if raw >= _MORE:
            raw, place = _longer(raw, batches[place]), place + 1
        value_end = place if raw & 1 else place + (raw >> 1)
        # One byte is left: the count of headers, none.
        if value_end + 1 != end or batches[value_end]:
            return None
    except IndexError:
        return None
    value = None if raw & 1 else batches[place:value_end]
    return [(header.base_offset, header.base_timestamp, batches[key_place:key_end], value)]


def _longer(first: int, second: int) -> int:
    """A varint of two bytes. Raises `IndexError` for one of more."""
    if second >= _MORE:
        raise IndexError
    return first & _BITS | second << 7
