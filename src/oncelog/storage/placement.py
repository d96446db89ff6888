"""Determines offsets and positions of the batches of one append.

A leader assigns offsets, a follower keeps its leader's. Pure but for the buffer, which a leader
patches in place (D4).
"""

from typing import NamedTuple

from oncelog.protocol.batch import HEADER_START, LENGTH_PREFIX_SIZE, BatchHeader

__all__ = ["PlacedBatch", "assign_offsets", "keep_offsets"]

_new = tuple.__new__
"""It takes half the time of a named tuple's own constructor."""


class PlacedBatch(NamedTuple):
    """A batch of an append: its place in the buffer and its final offsets."""

    position: int
    length: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


def assign_offsets(
    batches: bytearray | memoryview,
    headers: list[tuple[int, BatchHeader]],
    next_offset: int,
    leader_epoch: int,
) -> list[PlacedBatch]:
    """Assign offsets from `next_offset` on; write them and the leader epoch into the headers."""
    placed = []
    for position, header in headers:
        length = header.length
        HEADER_START.pack_into(
            batches, position, next_offset, length - LENGTH_PREFIX_SIZE, leader_epoch
        )
        last_offset = next_offset + header.last_offset_delta
        place = (position, length, next_offset, last_offset, header.max_timestamp)
        placed.append(_new(PlacedBatch, place))
        next_offset = last_offset + 1
    return placed


def keep_offsets(headers: list[tuple[int, BatchHeader]]) -> list[PlacedBatch]:
    """Keep the offsets that the leader assigned; validation has checked their order."""
    return [
        PlacedBatch(
            position, header.length, header.base_offset, header.last_offset, header.max_timestamp
        )
        for position, header in headers
    ]
