r"""Prints the output of commands: tables on a terminal, plain lines in a pipe, JSON with an option.

A command passes rows of plain values. On a terminal they become a coloured table; otherwise one
line per row with tabs between the columns and no heading, for `cut` and `awk`, in which a cell's
own tab, line end and backslash are ``\t``, ``\n``, ``\r`` and ``\\``; with ``--json`` one
JSON object per row. Rich is imported only for a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "Cell",
    "Column",
    "console",
    "is_terminal",
    "painted",
    "print_json",
    "print_rows",
    "print_text",
    "say",
    "table",
    "warn",
]

Cell = str | int | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in JSON, its heading in a table, and whether it holds numbers."""

    key: str
    heading: str
    numeric: bool = False
    style: str | None = None


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
        console().print(table(columns, rows))
    else:
        for row in rows:
            click.echo("\t".join(_text(cell).translate(_ESCAPES) for cell in row))


def print_json(value: Mapping[str, object]) -> None:
    """One JSON object on one line."""
    click.echo(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_text(text: str, style: str | None = None) -> None:
    """One line on standard output, in colour on a terminal."""
    if style is not None and is_terminal():
        console().print(text, style=style, soft_wrap=True)
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


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Table:
    """The rows as a table for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(
            column.heading,
            justify="right" if column.numeric else "left",
            style=column.style,
            overflow="fold",
        )
    for row in rows:
        made.add_row(*(Text(_shown(cell)) for cell in row))
    return made


def _shown(cell: Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int) else _text(cell)


_ESCAPES: Final = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
"""What would end a cell or a line where a program reads them."""


def _text(cell: Cell) -> str:
    return "-" if cell is None else str(cell)
