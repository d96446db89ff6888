"""``oncelog transactions list``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.connecting import connection_options
from oncelog.cli.output import Column, is_terminal, print_rows, say, warn
from oncelog.cli.tool import Failure, ToolCommand, json_option, run
from oncelog.cli.transactions.common import administrator, duration_text, now_ms

if TYPE_CHECKING:
    from oncelog.client import TransactionListing

__all__ = ["command", "warn_of_expiry"]

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)

_COLUMNS = (
    Column("transactional_id", "Transactional id", style="cyan", wraps=True),
    Column("coordinator", "Coordinator", numeric=True, spare=2),
    Column("producer_id", "Producer id", numeric=True, spare=1),
    Column("state", "State"),
    Column("expires_at_ms", "Expires"),
)
_DAY_MS: Final = 86_400_000
"""The command warns of an id that expires within a day: its producer fails then."""


@click.command("list", cls=ToolCommand)
@connection_options
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only ids in this state; repeatable.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=click.IntRange(0),
    metavar="ID",
    multiple=True,
    help="Only the id that has this producer id; repeatable.",
)
@click.option(
    "--duration-filter",
    type=int,
    metavar="MS",
    default=-1,
    help="Only ids whose transaction began longer ago.",
)
@click.option(
    "--transactional-id-pattern",
    "pattern",
    metavar="REGEX",
    help="Only ids that match as a whole.",
)
@json_option()
def command(
    servers: str,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration_filter: int,
    pattern: str | None,
    as_json: bool,
) -> None:
    """List transactional ids: coordinator, producer id, state, and when they expire.

    Apache Kafka does not tell when they expire.
    """
    from oncelog.client import FatalError
    from oncelog.core.errors import ErrorCode

    async def work() -> list[TransactionListing]:
        async with administrator(servers) as admin:
            try:
                return await admin.list_transactions(
                    states=states,
                    producer_ids=producer_ids,
                    duration_ms=duration_filter,
                    pattern=pattern,
                )
            except FatalError as error:
                if error.code is not ErrorCode.invalid_regular_expression:
                    raise
                text = f"--transactional-id-pattern {pattern!r} is no regular expression"
                raise Failure(f"{text} that the broker takes (see RE2's syntax)") from None

    listed = run(work, servers)
    if not listed and not as_json and is_terminal():
        say("no transactional id passes these filters", style="yellow")
        return
    if as_json or not is_terminal():
        print_rows(_COLUMNS, listed, as_json=as_json)
    else:
        print_rows(_COLUMNS, [(*one[:-1], _left_text(one)) for one in listed], as_json=False)
    warn_of_expiry(listed)


def _left_text(one: TransactionListing) -> str | None:
    left_ms = _left_ms(one)
    return None if left_ms is None else f"in {duration_text(left_ms)}"


def _left_ms(one: TransactionListing) -> int | None:
    return None if one.expires_at_ms is None else max(0, one.expires_at_ms - now_ms())


def warn_of_expiry(listed: list[TransactionListing]) -> None:
    """Say which of the ids expires first, if one does so within a day."""
    near = [one for one in listed if (left_ms := _left_ms(one)) is not None and left_ms < _DAY_MS]
    if near:
        first = min(near, key=lambda one: one.expires_at_ms or 0)
        warn(
            f"{len(near)} of these expire within a day unless they are used, the first is"
            f" {first.transactional_id}, {_left_text(first)}: keep it by a transaction, or raise"
            " transactional.id.expiration.ms"
        )
