"""One file as a table: its columns, and its rows as they are read.

Rows come from an iterator and are printed page by page, so that a dump of any size needs the memory
of one page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import click

from oncelog.cli.output import Column, is_terminal, print_json, print_rows, print_text
from oncelog.cli.records import for_terminal, iso_time

__all__ = ["Brief", "Sheet", "Value", "print_sheet"]

PAGE_ROWS_COUNT: Final = 200
TEXT_LENGTH_MAX: Final = 120

Value = str | int | bytes | None | dict[str, object] | list[object]


class Brief(NamedTuple):
    """Another form of a sheet's rows, for people."""

    columns: Sequence[Column]
    make: Callable[[Sequence[Value]], Sequence[Value]]


@dataclass(slots=True)
class Sheet:
    """The contents of a file. `times` are the keys of columns with milliseconds since the epoch."""

    path: str
    kind: str
    columns: Sequence[Column]
    rows: Iterable[Sequence[Value]]
    times: frozenset[str] = field(default_factory=frozenset)
    note: str = ""
    brief: Brief | None = None
    """For a terminal, which has less room: fewer columns, and what makes their cells of a row."""


def print_sheet(sheet: Sheet, *, as_json: bool) -> None:
    """Print it: as JSON one object per row, else a heading and a table, or plain lines."""
    if as_json:
        if sheet.note:
            print_json({"file": sheet.path, "kind": sheet.kind, "note": sheet.note})
        keys = [column.key for column in sheet.columns]
        for row in sheet.rows:
            values = {key: _json(value) for key, value in zip(keys, row, strict=True)}
            print_json({"file": sheet.path, "kind": sheet.kind, **values})
        return
    note = f" ({sheet.note})" if sheet.note else ""
    print_text(f"# {sheet.path}: {sheet.kind}{note}", style="bold cyan")
    columns, rows = sheet.columns, iter(sheet.rows)
    if sheet.brief is not None and is_terminal():
        columns, rows = sheet.brief.columns, map(sheet.brief.make, rows)
    while page := [_cells(columns, sheet.times, row) for row in islice(rows, PAGE_ROWS_COUNT)]:
        print_rows(columns, page, as_json=False)
    if is_terminal():
        click.echo()


def _json(value: Value) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value


def _cells(
    columns: Sequence[Column], times: frozenset[str], row: Sequence[Value]
) -> list[str | int | None]:
    return [
        _cell(value, is_time=column.key in times)
        for column, value in zip(columns, row, strict=True)
    ]


def _cell(value: Value, *, is_time: bool) -> str | int | None:
    if isinstance(value, int) and is_time:
        return iso_time(value)
    if isinstance(value, dict):
        return " ".join(f"{key}={_text(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bytes):
        text = for_terminal(value).replace("\n", "\\n").replace("\t", "\\t")
        return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}..."
    return value


def _text(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + " ".join(f"{key}={_text(each)}" for key, each in value.items()) + "}"
    return str(value)
