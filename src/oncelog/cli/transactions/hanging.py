"""``oncelog transactions find-hanging``: finds open transactions that no coordinator will end.

By the rule of Apache's ``kafka-transactions find-hanging``: older than any transaction may get, and
either no transactional id has its producer id, or that id's transaction does not have the
partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from oncelog.cli.completing import complete_topics
from oncelog.cli.connecting import connection_options
from oncelog.cli.output import Column, is_terminal, print_rows, say
from oncelog.cli.tool import ToolCommand, json_option, run
from oncelog.cli.transactions.common import (
    OpenTransaction,
    administrator,
    find_open,
    now_ms,
    owners_of,
    partitions_to_search,
)

if TYPE_CHECKING:
    from oncelog.client import TransactionDescription

__all__ = ["command", "is_hanging"]

_MINUTE_MS = 60_000

_COLUMNS = (
    Column("topic", "Topic", style="cyan", wraps=True),
    Column("partition", "Partition", numeric=True),
    Column("producer_id", "Producer id", numeric=True, spare=1),
    Column("producer_epoch", "Epoch", numeric=True, spare=2),
    Column("coordinator_epoch", "Coordinator epoch", numeric=True, spare=4),
    Column("start_offset", "Start offset", numeric=True),
    Column("last_timestamp", "Last timestamp", numeric=True, spare=3),
    Column("duration_min", "Minutes", numeric=True),
)


def is_hanging(one: OpenTransaction, owner: TransactionDescription | None) -> bool:
    """Whether no coordinator will write the marker that ends it.

    A coordinator describes the partitions of a transaction that is open, and those that still owe a
    marker while it is being ended.
    """
    return owner is None or one.topic_partition not in owner.partitions


def hanging(
    found: Sequence[OpenTransaction],
    owners: Mapping[int, TransactionDescription],
) -> list[OpenTransaction]:
    """Those of `found` that hang."""
    return [one for one in found if is_hanging(one, owners.get(one.producer.producer_id))]


@click.command("find-hanging", cls=ToolCommand)
@connection_options
@click.option(
    "--topic",
    metavar="NAME",
    shell_complete=complete_topics,
    help="Look only there. Default: in all topics.",
)
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Look only there.")
@click.option(
    "--broker-id", type=click.IntRange(0), metavar="N", help="Only partitions of this broker."
)
@click.option(
    "--max-transaction-timeout",
    "minutes",
    type=click.IntRange(0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="The brokers' transaction.max.timeout.ms: what is younger is passed over.",
)
@json_option()
def command(
    servers: str,
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    minutes: int,
    as_json: bool,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end."""
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    topics = () if topic is None else (topic,)

    async def work() -> list[OpenTransaction]:
        async with administrator(servers) as admin:
            partitions = await partitions_to_search(admin, topics, partition, broker_id)
            latest_ms = now_ms() - minutes * _MINUTE_MS
            found = [
                one
                for one in await find_open(admin, partitions)
                if one.producer.last_timestamp_ms < latest_ms
            ]
            return hanging(found, await owners_of(admin, found))

    found = run(work, servers)
    if not found and not as_json and is_terminal():
        say("no hanging transaction")
        return
    print_rows(_COLUMNS, [_row(one) for one in found], as_json=as_json)
    if found:
        first = found[0]
        say(
            "end one with: oncelog transactions abort"
            f" --topic {first.topic_partition.topic} --partition {first.topic_partition.partition}"
            f" --start-offset {first.start_offset}",
            style="yellow",
        )


def _row(one: OpenTransaction) -> tuple[str | int | None, ...]:
    producer = one.producer
    return (
        one.topic_partition.topic,
        one.topic_partition.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        one.start_offset,
        producer.last_timestamp_ms,
        (now_ms() - producer.last_timestamp_ms) // _MINUTE_MS,
    )
