"""Requests of TV1 clients on several connections: which are late, and which only look so (D7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.core.limits import CONNECTION_QUEUED_REQUESTS_COUNT_MAX
from oncelog.protocol.api import ApiKey
from oncelog.transaction.shard import TransactionCoordinatorShard
from oncelog.transaction.states import TransactionMetadata, TransactionState
from tests.unit.broker.apis.producing import (
    FOLLOWER,
    ID,
    TIMEOUT,
    Producing,
    offset_of,
    replicated,
    started,
    until,
)
from tests.unit.broker.context import Client, Running
from tests.unit.broker.raw import fetch, init_producer, values
from tests.unit.broker.support import assignment

TRANSACTIONS = 6


@pytest.mark.parametrize("end_version", [0, 3, 4])
async def test_a_client_with_a_pool_of_connections_commits_each_transaction(
    context: Running, end_version: int
) -> None:
    """As kafka-go's `Client`: each transaction ends on the connection that it did not begin on."""
    older = await context.connect()
    await older.ask(ApiKey.API_VERSIONS)
    producing = await started(context)
    newer = producing.client
    for number in range(TRANSACTIONS):
        producing.client, ends_on = (newer, older) if number % 2 else (older, newer)
        assert await producing.add() == [ErrorCode.none]
        assert await producing.produce(8) is ErrorCode.none
        producing.client = ends_on
        assert await producing.end(commit=True, version=end_version) is ErrorCode.none
    found = await fetch(newer, isolation_level=1)
    assert len(values(found.records)) == TRANSACTIONS


@pytest.mark.parametrize("version", [0, 3, 4])
async def test_a_client_with_a_pool_of_connections_sends_its_offsets_on_any(
    context: Running, version: int
) -> None:
    older = await context.connect()
    await older.ask(ApiKey.API_VERSIONS)
    producing = await started(context)
    newer = producing.client
    for number in range(1, TRANSACTIONS):
        producing.client, other = (newer, older) if number % 2 else (older, newer)
        assert await producing.add_offsets() is ErrorCode.none
        producing.client = other
        assert await producing.commit_offset(number, version) is ErrorCode.none
        assert await producing.end(commit=True) is ErrorCode.none
        assert await offset_of(context) == (number, ErrorCode.none)


class UnansweredError(Exception):
    """The client does not wait for the response."""


class Hasty(Client):
    """A connection on which nobody waits for responses."""

    async def receive(self) -> bytes | None:
        raise UnansweredError


Send = Callable[[Producing], Awaitable[Any]]

LATE: dict[str, Send] = {
    "EndTxn": lambda producing: producing.end(commit=True),
    "AddPartitionsToTxn": lambda producing: producing.add("late"),
    "AddOffsetsToTxn": lambda producing: producing.add_offsets(),
    "TxnOffsetCommit": lambda producing: producing.commit_offset(1, 3),
}


class Interval:
    """A transaction has ended, but is not complete: requests of its producer wait.

    `given_up` is on a connection that its client closes.
    """

    def __init__(self, context: Running, producing: Producing, given_up: Producing) -> None:
        self.context = context
        self.producing = producing
        self.given_up = given_up
        transactions = context.broker.transactions
        self.log = replicated(context, TRANSACTION_STATE_TOPIC, transactions.partition_of(ID))

    @classmethod
    async def begin(cls, context: Running) -> Interval:
        await context.broker.controller.create_topics([TopicToCreate("late")])
        producing = await started(context)
        await producing.add()
        await producing.add_offsets()
        assert await producing.commit_offset(2, 3) is ErrorCode.none
        client = await context.connect()
        await client.ask(ApiKey.API_VERSIONS)
        hasty = Hasty(client.reader, client.writer)
        given_up = Producing(hasty, producing.producer_id, producing.epoch)
        interval = cls(context, producing, given_up)
        ended = asyncio.create_task(producing.end(commit=True))
        for _ in ("PREPARE", "COMPLETE"):
            interval.replicate()
            await until(lambda: interval.is_writing)
        assert await ended is ErrorCode.none
        return interval

    @property
    def is_writing(self) -> bool:
        return self.log.log.log_end_offset > self.log.state.high_watermark

    @property
    def parked_count(self) -> int:
        return self.context.broker.transactions.parked_count

    @property
    def metadata(self) -> TransactionMetadata:
        shards = self.context.broker.transactions.shards()
        (metadata,) = [
            shard.transactions[ID]
            for shard in shards
            if isinstance(shard, TransactionCoordinatorShard) and ID in shard.transactions
        ]
        return metadata

    async def give_up(self, *sends: Send) -> None:
        """Send these without a look at the responses, and close the connection."""
        for send in sends:
            with suppress(UnansweredError):
                await send(self.given_up)
        await until(lambda: self.parked_count == 1)
        self.given_up.client.writer.close()
        await self.given_up.client.writer.wait_closed()

    async def begin_next(self, topic: str) -> Producing:
        """Open the producer's next transaction, before the broker turns to its connections."""
        client = await self.context.connect()
        following = Producing(client, self.producing.producer_id, self.producing.epoch)
        before = self.parked_count
        add = following.add_offsets() if topic == CONSUMER_OFFSETS_TOPIC else following.add(topic)
        added = asyncio.create_task(add)
        await until(lambda: self.parked_count > before)
        for _ in ("COMPLETE", "the next transaction"):
            self.replicate()
        assert await added in (ErrorCode.none, [ErrorCode.none])
        return following

    def replicate(self) -> None:
        self.log.follower_fetched(FOLLOWER, self.log.log.log_end_offset, 0)


