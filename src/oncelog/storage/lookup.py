"""Finds records by timestamp, for ListOffsets.

Only these reads parse the records of a batch, of a few batches per call. With `cached_only` they
raise `NotCached` rather than wait for the disk.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from oncelog.core.errors import ProtocolError
from oncelog.core.limits import (
    INT64_MAX,
    LOOKED_INTO_BATCHES_COUNT_MAX,
    LOOKED_INTO_BYTES_MAX,
    LOOKED_INTO_RECORDS_COUNT_MAX,
)
from oncelog.protocol.batch import LOG_APPEND_TIME, BatchHeader
from oncelog.protocol.record import iter_records
from oncelog.runtime.disk import NotCached
from oncelog.storage.segment import Segment

__all__ = ["TimestampOffset", "find_timestamp"]


class TimestampOffset(NamedTuple):
    """A record found by time; `leader_epoch` is the one in its batch's header."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def find_timestamp(
    segments: Iterable[Segment],
    timestamp_ms: int | None,
    start_offset: int,
    *,
    cached_only: bool = False,
) -> TimestampOffset | None:
    """Return the first record from `start_offset` on that is no older than `timestamp_ms`.

    With None the first record with the largest timestamp of all (KIP-734).
    """
    if timestamp_ms is None:
        return _newest(segments, start_offset, cached_only=cached_only)
    return _first_from(segments, timestamp_ms, start_offset, cached_only=cached_only)


def _first_from(
    segments: Iterable[Segment], timestamp_ms: int, start_offset: int, *, cached_only: bool = False
) -> TimestampOffset | None:
    """Return the first record from `start_offset` on with a timestamp at or after `timestamp_ms`.

    Headers decide which batches are opened. One whose records are all older than its header claims
    is skipped; after too many of these the first of them is the result.
    """
    passed_over: BatchHeader | None = None
    batches_left, records_left = LOOKED_INTO_BATCHES_COUNT_MAX, LOOKED_INTO_RECORDS_COUNT_MAX
    for segment in segments:
        if segment.max_timestamp_ms < timestamp_ms or segment.end_offset <= start_offset:
            continue
        for position, header in segment.find_timestamp(timestamp_ms, cached_only):
            if header.last_offset < start_offset or not header.record_count:
                continue  # Compaction may have emptied it.
            batches_left -= 1
            records_left -= header.record_count
            if batches_left < 0 or records_left < 0:
                return _whole_batch(passed_over or header, start_offset)
            read = partial(segment.read_batch, position, header, cached_only)
            found = _first_in(read, header, timestamp_ms, start_offset)
            if found is not None:
                return found
            # In the batch that contains the log's start, the record may precede the start.
            if header.base_offset >= start_offset:
                passed_over = passed_over or header
    return None


def _newest(
    segments: Iterable[Segment], start_offset: int, *, cached_only: bool = False
) -> TimestampOffset | None:
    """Return the first record with the largest timestamp, according to the headers."""
    candidates = [s for s in segments if s.size and s.end_offset > start_offset]
    if not candidates:
        return None
    newest = max(candidates, key=lambda segment: segment.max_timestamp_ms)
    found = _first_at(newest, newest.max_timestamp_ms, start_offset, cached_only=cached_only)
    if found is not None:
        return found
    if cached_only:
        # Reading every header of a segment would hold the event loop too long, cached or not.
        raise NotCached(newest.path)
    # The largest timestamp may be of a batch that compaction emptied, or of a record before the
    # log's start.
    for segment in sorted(candidates, key=lambda segment: -segment.max_timestamp_ms):
        if found is not None and found.timestamp_ms > segment.max_timestamp_ms:
            break
        times = [
            _largest(segment, position, header, start_offset)
            for position, header in segment.walk(0)
            if header.record_count and header.last_offset >= start_offset
        ]
        other = _first_at(segment, max(times), start_offset) if times else None
        # Of equal times the first in the log: the order of the segments here is another one.
        found = max(filter(None, (found, other)), key=_age_order, default=None)
    return found


def _age_order(found: TimestampOffset) -> tuple[int, int]:
    return found.timestamp_ms, -found.offset


def _first_at(
    segment: Segment, timestamp_ms: int, start_offset: int, *, cached_only: bool = False
) -> TimestampOffset | None:
    for position, header in segment.find_timestamp(timestamp_ms, cached_only):
        if header.last_offset < start_offset or not header.record_count:
            continue
        read = partial(segment.read_batch, position, header, cached_only)
        found = _first_in(read, header, timestamp_ms, start_offset)
        if found is not None or header.base_offset >= start_offset:
            return found or _whole_batch(header, start_offset)
    return None


def _largest(segment: Segment, position: int, header: BatchHeader, start_offset: int) -> int:
    """Return the largest timestamp of a batch's records from `start_offset` on; -1 without any."""
    if header.base_offset >= start_offset:
        return header.max_timestamp
    try:
        records = iter_records(segment.read_batch(position, header), 0, header)
        return max((r.timestamp for r in records if r.offset >= start_offset), default=-1)
    except ProtocolError:
        return header.max_timestamp


def _first_in(
    read: Callable[[], bytes | bytearray | memoryview],
    header: BatchHeader,
    timestamp_ms: int,
    start_offset: int,
) -> TimestampOffset | None:
    if (
        header.timestamp_type == LOG_APPEND_TIME
        or header.record_count > LOOKED_INTO_RECORDS_COUNT_MAX
    ):
        return _whole_batch(header, start_offset)
    records = iter_records(read(), 0, header, limit_bytes=LOOKED_INTO_BYTES_MAX)
    try:
        for record in records:
            if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                if (
                    header.base_offset <= record.offset <= header.last_offset
                    and record.timestamp <= INT64_MAX
                ):
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
                return _whole_batch(header, start_offset)
    except ProtocolError:
        return _whole_batch(header, start_offset)
    return None


def _whole_batch(header: BatchHeader, start_offset: int) -> TimestampOffset:
    """Return the batch's first offset: a reader from there misses no record.

    This is exact for a batch that the broker stamped. For records that cannot be parsed, or differ
    from their header (a leader trusts it, D4), or that are too expensive to read, it is the best
    answer.
    """
    offset = max(header.base_offset, start_offset)
    return TimestampOffset(header.max_timestamp, offset, header.leader_epoch)
