"""The command ``oncelog``. Each subcommand lives in a module of its own."""

from __future__ import annotations

from typing import Final

import click

from oncelog.cli.lazy import LazyGroup

__all__ = ["main"]

COMMANDS: Final = {
    "serve": ("oncelog.cli.serve", "Run a broker."),
    "topics": ("oncelog.cli.topics", "List, create, describe, alter and delete topics."),
    "brokers": ("oncelog.cli.brokers", "List brokers, and show what their log directories hold."),
    "configs": (
        "oncelog.cli.configs",
        "Describe and alter settings of topics, brokers and groups.",
    ),
    "features": ("oncelog.cli.features", "Show, upgrade and downgrade levels of features."),
    "groups": ("oncelog.cli.groups", "List, show, reset and delete consumer groups; show lag."),
    "quotas": ("oncelog.cli.quotas", "List, set and remove quotas of users and clients."),
    "users": ("oncelog.cli.users", "List, add and remove users that log in by SCRAM."),
    "acls": ("oncelog.cli.acls", "List, add, remove and check ACLs: who may do what."),
    "produce": ("oncelog.cli.produce", "Send records from standard input or a file."),
    "consume": ("oncelog.cli.consume", "Print the records of a topic."),
    "transactions": (
        "oncelog.cli.transactions.entry",
        "Show transactions and their lives, find and abort hanging ones.",
    ),
    "metrics": ("oncelog.cli.metrics", "Print what a broker counts."),
    "perf": ("oncelog.cli.perf", "Measure how fast a cluster is."),
    "doctor": ("oncelog.cli.doctor", "Say what is installed, and try a cluster out."),
    "completion": ("oncelog.cli.completion", "Have the shell complete commands and topics."),
    "cluster": ("oncelog.cli.cluster.entry", "Move a broker's metadata to ZooKeeper."),
    "log": ("oncelog.cli.log.entry", "Look into a log directory without a broker."),
    "simulate": ("oncelog.cli.simulate", "Search for defects under virtual time."),
    "demo": (
        "oncelog.cli.demo.entry",
        "Run the exactly-once pipeline under fire, and check the result.",
    ),
}
"""Command -> (module with a click command `command`, one line of help)."""


EXAMPLE: Final = """\b
To begin, in one shell and then in another:
  oncelog serve
  oncelog topics create greetings
  echo hello | oncelog produce greetings
  oncelog consume greetings --from-beginning"""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXAMPLE,
)
@click.version_option(package_name="oncelog", prog_name="oncelog")
def main() -> None:
    """Kafka's exactly-once machinery in Python."""
