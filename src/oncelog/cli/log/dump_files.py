"""The rows of all files but `.log`. A file that cannot be parsed has a note in place of rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from oncelog.cli.log.dump_log import DumpOptions
from oncelog.cli.log.kinds import FileKind, base_offset, kind_of
from oncelog.cli.log.sheets import Sheet, Value
from oncelog.cli.output import Column
from oncelog.core.integers import Integers, integers
from oncelog.storage.aborted import parse_aborted
from oncelog.storage.checkpoints import (
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
    parse_properties,
)
from oncelog.storage.producer_snapshot import parse_batches, parse_snapshot
from oncelog.storage.segment_register import parse_register

__all__ = ["file_sheet"]

_INDEX_ENTRY: Final = integers(">ii")
_TIME_ENTRY: Final = integers(">qi")
_KEY_VALUE: Final = (Column("key", "Key", style="cyan"), Column("value", "Value", wraps=True))


def _number(key: str, heading: str, *, style: str | None = None) -> Column:
    return Column(key, heading, numeric=True, style=style)


def file_sheet(path: str, wanted: DumpOptions) -> Sheet:
    """Any file but a `.log`. Raises OSError."""
    kind = kind_of(path)
    with open(path, "rb") as file:
        data = file.read()
    if kind is None:
        return Sheet(path, "unknown", (), (), note=f"{len(data)} bytes")
    columns, read = _READERS[kind]
    found = read(data, path, wanted)
    times = frozenset({"timestamp", "last_timestamp"})
    if found is None:
        return Sheet(path, kind.value, columns, (), note=f"DAMAGED, {len(data)} bytes")
    return Sheet(path, kind.value, columns, found, times)


Rows = Iterator[Sequence[Value]] | list[Sequence[Value]]
Reader = Callable[[bytes, str, DumpOptions], Rows | None]


def _index(data: bytes, path: str, wanted: DumpOptions) -> Rows | None:
    entries = _entries(_INDEX_ENTRY, data)
    if entries is None:
        return None
    base = base_offset(path)
    shown = ((base + relative, position) for relative, position in entries)
    return (each for each in shown if wanted.overlaps(each[0], each[0]))


def _time_index(data: bytes, path: str, wanted: DumpOptions) -> Rows | None:
    entries = _entries(_TIME_ENTRY, data)
    if entries is None:
        return None
    base = base_offset(path)
    shown = ((timestamp, base + relative) for timestamp, relative in entries)
    return (each for each in shown if wanted.overlaps(each[1], each[1]))


def _entries(entry: Integers, data: bytes) -> Iterator[tuple[int, ...]] | None:
    """The entries of an index up to the zeros behind them.

    Kafka makes the files of an active segment larger than what is in them.
    """
    if len(data) % entry.size:
        return None
    used = len(data.rstrip(b"\0"))
    return entry.iter_unpack(data[: used + -used % entry.size])


def _aborted(data: bytes, _path: str, wanted: DumpOptions) -> Rows | None:
    entries = parse_aborted(data)
    if entries is None:
        return None
    return [
        tuple(entry)
        for entry in entries
        if wanted.has_producer(entry.producer_id)
        and wanted.overlaps(entry.first_offset, entry.last_offset)
    ]


def _snapshot(data: bytes, _path: str, wanted: DumpOptions) -> Rows | None:
    entries = parse_snapshot(data)
    if entries is None:
        return None
    return [
        (
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.batches[-1].last_offset if entry.batches else None,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            entry.transaction_first_offset if entry.transaction_first_offset >= 0 else None,
        )
        for entry in entries
        if wanted.has_producer(entry.producer_id)
    ]


def _batches(data: bytes, _path: str, wanted: DumpOptions) -> Rows | None:
    """Rows of transactions that have ended name no producer; the last offset is the marker's."""
    found = parse_batches(data)
    if found is None:
        return None
    ended: list[Sequence[Value]] = []
    if found.ended is not None and wanted.producer_id is None:
        offsets = [(found.ended.since, None), *found.ended.markers.items()]
        ended = [(None, None, None, first, last, None) for first, last in offsets]
    return ended + [
        (producer_id, *batch)
        for producer_id, batches in found.batches.items()
        for batch in batches
        if wanted.has_producer(producer_id)
    ]


