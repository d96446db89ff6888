"""docs/commands.md: every command of ``oncelog`` with its options, as click has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import click

from oncelog.cli.main import main
from tests.support.readers import SOURCES

__all__ = ["DOCUMENT", "document"]

DOCUMENT: Final = SOURCES.parents[1] / "docs" / "commands.md"
SHARED_BY_COUNT_MIN: Final = 12
"""An option that so many commands have alike is told once."""

BAR: Final = "&#124;"

HEAD: Final = """\
# All commands

<!-- Made by `python -m tests.support.reference` from src/oncelog/cli. -->

Every command with its options. [At a shell](cli.md) shows how they are used and what they print.
All have `-h`, `--help`.

## Options of many commands

Commands that these stand behind as *shared* take them as well.

"""

Record = tuple[str, str]


def document() -> str:
    """The whole page."""
    commands = list(
        _commands(main, click.Context(main, info_name="oncelog", **main.context_settings))
    )
    counts = Counter(record for context in commands for record in _options(context))
    shared = [record for record, count in counts.items() if count >= SHARED_BY_COUNT_MIN]
    return HEAD + _table(shared) + "".join(_section(context, shared) for context in commands)


def _commands(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """The contexts of all commands that do something, in the order of their groups."""
    if not isinstance(command, click.Group):
        yield context
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _commands(found, click.Context(found, parent=context, info_name=name))


def _section(context: click.Context, shared: list[Record]) -> str:
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    options = _options(context)
    own = [record for record in options if record not in shared]
    text = f"\n## {context.command_path}\n\n`{context.command_path} {usage}`\n\n"
    text += f"{_prose(command.help or '')}\n"
    if own:
        text += f"\n{_table(own)}"
    if len(own) < len(options):
        names = [
            f"`{names.split()[0].rstrip(',')}`" for names, _ in options if (names, _) in shared
        ]
        text += f"\nShared: {', '.join(names)}.\n"
    return text


def _options(context: click.Context) -> list[Record]:
    """(names and value, meaning) of each option but help."""
    found = []
    for parameter in context.command.params:
        record = parameter.get_help_record(context)
        if record is not None and record[1] and not getattr(parameter, "hidden", False):
            found.append((record[0], " ".join(record[1].split())))
    return found


def _prose(text: str) -> str:
    """A command's help without click's marks."""
    paragraphs = text.replace("\b\n", "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _table(records: list[Record]) -> str:
    rows = [f"| {_code(names)} | {meaning.replace('|', BAR)} |\n" for names, meaning in records]
    return "| Option | |\n|---|---|\n" + "".join(rows)


def _code(text: str) -> str:
    """Code in a table; there a bar ends the cell, also behind a backslash in the site's dialect."""
    return f"<code>{text.replace('|', BAR)}</code>" if "|" in text else f"`{text}`"
