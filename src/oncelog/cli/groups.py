"""``oncelog groups``: consumer groups, their lag, and resets of their offsets.

Lag is shown twice: to the last stable offset, up to which a read_committed consumer can read, and
to the high watermark. Where they differ, a transaction is open, and the consumer is not late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from oncelog.cli.completing import complete_groups, complete_topics
from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.habits.hints import did_you_mean
from oncelog.cli.output import Cell, Column, print_rows, say
from oncelog.cli.partitions import chosen_partitions, partition_option
from oncelog.cli.tool import (
    Failure,
    ToolGroup,
    ask,
    is_asked,
    json_option,
    require_topic,
    run,
)
from oncelog.core.spelling import nearest

if TYPE_CHECKING:
    from oncelog.client import Admin, GroupDescription, OffsetAndMetadata
    from oncelog.core.ids import TopicPartition

__all__ = ["command"]

_NAME = click.argument("name", metavar="GROUP", shell_complete=complete_groups)
_NAMES = click.argument(
    "names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups
)

_LIST_COLUMNS = (
    Column("group", "Group", style="cyan", wraps=True),
    Column("protocol", "Protocol"),
    Column("state", "State"),
    Column("protocol_type", "Kind", spare=2),
    Column("coordinator", "Coordinator", numeric=True, spare=1),
)
_MEMBER_COLUMNS = (
    Column("group", "Group", style="cyan", wraps=True),
    Column("state", "State", spare=1),
    Column("protocol", "Protocol", spare=5),
    Column("assignor", "Assignor", spare=3),
    Column("member_id", "Member", spare=6),
    Column("instance_id", "Static id", spare=2),
    Column("client_id", "Client", wraps=True),
    Column("host", "Host", spare=4),
    Column("partitions", "Partitions", wraps=True),
)
_LAG_COLUMNS = (
    Column("group", "Group", style="cyan", wraps=True),
    Column("topic", "Topic", wraps=True),
    Column("partition", "Partition", numeric=True),
    Column("committed", "Committed", numeric=True),
    Column("last_stable_offset", "LSO", numeric=True, spare=3),
    Column("high_watermark", "HW", numeric=True, spare=2),
    Column("lag_to_lso", "Lag to LSO", numeric=True, style="bold"),
    Column("lag_to_hw", "Lag to HW", numeric=True, spare=1),
    Column("client_id", "Client", style="dim", spare=4),
)
_RESET_COLUMNS = (
    Column("group", "Group", style="cyan", wraps=True),
    Column("topic", "Topic", wraps=True),
    Column("partition", "Partition", numeric=True),
    Column("old_offset", "Now", numeric=True),
    Column("new_offset", "New", numeric=True, style="bold"),
)


@click.group("groups", cls=ToolGroup)
def command() -> None:
    """List, show, reset and delete consumer groups; show their lag."""


@command.command("list")
@connection_options
@json_option()
def list_command(servers: str, as_json: bool) -> None:
    """List groups: protocol, state, coordinator."""

    async def work() -> list[tuple[Cell, ...]]:
        async with administrator(servers, "groups") as admin:
            return [tuple(one) for one in await admin.list_groups()]

    rows = [
        (group, protocol, state or None, kind or None, at)
        for group, protocol, state, kind, at in run(work, servers)
    ]
    print_rows(_LIST_COLUMNS, rows, as_json=as_json, empty="no groups yet")


@command.command("show")
@_NAMES
@connection_options
@json_option()
def show_command(names: tuple[str, ...], servers: str, as_json: bool) -> None:
    """Show the members of groups, and which partitions each has."""

    async def work() -> list[GroupDescription]:
        async with administrator(servers, "groups") as admin:
            return [await _require_group(admin, name) for name in names]

    rows: list[tuple[Cell, ...]] = []
    for group in run(work, servers):
        head = (group.group_id, group.state, group.kind, group.assignor or None)
        rows += [
            (
                *head,
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                ", ".join(map(str, sorted(one.partitions))) or None,
            )
            for one in group.members
        ] or [(*head, None, None, None, None, None)]
    print_rows(_MEMBER_COLUMNS, rows, as_json=as_json)


# --- lag ------------------------------------------------------------------------------


class Lag(NamedTuple):
    """A group's lag in one partition.

    Ends are None if the partition does not exist, and `committed` if a member has it that committed
    nothing yet: what it lacks depends on where it begins.
    """

    committed: int | None
    stable: int | None
    end: int | None

    def row(self) -> tuple[Cell, ...]:
        """Committed, LSO, HW, lag to each; no lag is below 0, and none is known without both."""
        committed = self.committed
        lags = [
            None if end is None or committed is None else max(0, end - committed)
            for end in self[1:]
        ]
        return (*self, *lags)


@command.command("lag")
@click.argument("names", metavar="[GROUP]...", nargs=-1, shell_complete=complete_groups)
@connection_options
@click.option(
    "--topic",
    "topics",
    shell_complete=complete_topics,
    metavar="NAME",
    multiple=True,
    help="Only this; repeatable.",
)
@json_option()
def lag_command(
    names: tuple[str, ...], servers: str, topics: tuple[str, ...], as_json: bool
) -> None:
    """Show how far groups are behind, to the last stable offset and to the high watermark.

    A partition that a member has without a committed offset stands there without a lag.
    """

    async def work() -> list[tuple[Cell, ...]]:
        async with administrator(servers, "groups") as admin:
            wanted = names or tuple(one.group_id for one in await admin.list_groups())
            return [row for name in wanted for row in await _lag_rows(admin, name, topics)]

    rows = run(work, servers)
    print_rows(
        _LAG_COLUMNS,
        rows,
        as_json=as_json,
        empty="nothing was committed, and no member has a partition",
    )


async def _lag_rows(admin: Admin, name: str, topics: tuple[str, ...]) -> list[tuple[Cell, ...]]:
    group = await _require_group(admin, name)
    owners = {tp: one.client_id for one in group.members for tp in one.partitions}
    committed = {tp: at.offset for tp, at in (await admin.group_offsets(name)).items()}
    found = {
        tp: committed.get(tp)
        for tp in committed.keys() | owners.keys()
        if not topics or tp.topic in topics
    }
    lags = await _lags(admin, found)
    return [(name, *tp, *lag.row(), owners.get(tp)) for tp, lag in sorted(lags.items())]


async def _lags(
    admin: Admin, committed: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, Lag]:
    known = await admin.list_topics()
    there = [
        tp
        for tp in committed
        if tp.topic in known and tp.partition < len(known[tp.topic].partitions)
    ]
    stable = await admin.list_offsets(dict.fromkeys(there, "latest"), "read_committed")
    ends = await admin.list_offsets(dict.fromkeys(there, "latest"))
    return {tp: Lag(at, stable.get(tp), ends.get(tp)) for tp, at in committed.items()}


# --- reset ----------------------------------------------------------------------------

_TARGETS: Final = ("to_earliest", "to_latest", "to_offset", "shift_by", "to_timestamp")


@command.command("reset")
@_NAME
@connection_options
@click.option(
    "--topic",
    shell_complete=complete_topics,
    metavar="NAME",
    required=True,
    help="The topic to go on elsewhere in.",
)
@partition_option
@click.option("--to-earliest", is_flag=True, default=None, help="To the first record there is.")
@click.option("--to-latest", is_flag=True, default=None, help="Behind the last record there is.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="So many offsets on, or back.")
@click.option(
    "--to-timestamp", type=click.IntRange(0), metavar="MS", help="To the first since, in ms."
)
@click.option("--execute", is_flag=True, help="Do it; without, it is only shown.")
@json_option()
def reset_command(
    name: str,
    servers: str,
    topic: str,
    indexes: tuple[int, ...],
    execute: bool,
    as_json: bool,
    **targets: int | None,
) -> None:
    """Have a group go on elsewhere. It must have no members; nothing happens without --execute."""
    given = {key: value for key, value in targets.items() if value is not None}
    if len(given) != 1:
        options = ", ".join("--" + key.replace("_", "-") for key in _TARGETS)
        raise click.UsageError(f"give one of {options}")
    ((target, value),) = given.items()

    async def work() -> list[tuple[Cell, ...]]:
        from oncelog.client import OffsetAndMetadata

        async with administrator(servers, "groups") as admin:
            partitions = chosen_partitions(await require_topic(admin, topic), indexes)
            committed = await admin.group_offsets(name)
            new = await _target(admin, partitions, committed, target, int(value))
            if execute:
                if name in {one.group_id for one in await admin.list_groups()}:
                    await _require_no_members(admin, name)
                offsets = {tp: OffsetAndMetadata(offset) for tp, offset in new.items()}
                await admin.alter_group_offsets(name, offsets)
            return [
                (name, *tp, committed[tp].offset if tp in committed else None, offset)
                for tp, offset in sorted(new.items())
            ]

    print_rows(_RESET_COLUMNS, run(work, servers), as_json=as_json)
    if not execute:
        say("nothing was changed: add --execute to do this", style="yellow")


async def _target(
    admin: Admin,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    target: str,
    value: int,
) -> dict[TopicPartition, int]:
    """The new offset of each partition, within what its log holds."""
    starts = await admin.list_offsets(dict.fromkeys(partitions, "earliest"))
    ends = await admin.list_offsets(dict.fromkeys(partitions, "latest"))
    if target == "to_earliest":
        return starts
    if target == "to_latest":
        return ends
    if target == "to_timestamp":
        found = await admin.list_offsets(dict.fromkeys(partitions, value))
        return {tp: found[tp] if found[tp] >= 0 else ends[tp] for tp in partitions}
    if target == "shift_by":
        missing = [tp for tp in partitions if tp not in committed]
        if missing:
            raise Failure(f"nothing is committed for {missing[0]}: --shift-by has no beginning")
        wanted = {tp: committed[tp].offset + value for tp in partitions}
    else:
        wanted = dict.fromkeys(partitions, value)
    return {tp: min(max(wanted[tp], starts[tp]), ends[tp]) for tp in partitions}


# --- delete ---------------------------------------------------------------------------


@command.command("delete")
@_NAMES
@connection_options
@click.option(
    "--topic",
    shell_complete=complete_topics,
    metavar="NAME",
    help="Forget only what was committed for this topic.",
)
@click.option("--yes", is_flag=True, help="Do not ask at the terminal.")
def delete_command(names: tuple[str, ...], servers: str, topic: str | None, yes: bool) -> None:
    """Delete groups with their offsets, or their offsets of one topic."""
    what = f"its offsets of {topic}" if topic is not None else "all its offsets"

    async def work() -> None:
        async with administrator(servers, "groups") as admin:
            for name in names:
                await _require_no_members(admin, name)
            for name in names:
                if is_asked(yes=yes):
                    ask(f"Delete {name}: {what}?")
                if topic is None:
                    await admin.delete_group(name)
                else:
                    offsets = await admin.group_offsets(name)
                    await admin.delete_group_offsets(name, [o for o in offsets if o.topic == topic])
                say(f"deleted {name}: {what}")

    run(work, servers)


async def _require_group(admin: Admin, name: str) -> GroupDescription:
    """The group, or a `Failure` that suggests the nearest names."""
    from oncelog.client import FatalError
    from oncelog.core.errors import ErrorCode

    try:
        return await admin.describe_group(name)
    except FatalError as error:
        if error.code is not ErrorCode.group_id_not_found:
            raise
        known = [one.group_id for one in await admin.list_groups()]
        question = did_you_mean(nearest(name, known))
        raise Failure(f"unknown group {name}: {question or 'see `oncelog groups list`'}") from None


async def _require_no_members(admin: Admin, name: str) -> None:
    """Refuse a group with members before anything changes: they have their own positions."""
    members = (await _require_group(admin, name)).members
    if members:
        clients = ", ".join(sorted({one.client_id for one in members}))
        raise Failure(
            f"{name} has members ({clients}): stop them, or wait for their session timeout, and try"
            " again"
        )
