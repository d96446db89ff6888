"""Converts a compacted log to the values that the checkers read. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.protocol.batch import BatchHeader
from oncelog.protocol.record import Record, read_end_marker
from oncelog.simulation.final import KeyedRecord

__all__ = ["keyed_records", "removable"]

Rows = Sequence[tuple[BatchHeader, Record]]


def keyed_records(written: Rows, left: Rows) -> tuple[KeyedRecord, ...]:
    """Return the records of `written`, each with whether `left` still has it.

    No control records.
    """
    there = {row.offset for _, row in left}
    outcomes: dict[int, str] = {}
    open_: dict[int, list[int]] = {}
    for header, row in written:
        if header.is_control:
            marker = read_end_marker(row)
            if marker is not None:
                outcome = "committed" if marker.commit else "aborted"
                outcomes |= dict.fromkeys(open_.pop(header.producer_id, ()), outcome)
        elif header.is_transactional:
            open_.setdefault(header.producer_id, []).append(row.offset)
        else:
            outcomes[row.offset] = "committed"
    return tuple(
        KeyedRecord(
            row.offset,
            row.key,
            row.value is None,
            outcomes.get(row.offset, ""),
            row.offset not in there,
        )
        for header, row in written
        if not header.is_control
    )


def removable(records: Sequence[KeyedRecord]) -> frozenset[int]:
    """Return the offsets of records whose key a later committed record has, and of aborted ones."""
    last = {record.key: record.offset for record in records if record.outcome == "committed"}
    return frozenset(
        record.offset
        for record in records
        if record.outcome == "aborted"
        or (record.key is not None and record.offset < last.get(record.key, -1))
    )
