"""``oncelog topics``: list, create, describe, alter and delete topics.

Options are named as those of Kafka's ``kafka-topics`` and ``kafka-configs``. Piped, `describe`
prints the lines of ``kafka-topics --describe``, with each partition's first and next offset behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from oncelog.cli.completing import complete_topics
from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.meter import size_text
from oncelog.cli.output import Column, is_terminal, print_json, print_rows, print_text, say
from oncelog.cli.partitions import chosen_partitions, partition_option, partition_sizes
from oncelog.cli.tool import (
    ConfigChanges,
    Failure,
    ToolGroup,
    ask,
    config_options,
    is_asked,
    json_option,
    parse_pairs,
    require_topic,
    run,
    unknown_topic,
)

if TYPE_CHECKING:
    from oncelog.client import Admin, ConfigEntry, TopicDescription
    from oncelog.core.ids import TopicPartition

__all__ = ["command"]

_NEW_NAMES = click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
_NAMES = click.argument(
    "names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics
)
_NAME = click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
_CONFIG = click.option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    help="One setting (retention.ms=60000); repeatable.",
)
_IF_EXISTS = click.option("--if-exists", is_flag=True, help="Pass over topics that do not exist.")

_LIST_COLUMNS = (
    Column("topic", "Topic", style="cyan", wraps=True),
    Column("partitions", "Partitions", numeric=True),
    Column("replication_factor", "Replicas", numeric=True, spare=1),
    Column("topic_id", "Id", style="dim", spare=2),
)


@click.group("topics", cls=ToolGroup)
def command() -> None:
    """List, create, describe, alter and delete topics."""


# --- list -----------------------------------------------------------------------------


@command.command("list")
@connection_options
@click.option("--internal", is_flag=True, help="Show the internal topics too.")
@json_option()
def list_command(servers: str, internal: bool, as_json: bool) -> None:
    """List topics: name, partitions, replicas, id."""

    async def work() -> dict[str, TopicDescription]:
        async with administrator(servers, "topics") as admin:
            return await admin.list_topics()

    topics = run(work, servers)
    shown = [t for _, t in sorted(topics.items()) if internal or not t.is_internal]
    rows = [
        (t.name, len(t.partitions), _replication_factor(t), str(t.topic_id or "-")) for t in shown
    ]
    print_rows(
        _LIST_COLUMNS,
        rows,
        as_json=as_json,
        empty="no topics yet: `oncelog topics create NAME` makes one",
    )


def _replication_factor(topic: TopicDescription) -> int:
    return max((len(p.replicas) for p in topic.partitions), default=0)


# --- create ---------------------------------------------------------------------------


@command.command("create")
@_NEW_NAMES
@connection_options
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Default: the broker's num.partitions.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    metavar="N",
    help="Default: the broker's default.replication.factor.",
)
@_CONFIG
@click.option("--if-not-exists", is_flag=True, help="Pass over topics that exist already.")
def create_command(
    names: tuple[str, ...],
    servers: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create topics."""
    from oncelog.client import FatalError, NewTopic
    from oncelog.core.errors import ErrorCode

    settings = parse_pairs("--config", configs)

    async def work() -> None:
        async with administrator(servers, "topics") as admin:
            # One by one: when the third is refused, the first two are there and were reported.
            for name in names:
                topic = NewTopic(name, partitions or -1, replication_factor or -1, settings)
                try:
                    await admin.create_topics([topic])
                except FatalError as error:
                    if error.code is not ErrorCode.topic_already_exists:
                        raise
                    if not if_not_exists:
                        raise Failure(
                            f"topic {name} exists already: add partitions or change settings with"
                            f" `oncelog topics alter {name}`, or pass it over with --if-not-exists"
                        ) from None
                    say(f"{name} exists already", style="yellow")
                else:
                    say(f"created {name}")

    run(work, servers)


# --- describe -------------------------------------------------------------------------