MANY = CONNECTION_QUEUED_REQUESTS_COUNT_MAX + 1


@pytest.mark.parametrize(
    ("api", "fillers"),
    [
        *[(api, 0) for api in sorted(LATE)],
        *[
            # Each waits for 5 s.
            pytest.param(api, MANY, marks=[] if api == "EndTxn" else pytest.mark.soak)
            for api in sorted(LATE)
        ],
    ],
)
async def test_a_request_queued_on_a_closed_connection_is_not_started(
    context: Running, api: str, fillers: int
) -> None:
    """It was held back by one that waits, whether or not the broker still reads there (D7)."""
    interval = await Interval.begin(context)
    filling = [lambda late: late.client.ask(ApiKey.API_VERSIONS)] * fillers
    await interval.give_up(LATE["EndTxn"], *filling, LATE[api])
    if not fillers:
        await until(lambda: interval.parked_count == 0)
    is_about_offsets = api == "TxnOffsetCommit"
    following = await interval.begin_next(CONSUMER_OFFSETS_TOPIC if is_about_offsets else "t")
    server = context.broker.server
    await until(lambda: len(server.connections) == 2)
    interval.replicate()
    assert interval.metadata.state is TransactionState.ONGOING
    assert len(interval.metadata.partitions) == 1, "what was added late"
    interval.log.assign(assignment(), 0)
    assert await following.end(commit=True) is ErrorCode.none
    assert await offset_of(context) == (2, ErrorCode.none)


@pytest.mark.parametrize("api", ["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"])
async def test_a_request_that_waits_on_a_closed_connection_is_not_decided(
    context: Running, api: str
) -> None:
    interval = await Interval.begin(context)
    await interval.give_up(LATE[api])
    await until(lambda: interval.parked_count == 0)
    following = await interval.begin_next("t")
    assert interval.metadata.state is TransactionState.ONGOING
    assert len(interval.metadata.partitions) == 1, "what was added late"
    interval.log.assign(assignment(), 0)
    assert await following.end(commit=True) is ErrorCode.none


async def test_a_late_end_on_an_open_connection_ends_the_open_transaction(
    context: Running,
) -> None:
    """As in Kafka: nothing tells it from one in time (docs/transactions.md)."""
    late_client = await context.connect()
    producing = await started(context)
    late = Producing(late_client, producing.producer_id, producing.epoch)
    await producing.add()
    assert await producing.end(commit=True) is ErrorCode.none
    await producing.add()
    assert await producing.produce(8) is ErrorCode.none
    assert await late.end(commit=True) is ErrorCode.none
    assert await producing.end(commit=False) is ErrorCode.invalid_txn_state


async def test_inv5_a_new_epoch_fences_what_an_end_without_an_answer_left_behind(
    context: Running,
) -> None:
    """The advice of docs/transactions.md, also for requests of the transaction before."""
    producing = await started(context)
    late = Producing(await context.connect(), producing.producer_id, producing.epoch)
    await producing.add()
    await producing.add_offsets()
    assert await producing.commit_offset(1, 3) is ErrorCode.none
    assert await producing.end(commit=True) is ErrorCode.none
    answer = await init_producer(
        producing.client,
        ID,
        transaction_timeout_ms=TIMEOUT,
        producer_id=producing.producer_id,
        producer_epoch=producing.epoch,
    )
    following = Producing(producing.client, answer.producer_id, answer.producer_epoch)
    await following.add()
    await following.add_offsets()
    assert await following.commit_offset(2, 3) is ErrorCode.none
    assert await late.end(commit=True) is ErrorCode.producer_fenced
    assert await late.add("late") == [ErrorCode.unknown_topic_or_partition]
    assert await late.add() == [ErrorCode.producer_fenced]
    assert await late.add_offsets() is ErrorCode.producer_fenced
    assert await late.commit_offset(1, 3) is ErrorCode.invalid_producer_epoch
    assert await following.end(commit=True) is ErrorCode.none
    assert await offset_of(context) == (2, ErrorCode.none)
