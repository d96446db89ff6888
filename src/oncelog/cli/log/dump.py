"""``oncelog log dump``: what a file, a partition's folder or a log directory holds.

A `.log` file shows as batches; `__transaction_state` and `__consumer_offsets`, and any log under
``--records`` or ``--key``, as records. A log directory shows its own files and a line per
partition. Nothing is changed, and a broker may be running.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import click

from oncelog.cli.log.dump_files import file_sheet
from oncelog.cli.log.dump_log import DumpOptions, log_sheet
from oncelog.cli.log.kinds import (
    FileKind,
    base_offset,
    kind_of,
    look_at,
    partition_folders,
    partition_of,
    segments_in,
    unreadable,
)
from oncelog.cli.log.sheets import Sheet, Value, print_sheet
from oncelog.cli.output import Column
from oncelog.cli.tool import ToolCommand, json_option
from oncelog.core.limits import INT64_MAX
from oncelog.storage.checkpoints import parse_partition_metadata
from oncelog.storage.files import LOG_SUFFIX, PARTITION_METADATA_NAME

__all__ = ["command"]

_FOLDER_COLUMNS: Final = (
    Column("partition", "Partition", style="cyan"),
    Column("topic_id", "Topic id", style="dim", spare=1),
    Column("segments", "Segments", numeric=True),
    Column("start_offset", "First segment", numeric=True),
    Column("active_offset", "Active segment", numeric=True),
    Column("log_bytes", "Bytes", numeric=True),
)


@click.command("dump", cls=ToolCommand)
@click.argument("path", type=click.Path())
@click.option("--offset", type=click.IntRange(0), metavar="N", help="The batch that holds N.")
@click.option("--offsets", metavar="A..B", help="Offsets from A to B, both shown; A.. and ..B too.")
@click.option("--producer-id", type=int, metavar="N", help="Only of this producer.")
@click.option("--transactional-id", metavar="ID", help="Records of __transaction_state about ID.")
@click.option("--key", metavar="TEXT", help="Records with this key.")
@click.option("--records", is_flag=True, help="Show the records in each batch.")
@json_option("Print JSON, one object per row.")
def command(
    path: str,
    offset: int | None,
    offsets: str | None,
    producer_id: int | None,
    transactional_id: str | None,
    key: str | None,
    records: bool,
    as_json: bool,
) -> None:
    """Show what a file or a folder holds."""
    if offset is not None and offsets is not None:
        raise click.BadParameter("name either --offset or --offsets", param_hint="--offsets")
    first, last = (offset, offset) if offset is not None else _range(offsets)
    wanted = DumpOptions(
        first, last, producer_id, transactional_id, key.encode() if key is not None else None,
        records,
    )  # fmt: skip
    try:
        for sheet in _sheets(path, wanted):
            print_sheet(sheet, as_json=as_json)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unreadable(path, error) from None


def _range(text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, INT64_MAX
    first, dots, last = text.partition("..")
    if not dots or not all(part.isdigit() or not part for part in (first, last)):
        raise click.BadParameter(f"{text!r} is not A..B", param_hint="--offsets")
    found = int(first or 0), int(last or INT64_MAX)
    if found[0] > found[1]:
        raise click.BadParameter(f"{text!r} is empty", param_hint="--offsets")
    return found


def _sheets(path: str, wanted: DumpOptions) -> Iterator[Sheet]:
    target = look_at(path)
    if target.is_file:
        yield _sheet(path, wanted)
    elif target.is_partition:
        yield from _partition_sheets(path, wanted)
    else:
        names = sorted(os.listdir(path))
        for name in names:
            if kind_of(name) is not None:
                yield _sheet(os.path.join(path, name), wanted)
        rows = (_folder_row(folder) for folder in partition_folders(path))
        yield Sheet(path, "log directory", _FOLDER_COLUMNS, rows)


def _sheet(path: str, wanted: DumpOptions) -> Sheet:
    if kind_of(path) is FileKind.LOG:
        partition = partition_of(os.path.dirname(os.path.abspath(path)))
        return log_sheet(path, partition[0] if partition else "", wanted)
    return file_sheet(path, wanted)


def _partition_sheets(folder: str, wanted: DumpOptions) -> Iterator[Sheet]:
    """All files of a partition. With filters, only those that they can speak of."""
    bases = segments_in(folder)
    by_record = wanted.key is not None or wanted.transactional_id is not None
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        kind = kind_of(name)
        if kind is None or os.path.isdir(path) or (by_record and kind is not FileKind.LOG):
            continue
        is_segment = kind in (FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX)
        if is_segment and not wanted.overlaps(*_segment_range(base_offset(name), bases)):
            continue
        if not wanted.is_everything and kind in (
            FileKind.LEADER_EPOCHS,
            FileKind.PARTITION_METADATA,
        ):
            continue
        yield _sheet(path, wanted)


def _segment_range(base: int, bases: list[int]) -> tuple[int, int]:
    following = [other for other in bases if other > base]
    return base, following[0] - 1 if following else INT64_MAX


def _folder_row(folder: str) -> list[Value]:
    bases = segments_in(folder)
    try:
        with open(os.path.join(folder, PARTITION_METADATA_NAME), "rb") as file:
            topic_id = parse_partition_metadata(file.read())
    except OSError:
        topic_id = None
    size = sum(os.path.getsize(os.path.join(folder, f"{base:020d}{LOG_SUFFIX}")) for base in bases)
    return [
        os.path.basename(folder),
        str(topic_id) if topic_id else None,
        len(bases),
        bases[0] if bases else None,
        bases[-1] if bases else None,
        size,
    ]
