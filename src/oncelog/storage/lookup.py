"""Find records by timestamp, for ListOffsets.

The only reads that look into batches, one batch per call.
"""

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from oncelog.core.errors import ProtocolError
from oncelog.core.limits import LOOKED_INTO_BYTES_MAX, LOOKED_INTO_RECORDS_COUNT_MAX
from oncelog.protocol.batch import LOG_APPEND_TIME, BatchHeader
from oncelog.protocol.record import iter_records
from oncelog.storage.segment import Segment

__all__ = ["TimestampOffset", "newest_timestamp", "search_timestamp"]


class TimestampOffset(NamedTuple):
    """A record found by time; `leader_epoch` is the one that its batch carries."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def search_timestamp(
    segments: Iterable[Segment], timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    """The first record at or after `start_offset` whose timestamp is at or after `timestamp_ms`."""
    for segment in segments:
        if segment.max_timestamp_ms < timestamp_ms or segment.end_offset <= start_offset:
            continue
        for position, header in segment.find_timestamp(timestamp_ms):
            if header.last_offset < start_offset:
                continue
            found = _first_in(segment, position, header, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def newest_timestamp(segments: Iterable[Segment], start_offset: int) -> TimestampOffset | None:
    """The first record with the largest timestamp of all."""
    candidates = [s for s in segments if s.size and s.end_offset > start_offset]
    if not candidates:
        return None
    newest = max(candidates, key=lambda segment: segment.max_timestamp_ms)
    return search_timestamp([newest], newest.max_timestamp_ms, start_offset)


def _first_in(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    if header.timestamp_type == LOG_APPEND_TIME:
        return _whole_batch(header, start_offset)
    batch = segment.read_batch(position, header)
    records = iter_records(batch, 0, header, limit_bytes=LOOKED_INTO_BYTES_MAX)
    try:
        for record in islice(records, LOOKED_INTO_RECORDS_COUNT_MAX):
            if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    except ProtocolError:
        return _whole_batch(header, start_offset)
    if header.base_offset < start_offset:
        # What its header promises stands before the log's start.
        return None
    return _whole_batch(header, start_offset)


def _whole_batch(header: BatchHeader, start_offset: int) -> TimestampOffset:
    """Answer with the batch's beginning: a reader from there misses nothing.

    Right for a batch that the broker stamped. For records that are none, or not what their header
    says (a leader trusts it, D4), or that cost too much to look at, it is the best answer there is,
    and one that ends the search: no lookup opens one such batch after the other.
    """
    offset = max(header.base_offset, start_offset)
    return TimestampOffset(header.max_timestamp, offset, header.leader_epoch)
