"""Rebuilds a segment's indexes in memory, for a reader that finds their files damaged.

The segment contains all of their information (INV-9). Recovery writes them back at the next start;
a reader does not write.
"""

import logging
from collections.abc import Iterator

from oncelog.core.errors import ProtocolError
from oncelog.protocol.batch import BatchHeader
from oncelog.storage.config import LogConfig
from oncelog.storage.offset_index import OffsetIndex
from oncelog.storage.time_index import TimeIndex

__all__ = ["reindex"]

log = logging.getLogger(__name__)

INTERVAL_BYTES = LogConfig().index_interval_bytes


def reindex(
    path: str, base_offset: int, headers: Iterator[tuple[int, BatchHeader]]
) -> tuple[OffsetIndex, TimeIndex]:
    """Indexes of the batches that `headers` walks through, up to the first damaged one."""
    offsets, times = OffsetIndex(base_offset), TimeIndex(base_offset)
    log.warning("the index files of %s are missing or damaged: reading it without them", path)
    largest_ms, largest_offset, since_entry = -1, base_offset, 0
    try:
        for position, header in headers:
            if header.max_timestamp > largest_ms:
                largest_ms, largest_offset = header.max_timestamp, header.last_offset
            if since_entry > INTERVAL_BYTES:
                offsets.append(header.last_offset, position)
                times.maybe_append(largest_ms, largest_offset)
                since_entry = 0
            since_entry += header.length
    except ProtocolError as damage:
        log.error("%s", damage.message)
    times.maybe_append(largest_ms, largest_offset)
    return offsets, times
