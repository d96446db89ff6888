"""``oncelog perf``: measures how fast a cluster writes, reads and commits transactions.

Options carry the names of Kafka's ``kafka-producer-perf-test`` and ``kafka-consumer-perf-test``. On
a terminal the rate is drawn while it runs; the result is a table, or one JSON object.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.completing import complete_topics
from oncelog.cli.connecting import administrator, connection_options, keywords
from oncelog.cli.measuring import Measure, plot
from oncelog.cli.output import Cell, Column, console, print_json, print_rows
from oncelog.cli.partitions import chosen_partitions
from oncelog.cli.tool import Failure, ToolGroup, explain, json_option, require_topic, run

if TYPE_CHECKING:
    from rich.console import RenderableType

    from oncelog.client import Producer, RecordMetadata

__all__ = ["command"]

SAMPLE_S: Final = 0.5
YIELD_EVERY_COUNT: Final = 64
"""Records between two turns of the event loop, in which batches are sent and responses read."""

_COLUMNS = (Column("figure", "Figure", style="cyan"), Column("value", "Value", numeric=True))
_TOPIC = click.argument("topic", shell_complete=complete_topics)
_SIZE = click.option(
    "--record-size", default=100, show_default=True, type=click.IntRange(0), metavar="BYTES"
)
_RECORDS = click.option(
    "--num-records",
    "count",
    default=100_000,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
)
_COMPRESSION = click.option(
    "--compression-codec",
    "compression",
    default="none",
    show_default=True,
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
)


@click.group("perf", cls=ToolGroup)
def command() -> None:
    """Measure how fast a cluster takes and gives records, and commits transactions."""


@command.command("produce")
@_TOPIC
@connection_options
@_RECORDS
@_SIZE
@click.option("--throughput", type=click.IntRange(1), metavar="N", help="At most so many per s.")
@click.option(
    "--batch-size", default=65_536, show_default=True, type=click.IntRange(0), metavar="BYTES"
)
@click.option("--linger-ms", default=5, show_default=True, type=click.IntRange(0), metavar="MS")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@_COMPRESSION
@json_option("Print the result as one JSON object.")
def produce_command(
    topic: str,
    servers: str,
    count: int,
    record_size: int,
    throughput: int | None,
    batch_size: int,
    linger_ms: int,
    acks: str,
    compression: str,
    as_json: bool,
) -> None:
    """Send records; latency is from `send` to the acknowledgement."""
    options = {
        "acks": acks,
        "enable_idempotence": acks == "all",
        "batch_size": batch_size,
        "linger_ms": linger_ms,
        "compression_type": compression,
    }

    async def work(measure: Measure) -> None:
        async with _producer(servers, topic, **options) as producer:
            value = os.urandom(record_size)
            measure.begun_s = time.perf_counter()
            for number in range(count):
                await _pace(producer, measure.begun_s, number, throughput)
                _send(producer, topic, value, measure)
            await producer.flush()
        _check_all(measure, count, servers)

    _measured("produce", topic, servers, work, as_json=as_json)


@command.command("consume")
@_TOPIC
@connection_options
@_RECORDS
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
)
@click.option(
    "--timeout-ms",
    default=5_000,
    show_default=True,
    type=click.IntRange(1),
    metavar="MS",
    help="End when no record came for so long.",
)
@json_option("Print the result as one JSON object.")
def consume_command(
    topic: str, servers: str, count: int, isolation_level: str, timeout_ms: int, as_json: bool
) -> None:
    """Read records from the beginning; latency is that of each poll."""

    async def work(measure: Measure) -> None:
        from oncelog.client import Consumer, Role

        async with administrator(servers, "perf") as admin:
            partitions = chosen_partitions(await require_topic(admin, topic), ())
        own = keywords(
            Role.CONSUMER,
            client_id="oncelog-perf",
            isolation_level=isolation_level,
            auto_offset_reset="earliest",
        )
        async with Consumer(servers, **own) as consumer:
            consumer.assign(partitions)
            measure.begun_s = time.perf_counter()
            while measure.record_count < count:
                polled_s = time.perf_counter()
                records = await consumer.poll(timeout_ms, count - measure.record_count)
                if not records:
                    return
                measure.ended_s = time.perf_counter()
                measure.latencies.add((measure.ended_s - polled_s) * 1000)
                measure.add(len(records), sum(len(r.value or b"") for r in records))

    _measured("consume", topic, servers, work, as_json=as_json)


@command.command("transactions")
@_TOPIC
@connection_options
@click.option(
    "--num-transactions",
    "count",
    default=1_000,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
)
@click.option(
    "--records-per-transaction",
    "per",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
)
@_SIZE
@click.option("--transactional-id", default="oncelog-perf", show_default=True, metavar="ID")
@json_option("Print the result as one JSON object.")
def transactions_command(
    topic: str,
    servers: str,
    count: int,
    per: int,
    record_size: int,
    transactional_id: str,
    as_json: bool,
) -> None:
    """Commit transactions one after the other; latency is from begin to commit."""

    async def work(measure: Measure) -> None:
        async with _producer(servers, topic, transactional_id=transactional_id) as producer:
            await producer.init_transactions()
            value = os.urandom(record_size)
            measure.begun_s = time.perf_counter()
            for _ in range(count):
                begun_s = time.perf_counter()
                await producer.begin_transaction()
                for _ in range(per):
                    producer.send(topic, value)
                await producer.commit_transaction()
                measure.latencies.add((time.perf_counter() - begun_s) * 1000)
                measure.add(per, per * record_size)
                measure.transaction_count += 1

    _measured("transactions", topic, servers, work, as_json=as_json)


# --- sending --------------------------------------------------------------------------


@asynccontextmanager
async def _producer(servers: str, topic: str, **options: Any) -> AsyncIterator[Producer]:
    """Return a producer after a check that the topic exists, so that a typo creates none."""
    from oncelog.client import Producer, Role

    async with administrator(servers, "perf") as admin:
        await require_topic(admin, topic, hint=f"`oncelog topics create {topic}` makes a new one")
    own = keywords(Role.PRODUCER, client_id="oncelog-perf", **options)
    async with Producer(servers, **own) as producer:
        yield producer


def _send(producer: Producer, topic: str, value: bytes, measure: Measure) -> None:
    begun_s = time.perf_counter()

    def acknowledged(delivery: asyncio.Future[RecordMetadata]) -> None:
        if delivery.cancelled():
            return
        if (failure := delivery.exception()) is not None:
            measure.failure = measure.failure or failure
        else:
            measure.latencies.add((time.perf_counter() - begun_s) * 1000)
            measure.add(1, len(value))

    producer.send(topic, value).add_done_callback(acknowledged)


async def _pace(producer: Producer, begun_s: float, number: int, throughput: int | None) -> None:
    if number % YIELD_EVERY_COUNT == 0:
        await producer.wait_for_memory()
        await asyncio.sleep(0)
    if throughput is not None:
        ahead_s = begun_s + number / throughput - time.perf_counter()
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)


def _check_all(measure: Measure, count: int, servers: str) -> None:
    from oncelog.core.errors import OncelogError

    if measure.record_count < count:
        lost = count - measure.record_count
        text = f"{lost:,} of {count:,} records were not acknowledged"
        if isinstance(measure.failure, OncelogError):
            text += f", the first because {explain(measure.failure, servers).message}"
        raise Failure(text)


# --- showing --------------------------------------------------------------------------


def _measured(
    test: str,
    topic: str,
    servers: str,
    work: Callable[[Measure], Coroutine[Any, Any, None]],
    *,
    as_json: bool,
) -> None:
    """Carry the test out, drawn while it runs where a person watches, and print the result."""
    measure = Measure(time.perf_counter())

    async def watched() -> None:
        if not sys.stderr.isatty():
            await work(measure)
            return
        from rich.live import Live

        with Live(
            console=console(stderr=True),
            get_renderable=partial(_screen, test, topic, measure),
            refresh_per_second=1 / SAMPLE_S,
            transient=True,
        ):
            await work(measure)

    run(watched, servers)
    result = measure.result(test, topic, measure.ended_s or time.perf_counter())
    if as_json:
        print_json(result)
    else:
        print_rows(_COLUMNS, _rows(result), as_json=False)


def _screen(test: str, topic: str, measure: Measure) -> RenderableType:
    from rich.panel import Panel
    from rich.text import Text

    measure.sample(time.perf_counter())
    rate = measure.rates[-1] if measure.rates else 0
    latency = measure.latencies.summary()
    shown = f", p99 {latency['p99']:.1f} ms" if latency else ""
    title = f"{test} {topic}: {measure.record_count:,} records, {rate:,.0f} per s{shown}"
    top = max(measure.rates, default=0)
    lines = [Text(line, style="cyan") for line in plot(measure.rates)]
    lines[0].append(f" {top:,.0f} per s", style="dim")
    return Panel(Text("\n").join(lines), title=title, title_align="left", border_style="dim")


def _rows(result: dict[str, object]) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for key, value in result.items():
        if isinstance(value, dict):
            rows += [
                (f"{key.removesuffix('_ms')} {name} (ms)", str(v)) for name, v in value.items()
            ]
        else:
            rows.append((key.replace("_per_s", " per s").replace("_", " "), str(value)))
    return rows
