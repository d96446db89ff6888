"""``oncelog consume``: print a topic's records, one line each, until told to stop.

Each line is flushed before the next record is read. A closed pipe (``| head``), SIGINT and SIGTERM
are normal ends, with exit code 0. With ``--group`` the offsets of printed records are committed, at
least once a second and at the end. The consumer does not join the group: records may be printed
again after a crash, and two such consumers both print all records.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import click

from oncelog.cli.completing import complete_topics
from oncelog.cli.connecting import (
    ADMIN_TIMEOUT_MS,
    administrator,
    connection_options,
    keywords,
)
from oncelog.cli.output import painted, say
from oncelog.cli.records import (
    Columns,
    compile_template,
    for_terminal,
    format_columns,
    format_json,
    unescape,
)
from oncelog.cli.tool import (
    Failure,
    ToolCommand,
    discard_stdout,
    json_option,
    require_topic,
    run,
    stop_on_sigterm,
)

if TYPE_CHECKING:
    from oncelog.client import Consumer, ConsumerRecord, TopicDescription
    from oncelog.core.ids import TopicPartition

__all__ = ["command"]

POLL_MS: Final = 500
"""Longest wait for records before the conditions to stop are checked again."""
COMMIT_INTERVAL_S: Final = 1.0
RECORDS_PER_POLL_COUNT: Final = 500
SILENCE_S: Final = 10.0
"""After so long without a record the command checks that topic and brokers still exist."""
GIVE_UP_S: Final = 60.0
"""How long brokers may be unavailable, as during a restart."""

Line = Callable[["ConsumerRecord"], bytes]
Write = Callable[["ConsumerRecord"], None]
Isolation = Literal["read_committed", "read_uncommitted"]
Reset = Literal["earliest", "latest", "none"]


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """What to read, and when to stop."""

    servers: str
    topic: str
    partitions: tuple[int, ...]
    offset: str
    """A start: earliest, latest, an offset, or "group": the committed offset, else `reset`."""
    reset: Reset
    until_end: bool
    max_messages: int | None
    timeout_ms: int | None
    isolation_level: Isolation
    group: str | None


@click.command("consume", cls=ToolCommand)
@click.argument("topic", shell_complete=complete_topics)
@connection_options
@click.option("--from-beginning", is_flag=True, help="Start with the oldest record kept.")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0),
    metavar="N",
    multiple=True,
    help="Only this partition; repeatable.",
)
@click.option("--offset", metavar="earliest|latest|N", help="Where to start; N needs --partition.")
@click.option(
    "--until-end",
    is_flag=True,
    help="Stop at what is the end now; start with the oldest unless told otherwise.",
)
@click.option(
    "--max-messages", type=click.IntRange(1), metavar="N", help="Stop after so many records."
)
@click.option(
    "--timeout-ms", type=click.IntRange(1), metavar="N", help="Stop after so long without a record."
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="read_committed prints nothing of open or aborted transactions.",
)
@click.option(
    "--group", metavar="ID", help="Start where this group is, and commit what was printed."
)
@click.option(
    "--format",
    "form",
    default="value",
    show_default=True,
    metavar="value|key-value|json|TEMPLATE",
    help=r"How to print a record; a template is like '{offset}\t{key}: {value}'.",
)
@json_option("The same as --format json.")
@click.option(
    "--key-separator",
    default=r"\t",
    show_default=True,
    help="Stands behind the key, and every other column.",
)
@click.option("--print-timestamp", is_flag=True, help="Print CreateTime or LogAppendTime, in ms.")
@click.option("--print-partition", is_flag=True, help="Print the partition.")
@click.option("--print-offset", is_flag=True, help="Print the offset.")
@click.option("--print-headers", is_flag=True, help="Print headers, as name:value,name:value.")
@click.option("--print-key", is_flag=True, help="Print the key, as --format key-value does.")
def command(
    topic: str,
    servers: str,
    from_beginning: bool,
    partitions: tuple[int, ...],
    offset: str | None,
    until_end: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: Isolation,
    group: str | None,
    form: str,
    as_json: bool,
    key_separator: str,
    print_timestamp: bool,
    print_partition: bool,
    print_offset: bool,
    print_headers: bool,
    print_key: bool,
) -> None:
    """Print the records of a topic, as they come.

    Starts with what is new unless told otherwise. In a template: {topic}, {partition}, {offset},
    {timestamp} (ms), {time} (ISO 8601, UTC), {key}, {value}, {headers}.
    """
    columns = Columns(
        print_timestamp, print_partition, print_offset, print_headers,
        print_key or form == "key-value", _separator(key_separator),
    )  # fmt: skip
    write = _writer("json" if as_json else form, columns)
    start, reset = _start(from_beginning, offset, until_end, partitions, group)
    wanted = ConsumeOptions(
        servers, topic, tuple(sorted(set(partitions))), start, reset, until_end, max_messages,
        timeout_ms, isolation_level, group,
    )  # fmt: skip
    try:
        run(lambda: _consume(wanted, write), servers)
    except click.exceptions.Exit:
        # SIGINT is how a person ends this.
        return


def _separator(text: str) -> bytes:
    try:
        return unescape(text).encode()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--key-separator") from None


def _start(
    from_beginning: bool,
    offset: str | None,
    until_end: bool,
    partitions: tuple[int, ...],
    group: str | None,
) -> tuple[str, Reset]:
    """Return (start, where to continue when that is out of range). Raises `click.UsageError`."""
    if offset is not None and from_beginning:
        raise click.UsageError("--from-beginning and --offset exclude each other")
    if offset is None:
        reset: Reset = "earliest" if from_beginning or until_end else "latest"
        return ("group" if group is not None else reset), reset
    if offset == "earliest":
        return offset, "earliest"
    if offset == "latest":
        return offset, "latest"
    if not offset.isdigit():
        text = f"{offset!r} is neither earliest, latest nor a number from 0 on"
        raise click.BadParameter(text, param_hint="--offset")
    if not partitions:
        raise click.UsageError("--offset with a number needs --partition")
    return offset, "none"


# --- printing -------------------------------------------------------------------------


def _writer(form: str, columns: Columns) -> Write:
    """Return a function that prints one record and flushes. Raises `click.BadParameter`."""
    if sys.stdout.isatty():
        return _terminal_writer(form, columns)
    line = _line(form, columns)
    stream = sys.stdout.buffer

    def write(record: ConsumerRecord) -> None:
        stream.write(line(record) + b"\n")
        stream.flush()

    return write


def _line(form: str, columns: Columns) -> Line:
    if form in ("value", "key-value"):
        return lambda record: b"".join(format_columns(columns, record))
    if form == "json":
        return format_json
    if "{" not in form:
        text = f"{form!r} is neither value, key-value, json nor a template such as '{{value}}'"
        raise click.BadParameter(text, param_hint="--format")
    try:
        return compile_template(form)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from None


def _terminal_writer(form: str, columns: Columns) -> Write:
    """Format a record for a terminal: coloured columns, and control characters escaped."""
    if form not in ("value", "key-value"):
        line = _line(form, columns)
        return lambda record: click.echo(for_terminal(line(record)))

    def write(record: ConsumerRecord) -> None:
        before, value = format_columns(columns, record)
        text = painted(for_terminal(before), fg="cyan") if before else ""
        shown = for_terminal(value) if record.value is not None else painted("null", dim=True)
        click.echo(text + shown)

    return write


# --- reading --------------------------------------------------------------------------


@dataclass(slots=True)
class PrintedRecords:
    """The progress: the count of printed records, and how far each partition was committed.

    What is before a partition's position was printed, or is no record of a reader's, as markers
    are; except from its first record in `unprinted` on.
    """

    count: int = 0
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    """The position at the start, or that of the last commit."""
    unprinted: dict[TopicPartition, int] = field(default_factory=dict)
    reader_is_gone: bool = False


async def _consume(wanted: ConsumeOptions, write: Write) -> None:
    from oncelog.client import Consumer, Role

    stop_on_sigterm()
    plan = await _plan(wanted)
    own = keywords(
        Role.CONSUMER,
        client_id="oncelog-consume",
        group_id=wanted.group,
        isolation_level=wanted.isolation_level,
        auto_offset_reset=wanted.reset,
        retry_timeout_ms=ADMIN_TIMEOUT_MS,
    )
    consumer = Consumer(wanted.servers, **own)
    progress = PrintedRecords()
    async with consumer:
        consumer.assign(plan.partitions)
        for tp, offset in plan.starts.items():
            consumer.seek(tp, offset)
        # Resolve all positions now, so that records produced from now on are printed.
        for tp in plan.partitions:
            progress.committed[tp] = await consumer.position(tp)
        _announce(wanted)
        try:
            await _read(consumer, wanted, plan.ends, write, progress)
        finally:
            if wanted.group is not None:
                await _commit(consumer, progress)
            say(f"{progress.count:,} record{'' if progress.count == 1 else 's'}", style="dim")


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Partitions, the offsets where they start (without those a group decides), and their ends."""

    partitions: list[TopicPartition]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int] | None


