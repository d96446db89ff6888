r"""Prints the output of commands: tables on a terminal, plain lines in a pipe, JSON with an option.

A command passes rows of plain values. On a terminal they become a coloured table that fits its
width: with fewer columns if need be, else with one record below the other. Otherwise it is one
line per row with tabs between the columns and no heading, for `cut` and `awk`, in which a cell's
own tab, line end and backslash are ``\t``, ``\n``, ``\r`` and ``\\``; with ``--json`` one
JSON object per row. Rich is imported only for a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

__all__ = [
    "Cell",
    "Column",
    "console",
    "fitted",
    "is_terminal",
    "left_out",
    "painted",
    "print_json",
    "print_rows",
    "print_text",
    "say",
    "warn",
]

Cell = str | int | None

GAP_WIDTH: Final = 3
"""Between two columns of a table."""
WRAPPED_WIDTH_MIN: Final = 16
"""A column that wraps is no narrower."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in JSON, its heading in a table, and whether it holds numbers."""

    key: str
    heading: str
    numeric: bool = False
    style: str | None = None
    wraps: bool = False
    """Its cells may go over several lines."""
    spare: int = 0
    """Above 0: it may be left out of a narrow table, the highest first."""


def is_terminal() -> bool:
    """Whether a person reads standard output."""
    return sys.stdout.isatty()


def console(*, stderr: bool = False) -> Console:
    """A rich console without markup and automatic highlighting."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_rows(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    *,
    as_json: bool,
    empty: str | None = None,
) -> None:
    """Print rows as the module's docstring says.

    `empty` is what a person is told in place of a table without rows.
    """
    if not rows and empty is not None and is_terminal() and not as_json:
        say(empty, style="yellow")
    elif as_json:
        for row in rows:
            print_json({column.key: cell for column, cell in zip(columns, row, strict=True)})
    elif is_terminal():
        screen = console()
        screen.print(fitted(columns, rows, screen.width))
        missing = left_out(columns, rows, screen.width)
        if missing:
            say(f"not shown: {', '.join(missing)}; --json shows all", style="dim")
    else:
        for row in rows:
            click.echo("\t".join(_text(cell).translate(_ESCAPES) for cell in row))


def print_json(value: Mapping[str, object]) -> None:
    """One JSON object on one line."""
    click.echo(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_text(text: str, style: str | None = None, *, wraps: bool = False) -> None:
    """One line on standard output; on a terminal in colour, and broken between words if it may."""
    if style is not None and is_terminal():
        console().print(text, style=style, soft_wrap=not wraps)
    else:
        click.echo(text)


def say(text: str, style: str = "green") -> None:
    """Print the outcome on a terminal; a program reads the exit code."""
    if sys.stderr.isatty():
        console(stderr=True).print(text, style=style, soft_wrap=True)


def warn(text: str) -> None:
    """Tell on standard error what a program should log too."""
    click.echo(painted(text, fg="yellow"), err=True)


def painted(text: str, **style: Any) -> str:
    """`text` in a colour of click's, unless NO_COLOR is set; `click.echo` strips it in a pipe."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)


# --- what fits a terminal ---------------------------------------------------------------


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int) -> RenderableType:
    """The rows as a table of at most `room` columns of characters, or as records."""
    chosen = _chosen(columns, rows, room)
    return _records(columns, rows) if chosen is None else _table(columns, rows, chosen)


def left_out(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int) -> list[str]:
    """The headings of columns that hold something and are not shown."""
    chosen = _chosen(columns, rows, room)
    return [
        column.heading
        for at, column in enumerate(columns)
        if chosen is not None and at not in chosen and not _is_empty(rows, at)
    ]


def _chosen(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int
) -> dict[int, int] | None:
    """The columns of the table, and how wide each is; None if nothing makes it fit.

    Columns that hold nothing go first, then spare ones, then the first if it holds one value. Words
    are cut only where that is not enough.
    """
    every = range(1, len(columns))
    spare = sorted((at for at in every if columns[at].spare), key=lambda at: -columns[at].spare)
    dispensable = [*dict.fromkeys([at for at in every if _is_empty(rows, at)] + spare)]
    whole, cut = _widths(columns, rows, _length_of_word), _widths(columns, rows, lambda _: 0)
    attempts = [(whole, dispensable), (cut, dispensable)]
    if len(rows) > 1 and len({row[0] for row in rows}) == 1:
        attempts.insert(1, (whole, [*dispensable, 0]))
    for widths, order in attempts:
        # What was left out for whole words stays so: a word is worth more than a spare column.
        chosen = [at for at in range(len(columns)) if widths is whole or at not in dispensable]
        for at in order:
            if at in chosen and _width(widths, chosen) > room:
                chosen.remove(at)
        if chosen and _width(widths, chosen) <= room:
            wanted = _widths(columns, rows, _length_of_cell)
            needs = {at: wanted[at] - widths[at] for at in chosen}
            shares = _shares(needs, room - _width(widths, chosen))
            return {at: widths[at] + shares[at] for at in chosen}
    return None


def _shares(needs: Mapping[int, int], left: int) -> dict[int, int]:
    """What each gets of what is left, the same for all who need so much."""
    shares = {}
    for count, at in enumerate(sorted(needs, key=lambda at: needs[at])):
        shares[at] = min(needs[at], left // (len(needs) - count))
        left -= shares[at]
    return shares


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], least: Callable[[str], int]
) -> list[int]:
    """How wide each column is at least; `least` says it of a cell that wraps."""
    found = []
    for at, column in enumerate(columns):
        texts = [column.heading, *(_shown(row[at]) for row in rows)]
        width = max(map(_length_of_cell, texts))
        if column.wraps:
            narrow = max(map(least, texts))
            width = min(width, max(narrow, WRAPPED_WIDTH_MIN, len(column.heading)))
        found.append(width)
    return found


def _length_of_cell(text: str) -> int:
    from rich.cells import cell_len

    return max((cell_len(line) for line in text.splitlines()), default=0)


def _length_of_word(text: str) -> int:
    return max(map(_length_of_cell, text.split()), default=0)


def _width(widths: Sequence[int], chosen: Sequence[int]) -> int:
    return sum(widths[at] for at in chosen) + GAP_WIDTH * (len(chosen) - 1)


def _is_empty(rows: Sequence[Sequence[Cell]], at: int) -> bool:
    return all(row[at] is None for row in rows)


def _table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], widths: Mapping[int, int]
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for at, width in widths.items():
        made.add_column(
            columns[at].heading,
            justify="right" if columns[at].numeric else "left",
            style=columns[at].style,
            overflow="fold",
            width=width,
        )
    for row in rows:
        made.add_row(*(Text(_shown(row[at])) for at in widths))
    return made


def _records(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> RenderableType:
    """Each row as lines of a heading and its cell, without the cells that hold nothing."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    made: list[RenderableType] = []
    width = max(len(column.heading) for column in columns)
    for row in rows:
        if made:
            made.append(Text())
        record = Table.grid(padding=(0, 2, 0, 0))
        record.add_column(style="bold", no_wrap=True, min_width=width)
        record.add_column(overflow="fold")
        for column, cell in zip(columns, row, strict=True):
            if cell is not None:
                record.add_row(column.heading, Text(_shown(cell), style=column.style or ""))
        made.append(record)
    return Group(*made)


def _shown(cell: Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int) else _text(cell)


_ESCAPES: Final = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
"""What would end a cell or a line where a program reads them."""


def _text(cell: Cell) -> str:
    return "-" if cell is None else str(cell)