@command.command("describe")
@click.argument("names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@connection_options
@click.option("--all-configs", is_flag=True, help="Show settings at their defaults too.")
@_IF_EXISTS
@json_option("Print JSON, one object per topic.")
def describe_command(
    names: tuple[str, ...], servers: str, all_configs: bool, if_exists: bool, as_json: bool
) -> None:
    """Describe topics: partitions, replicas, offsets, sizes, settings.

    Without a name it describes all but the internal ones.
    """

    async def work() -> None:
        async with administrator(servers, "topics") as admin:
            known = await admin.list_topics() if not names else {}
            wanted = names or [name for name, t in sorted(known.items()) if not t.is_internal]
            for name in await _existing(admin, wanted, if_exists=if_exists):
                await require_topic(admin, name)
                topic = (await admin.describe_replicas([name]))[name]
                entries = (await admin.describe_configs([name]))[name]
                configs = {
                    key: entry
                    for key, entry in sorted(entries.items())
                    if all_configs or entry.source == "topic"
                }
                places = await _places(admin, topic)
                if as_json:
                    print_json(_as_json(topic, configs, places))
                elif is_terminal():
                    _show_topic(topic, configs, places)
                else:
                    _print_topic(topic, configs, places)

    run(work, servers)


class Place(NamedTuple):
    """The start and end of a partition's log, and its size; None if not authorized.

    Readers under read_committed see records below `stable`, others records below `end`.
    """

    start: int
    stable: int
    end: int
    size_bytes: int | None


Places = Mapping[int, Place]


async def _places(admin: Admin, topic: TopicDescription) -> dict[int, Place]:
    """The log of every partition that has a leader to ask."""
    from oncelog.core.ids import TopicPartition

    leaders = {TopicPartition(topic.name, p.index): p.leader for p in topic.partitions}
    wanted = [tp for tp, leader in leaders.items() if leader >= 0]
    starts = await admin.list_offsets(dict.fromkeys(wanted, "earliest"))
    ends = await admin.list_offsets(dict.fromkeys(wanted, "latest"))
    stable = await admin.list_offsets(dict.fromkeys(wanted, "latest"), "read_committed")
    sizes = await partition_sizes(admin, leaders)
    return {tp.partition: Place(starts[tp], stable[tp], ends[tp], sizes.get(tp)) for tp in wanted}


def _as_json(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], places: Places
) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id) if topic.topic_id else None,
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": p.index,
                "leader": p.leader,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "eligible": list(p.eligible),
                "last_eligible": list(p.last_eligible),
                **_place_of(places, p.index),
            }
            for p in topic.partitions
        ],
        "configs": {key: {"value": e.value, "source": e.source} for key, e in configs.items()},
    }


def _place_of(places: Places, index: int) -> dict[str, int | None]:
    keys = ("start_offset", "last_stable_offset", "end_offset", "size_bytes")
    return dict(zip(keys, places.get(index, (None,) * len(keys)), strict=True))


_PARTITION_COLUMNS = (
    Column("partition", "Partition", numeric=True, style="cyan"),
    Column("leader", "Leader", numeric=True),
    Column("replicas", "Replicas", spare=1),
    Column("isr", "In sync"),
    Column("start_offset", "Start", numeric=True, spare=2),
    Column("last_stable_offset", "LSO", numeric=True),
    Column("end_offset", "End", numeric=True),
    Column("size_bytes", "Size", numeric=True, spare=3),
)
_CONFIG_COLUMNS = (
    Column("config", "Setting", style="cyan"),
    Column("value", "Value", wraps=True),
    Column("source", "From", style="dim"),
)


def _show_topic(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], places: Places
) -> None:
    count = sum(place.end - place.start for place in places.values())
    size = sum(place.size_bytes or 0 for place in places.values())
    internal = ", internal" if topic.is_internal else ""
    print_text(f"{topic.name}", style="bold cyan")
    print_text(
        f"id {topic.topic_id or '-'}, {_counted(len(topic.partitions), 'partition')},"
        f" {_counted(_replication_factor(topic), 'replica')},"
        f" {_counted(count, 'offset')}, {size_text(size)}{internal}",
        style="dim",
        wraps=True,
    )
    click.echo()
    rows = [
        (
            p.index,
            p.leader if p.leader >= 0 else "none",
            _joined(p.replicas),
            _joined(p.isr),
            *_place_of(places, p.index).values(),
        )
        for p in topic.partitions
    ]
    print_rows(_PARTITION_COLUMNS, rows, as_json=False)
    for p in topic.partitions:
        if p.eligible or p.last_eligible:
            text = f"partition {p.index}: eligible to lead {_joined(p.eligible) or 'none'}"
            doubted = f", in doubt {_joined(p.last_eligible)}" if p.last_eligible else ""
            print_text(text + doubted, style="yellow", wraps=True)
    click.echo()
    if configs:
        values = [(key, e.value, e.source) for key, e in configs.items()]
        print_rows(_CONFIG_COLUMNS, values, as_json=False)
        click.echo()


def _print_topic(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], places: Places
) -> None:
    settings = ",".join(f"{key}={e.value or ''}" for key, e in configs.items())
    click.echo(
        f"Topic: {topic.name}\tTopicId: {topic.topic_id or '-'}"
        f"\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {_replication_factor(topic)}\tConfigs: {settings}"
    )
    for p in topic.partitions:
        leader = p.leader if p.leader >= 0 else "none"
        place = {key: "-" if v is None else v for key, v in _place_of(places, p.index).items()}
        click.echo(
            f"\tTopic: {topic.name}\tPartition: {p.index}\tLeader: {leader}"
            f"\tReplicas: {_joined(p.replicas)}\tIsr: {_joined(p.isr)}"
            f"\tElr: {_joined(p.eligible)}\tLastKnownElr: {_joined(p.last_eligible)}"
            f"\tStartOffset: {place['start_offset']}\tEndOffset: {place['end_offset']}"
            f"\tLastStableOffset: {place['last_stable_offset']}\tSize: {place['size_bytes']}"
        )