async def _plan(wanted: ConsumeOptions) -> ReadPlan:
    """Read the topic's metadata. Raises `Failure` for an unknown topic or partition."""
    from oncelog.core.ids import TopicPartition

    async with administrator(wanted.servers, "consume") as admin:
        topic = await require_topic(admin, wanted.topic)
        partitions = [TopicPartition(topic.name, p) for p in _chosen(topic, wanted.partitions)]
        first = await admin.list_offsets(dict.fromkeys(partitions, "earliest"))
        ends = await admin.list_offsets(dict.fromkeys(partitions, "latest"), wanted.isolation_level)
    starts: Mapping[TopicPartition, int] = {}
    if wanted.offset == "earliest":
        starts = first
    elif wanted.offset == "latest":
        starts = ends
    elif wanted.offset != "group":
        starts = dict.fromkeys(partitions, int(wanted.offset))
    for tp, offset in starts.items():
        if not first[tp] <= offset <= ends[tp]:
            raise Failure(
                f"offset {offset} is not in partition {tp.partition} of {tp.topic}:"
                f" it has {first[tp]} to {ends[tp]} (the next one)"
            )
    return ReadPlan(partitions, starts, ends if wanted.until_end else None)


def _chosen(topic: TopicDescription, partitions: tuple[int, ...]) -> Iterable[int]:
    known = [p.index for p in topic.partitions]
    for index in partitions:
        if index not in known:
            raise Failure(f"{topic.name} has no partition {index}: it has 0 to {max(known)}")
    return partitions or known


