"""Reads the small files of a partition's folder.

Sources: `OffsetIndex`, `TimeIndex`, `TransactionIndex`, `ProducerSnapshot.json` and
`LeaderEpochCheckpointFile` of Apache Kafka.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = [
    "AbortedEntry",
    "SnapshotEntry",
    "aborted_entries",
    "epoch_entries",
    "offset_entries",
    "snapshot_entries",
    "time_entries",
]


SNAPSHOT_HEAD_BYTES = 10
CASTAGNOLI = 0x82F63B78


class AbortedEntry(NamedTuple):
    """One entry of a `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class SnapshotEntry(NamedTuple):
    """One entry of a `.snapshot`."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    open_from: int


def offset_entries(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """Return (offset, position) of each entry; zeros that were allocated ahead are left out."""
    found = [(base_offset + offset, at) for offset, at in _all(">ii", data)]
    while found and found[-1] == (base_offset, 0):
        found.pop()
    return found


def time_entries(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """Return (time in ms, offset) of each entry; zeros that were allocated ahead are left out."""
    found = [(time_ms, base_offset + offset) for time_ms, offset in _all(">qi", data)]
    while found and found[-1] == (0, base_offset):
        found.pop()
    return found


def aborted_entries(data: bytes) -> list[AbortedEntry]:
    """Return the entries of a `.txnindex`."""
    return [AbortedEntry(*fields) for _, *fields in _all(">hqqqq", data)]


def snapshot_entries(data: bytes) -> list[SnapshotEntry] | None:
    """Return the entries of a `.snapshot`: behind version, CRC and count. None for a torn one."""
    if len(data) < SNAPSHOT_HEAD_BYTES or struct.unpack_from(">I", data, 2)[0] != crc32c(data[6:]):
        return None
    return [SnapshotEntry(*fields) for fields in _all(">qhiqiqiq", data[SNAPSHOT_HEAD_BYTES:])]


def crc32c(data: bytes) -> int:
    """Return the CRC-32C, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def epoch_entries(data: bytes) -> list[tuple[int, int]]:
    """Return (epoch, start offset) of each line of a checkpoint: behind version and count."""
    lines = data.decode().split("\n")[2:]
    return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines if line)]


def _all(layout: str, data: bytes) -> list[tuple[int, ...]]:
    whole = len(data) - len(data) % struct.calcsize(layout)
    return list(struct.iter_unpack(layout, data[:whole]))
