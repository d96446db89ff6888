"""The group ``oncelog cluster``: by itself it starts a development cluster on this machine."""

from __future__ import annotations

import sys
from typing import Final

import click

from oncelog.cli.lazy import LazyGroup
from oncelog.cli.tool import json_option
from oncelog.core.config import parse_listener
from oncelog.core.config_definition import ConfigError

__all__ = ["command"]

COMMANDS: Final = {
    "drain": (
        "oncelog.cli.cluster.draining",
        "Move all replicas from a broker to others.",
    ),
    "forget": (
        "oncelog.cli.cluster.forgetting",
        "Forget a broker that is gone for good: nothing waits for it any longer.",
    ),
    "grow-internal": (
        "oncelog.cli.cluster.growing",
        "Give the topics of transactions and groups the replicas that they should have.",
    ),
    "import": (
        "oncelog.cli.cluster.importing",
        "Move the metadata of a broker that is alone to ZooKeeper.",
    ),
    "status": (
        "oncelog.cli.cluster.status",
        "Show brokers, who leads, and which replicas are behind or away.",
    ),
}


EXAMPLE: Final = """\b
Three brokers on this machine, until Ctrl-C:
  oncelog cluster --brokers 3 --data-dir /tmp/three"""


@click.group("cluster", cls=LazyGroup, table=COMMANDS, invoke_without_command=True, epilog=EXAMPLE)
@click.option("--brokers", metavar="N", type=int, default=3, show_default=True, help="How many.")
@click.option("--data-dir", metavar="DIR", help="The folder of all that they keep.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9092",
    show_default=True,
    help="Of the first one; each other has the next port. Port 0 takes any free ones.",
)
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="A setting of all; repeatable."
)
@json_option()
@click.pass_context
def command(
    context: click.Context,
    brokers: int,
    data_dir: str | None,
    listen: str,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Start the brokers of a development cluster, or work on a cluster as a whole."""
    if context.invoked_subcommand is not None:
        return
    if data_dir is None:
        raise click.UsageError("name the cluster's folder: --data-dir DIR")
    from oncelog.cli.cluster.development import run_cluster

    try:
        address = parse_listener("--listen", listen)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    sys.exit(run_cluster(brokers, data_dir, address, settings, as_json=as_json))
