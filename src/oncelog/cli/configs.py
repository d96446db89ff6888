"""``oncelog configs``: the settings of topics, brokers and groups, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import click

from oncelog.cli.completing import complete_groups, complete_topics
from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.output import Column, print_rows, say
from oncelog.cli.tool import (
    ConfigChanges,
    ToolGroup,
    config_options,
    json_option,
    require_topic,
    run,
)

if TYPE_CHECKING:
    from oncelog.client import Admin, ConfigEntry

__all__ = ["command"]

Kind = Literal["topic", "broker", "group"]

_KIND = click.argument("kind", metavar="topic|broker|group", type=click.Choice(get_args(Kind)))
_COLUMNS = (
    Column("type", "Of", style="dim", spare=2),
    Column("name", "Name", style="cyan", wraps=True),
    Column("config", "Setting", style="bold", wraps=True),
    Column("value", "Value", wraps=True),
    Column("source", "From", style="dim", spare=1),
)


def _complete(ctx: click.Context, parameter: click.Parameter, start: str) -> list[str]:
    complete = {"topic": complete_topics, "group": complete_groups}.get(ctx.params.get("kind", ""))
    return complete(ctx, parameter, start) if complete is not None else []


@click.group("configs", cls=ToolGroup)
def command() -> None:
    """Describe and alter settings of topics, brokers and groups."""


@command.command("describe")
@_KIND
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=_complete)
@connection_options
@click.option("--all", "everything", is_flag=True, help="Show settings at their defaults too.")
@json_option()
def describe_command(
    kind: Kind, names: tuple[str, ...], servers: str, everything: bool, as_json: bool
) -> None:
    """Show settings: those that were set, of these or of all."""

    async def work() -> dict[str, dict[str, ConfigEntry]]:
        async with administrator(servers, "configs") as admin:
            return await admin.describe_configs(await _named(admin, kind, names), kind)

    found = run(work, servers)
    rows = [
        (kind, name, entry.name, "(secret)" if entry.is_sensitive else entry.value, entry.source)
        for name, entries in sorted(found.items())
        for _, entry in sorted(entries.items())
        if everything or entry.source != "default"
    ]
    print_rows(
        _COLUMNS, rows, as_json=as_json, empty="everything is at its default: --all shows it"
    )


async def _named(admin: Admin, kind: Kind, names: tuple[str, ...]) -> list[str]:
    """The names as given, or all there are. Raises `Failure` for a topic that is not there."""
    if kind == "topic":
        for name in names:
            await require_topic(admin, name)
    if names:
        return list(names)
    if kind == "topic":
        return [
            name for name, topic in (await admin.list_topics()).items() if not topic.is_internal
        ]
    if kind == "broker":
        return [str(node.node_id) for node in (await admin.describe_cluster()).nodes]
    return [group.group_id for group in await admin.list_groups()]


@command.command("alter")
@_KIND
@click.argument("name", shell_complete=_complete)
@connection_options
@config_options
def alter_command(
    kind: Kind, name: str, servers: str, configs: tuple[str, ...], deleted: tuple[str, ...]
) -> None:
    """Set or delete settings of one topic, broker or group: all of them, or none."""
    changes = ConfigChanges.of(configs, deleted)
    if not changes:
        raise click.UsageError("nothing to change: give --config or --delete-config")

    async def work() -> None:
        async with administrator(servers, "configs") as admin:
            (named,) = await _named(admin, kind, (name,))
            await admin.incremental_alter_configs(named, *changes, kind)

    run(work, servers)
    say(f"{name}: {changes}")
