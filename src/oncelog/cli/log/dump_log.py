"""The rows of a `.log` file: its batches, or the records in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from oncelog.cli.log.decoding import Decoded, decode_control, decoder_for
from oncelog.cli.log.kinds import FileKind, base_offset
from oncelog.cli.log.reading import Damage, IntactBatch, read_log
from oncelog.cli.log.sheets import Brief, Sheet, Value
from oncelog.cli.output import Column
from oncelog.core.errors import ProtocolError
from oncelog.core.limits import INT64_MAX
from oncelog.protocol.batch import CODEC_NAMES
from oncelog.protocol.record import Record, iter_records, name_bytes

__all__ = ["DumpOptions", "log_sheet"]

_BATCH_COLUMNS: Final = (
    Column("base_offset", "First", numeric=True, style="cyan"),
    Column("last_offset", "Last", numeric=True, style="cyan"),
    Column("position", "Byte", numeric=True),
    Column("size", "Size", numeric=True),
    Column("records", "Records", numeric=True),
    Column("codec", "Codec"),
    Column("max_timestamp", "Newest"),
    Column("producer_id", "Producer", numeric=True),
    Column("producer_epoch", "Epoch", numeric=True),
    Column("base_sequence", "Sequence", numeric=True),
    Column("leader_epoch", "Led in", numeric=True),
    Column("what", "What"),
)
_BRIEF_COLUMNS: Final = (
    Column("offsets", "Offsets", style="cyan"),
    Column("position", "Byte", numeric=True, spare=3),
    Column("size", "Size", numeric=True, spare=4),
    Column("records", "Records", numeric=True),
    Column("max_timestamp", "Newest", spare=1),
    Column("producer", "Producer"),
    Column("base_sequence", "Sequence", numeric=True, spare=2),
    Column("what", "What", wraps=True),
)
_RECORD_COLUMNS: Final = (
    Column("offset", "Offset", numeric=True, style="cyan"),
    Column("timestamp", "Time"),
    Column("key", "Key", wraps=True),
    Column("value", "Value", wraps=True),
    Column("headers", "Headers", wraps=True),
    Column("producer_id", "Producer", numeric=True, spare=1),
    Column("what", "What", wraps=True),
)


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The user's options; everything else is skipped."""

    first_offset: int = 0
    last_offset: int = INT64_MAX
    producer_id: int | None = None
    transactional_id: str | None = None
    key: bytes | None = None
    records: bool = False

    @property
    def is_everything(self) -> bool:
        """Whether no filter is set."""
        return self == DumpOptions(records=self.records)

    def overlaps(self, first: int, last: int) -> bool:
        """Whether a range of offsets, both ends inside it, has one that is asked for."""
        return first <= self.last_offset and last >= self.first_offset

    def has_producer(self, producer_id: int) -> bool:
        """Whether a producer is asked for."""
        return self.producer_id is None or self.producer_id == producer_id


def log_sheet(path: str, topic: str, wanted: DumpOptions) -> Sheet:
    """The file as batches; as records where a filter or the topic asks for them."""
    stretches = read_log(path, base_offset(path))
    by_record = wanted.records or wanted.key is not None or wanted.transactional_id is not None
    if by_record or decoder_for(topic) is not None:
        rows = _record_rows(stretches, topic, wanted)
        return Sheet(path, FileKind.LOG.value, _RECORD_COLUMNS, rows, frozenset({"timestamp"}))
    times = frozenset({"max_timestamp"})
    rows = _batch_rows(stretches, wanted)
    brief = Brief(_BRIEF_COLUMNS, _brief)
    return Sheet(path, FileKind.LOG.value, _BATCH_COLUMNS, rows, times, brief=brief)


def _brief(row: Sequence[Value]) -> list[Value]:
    first, last, position, size, count, codec, newest, producer_id, epoch, sequence, _, what = row
    offsets = None if first is None else "..".join(map(str, (first, last)))
    producer = None if producer_id is None else "/".join(map(str, (producer_id, epoch)))
    parts = [] if codec in (None, "none") else [codec]
    text = " ".join(map(str, [*parts, what]))
    return [offsets, position, size, count, newest, producer, sequence, text]


