"""The group ``oncelog cluster``."""

from __future__ import annotations

from typing import Final

import click

from oncelog.cli.lazy import LazyGroup

__all__ = ["command"]

COMMANDS: Final = {
    "import": (
        "oncelog.cli.cluster.importing",
        "Move the metadata of a broker that is alone to ZooKeeper.",
    ),
}


@click.group("cluster", cls=LazyGroup, table=COMMANDS)
def command() -> None:
    """Work on a cluster as a whole."""
