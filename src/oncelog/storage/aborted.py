"""Holds one partition's aborted transactions, which read_committed readers skip (INV-3).

In memory they are ordered by their markers; a segment's `.txnindex` stores those whose marker is in
that segment, in Kafka's 34-byte entries. This module knows no files.
"""

from bisect import bisect_left
from typing import NamedTuple

from oncelog.core.integers import integers

__all__ = [
    "ABORTED_ENTRY_SIZE_BYTES",
    "AbortedTransactions",
    "AbortedTxn",
    "format_aborted",
    "parse_aborted",
]

_ENTRY = integers(">hqqqq")
ABORTED_ENTRY_SIZE_BYTES = _ENTRY.size
_VERSION = 0


class AbortedTxn(NamedTuple):
    """A transaction that ended with an abort marker at `last_offset`.

    `last_stable_offset` is the first offset still undecided when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions:
    """All aborted transactions of the segments there are, by the offset of their marker."""

    __slots__ = ("_entries", "_last_offsets")

    def __init__(self) -> None:
        self._entries: list[AbortedTxn] = []
        self._last_offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, entry: AbortedTxn) -> None:
        """Add one; markers are written in offset order."""
        self._entries.append(entry)
        self._last_offsets.append(entry.last_offset)

    def overlapping(self, from_offset: int, to_offset: int) -> list[AbortedTxn]:
        """Return the transactions with records in [from_offset, to_offset), ordered by markers.

        A reader that starts inside such a transaction needs it as well, hence all whose marker is
        at or after `from_offset`. The search stops at the first entry before which everything below
        `to_offset` was decided.
        """
        if not self._entries:
            return []
        found = []
        for slot in range(bisect_left(self._last_offsets, from_offset), len(self._entries)):
            entry = self._entries[slot]
            if entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                break
        return found

    def between(self, from_offset: int, to_offset: int) -> list[AbortedTxn]:
        """Return those whose marker is in [from_offset, to_offset): a segment's share."""
        start = bisect_left(self._last_offsets, from_offset)
        return self._entries[start : bisect_left(self._last_offsets, to_offset)]

    def replace(self, from_offset: int, to_offset: int, entries: list[AbortedTxn]) -> None:
        """Replace those whose marker is in [from_offset, to_offset) by `entries`."""
        start = bisect_left(self._last_offsets, from_offset)
        end = bisect_left(self._last_offsets, to_offset)
        self._entries[start:end] = entries
        self._last_offsets[start:end] = [entry.last_offset for entry in entries]

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget those whose marker is at or after `end_offset`."""
        slot = bisect_left(self._last_offsets, end_offset)
        del self._entries[slot:]
        del self._last_offsets[slot:]

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget those whose marker is before `start_offset`."""
        slot = bisect_left(self._last_offsets, start_offset)
        del self._entries[:slot]
        del self._last_offsets[:slot]


def format_aborted(entries: list[AbortedTxn]) -> bytes:
    """A `.txnindex` file's content."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def parse_aborted(data: bytes | None) -> list[AbortedTxn] | None:
    """Entries of a `.txnindex` file (none when it is missing), or None when it is damaged."""
    if not data:
        return []
    if len(data) % ABORTED_ENTRY_SIZE_BYTES:
        return None
    entries: list[AbortedTxn] = []
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTxn(*fields)
        # Kafka's TransactionIndex.sanityCheck: offsets in order, or the file is another segment's.
        if version != _VERSION or entry.first_offset >= entry.last_offset:
            return None
        if entries and entry.last_offset <= entries[-1].last_offset:
            return None
        entries.append(entry)
    return entries
