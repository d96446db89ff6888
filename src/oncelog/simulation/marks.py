"""Reads where partitions begin, are stable and end, for the final state of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, NamedTuple

from oncelog.client import Admin
from oncelog.core.errors import OncelogError
from oncelog.core.ids import TopicPartition

__all__ = ["PartitionMarks", "marks_of", "settled_marks"]

_READ_COUNT_MAX: Final = 10
_Isolation = Literal["read_committed", "read_uncommitted"]
_Offsets = dict[TopicPartition, int]
_Try = Callable[[TopicPartition, Callable[[], Awaitable[_Offsets]]], Awaitable[_Offsets | None]]
"""Makes a call; returns None, and notes the partition as unread, where it fails."""


class PartitionMarks(NamedTuple):
    """Of one partition, in the order in which they rise."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


async def settled_marks(
    admin: Admin, attempt: _Try, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionMarks]:
    """Read the marks until they are of one moment.

    A coordinator that has been loaded may send a marker again between two of the requests.
    """
    marks = await marks_of(admin, attempt, partitions)
    for _ in range(_READ_COUNT_MAX if marks else 0):
        again = await marks_of(admin, attempt, partitions)
        if again == marks:
            break
        marks = again
    return marks


async def marks_of(
    admin: Admin, attempt: _Try, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionMarks]:
    """Read the marks once. Partitions that do not answer are left out."""
    starts = await _ends(admin, attempt, partitions, "earliest", "read_uncommitted")
    stable = await _ends(admin, attempt, list(starts), "latest", "read_committed")
    high = await _ends(admin, attempt, list(stable), "latest", "read_uncommitted")
    return {tp: PartitionMarks(starts[tp], stable[tp], high[tp]) for tp in high}


async def _ends(
    admin: Admin,
    attempt: _Try,
    partitions: Sequence[TopicPartition],
    where: Literal["earliest", "latest"],
    isolation: _Isolation,
) -> _Offsets:
    """Request all at once; if that fails, one by one, so that one does not hide the others."""
    try:
        return await admin.list_offsets(dict.fromkeys(partitions, where), isolation)
    except OncelogError:
        found: _Offsets = {}
    for tp in partitions:

        async def ask(tp: TopicPartition = tp) -> _Offsets:
            return await admin.list_offsets({tp: where}, isolation)

        found |= await attempt(tp, ask) or {}
    return found
