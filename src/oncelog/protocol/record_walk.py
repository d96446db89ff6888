"""Checks each record of a batch, without decoding it to values.

It checks sizes and counts, offset deltas, timestamps and keys, as Kafka's `LogValidator` and
`DefaultRecord` do. It takes many times as long as an append (bench/records.py), so
`oncelog.storage.validation` does it only where records have to be parsed anyway.
"""

from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.limits import INT64_MAX
from oncelog.protocol.batch import BatchHeader
from oncelog.protocol.record import NO_TIMESTAMP, RECORD_SIZE_MIN
from oncelog.protocol.wire import read_varint, read_varlong

__all__ = ["EVERY_TIME", "Times", "Walked", "walk_records"]


class Times(NamedTuple):
    """The accepted timestamps, both inclusive, in milliseconds; -1 (none) is always accepted."""

    earliest_ms: int
    latest_ms: int


EVERY_TIME: Final = Times(-INT64_MAX - 1, INT64_MAX)


class Walked(NamedTuple):
    """The findings; the lists hold indexes of records within the batch."""

    max_timestamp_ms: int
    """The largest timestamp, -1 when no record has one."""
    keyless: list[int]
    untimely: list[int]
    misplaced: list[int]
    """Records whose offset delta is not their index."""


def walk_records(data: bytes, header: BatchHeader, times: Times = EVERY_TIME) -> Walked:
    """Check the decompressed records in `data`, which belong to `header`.

    Raises `ProtocolError` (invalid_record) where they cannot be parsed, or are not as many as in
    the header.
    """
    count, base_timestamp = header.record_count, header.base_timestamp
    if count * RECORD_SIZE_MIN > len(data):
        raise _invalid(f"{count} records in {len(data)} bytes")
    keyless, untimely, misplaced = list[int](), list[int](), list[int]()
    earliest_ms, latest_ms = times
    largest_ms = NO_TIMESTAMP
    index = end = 0
    try:
        for index in range(count):
            size, position = read_varint(data, end)
            end = position + size
            if size < 0 or end > len(data):
                raise _invalid(f"{size} bytes")
            delta, position = read_varlong(data, position + 1)
            timestamp_ms = base_timestamp + delta
            if timestamp_ms > largest_ms:
                largest_ms = timestamp_ms
            if not earliest_ms <= timestamp_ms <= latest_ms and timestamp_ms != NO_TIMESTAMP:
                untimely.append(index)
            offset_delta, position = read_varint(data, position)
            if offset_delta != index:
                misplaced.append(index)
            size, position = read_varint(data, position)
            if size < 0:
                keyless.append(index)
            else:
                position += size
            size, position = read_varint(data, position)
            if size > 0:
                position += size
            position = position + 1 if data[position] == 0 else _skip_headers(data, position)
            if position != end:
                raise _invalid("its fields do not end where it does")
    except (IndexError, ProtocolError) as error:
        why = error.message if isinstance(error, ProtocolError) else "it is cut"
        raise _invalid(f"record {index}: {why}") from error
    if end != len(data):
        raise _invalid(f"{len(data) - end} bytes after the last record")
    return Walked(largest_ms, keyless, untimely, misplaced)


def _skip_headers(data: bytes, position: int) -> int:
    count, position = read_varint(data, position)
    if not 0 <= count <= len(data) - position:
        raise _invalid(f"{count} headers")
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            raise _invalid("a header without a key")
        size, position = read_varint(data, position + size)
        position += max(size, 0)
    return position


def _invalid(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.invalid_record, message)
