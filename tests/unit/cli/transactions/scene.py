"""Transactions that somebody left open, for the commands to find."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable

from click.testing import Result

from oncelog import EmbeddedBroker
from oncelog.broker.broker import Broker
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from tests.unit.broker.context import Client
from tests.unit.broker.raw import produce
from tests.unit.broker.support import batch

__all__ = ["Oncelog", "error_line", "hang", "open_transaction", "rows", "some_id"]

Oncelog = Callable[..., Result]


def some_id() -> str:
    """A transactional id of this test's own."""
    return f"id-{uuid.uuid4().hex[:8]}"


def error_line(result: Result) -> str:
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert result.exit_code == 1
    return line.removeprefix("Error: ")


def rows(result: Result) -> list[dict[str, object]]:
    """What a command printed as JSON."""
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def open_transaction(servers: str, transactional_id: str, topic: str, partition: int = 0) -> int:
    """One record in an open transaction, its producer gone; returns the producer id."""

    async def work() -> int:
        host, _, port = servers.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        # The first look-up makes the topic of the coordinators.
        await client.ask(ApiKey.FIND_COORDINATOR, key_type=1, coordinator_keys=(transactional_id,))
        started = await client.ask(
            ApiKey.INIT_PRODUCER_ID,
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
        )
        assert started.error_code is ErrorCode.none
        identity = {"producer_id": started.producer_id, "epoch": started.producer_epoch}
        records = batch(1, **identity, sequence=0, transactional=True)
        options = {"transactional_id": transactional_id, "topic": topic, "partition": partition}
        written = await produce(client, 12, records, **options)
        assert written.error is ErrorCode.none
        client.writer.close()
        await client.writer.wait_closed()
        return int(started.producer_id)

    return asyncio.run(work())


def hang(embedded: EmbeddedBroker, topic: str, producer_id: int, epoch: int = 3) -> None:
    """A transaction in partition 0 of which no coordinator knows.

    The broker gives out the ids right above: take one that is far from those of other tests.
    """

    def work(broker: Broker) -> None:
        partition = broker.partitions.get(*TopicPartition(topic, 0))
        assert partition is not None
        records = batch(2, producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
        partition.append(records, now_ms=broker.clock.now_ms())

    embedded.call(work)
