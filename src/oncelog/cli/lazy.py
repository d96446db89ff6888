"""A group whose commands are imported when they are asked for.

So `oncelog serve` does not import what `oncelog demo` needs, and a missing extra matters only to
commands that use it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from oncelog.cli.tool import ToolGroup

__all__ = ["LazyGroup"]


class LazyGroup(ToolGroup):
    """Takes `table`: command -> (module with a click command `command`, one line of help)."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = importlib.import_module(entry[0]).command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands, without importing them, and this group's own options."""
        commands = [
            CompletionItem(name, help=text)
            for name, (_, text) in self.table.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])
