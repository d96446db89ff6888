"""Reads of one Fetch request in the executor: what is not known to be in memory (D12)."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ProtocolError
from oncelog.protocol.fetch import FetchPartition, FetchPartitionResponse
from oncelog.protocol.wire import Buffer
from oncelog.runtime.disk import StorageFailure

__all__ = ["ColdPartition", "ColdRead", "read_cold"]

ColdRead = Buffer | ProtocolError | StorageFailure | None
"""The records read, or the error; None when the limits were used up before."""


class ColdPartition(NamedTuple):
    """A partition whose records have to be read in the executor."""

    answers: list[FetchPartitionResponse]
    slot: int
    """The index of its answer in `answers`."""
    name: str
    partition: Partition
    wanted: FetchPartition
    end: int
    """Records from this offset on are not returned (INV-7)."""


def read_cold(cold: list[ColdPartition], limit: int, size: int) -> list[ColdRead]:
    """Read the records, or the error, of each partition. Called in the executor.

    `size` is the count of bytes found so far: limits are used up in the order of the request.
    """
    found: list[ColdRead] = []
    for each in cold:
        records: ColdRead = None
        if size < limit or size == 0:
            size_max = max(0, min(each.wanted.partition_max_bytes, limit - size))
            offset = each.wanted.fetch_offset
            try:
                read = each.partition.log.read_cold(
                    offset, size_max, upper_bound=each.end, min_one=size == 0
                )
                size += len(read)
                records = read
            except (ProtocolError, StorageFailure) as unread:
                records = unread
        found.append(records)
    return found
