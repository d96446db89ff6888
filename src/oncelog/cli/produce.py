"""``oncelog produce``: send lines as records, idempotently, or all of them as one transaction.

Lines are read as they come and sent without waiting for each other; the exit code is 0 only when
every record was acknowledged. With ``--transactional-id`` readers under read_committed see all
records or none: a line that cannot be sent, and SIGINT or SIGTERM, abort the transaction. Without,
what was sent before stays, and the error says how many that were.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from oncelog.cli.completing import complete_topics
from oncelog.cli.connecting import administrator, connection_options, keywords
from oncelog.cli.meter import Meter, size_text
from oncelog.cli.output import print_json, say, warn
from oncelog.cli.records import InputRecord, RecordError, parse_json, parse_raw, unescape
from oncelog.cli.tool import (
    Failure,
    ToolCommand,
    discard_stdout,
    explain,
    json_option,
    parse_pairs,
    require_topic,
    run,
    stop_on_sigterm,
)
from oncelog.core.limits import INPUT_LINE_BYTES_MAX

if TYPE_CHECKING:
    from oncelog.client import ClientError, Producer, RecordMetadata

__all__ = ["command"]

LINGER_MS: Final = 5
"""Short enough for a person who types, long enough to fill batches from a file."""
BATCH_BYTES: Final = 128 * 1024
STOP_TIMEOUT_S: Final = 10
READ_BYTES: Final = 64 * 1024
CHUNKS_AHEAD_COUNT: Final = 16
"""Chunks that are read while the cluster is slower than the input."""

Parse = Callable[[bytes], InputRecord]


@dataclass(frozen=True, slots=True)
class Job:
    """What to send, and how."""

    servers: str
    topic: str
    parse: Parse
    key: bytes | None
    partition: int | None
    headers: tuple[tuple[str, bytes | None], ...]
    compression: str
    transactional_id: str | None
    transaction_timeout_ms: int
    acks: str
    as_json: bool


@click.command("produce", cls=ToolCommand)
@click.argument("topic", shell_complete=complete_topics)
@connection_options
@click.option("--file", "path", metavar="FILE", default="-", help="Read this instead of stdin.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["raw", "json"]),
    default="raw",
    show_default=True,
    help="A line is the value, or an object as `consume --json` prints.",
)
@click.option(
    "--key-separator", metavar="TEXT", help=r"A raw line is key, this, value; \t is a tab."
)
@click.option("--null-marker", metavar="TEXT", help="A raw key or value that stands for none.")
@click.option("--key", help="The key of every record that has none of its own.")
@click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    help="A header for every record; repeatable.",
)
@click.option(
    "--partition", type=click.IntRange(0), metavar="N", help="Send everything to this partition."
)
@click.option(
    "--compression-codec",
    "compression",
    default="none",
    show_default=True,
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
)
@click.option(
    "--acks",
    "--request-required-acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Less than all gives up idempotence.",
)
@click.option("--transactional-id", metavar="ID", help="Send everything as one transaction.")
@click.option(
    "--transaction-timeout-ms",
    type=click.IntRange(1),
    metavar="N",
    default=60_000,
    show_default=True,
    help="The broker aborts a transaction that takes longer.",
)
@json_option("Print where each record went, as JSON.")
def command(
    topic: str,
    servers: str,
    path: str,
    form: str,
    key_separator: str | None,
    null_marker: str | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    transactional_id: str | None,
    transaction_timeout_ms: int,
    as_json: bool,
) -> None:
    """Send every line of standard input as a record.

    JSON lines hold "value", and if wanted "key", "headers", "partition" and "timestamp" (ms). Text
    is a string, other bytes are {"base64": "..."}, and null is none.
    """
    if form == "json" and (key_separator is not None or null_marker is not None):
        raise click.UsageError("--key-separator and --null-marker are for --format raw")
    if transactional_id is not None and acks != "all":
        raise click.UsageError("a transaction needs --acks all")
    pairs = parse_pairs("--header", headers)
    job = Job(
        servers,
        topic,
        parse_json if form == "json" else _raw(key_separator, null_marker),
        None if key is None else key.encode(),
        partition,
        tuple((name, value.encode()) for name, value in pairs.items()),
        compression,
        transactional_id,
        transaction_timeout_ms,
        acks,
        as_json,
    )
    if path == "-":
        run(lambda: _produce(job, sys.stdin.buffer), servers)
        return
    try:
        stream = open(path, "rb")  # noqa: SIM115 - closed below; only the opening is guarded here
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
    with stream:
        run(lambda: _produce(job, stream), servers)


def _raw(key_separator: str | None, null_marker: str | None) -> Parse:
    separator = None
    if key_separator is not None:
        try:
            separator = unescape(key_separator).encode()
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--key-separator") from None
        if not separator:
            raise click.BadParameter("it is empty", param_hint="--key-separator")
    marker = None if null_marker is None else null_marker.encode()
    return lambda line: parse_raw(line, separator, marker)


# --- sending --------------------------------------------------------------------------


async def _produce(job: Job, stream: BinaryIO) -> None:
    from oncelog.client import ClientError, Producer, Role

    stop_on_sigterm()
    async with administrator(job.servers, "produce") as admin:
        create = f"`oncelog topics create {job.topic}` makes a new one"
        topic = await require_topic(admin, job.topic, hint=create)
    own = keywords(
        Role.PRODUCER,
        client_id="oncelog-produce",
        transactional_id=job.transactional_id,
        transaction_timeout_ms=job.transaction_timeout_ms,
        acks=job.acks,
        enable_idempotence=job.acks == "all",
        compression_type=job.compression,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
    )
    producer = Producer(job.servers, **own)
    sent = SendTally(job, len(topic.partitions))
    async with producer:
        if job.transactional_id is not None:
            await producer.init_transactions()
            await producer.begin_transaction()
        if stream.isatty():
            say("each line that you type is a record; Ctrl-D ends", style="dim")
        try:
            with Meter(sent.describe, is_input_terminal=stream.isatty()):
                await _send_all(job, producer, stream, sent)
        except (Failure, ClientError) as error:
            # Before the abort: that fails the remaining deliveries, which are not the reason.
            reason = _sentence(job, sent, error)
            raise Failure(f"{reason}; {await _stop(producer, sent)}") from None
        except asyncio.CancelledError:
            warn(f"interrupted; {await _stop(producer, sent)}")
            raise
        if job.transactional_id is not None:
            await _commit(job, producer, sent)
    say(f"{sent.describe()} to {job.topic}{', committed' if job.transactional_id else ''}")


async def _commit(job: Job, producer: Producer, sent: SendTally) -> None:
    """Commit, and report committed or aborted only if that is certain (INV-4)."""
    from oncelog.client import ClientError, RetriableError

    try:
        await _commit_whole(producer)
    except RetriableError as error:
        reason = explain(error, job.servers).message
        raise Failure(f"whether the transaction committed is unknown: {reason}") from None
    except ClientError as error:
        reason = _sentence(job, sent, error)
        raise Failure(f"{reason}; {await _stop(producer, sent)}") from None


async def _commit_whole(producer: Producer) -> None:
    """Commit. A signal ends the command only afterwards: a commit in progress cannot be aborted."""
    commit = asyncio.ensure_future(producer.commit_transaction())
    try:
        await asyncio.shield(commit)
    except asyncio.CancelledError:
        await commit
        warn("interrupted while committing; the transaction is committed")
        raise


def _sentence(job: Job, sent: SendTally, error: Failure | ClientError) -> str:
    if isinstance(error, Failure):
        return error.message
    if sent.error is not None:
        return f"line {sent.failed_line}: {explain(sent.error, job.servers).message}"
    return explain(error, job.servers).message


async def _stop(producer: Producer, sent: SendTally) -> str:
    """End what was begun, after a failure; returns what a person should know about the outcome."""
    from oncelog.client import ClientError

    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            if sent.is_transaction:
                await producer.abort_transaction()
            else:
                await producer.flush()
            await asyncio.sleep(0)  # lets the last deliveries be counted
    except (ClientError, TimeoutError):
        if sent.is_transaction:
            return "the transaction did not commit; the broker aborts what is left of it"
    if sent.is_transaction:
        return "the transaction was aborted: readers under read_committed see none of it"
    return f"acknowledged until then: {sent.acknowledged_text()}"


class SendTally:
    """The records of one run: how many went out, how many arrived, and the first failure."""

    def __init__(self, job: Job, partition_count: int) -> None:
        self.partition_count = partition_count
        self.line_count = 0
        self.acknowledged_count = 0
        self.byte_count = 0
        self.error: ClientError | None = None
        self.failed_line = 0
        self.is_transaction = job.transactional_id is not None
        self._as_json = job.as_json

    def track(self, delivery: asyncio.Future[RecordMetadata]) -> None:
        """Count `delivery` when it comes; it belongs to the line read last."""
        delivery.add_done_callback(partial(self._arrived, self.line_count))

    def _arrived(self, line: int, delivery: asyncio.Future[RecordMetadata]) -> None:
        from oncelog.client import ClientError

        if delivery.cancelled():
            return
        error = delivery.exception()
        if error is None:
            self.acknowledged_count += 1
            if self._as_json:
                self._print(delivery.result())
        elif self.error is None and isinstance(error, ClientError):
            self.error, self.failed_line = error, line

    def _print(self, where: RecordMetadata) -> None:
        try:
            print_json(
                {
                    "topic": where.topic,
                    "partition": where.partition,
                    "offset": where.offset,
                    "timestamp": where.timestamp_ms,
                }
            )
        except BrokenPipeError:
            # The reader of standard output is gone; the records are sent nevertheless.
            self._as_json = False
            discard_stdout()

    def check(self) -> None:
        """Raise the first failure of a delivery."""
        if self.error is not None:
            raise self.error

    def acknowledged_text(self) -> str:
        """How many records arrived."""
        return f"{self.acknowledged_count:,} record{'' if self.acknowledged_count == 1 else 's'}"

    def describe(self) -> str:
        """How far it is, for the progress line and the end."""
        return f"{self.acknowledged_text()} ({size_text(self.byte_count)})"


async def _send_all(job: Job, producer: Producer, stream: BinaryIO, sent: SendTally) -> None:
    from oncelog.client import RetriableError

    async for chunk in _lines(stream):
        for line in chunk:
            sent.line_count += 1
            sent.byte_count += len(line)
            try:
                record = job.parse(line)
                partition = _partition(job, record, sent.partition_count)
            except RecordError as error:
                raise Failure(f"line {sent.line_count}: {error}") from None
            while True:
                try:
                    delivery = _send(job, producer, record, partition)
                except RetriableError:
                    await producer.wait_for_memory()
                except ValueError as error:
                    raise Failure(f"line {sent.line_count}: {error}") from None
                else:
                    break
            sent.track(delivery)
        sent.check()
        # The sender works on the same loop: let it, however fast the input is.
        await asyncio.sleep(0)
    await producer.flush()
    await asyncio.sleep(0)  # lets the last deliveries be counted
    sent.check()


def _partition(job: Job, record: InputRecord, count: int) -> int | None:
    partition = record.partition if job.partition is None else job.partition
    if partition is not None and not 0 <= partition < count:
        raise RecordError(f"{job.topic} has no partition {partition}: it has 0 to {count - 1}")
    return partition


def _send(
    job: Job, producer: Producer, record: InputRecord, partition: int | None
) -> asyncio.Future[RecordMetadata]:
    return producer.send(
        job.topic,
        record.value,
        key=job.key if record.key is None else record.key,
        partition=partition,
        headers=(*job.headers, *record.headers),
        timestamp_ms=record.timestamp_ms,
    )


# --- reading --------------------------------------------------------------------------


async def _lines(stream: BinaryIO) -> AsyncIterator[list[bytes]]:
    """The lines of `stream` without their ends, in the pieces in which they come.

    Raises `Failure` for a line that no broker would take.
    """
    rest = b""
    async for chunk in _chunks(stream):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > INPUT_LINE_BYTES_MAX:
            raise Failure(f"a line is longer than {size_text(INPUT_LINE_BYTES_MAX)}")
        yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest.removesuffix(b"\r")]


async def _chunks(stream: BinaryIO) -> AsyncIterator[bytes]:
    """The bytes of `stream` as they come, read by a thread of its own.

    Not in the executor: the program waits for that at its end, and a terminal may stay silent
    forever. The thread reads the descriptor itself, because it would hold a lock of Python's stream
    that the exit needs.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    free_chunks = threading.Semaphore(CHUNKS_AHEAD_COUNT)
    read = _reader(stream)

    def work() -> None:
        item: bytes | OSError = b"?"
        while item and not isinstance(item, OSError):
            free_chunks.acquire()
            try:
                item = read()
            except OSError as error:
                item = error
            try:
                loop.call_soon_threadsafe(queue.put_nowait, item)
            except RuntimeError:
                return  # The loop is closed: the rest is not needed.

    threading.Thread(target=work, name="oncelog-input", daemon=True).start()
    while True:
        item = await queue.get()
        free_chunks.release()
        if isinstance(item, OSError):
            raise Failure(f"cannot read the input: {item.strerror}")
        if not item:
            return
        yield item


def _reader(stream: BinaryIO) -> Callable[[], bytes]:
    try:
        descriptor = stream.fileno()
    except OSError:
        return lambda: stream.read(READ_BYTES)
    return lambda: os.read(descriptor, READ_BYTES)