def _batch_rows(
    stretches: Iterator[IntactBatch | Damage], wanted: DumpOptions
) -> Iterator[list[Value]]:
    for found in stretches:
        if isinstance(found, Damage):
            yield [None, None, found.position, found.size, *[None] * 7, _damage_text(found)]
            continue
        header = found.header
        if header.base_offset > wanted.last_offset:
            return
        if not _is_wanted(found, wanted):
            continue
        yield [
            header.base_offset,
            header.last_offset,
            found.position,
            header.length,
            header.record_count,
            CODEC_NAMES[header.codec_id] if header.codec_id < len(CODEC_NAMES) else header.codec_id,
            _or_none(header.max_timestamp),
            _or_none(header.producer_id),
            _or_none(header.producer_epoch),
            _or_none(header.base_sequence),
            _or_none(header.leader_epoch),
            _what(found),
        ]


def _record_rows(
    stretches: Iterator[IntactBatch | Damage], topic: str, wanted: DumpOptions
) -> Iterator[list[Value]]:
    for found in stretches:
        if isinstance(found, Damage):
            yield [None, None, None, None, None, None, _damage_text(found)]
            continue
        if found.header.base_offset > wanted.last_offset:
            return
        if not _is_wanted(found, wanted):
            continue
        try:
            for record in iter_records(found.data, 0, found.header):
                row = _record_row(record, found, topic, wanted)
                if row is not None:
                    yield row
        except ProtocolError as error:
            where = f"offsets {found.header.base_offset} to {found.header.last_offset}"
            text = f"UNREADABLE: {where}: {error.message}"
            yield [None, None, None, None, None, None, text]


def _record_row(
    record: Record, batch: IntactBatch, topic: str, wanted: DumpOptions
) -> list[Value] | None:
    if not wanted.first_offset <= record.offset <= wanted.last_offset:
        return None
    if wanted.key is not None and record.key != wanted.key:
        return None
    header = batch.header
    what = "transactional" if header.is_transactional else ""
    key: Value = record.key
    value: Value = record.value
    if header.is_control:
        if wanted.transactional_id is not None:
            return None
        key, value, what = None, None, decode_control(record)
    else:
        decoded, problem = _decode(topic, record)
        what = problem or what
        if wanted.transactional_id is not None and (
            decoded is None or decoded.transactional_id != wanted.transactional_id
        ):
            return None
        if decoded is not None:
            key, value = decoded.key, decoded.value
            what = "tombstone" if value is None else what
    headers: Value = {
        str(_header_text(name_bytes(name))): _header_text(content)
        for name, content in record.headers
    }
    producer_id = _or_none(header.producer_id)
    return [record.offset, _or_none(record.timestamp), key, value, headers, producer_id, what]


def _decode(topic: str, record: Record) -> tuple[Decoded | None, str]:
    decode = decoder_for(topic)
    if decode is None:
        return None, ""
    try:
        decoded = decode(record)
    except ProtocolError as error:
        return None, f"UNREADABLE: {error.message}"
    return decoded, "" if decoded is not None else "of a kind that is not known"


def _is_wanted(batch: IntactBatch, wanted: DumpOptions) -> bool:
    header = batch.header
    return wanted.overlaps(header.base_offset, header.last_offset) and wanted.has_producer(
        header.producer_id
    )


def _what(batch: IntactBatch) -> str:
    header = batch.header
    if header.is_control:
        try:
            record = next(islice(iter_records(batch.data, 0, header), 1), None)
        except ProtocolError as error:
            return f"UNREADABLE: {error.message}"
        return "emptied control batch" if record is None else decode_control(record)
    text = "transactional" if header.is_transactional else ""
    return text if header.record_count else f"{text} emptied".strip()


def _damage_text(damage: Damage) -> str:
    if damage.is_unknown:
        return f"NOT READ: {damage.reason}"
    return f"DAMAGED: {damage.reason} (byte {damage.position}, {damage.size} bytes)"


def _header_text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "backslashreplace")


def _or_none(value: int) -> int | None:
    return value if value >= 0 else None
