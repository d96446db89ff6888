"""The command ``oncelog``.

Each subcommand lives in a module of its own, imported when it is asked for.

So `oncelog serve` does not pay for what `oncelog demo` needs, and a missing extra only matters to
who uses it.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Final, cast

import click

from oncelog.cli.tool import ToolGroup

__all__ = ["main"]

COMMANDS: Final = {
    "serve": ("oncelog.cli.serve", "Run a broker."),
    "topics": ("oncelog.cli.topics", "List, create, describe, alter and delete topics."),
    "produce": ("oncelog.cli.produce", "Send records from standard input or a file."),
    "consume": ("oncelog.cli.consume", "Print the records of a topic."),
    "simulate": ("oncelog.cli.simulate", "Search for defects under virtual time."),
    "demo": (
        "oncelog.cli.demo.entry",
        "Run the exactly-once pipeline under fire, and check the result.",
    ),
}
"""Command -> (module with a click command `command`, one line of help)."""


class LazyGroup(ToolGroup):
    """A group whose commands are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if cmd_name != "demo":
            # kio registers strategies with hypothesis where that is installed, as it is for our own
            # development: a third of the time to start. No command draws examples. (None in this
            # table makes the import fail.)
            sys.modules.setdefault("hypothesis", cast(ModuleType, None))
        command: click.Command = importlib.import_module(entry[0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup)
@click.version_option(package_name="oncelog", prog_name="oncelog")
def main() -> None:
    """Kafka's exactly-once machinery in Python."""
