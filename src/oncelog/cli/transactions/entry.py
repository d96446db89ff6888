"""The group ``oncelog transactions``."""

from __future__ import annotations

from typing import Final

import click

from oncelog.cli.lazy import LazyGroup

__all__ = ["command"]

COMMANDS: Final = {
    "list": ("oncelog.cli.transactions.listing", "List transactional ids and their states."),
    "show": ("oncelog.cli.transactions.show", "Show what happened to one transactional id."),
    "watch": ("oncelog.cli.transactions.watch", "Show live what read_committed readers wait for."),
    "find-hanging": (
        "oncelog.cli.transactions.hanging",
        "Find transactions that no coordinator will end.",
    ),
    "abort": ("oncelog.cli.transactions.abort", "Abort a transaction."),
}


@click.group("transactions", cls=LazyGroup, table=COMMANDS)
def command() -> None:
    """Show transactions and their lives, find and abort hanging ones.

    Works with any Kafka cluster of version 3.0 or newer.
    """
