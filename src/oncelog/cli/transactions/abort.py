"""``oncelog transactions abort``: end a transaction that its producer does not end.

Two ways, for two troubles:

- a **hanging** transaction, of which no coordinator knows: an abort marker for one partition
  (WriteTxnMarkers), named as in ``kafka-transactions abort``. Refused while a coordinator still has
  the transaction: a marker past it could abort here what commits elsewhere.
- the open transaction of a **transactional id**: its coordinator aborts it on every partition, as
  it would for a new producer (InitProducerId), and fences the producer.

For an id that stays in Prepare*, because a partition refuses the coordinator's marker,
``--as-decided`` writes the marker that the coordinator has decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from oncelog.cli.completing import complete_topics, complete_transactional_ids
from oncelog.cli.connecting import connection_options
from oncelog.cli.output import say
from oncelog.cli.tool import Failure, ToolCommand, run
from oncelog.cli.transactions.common import (
    OpenTransaction,
    administrator,
    duration_text,
    find_open,
    now_ms,
    owners_of,
    partitions_to_search,
)
from oncelog.cli.transactions.hanging import is_hanging

if TYPE_CHECKING:
    from oncelog.client import Admin, TransactionDescription

__all__ = ["command"]


@click.command("abort", cls=ToolCommand)
@connection_options
@click.option(
    "--transactional-id",
    metavar="ID",
    shell_complete=complete_transactional_ids,
    help="Abort what this id has open, everywhere.",
)
@click.option(
    "--topic",
    metavar="NAME",
    shell_complete=complete_topics,
    help="Where the hanging transaction is.",
)
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Its partition.")
@click.option("--start-offset", type=click.IntRange(0), metavar="N", help="Where it begins there.")
@click.option("--producer-id", type=click.IntRange(0), metavar="ID", help="In place of the offset.")
@click.option(
    "--force", is_flag=True, help="Write the marker though a coordinator has the transaction."
)
@click.option(
    "--as-decided",
    is_flag=True,
    help="End it as its coordinator has decided, where its own marker is refused.",
)
def command(
    servers: str,
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    producer_id: int | None,
    force: bool,
    as_decided: bool,
) -> None:
    """Abort a hanging transaction, or what a transactional id has open."""
    if transactional_id is not None:
        if (topic, partition, start_offset, producer_id) != (None, None, None, None):
            raise click.UsageError("--transactional-id goes alone: it is aborted on all partitions")
        run(lambda: _abort_id(servers, transactional_id), servers)
        return
    if topic is None or partition is None or (start_offset is None) == (producer_id is None):
        raise click.UsageError(
            "name a transactional id, or --topic and --partition with --start-offset or"
            " --producer-id, as `oncelog transactions find-hanging` shows them"
        )
    if force and as_decided:
        raise click.UsageError("--force aborts, --as-decided does what the coordinator decided")

    async def work() -> None:
        async with administrator(servers) as admin:
            one = await _find(admin, topic, partition, start_offset, producer_id)
            if as_decided:
                await _end(admin, one, commit=await _is_commit_decided(admin, one))
                return
            if not force:
                await _require_hanging(admin, one)
            await _end(admin, one, commit=False)

    run(work, servers)


async def _abort_id(servers: str, transactional_id: str) -> None:
    from oncelog.client import FatalError
    from oncelog.core.errors import ErrorCode

    async with administrator(servers) as admin:
        try:
            found = await admin.describe_transaction(transactional_id)
        except FatalError as error:
            if error.code is not ErrorCode.transactional_id_not_found:
                raise
            advice = (
                ": see `oncelog transactions list`" if error.message == transactional_id else ""
            )
            raise Failure(f"no transactional id {error.message}{advice}") from None
        if found.state != "Ongoing":
            raise Failure(_nothing_to_abort(found))
        await admin.fence_producer(transactional_id, found.timeout_ms)
        count = len(found.partitions)
        say(f"{transactional_id}: aborted on {count} partitions, its producer is fenced")


def _nothing_to_abort(found: TransactionDescription) -> str:
    text = f"{found.transactional_id} has no open transaction, it is {found.state}"
    if found.state.startswith("Prepare"):
        text += ": the outcome is decided, and `oncelog transactions show` says what it waits for"
    return text


async def _find(
    admin: Admin,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
) -> OpenTransaction:
    partitions = await partitions_to_search(admin, (topic,), partition)
    for one in await find_open(admin, partitions):
        if start_offset in (None, one.start_offset) and producer_id in (
            None,
            one.producer.producer_id,
        ):
            return one
    named = "of that producer" if start_offset is None else f"from offset {start_offset}"
    raise Failure(
        f"{topic}-{partition} has no open transaction {named}: see"
        f" `oncelog transactions watch --topic {topic} --count 1`"
    )


async def _end(admin: Admin, one: OpenTransaction, *, commit: bool) -> None:
    producer = one.producer
    await admin.end_transaction(
        one.topic_partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        commit=commit,
    )
    say(
        f"{'committed' if commit else 'aborted'} in {one.topic_partition}: producer"
        f" {producer.producer_id}, epoch {producer.producer_epoch}, from offset {one.start_offset}"
    )


async def _is_commit_decided(admin: Admin, one: OpenTransaction) -> bool:
    owner = (await owners_of(admin, (one,))).get(one.producer.producer_id)
    if owner is None or one.topic_partition not in owner.partitions:
        raise Failure(
            f"no coordinator has decided about this transaction of {one.topic_partition}: abort it"
            " without --as-decided"
        )
    if not owner.state.startswith("Prepare"):
        text = f"{owner.transactional_id} is {owner.state}: nothing is decided yet"
        raise Failure(f"{text}; see `oncelog transactions show {owner.transactional_id}`")
    return owner.state == "PrepareCommit"


async def _require_hanging(admin: Admin, one: OpenTransaction) -> None:
    owner = (await owners_of(admin, (one,))).get(one.producer.producer_id)
    if owner is None or is_hanging(one, owner):
        return
    text = f"{one.topic_partition} belongs to {owner.transactional_id}, which is {owner.state}"
    if owner.state == "Ongoing" and owner.start_time_ms is not None:
        left_ms = owner.start_time_ms + owner.timeout_ms - now_ms()
        text += f" and times out in {duration_text(max(0, left_ms))}"
        text += f"; now: `oncelog transactions abort --transactional-id {owner.transactional_id}`"
    raise Failure(f"this transaction does not hang: {text}")
