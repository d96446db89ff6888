"""``oncelog brokers``: lists the brokers, the partitions each leads, and its log directories."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.meter import size_text
from oncelog.cli.output import Cell, Column, is_terminal, print_rows
from oncelog.cli.tool import Failure, ToolGroup, json_option, run

if TYPE_CHECKING:
    from oncelog.client import Admin, DataFolder

__all__ = ["command"]

_LIST_COLUMNS = (
    Column("broker", "Broker", numeric=True, style="cyan"),
    Column("address", "Address", wraps=True),
    Column("role", "Role"),
    Column("leaders", "Leads", numeric=True),
    Column("replicas", "Replicas", numeric=True),
    Column("size_bytes", "Size", numeric=True),
)
_FOLDER_COLUMNS = (
    Column("broker", "Broker", numeric=True, style="cyan"),
    Column("data_folder", "Data folder", wraps=True),
    Column("state", "State"),
    Column("partitions", "Partitions", numeric=True, spare=1),
    Column("size_bytes", "Size", numeric=True),
    Column("usable_bytes", "Free", numeric=True),
    Column("total_bytes", "Of", numeric=True, spare=2),
)


@click.group("brokers", cls=ToolGroup)
def command() -> None:
    """List brokers, and show what their log directories hold."""


@command.command("list")
@connection_options
@json_option()
def list_command(servers: str, as_json: bool) -> None:
    """List brokers: address, partitions led and held, bytes on disk."""

    async def work() -> list[tuple[Cell, ...]]:
        async with administrator(servers, "brokers") as admin:
            cluster = await admin.describe_cluster()
            partitions = [p for t in (await admin.list_topics()).values() for p in t.partitions]
            leads = Counter(p.leader for p in partitions)
            holds = Counter(node_id for p in partitions for node_id in p.replicas)
            return [
                (
                    node.node_id,
                    f"{node.host}:{node.port}",
                    "controller" if node.node_id == cluster.controller_id else "broker",
                    leads[node.node_id],
                    holds[node.node_id],
                    _shown(_held(await _folders(admin, node.node_id)), as_json=as_json),
                )
                for node in cluster.nodes
            ]

    print_rows(_LIST_COLUMNS, run(work, servers), as_json=as_json)


@command.command("describe")
@click.argument("node_ids", metavar="[BROKER]...", type=int, nargs=-1)
@connection_options
@json_option()
def describe_command(node_ids: tuple[int, ...], servers: str, as_json: bool) -> None:
    """Show the log directories of these brokers, or of all."""

    async def work() -> list[tuple[Cell, ...]]:
        async with administrator(servers, "brokers") as admin:
            known = [node.node_id for node in (await admin.describe_cluster()).nodes]
            for node_id in node_ids:
                if node_id not in known:
                    listed = ", ".join(map(str, known))
                    raise Failure(f"there is no broker {node_id}: the cluster has {listed}")
            return [
                (
                    node_id,
                    folder.path,
                    "on line" if not folder.error else folder.error.name,
                    len(folder.partition_sizes),
                    _shown(sum(folder.partition_sizes.values()), as_json=as_json),
                    _shown(folder.usable_bytes, as_json=as_json),
                    _shown(folder.total_bytes, as_json=as_json),
                )
                for node_id in node_ids or known
                for folder in await admin.describe_data_folders(node_id)
            ]

    print_rows(_FOLDER_COLUMNS, run(work, servers), as_json=as_json)


async def _folders(admin: Admin, node_id: int) -> list[DataFolder] | None:
    """Return the log directories; None if the broker does not report them."""
    from oncelog.client import ClientError

    try:
        return await admin.describe_data_folders(node_id)
    except ClientError:
        return None


def _held(folders: list[DataFolder] | None) -> int | None:
    if folders is None:
        return None
    return sum(size for folder in folders for size in folder.partition_sizes.values())


def _shown(size: int | None, *, as_json: bool) -> Cell:
    """Format a size: readable on a terminal, in bytes otherwise."""
    return size if size is None or as_json or not is_terminal() else size_text(size)
