"""A page with every command of ``oncelog`` and its options, as click has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import click

from oncelog.cli.habits.table import COMMANDS, OPTIONS, PAIRS
from oncelog.cli.main import main

__all__ = ["document"]

SHARED_BY_COUNT_MIN: Final = 12
"""An option that so many commands have alike is told once."""

BAR: Final = "&#124;"

HEAD: Final = """\
# All commands

Every command with its options. [At a shell](cli.md) shows how they are used and what they print.
All have `-h`, `--help`.

## Options of many commands

Commands that these stand behind as *shared* take them as well.

"""

OTHER_NAMES: Final = """
## What other tools call it

Understood as well: what Kafka's tools, kcat and rpk call a command or an option. Words in capitals
are arguments; of several names the first that a command has is meant.

| Typed | Behind | Here |
|---|---|---|
"""

PATHS: Final = {"": "`oncelog`", "*": "any group"}

Record = tuple[str, str]


def document() -> str:
    """The whole page."""
    commands = list(
        _commands(main, click.Context(main, info_name="oncelog", **main.context_settings))
    )
    counts = Counter(record for context in commands for record in _options(context))
    shared = [record for record, count in counts.items() if count >= SHARED_BY_COUNT_MIN]
    sections = "".join(_section(context, shared) for context in commands)
    return HEAD + _table(shared) + sections + _other_names()


def _other_names() -> str:
    """What other tools call our commands and options."""
    rows = [
        ((path, word), found)
        for path, entries in COMMANDS.items()
        for word, found in entries.items()
        if isinstance(found, str)
    ]
    rows += [
        ((path, f"{name} {key}="), found)
        for path, options in PAIRS.items()
        for name, keys in options.items()
        for key, found in keys.items()
        if isinstance(found, str)
    ]
    rows += [
        ((path or "any command", name), ", ".join(targets))
        for path, options_of in OPTIONS.items()
        for name, targets in options_of.items()
    ]
    merged: dict[tuple[str, str], list[str]] = {}
    for (path, word), found in rows:
        merged.setdefault((path, found), []).append(_code(word))
    text = "".join(
        f"| {', '.join(words)} | {PATHS.get(path, path)} | {_code(found)} |\n"
        for (path, found), words in merged.items()
    )
    return OTHER_NAMES + text


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