def _announce(wanted: ConsumeOptions) -> None:
    if wanted.offset == "latest" and sys.stdout.isatty() and not wanted.until_end:
        text = f"waiting for new records of {wanted.topic}; --from-beginning prints the old ones"
        say(text, style="dim")


async def _read(
    consumer: Consumer,
    wanted: ConsumeOptions,
    ends: Mapping[TopicPartition, int] | None,
    write: Write,
    progress: PrintedRecords,
) -> None:
    loop = asyncio.get_running_loop()
    last_record_s = last_commit_s = loop.time()
    watch = SilenceWatch(wanted, loop.time())
    while not progress.reader_is_gone and not await _is_finished(consumer, wanted, ends, progress):
        wait_ms: float = POLL_MS
        if wanted.timeout_ms is not None:
            left_ms = wanted.timeout_ms - (loop.time() - last_record_s) * 1000
            if left_ms <= 0:
                return
            wait_ms = min(wait_ms, left_ms)
        most = RECORDS_PER_POLL_COUNT
        if wanted.max_messages is not None:
            most = min(most, wanted.max_messages - progress.count)
        records = await consumer.poll(wait_ms, most)
        _print(records, ends, write, progress)
        if records:
            last_record_s = loop.time()
        await watch.look(last_record_s, loop.time())
        if wanted.group is not None and loop.time() - last_commit_s >= COMMIT_INTERVAL_S:
            await _commit(consumer, progress)
            last_commit_s = loop.time()


class SilenceWatch:
    """Detects that topic or brokers are gone, which the consumer itself retries forever."""

    def __init__(self, wanted: ConsumeOptions, now_s: float) -> None:
        self._wanted = wanted
        self._looked_s = now_s
        self._gone_since_s: float | None = None

    async def look(self, last_record_s: float, now_s: float) -> None:
        """Check topic and brokers after a long silence. Raises `Failure`, or a client's error."""
        from oncelog.client import RetriableError

        if now_s - max(last_record_s, self._looked_s) < SILENCE_S:
            return
        self._looked_s = now_s
        try:
            async with administrator(self._wanted.servers, "consume") as admin:
                await require_topic(admin, self._wanted.topic)
        except RetriableError:
            if self._gone_since_s is None:
                self._gone_since_s = now_s
                say("no broker answers, trying again", style="yellow")
            elif now_s - self._gone_since_s >= GIVE_UP_S:
                raise
        else:
            self._gone_since_s = None


async def _is_finished(
    consumer: Consumer,
    wanted: ConsumeOptions,
    ends: Mapping[TopicPartition, int] | None,
    progress: PrintedRecords,
) -> bool:
    if wanted.max_messages is not None and progress.count >= wanted.max_messages:
        return True
    if ends is None:
        return False
    for tp, end in ends.items():
        if await consumer.position(tp) < end:
            return False
    return True


def _print(
    records: list[ConsumerRecord],
    ends: Mapping[TopicPartition, int] | None,
    write: Write,
    progress: PrintedRecords,
) -> None:
    from oncelog.core.ids import TopicPartition

    for record in records:
        tp = TopicPartition(record.topic, record.partition)
        is_beyond = ends is not None and record.offset >= ends[tp]
        if is_beyond or progress.reader_is_gone:
            progress.unprinted.setdefault(tp, record.offset)
            continue
        try:
            write(record)
        except BrokenPipeError:
            progress.reader_is_gone = True
            progress.unprinted.setdefault(tp, record.offset)
            discard_stdout()
        else:
            progress.count += 1


async def _commit(consumer: Consumer, progress: PrintedRecords) -> None:
    """Commit the positions that have advanced since the last commit.

    Not the offset behind the last printed record: the marker of a transaction may stand there, and
    the group would lag for ever.
    """
    from oncelog.client import ClientError, OffsetAndMetadata
    from oncelog.core.errors import ErrorCode

    offsets = {}
    for tp, at in (await consumer.positions()).items():
        unprinted = progress.unprinted.get(tp, at.offset)
        reached = at if at.offset <= unprinted else OffsetAndMetadata(unprinted)
        if reached.offset > progress.committed[tp]:
            offsets[tp] = reached
            progress.committed[tp] = reached.offset
    if not offsets:
        return
    try:
        await consumer.commit(offsets)
    except ClientError as error:
        if error.code is not ErrorCode.unknown_member_id:
            raise
        raise Failure(
            "the group has members of its own, so nothing was committed: stop them,"
            " or give --group another name"
        ) from None