def _epochs(data: bytes, _path: str, _wanted: DumpOptions) -> Rows | None:
    entries = parse_epochs(data)
    return None if entries is None else list(entries)


def _offsets(data: bytes, _path: str, _wanted: DumpOptions) -> Rows | None:
    entries = parse_offsets(data)
    if entries is None:
        return None
    return [(topic, partition, offset) for (topic, partition), offset in entries.items()]


def _register(data: bytes, _path: str, wanted: DumpOptions) -> Rows | None:
    records = parse_register(data)
    if None in records:
        return None
    return [
        (
            sealed.base_offset,
            sealed.end_offset,
            sealed.size,
            f"{sealed.index_crc:08x}",
            f"{sealed.time_index_crc:08x}",
            f"{sealed.aborted_crc:08x}",
            "yes" if sealed.is_damaged else "",
        )
        for sealed in records
        if sealed is not None and wanted.overlaps(sealed.base_offset, sealed.end_offset - 1)
    ]


def _partition_metadata(data: bytes, _path: str, _wanted: DumpOptions) -> Rows | None:
    topic_id = parse_partition_metadata(data)
    if topic_id is None:
        return None
    spelled = parse_properties(data, separator=":")["topic_id"]
    return [("topic_id", spelled), ("topic_id as UUID", str(topic_id))]


def _properties(data: bytes, _path: str, _wanted: DumpOptions) -> Rows | None:
    return list(parse_properties(data).items()) or None


def _format(data: bytes, _path: str, _wanted: DumpOptions) -> Rows | None:
    text = data.strip()
    return [("format", int(text))] if text.isdigit() else None


def _clean_shutdown(data: bytes, _path: str, _wanted: DumpOptions) -> Rows | None:
    try:
        fields = json.loads(data or b"{}")
    except ValueError:
        return None
    return list(fields.items()) if isinstance(fields, dict) else None


_READERS: Final[dict[FileKind, tuple[Sequence[Column], Reader]]] = {
    FileKind.INDEX: (
        (_number("offset", "Offset", style="cyan"), _number("position", "Byte")),
        _index,
    ),
    FileKind.TIME_INDEX: (
        (Column("timestamp", "Time", style="cyan"), _number("offset", "Offset")),
        _time_index,
    ),
    FileKind.ABORTED: (
        (
            _number("producer_id", "Producer", style="cyan"),
            _number("first_offset", "First"),
            _number("last_offset", "Last"),
            _number("last_stable_offset", "Last stable"),
        ),
        _aborted,
    ),
    FileKind.SNAPSHOT: (
        (
            _number("producer_id", "Producer", style="cyan"),
            _number("epoch", "Epoch"),
            _number("last_sequence", "Sequence"),
            _number("last_offset", "Offset"),
            Column("last_timestamp", "Time"),
            _number("coordinator_epoch", "Coordinator epoch"),
            _number("transaction_first_offset", "Open since"),
        ),
        _snapshot,
    ),
    FileKind.BATCHES: (
        (
            _number("producer_id", "Producer", style="cyan"),
            _number("first_sequence", "First sequence"),
            _number("last_sequence", "Last sequence"),
            _number("first_offset", "First"),
            _number("last_offset", "Last"),
            Column("timestamp", "Time"),
        ),
        _batches,
    ),
    FileKind.LEADER_EPOCHS: (
        (_number("leader_epoch", "Leader epoch", style="cyan"), _number("start_offset", "Start")),
        _epochs,
    ),
    FileKind.OFFSETS: (
        (
            Column("topic", "Topic", style="cyan"),
            _number("partition", "Partition"),
            _number("offset", "Offset"),
        ),
        _offsets,
    ),
    FileKind.REGISTER: (
        (
            _number("base_offset", "First", style="cyan"),
            _number("end_offset", "End"),
            _number("size", "Bytes"),
            Column("index_crc", "CRC of .index"),
            Column("time_index_crc", "CRC of .timeindex"),
            Column("aborted_crc", "CRC of .txnindex"),
            Column("is_damaged", "Damaged"),
        ),
        _register,
    ),
    FileKind.PARTITION_METADATA: (_KEY_VALUE, _partition_metadata),
    FileKind.PROPERTIES: (_KEY_VALUE, _properties),
    FileKind.FORMAT: (_KEY_VALUE, _format),
    FileKind.CLEAN_SHUTDOWN: (_KEY_VALUE, _clean_shutdown),
}
