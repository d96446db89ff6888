"""The group ``oncelog log``."""

from __future__ import annotations

from typing import Final

import click

from oncelog.cli.lazy import LazyGroup

__all__ = ["command"]

COMMANDS: Final = {
    "dump": ("oncelog.cli.log.dump", "Show what a file or a folder holds."),
    "strays": ("oncelog.cli.log.strays", "Show folders set aside, put them back, or remove them."),
    "verify": ("oncelog.cli.log.verify", "Check files against each other; changes nothing."),
    "repair": ("oncelog.cli.log.repair", "Mend what verify found; keeps a copy of everything."),
}


@click.group("log", cls=LazyGroup, table=COMMANDS)
def command() -> None:
    """Look into a log directory, of Oncelog or of Apache Kafka."""
