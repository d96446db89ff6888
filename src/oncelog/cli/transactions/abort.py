"""``oncelog transactions abort``: end a transaction that its producer does not end.

Two ways, for two troubles:

- a **hanging** transaction, of which no coordinator knows: an abort marker for one partition
  (WriteTxnMarkers), named as in ``kafka-transactions abort``. Refused while a coordinator still has
  the transaction: a marker past it could abort here what commits elsewhere.
- the open transaction of a **transactional id**: its coordinator aborts it on every partition, as
  it would for a new producer (InitProducerId), and fences the producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

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
@click.option("--transactional-id", metavar="ID", help="Abort what this id has open, everywhere.")
@click.option("--topic", metavar="NAME", help="Where the hanging transaction is.")
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Its partition.")
@click.option("--start-offset", type=click.IntRange(0), metavar="N", help="Where it begins there.")
@click.option("--producer-id", type=click.IntRange(0), metavar="ID", help="In place of the offset.")
@click.option(
    "--force", is_flag=True, help="Write the marker though a coordinator has the transaction."
)
def command(
    servers: str,
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    producer_id: int | None,
    force: bool,
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
            " --producer-id (see `oncelog transactions find-hanging`)"
        )
    run(lambda: _abort_in(servers, topic, partition, start_offset, producer_id, force), servers)


async def _abort_id(servers: str, transactional_id: str) -> None:
    from oncelog.client import FatalError
    from oncelog.core.errors import ErrorCode

    async with administrator(servers) as admin:
        try:
            found = await admin.describe_transaction(transactional_id)
        except FatalError as error:
            if error.code is not ErrorCode.transactional_id_not_found:
                raise
            text = f"no transactional id {transactional_id}: see `oncelog transactions list`"
            raise Failure(text) from None
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


async def _abort_in(
    servers: str,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    force: bool,
) -> None:
    async with administrator(servers) as admin:
        partitions = await partitions_to_search(admin, (topic,), partition)
        found = [
            one
            for one in await find_open(admin, partitions)
            if start_offset in (None, one.start_offset)
            and producer_id in (None, one.producer.producer_id)
        ]
        if not found:
            named = (
                f"from offset {start_offset}" if start_offset is not None else "of that producer"
            )
            raise Failure(
                f"{topic}-{partition} has no open transaction {named}: see"
                f" `oncelog transactions watch --topic {topic} --count 1`"
            )
        (one,) = found
        if not force:
            await _require_hanging(admin, one)
        producer = one.producer
        await admin.abort_transaction(
            one.topic_partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
        )
        say(
            f"aborted in {one.topic_partition}: producer {producer.producer_id},"
            f" epoch {producer.producer_epoch}, from offset {one.start_offset}"
        )


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