def _joined(numbers: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in numbers)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# --- alter ----------------------------------------------------------------------------


@command.command("alter")
@_NAME
@connection_options
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Add partitions until there are so many in all.",
)
@config_options
@_IF_EXISTS
def alter_command(
    name: str,
    servers: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    if_exists: bool,
) -> None:
    """Add partitions to a topic, set or delete its settings."""
    changes = ConfigChanges.of(configs, deleted)
    if partitions is None and not changes:
        raise click.UsageError("nothing to change: give --partitions, --config or --delete-config")

    async def work() -> None:
        async with administrator(servers, "topics") as admin:
            for topic in await _existing(admin, (name,), if_exists=if_exists):
                await _alter(admin, topic, partitions, changes)

    run(work, servers)


async def _alter(admin: Admin, name: str, partitions: int | None, changes: ConfigChanges) -> None:
    if changes:
        await admin.incremental_alter_configs(name, *changes)
        say(f"{name}: {changes}")
    if partitions is None:
        return
    before = len((await require_topic(admin, name)).partitions)
    if partitions <= before:
        reason = "that is what it has" if partitions == before else "partitions cannot be removed"
        raise Failure(
            f"{name} has {_counted(before, 'partition')}: {reason};"
            f" give --partitions a number above {before}"
        )
    await admin.create_partitions({name: partitions})
    say(f"{name}: {before} -> {partitions} partitions; keys move, old records stay where they are")


# --- delete records --------------------------------------------------------------------


@command.command("delete-records")
@_NAME
@connection_options
@partition_option
@click.option("--before-offset", type=click.IntRange(0), metavar="N", help="Keep this and later.")
@click.option(
    "--before-timestamp",
    type=click.IntRange(0),
    metavar="MS",
    help="Keep what came at this time or later, in ms since 1970.",
)
@click.option("--all", "everything", is_flag=True, help="Delete everything that is committed.")
@click.option("--yes", is_flag=True, help="Do not ask at the terminal.")
@json_option()
def delete_records_command(
    name: str,
    servers: str,
    indexes: tuple[int, ...],
    before_offset: int | None,
    before_timestamp: int | None,
    everything: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete the oldest records of a topic, for good; the topic stays."""
    if (before_offset, before_timestamp, everything or None).count(None) != 2:
        raise click.UsageError("give one of --before-offset, --before-timestamp and --all")

    async def work() -> dict[TopicPartition, int]:
        async with administrator(servers, "topics") as admin:
            chosen = chosen_partitions(await require_topic(admin, name), indexes)
            before = dict.fromkeys(chosen, before_offset if before_offset is not None else -1)
            if before_timestamp is not None:
                found = await admin.list_offsets(dict.fromkeys(chosen, before_timestamp))
                # Nothing is as new as that: all records are older.
                before = {tp: offset if offset >= 0 else -1 for tp, offset in found.items()}
            if before_offset is not None:
                _check_within(before, await admin.list_offsets(dict.fromkeys(chosen, "latest")))
            if is_asked(yes=yes):
                ask(f"Delete these records of {_counted(len(before), 'partition')} of {name}?")
            return await admin.delete_records(before)

    starts = run(work, servers)
    rows = [(tp.topic, tp.partition, offset) for tp, offset in sorted(starts.items())]
    print_rows(_START_COLUMNS, rows, as_json=as_json)


def _check_within(before: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> None:
    """Raise `Failure` if an offset is beyond its partition's end, before anything is deleted."""
    for tp, offset in before.items():
        if offset > ends[tp]:
            raise Failure(
                f"{tp} ends at offset {ends[tp]}, before offset {offset}: no record was deleted; "
                "choose other partitions with --partition"
            )


_START_COLUMNS = (
    Column("topic", "Topic", style="cyan", wraps=True),
    Column("partition", "Partition", numeric=True),
    Column("start_offset", "Starts at", numeric=True),
)


# --- delete ---------------------------------------------------------------------------


@command.command("delete")
@_NAMES
@connection_options
@_IF_EXISTS
@click.option("--yes", is_flag=True, help="Do not ask at the terminal.")
def delete_command(names: tuple[str, ...], servers: str, if_exists: bool, yes: bool) -> None:
    """Delete topics with all their records."""

    async def work() -> None:
        async with administrator(servers, "topics") as admin:
            for name in await _existing(admin, names, if_exists=if_exists):
                if is_asked(yes=yes):
                    ask(f"Delete {name} with all its records?")
                await admin.delete_topics([name])
                say(f"deleted {name}")

    run(work, servers)


async def _existing(admin: Admin, names: Sequence[str], *, if_exists: bool) -> list[str]:
    """Those of `names` that exist; one that does not is a `Failure`, or passed over."""
    known = await admin.list_topics()
    for name in names:
        if name not in known:
            if not if_exists:
                raise await unknown_topic(admin, name)
            say(f"{name} does not exist", style="yellow")
    return [name for name in names if name in known]
