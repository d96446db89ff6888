"""``oncelog cluster status``: brokers, who leads, and which replicas are behind or away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.cluster.survey import BrokerStatus, ClusterStatus, PartitionTrouble, survey
from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.output import Cell, Column, console, fitted, is_terminal, print_json, print_rows
from oncelog.cli.tool import ToolCommand, json_option, run

if TYPE_CHECKING:
    from rich.console import RenderableType

    from oncelog.client import Admin

__all__ = ["command"]

_BROKERS: Final = (
    Column("broker", "Broker", numeric=True, style="cyan"),
    Column("state", "State"),
    Column("address", "Address", wraps=True, spare=2),
    Column("rack", "Rack", spare=3),
    Column("leads", "Leads", numeric=True),
    Column("preferred", "Should lead", numeric=True, spare=1),
    Column("replicas", "Replicas", numeric=True),
    Column("behind", "Behind", numeric=True),
    Column("lag", "Lag", numeric=True),
    Column("coordinates", "Coordinates", numeric=True, spare=4),
)
_TROUBLES: Final = (
    Column("topic", "Topic", style="cyan", wraps=True),
    Column("partition", "Partition", numeric=True),
    Column("state", "State", style="yellow"),
    Column("leader", "Leader", numeric=True),
    Column("replicas", "Replicas", spare=2),
    Column("isr", "In sync"),
    Column("eligible", "Eligible", spare=1),
    Column("missing", "Missing"),
    Column("lag", "Lag", numeric=True),
)


@click.command("status", cls=ToolCommand)
@connection_options
@click.option("--watch", is_flag=True, help="Look again and again, until ^C.")
@click.option(
    "--interval-ms", type=click.IntRange(100), default=1000, show_default=True, metavar="MS"
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="With --watch: look N times.")
@json_option("Print JSON, one object per look.")
def command(servers: str, watch: bool, interval_ms: int, count: int | None, as_json: bool) -> None:
    """Show brokers, who leads, and which replicas are behind or away.

    A replica is behind while it is not in the ISR; its lag is how many records it lacks of those
    that the leader has. A broker coordinates groups and transactions for the partitions of the
    internal topics that it leads; how long it took to load them is among its metrics.
    """

    async def work() -> None:
        async with administrator(servers, "cluster") as admin:
            if watch and is_terminal() and not as_json:
                await _show_live(admin, interval_ms, count)
                return
            await _looks(admin, _print_json if as_json else _print, interval_ms, watch, count)

    run(work, servers)


async def _looks(
    admin: Admin,
    show: Callable[[ClusterStatus], None],
    interval_ms: int,
    watch: bool,
    count: int | None,
) -> None:
    looks = 0
    while not looks or (watch and looks != count):
        if looks:
            await asyncio.sleep(interval_ms / 1000)
        show(await survey(admin))
        looks += 1


async def _show_live(admin: Admin, interval_ms: int, count: int | None) -> None:
    from rich.live import Live

    with Live(console=console(), auto_refresh=False) as live:

        def show(status: ClusterStatus) -> None:
            live.update(_screen(status, live.console.width), refresh=True)

        await _looks(admin, show, interval_ms, True, count)


def _print(status: ClusterStatus) -> None:
    if is_terminal():
        screen = console()
        screen.print(_screen(status, screen.width))
        return
    print_rows(_BROKERS, [_broker_row(one) for one in status.brokers], as_json=False)
    print_rows(_TROUBLES, [_trouble_row(one) for one in status.troubles], as_json=False)


def _screen(status: ClusterStatus, room: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        Text.assemble(
            ("cluster ", "dim"),
            (status.cluster_id or "-", "bold cyan"),
            (f", controller {_controller(status)}, {status.partitions_count:,} partitions", "dim"),
        ),
        _summary(status),
        Text(),
        fitted(_BROKERS, [_broker_row(one) for one in status.brokers], room),
    ]
    if status.troubles:
        shown = [_trouble_row(one) for one in status.troubles]
        parts += [Text(), fitted(_TROUBLES, shown, room)]
    return Group(*parts)


def _controller(status: ClusterStatus) -> str:
    return str(status.controller_id) if status.controller_id >= 0 else "none"


def _summary(status: ClusterStatus) -> RenderableType:
    from rich.text import Text

    away = [one.broker_id for one in status.brokers if one.address is None]
    told = [f"{len(away)} broker{'s' if away[1:] else ''} away"] if away else []
    states = ("off line", "under min ISR", "under-replicated", "reassigning")
    told += [f"{count} {state}" for state in states if (count := status.count(state))]
    if not told:
        return Text("every replica is in sync", style="green")
    is_bad = status.count("off line") or status.count("under min ISR")
    return Text(", ".join(told), style="bold red" if is_bad else "yellow")


def _broker_row(one: BrokerStatus) -> tuple[Cell, ...]:
    state = "controller" if one.is_controller else "up"
    return (
        one.broker_id,
        "away" if one.address is None else state,
        one.address,
        one.rack,
        one.leads_count,
        one.preferred_count,
        one.replicas_count,
        one.behind_count,
        one.lag,
        one.coordinates_count,
    )


def _trouble_row(one: PartitionTrouble) -> tuple[Cell, ...]:
    partition = one.partition
    return (
        one.label.topic,
        one.label.partition,
        one.state,
        partition.leader if partition.leader >= 0 else None,
        _joined(partition.replicas),
        _joined(partition.isr),
        _joined(partition.eligible),
        _joined(one.missing),
        max((one.lags[broker] for broker in one.missing if broker in one.lags), default=None),
    )


def _joined(brokers: tuple[int, ...]) -> str | None:
    return ",".join(map(str, brokers)) or None


def _print_json(status: ClusterStatus) -> None:
    print_json(
        {
            "cluster_id": status.cluster_id,
            "controller": status.controller_id,
            "partitions": status.partitions_count,
            "under_replicated": status.under_replicated_count,
            "reassigning": status.count("reassigning"),
            "under_min_isr": status.count("under min ISR"),
            "off_line": status.count("off line"),
            "brokers": [
                {column.key: cell for column, cell in zip(_BROKERS, _broker_row(one), strict=True)}
                for one in status.brokers
            ],
            "troubles": [
                {
                    "topic": one.label.topic,
                    "partition": one.label.partition,
                    "state": one.state,
                    "leader": one.partition.leader,
                    "replicas": one.partition.replicas,
                    "isr": one.partition.isr,
                    "eligible": one.partition.eligible,
                    "adding": one.adding,
                    "lags": one.lags,
                }
                for one in status.troubles
            ],
        }
    )
