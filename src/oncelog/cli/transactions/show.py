"""``oncelog transactions show``: the state and the history of a transactional id.

An Oncelog coordinator reports the history, with markers and causes. With Apache Kafka the
transitions are read from the coordinators' log, as far as compaction has retained them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from oncelog.cli.completing import complete_transactional_ids
from oncelog.cli.connecting import connection_options
from oncelog.cli.habits.hints import did_you_mean
from oncelog.cli.output import Column, is_terminal, print_json, print_rows, print_text, warn
from oncelog.cli.tool import Failure, ToolCommand, json_option, run
from oncelog.cli.transactions.common import (
    OpenTransaction,
    administrator,
    duration_text,
    find_open,
    moment_text,
    now_ms,
)
from oncelog.cli.transactions.history import read_life
from oncelog.core.spelling import nearest

if TYPE_CHECKING:
    from oncelog.client import Admin, TransactionDescription, TransactionStep

__all__ = ["command"]

_PARTITIONS = (
    Column("topic", "Topic", style="cyan", wraps=True),
    Column("partition", "Partition", numeric=True),
    Column("start_offset", "From offset", numeric=True),
)


_LIFE = (
    Column("time", "Time", style="dim"),
    Column("step", "Step"),
    Column("producer", "Producer", style="dim", spare=1),
    Column("where", "Where", style="cyan", wraps=True),
    Column("why", "Why", style="yellow", wraps=True),
)


@click.command("show", cls=ToolCommand)
@click.argument("transactional_id", metavar="ID", shell_complete=complete_transactional_ids)
@connection_options
@click.option(
    "--from-log", is_flag=True, help="Read the moves from __transaction_state, in any case."
)
@json_option("Print JSON, one object.")
def command(transactional_id: str, servers: str, from_log: bool, as_json: bool) -> None:
    """Show where a transactional id stands, and what happened to it."""

    async def work() -> tuple[TransactionDescription, list[OpenTransaction]]:
        async with administrator(servers) as admin:
            found = await _describe(admin, transactional_id)
            if from_log or not found.life:
                life = await read_life(admin, servers, transactional_id)
                found = replace(found, life=life)
            opened = await find_open(admin, found.partitions)
            return found, [one for one in opened if one.producer.producer_id == found.producer_id]

    found, opened = run(work, servers)
    begins = {one.topic_partition: one.start_offset for one in opened}
    rows = [(*place, begins.get(place)) for place in found.partitions]
    if as_json:
        print_json(_as_json(found, rows))
        return
    for line, style in _sentences(found):
        print_text(line, style)
    if rows:
        if is_terminal():
            click.echo()
        print_rows(_PARTITIONS, rows, as_json=False)
    if found.life:
        if is_terminal():
            click.echo()
        print_rows(_LIFE, [_step_row(step) for step in found.life], as_json=False)
    if found.trouble:
        warn(f"stuck: {found.trouble}")


async def _describe(admin: Admin, transactional_id: str) -> TransactionDescription:
    from oncelog.client import FatalError
    from oncelog.core.errors import ErrorCode

    try:
        return await admin.describe_transaction(transactional_id)
    except FatalError as error:
        if error.code is not ErrorCode.transactional_id_not_found:
            raise
        if error.message != transactional_id:
            raise Failure(f"no transactional id {error.message}") from None
    names = [one.transactional_id for one in await admin.list_transactions()]
    advice = did_you_mean(nearest(transactional_id, names)) or "see `oncelog transactions list`"
    raise Failure(f"no transactional id {transactional_id}: {advice}")


def _as_json(
    found: TransactionDescription, rows: Sequence[tuple[str, int, int | None]]
) -> dict[str, object]:
    return {
        "transactional_id": found.transactional_id,
        "coordinator": found.coordinator_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_time_ms": found.start_time_ms,
        "partitions": [
            {"topic": topic, "partition": index, "start_offset": offset}
            for topic, index, offset in rows
        ],
        "trouble": found.trouble or None,
        "fenced_because": found.fenced_because or None,
        "life": [_step_json(step) for step in found.life],
    }


def _step_json(step: TransactionStep) -> dict[str, object]:
    return {
        "time_ms": step.at_ms,
        "step": step.kind,
        "producer_id": step.producer_id,
        "producer_epoch": step.producer_epoch,
        "partitions": [{"topic": topic, "partition": index} for topic, index in step.partitions],
        "more_partitions_count": step.more_count,
        "error": step.error,
        "cause": step.cause or None,
    }


def _step_row(step: TransactionStep) -> tuple[str | None, ...]:
    why = ": ".join(text for text in (step.error, step.cause) if text)
    producer = f"{step.producer_id}, epoch {step.producer_epoch}"
    where = ", ".join(map(str, step.partitions))
    if step.more_count:
        where += f" and {step.more_count} more"
    return (moment_text(step.at_ms), step.kind, producer, where or None, why or None)


def _sentences(found: TransactionDescription) -> list[tuple[str, str | None]]:
    begun_ms = found.start_time_ms
    lines: list[tuple[str, str | None]] = [
        (f"{found.transactional_id} is {found.state}", "bold cyan"),
        (
            f"producer {found.producer_id}, epoch {found.producer_epoch}, coordinator"
            f" {found.coordinator_id}, transaction timeout {duration_text(found.timeout_ms)}",
            "dim",
        ),
    ]
    if begun_ms is not None:
        age = duration_text(max(0, now_ms() - begun_ms))
        which = "this transaction" if found.partitions else "the last transaction"
        lines.append((f"{which} began at {moment_text(begun_ms)}, {age} ago", "dim"))
    if found.fenced_because and found.fenced_because not in (step.cause for step in found.life):
        lines.append((f"a producer was last fenced because of {found.fenced_because}", "yellow"))
    return lines
