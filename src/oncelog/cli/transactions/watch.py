"""``oncelog transactions watch``: which transaction holds each partition's last stable offset.

A read_committed reader sees nothing at or above the last stable offset (LSO), which the oldest open
transaction of the partition holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from oncelog.cli.completing import complete_topics
from oncelog.cli.connecting import connection_options
from oncelog.cli.output import Cell, Column, console, fitted, is_terminal, print_rows
from oncelog.cli.tool import ToolCommand, json_option, run
from oncelog.cli.transactions.common import (
    OpenTransaction,
    administrator,
    duration_text,
    find_open,
    now_ms,
    owners_of,
    partitions_to_search,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from oncelog.client import Admin, TransactionDescription
    from oncelog.core.ids import TopicPartition

__all__ = ["command"]

_COLUMNS = (
    Column("topic", "Topic", style="cyan", wraps=True),
    Column("partition", "Partition", numeric=True),
    Column("last_stable_offset", "LSO", numeric=True, spare=2),
    Column("offsets_held", "Held back", numeric=True),
    Column("open_count", "Open", numeric=True, spare=3),
    Column("transactional_id", "Held by", style="bold", wraps=True),
    Column("producer_id", "Producer id", numeric=True, spare=4),
    Column("producer_epoch", "Epoch", numeric=True, spare=5),
    Column("state", "State", spare=1),
    Column("open_ms", "For", numeric=True),
)

NOTHING_HELD: Final = "no open transaction holds a last stable offset"


class OldestTransaction(NamedTuple):
    """The oldest open transaction of a partition, and who has it.

    `end_offset` is the partition's end, `open_count` how many transactions are open there. Without
    an `owner` no coordinator knows the producer, or `are_owners_known` is false: one that may know
    it is not available.
    """

    oldest: OpenTransaction
    open_count: int
    end_offset: int
    owner: TransactionDescription | None
    are_owners_known: bool = True

    @property
    def state(self) -> str:
        """The owner's state, or what is known of the owner."""
        if self.owner is not None:
            return self.owner.state
        known = self.are_owners_known
        return "unknown to every coordinator" if known else "its coordinator is not available"

    def open_ms(self, at_ms: int) -> int:
        """The time since which it is open, by the coordinator, else the producer's last record."""
        begun_ms = self.oldest.producer.last_timestamp_ms
        if self.owner is not None and self.owner.start_time_ms is not None:
            begun_ms = self.owner.start_time_ms
        return max(0, at_ms - begun_ms)


@click.command("watch", cls=ToolCommand)
@connection_options
@click.option(
    "--topic",
    "topics",
    metavar="NAME",
    shell_complete=complete_topics,
    multiple=True,
    help="Only this; repeatable.",
)
@click.option(
    "--interval-ms", type=click.IntRange(100), default=1000, show_default=True, metavar="MS"
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="Look N times; else until ^C.")
@json_option()
def command(
    servers: str, topics: tuple[str, ...], interval_ms: int, count: int | None, as_json: bool
) -> None:
    """Show live which transaction holds each partition's last stable offset, and for how long."""

    async def work() -> None:
        async with administrator(servers) as admin:
            if is_terminal() and not as_json and count != 1:
                await _show_live(admin, topics, interval_ms, count)
                return
            looks = 0
            while count is None or looks < count:
                if looks:
                    await asyncio.sleep(interval_ms / 1000)
                _print(await _look(admin, topics), as_json=as_json)
                looks += 1

    run(work, servers)


async def _show_live(
    admin: Admin, topics: tuple[str, ...], interval_ms: int, count: int | None
) -> None:
    from rich.live import Live

    with Live(console=console(), auto_refresh=False) as live:
        looks = 0
        while count is None or looks < count:
            live.update(_screen(await _look(admin, topics), live.console.width), refresh=True)
            looks += 1
            await asyncio.sleep(interval_ms / 1000)


def _print(holders: Sequence[OldestTransaction], *, as_json: bool) -> None:
    at_ms = now_ms()
    is_for_person = is_terminal() and not as_json
    rows = _for_person(holders, at_ms) if is_for_person else [_row(one, at_ms) for one in holders]
    print_rows(_COLUMNS, rows, as_json=as_json, empty=NOTHING_HELD)


def _screen(holders: Sequence[OldestTransaction], room: int) -> RenderableType:
    from rich.text import Text

    if not holders:
        return Text(NOTHING_HELD, style="green")
    return fitted(_COLUMNS, _for_person(holders, now_ms()), room)


def _for_person(holders: Sequence[OldestTransaction], at_ms: int) -> list[tuple[Cell, ...]]:
    return [(*_row(one, at_ms)[:-1], duration_text(one.open_ms(at_ms))) for one in holders]


async def _look(admin: Admin, topics: tuple[str, ...]) -> list[OldestTransaction]:
    """Return the producer that holds back each partition's last stable offset."""
    partitions = await partitions_to_search(admin, topics)
    by_partition: dict[TopicPartition, list[OpenTransaction]] = {}
    for one in await find_open(admin, partitions):
        by_partition.setdefault(one.topic_partition, []).append(one)
    oldest = [found[0] for found in by_partition.values()]
    owners = await _owners(admin, oldest)
    ends = await admin.list_offsets(dict.fromkeys(by_partition, "latest"))
    return [
        OldestTransaction(
            one,
            len(by_partition[one.topic_partition]),
            ends[one.topic_partition],
            (owners or {}).get(one.producer.producer_id),
            are_owners_known=owners is not None,
        )
        for one in oldest
    ]


async def _owners(
    admin: Admin, transactions: Sequence[OpenTransaction]
) -> dict[int, TransactionDescription] | None:
    """By producer id, or None while a coordinator is not available."""
    from oncelog.client import FatalError
    from oncelog.core.errors import ErrorCode

    try:
        return await owners_of(admin, transactions)
    except FatalError as error:
        if error.code is not ErrorCode.coordinator_not_available:
            raise
        return None


def _row(holder: OldestTransaction, at_ms: int) -> tuple[Cell, ...]:
    one, owner = holder.oldest, holder.owner
    return (
        one.topic_partition.topic,
        one.topic_partition.partition,
        one.start_offset,
        max(0, holder.end_offset - one.start_offset),
        holder.open_count,
        owner.transactional_id if owner is not None else None,
        one.producer.producer_id,
        one.producer.producer_epoch,
        holder.state,
        holder.open_ms(at_ms),
    )
