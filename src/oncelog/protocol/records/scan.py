"""Scans an internal partition fast: it checks batches and slices records without decoding.

A coordinator reads its whole partition when it starts, mostly batches of one record that a later
one supersedes. So keys and values stay bytes: a record is the plain tuple of its offset, timestamp,
key and value. Such batches are read in runs, without a header object for each; all others, and
damaged ones, are read by `oncelog.protocol.batch` and `oncelog.protocol.record`.

It does not know what keys and values mean. It reads compacted logs as well: empty batches, gaps
between offsets, delete horizons.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.core.crc import crc32c
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import (
    CONTROL_MASK,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC,
    TRANSACTIONAL_MASK,
    BatchHeader,
    check_crc,
    read_header,
)
from oncelog.protocol.record import iter_records

__all__ = ["DamagedRecord", "Scanned", "ScannedRecord", "scan_batches"]

ScannedRecord = tuple[int, int, bytes | None, bytes | None]
"""(offset, timestamp in ms, key, value)"""

RUN_COUNT_MAX: Final = 256
"""Plain batches that one run has at most."""

_unpack_header = HEADER.unpack_from
_MORE: Final = 0x80
_BITS: Final = 0x7F
"""Of a varint's byte: its continuation bit, and its value."""


class DamagedRecord(ProtocolError):  # noqa: N818 - names what was found
    """A damaged record of an internal partition, at `offset`."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(ErrorCode.corrupt_message, f"the record at offset {offset}: {why}")
        self.offset = offset
        self.why = why


class Scanned(NamedTuple):
    """One batch, or several plain ones that follow each other."""

    header: BatchHeader | None
    """None for plain batches: no transaction, no markers."""
    records: list[ScannedRecord]
    next_offset: int
    """The first offset after them."""


def scan_batches(
    batches: bytes, next_offset: int, run_count_max: int = RUN_COUNT_MAX
) -> Iterator[Scanned]:
    """Yield what the batches hold, in the order of the log.

    Batches below `next_offset` are not expected; a run has at most `run_count_max` plain batches.
    Raises `DamagedRecord` for a wrong checksum or size, and for offsets that do not increase.
    """
    position = 0
    with memoryview(batches) as view:
        while position < len(batches):
            run, position, next_offset = _plain_run(
                batches, view, position, next_offset, run_count_max
            )
            if run:
                yield Scanned(None, run, next_offset)
                continue
            try:
                header = read_header(batches, position)
                if header.last_offset < next_offset:
                    raise ProtocolError(ErrorCode.corrupt_message, "offsets do not rise")
                if not check_crc(batches, position, header):
                    message = "the batch's checksum is wrong"
                    raise ProtocolError(ErrorCode.corrupt_message, message)
                records = [record[:4] for record in iter_records(batches, position, header)]
            except ProtocolError as error:
                raise DamagedRecord(next_offset, error.message) from error
            position += header.length
            next_offset = header.next_offset
            is_plain = not header.attributes & (TRANSACTIONAL_MASK | CONTROL_MASK)
            yield Scanned(None if is_plain else header, records, next_offset)


def _plain_run(
    batches: bytes, view: memoryview, position: int, next_offset: int, count_max: int
) -> tuple[list[ScannedRecord], int, int]:
    """Read a run of sound batches with one record and no attributes.

    Returns their records, the position after them and the next offset.
    """
    run: list[ScannedRecord] = []
    last_start = len(batches) - HEADER_SIZE
    while position <= last_start and len(run) < count_max:
        base_offset, size, _, magic, crc, attributes, delta, timestamp, *_, count = _unpack_header(
            batches, position
        )
        if attributes or delta or count != 1 or magic != MAGIC or base_offset < next_offset:
            break
        stop = position + LENGTH_PREFIX_SIZE + size
        if stop > len(batches) or crc32c(view[position + CRC_START : stop]) != crc:
            break
        record = _only_record(batches, position + HEADER_SIZE, stop, base_offset, timestamp)
        if record is None:
            break
        run.append(record)
        position, next_offset = stop, base_offset + 1
    return run, position, next_offset


def _only_record(
    batches: bytes, place: int, end: int, offset: int, timestamp: int
) -> ScannedRecord | None:
    """Cut out the only record of a plain batch, from `place` to `end`.

    None for damage, for record headers, and for a length of more than two bytes: then the caller
    uses the general reader. Lengths are read inline, which is faster than a call.
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
    return offset, timestamp, batches[key_place:key_end], value


def _longer(first: int, second: int) -> int:
    """A varint of two bytes. Raises `IndexError` for one of more."""
    if second >= _MORE:
        raise IndexError
    return first & _BITS | second << 7
