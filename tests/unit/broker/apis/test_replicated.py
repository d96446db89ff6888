"""Requests of clients to a leader with followers: acks=all, ends of logs, deleted records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import BrokerImage, ImageDelta
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import (
    error_of,
    produce,
    receive_fetch,
    receive_produce,
    send_fetch,
    send_produce,
    until,
    values,
)
from tests.unit.broker.support import NOW_MS, assignment, batch

ME, FOLLOWER = 1, 2
BOTH = (ME, FOLLOWER)
LONG_MS = 60_000


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data") as started:
        await started.broker.controller.create_topics([TopicToCreate("t")])
        yield started


def lead(context: Running, isr: Sequence[int] = BOTH, **fields: Any) -> Partition:
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    partition.assign(assignment(tuple(isr), BOTH, **fields), 0)
    return partition


def numbered(sequence: int) -> bytearray:
    return batch(producer_id=9, epoch=0, sequence=sequence)


async def test_acks_all_is_refused_before_the_append_where_too_few_are_in_sync(
    context: Running,
) -> None:
    """INV-2: no sequence is taken, so the retry is the first. Others are appended."""
    partition = lead(context, (ME,), min_isr=2)
    client = await context.connect()
    refused = await produce(client, 9, numbered(0))
    assert error_of(refused) is ErrorCode.not_enough_replicas
    assert partition.log.log_end_offset == 0
    assert (await produce(client, 9, batch(), acks=1)).base_offset == 0
    lead(context, min_isr=2)
    await send_produce(client, 9, numbered(0))
    await until(lambda: partition.log.log_end_offset == 2)
    partition.follower_fetched(FOLLOWER, 2, 0)
    assert (await receive_produce(client, 9)).base_offset == 1


async def test_a_later_batch_of_a_new_producer_does_not_overtake_a_refused_one(
    context: Running,
) -> None:
    """INV-2: it was in flight too, over a connection that its client has given up."""
    partition = lead(context, (ME,), min_isr=2)
    client, given_up = await context.connect(), await context.connect()
    refused = await produce(client, 9, numbered(3))
    assert error_of(refused) is ErrorCode.not_enough_replicas
    lead(context, (ME,), min_isr=1)
    late = await produce(given_up, 9, numbered(4))
    assert error_of(late) is ErrorCode.out_of_order_sequence_number
    assert partition.log.log_end_offset == 0
    for sequence in (3, 4, 5):
        assert (await produce(client, 9, numbered(sequence))).base_offset == sequence - 3
    assert not context.broker.partitions.refused.lowest


async def test_a_batch_does_not_overtake_one_that_came_before_its_leader_led(
    context: Running,
) -> None:
    partition = lead(context, leader=FOLLOWER)
    client = await context.connect()
    assert error_of(await produce(client, 9, numbered(0))) is ErrorCode.not_leader_or_follower
    lead(context, (ME,), epoch=1)
    late = await produce(client, 9, numbered(1))
    assert error_of(late) is ErrorCode.out_of_order_sequence_number
    assert (await produce(client, 9, numbered(0))).base_offset == 0
    assert (await produce(client, 9, numbered(1))).base_offset == 1
    assert partition.log.log_end_offset == 2


async def test_a_batch_does_not_overtake_one_that_came_before_its_topic(
    context: Running,
) -> None:
    client = await context.connect()
    unknown = ErrorCode.unknown_topic_or_partition
    assert error_of(await produce(client, 9, numbered(0), topic="new")) is unknown
    await context.broker.controller.create_topics([TopicToCreate("new")])
    late = await produce(client, 9, numbered(1), topic="new")
    assert error_of(late) is ErrorCode.out_of_order_sequence_number
    for sequence in (0, 1):
        sent = await produce(client, 9, numbered(sequence), topic="new")
        assert sent.base_offset == sequence


async def test_acks_all_learns_that_the_isr_became_too_small_after_the_append(
    context: Running,
) -> None:
    """The retry is a repetition, and waits for its first offset."""
    partition = lead(context, min_isr=2)
    client = await context.connect()
    await send_produce(client, 9, numbered(0))
    await until(lambda: partition.waiting_count == 1)
    lead(context, (ME,), min_isr=2)
    told = await receive_produce(client, 9)
    assert error_of(told) is ErrorCode.not_enough_replicas_after_append
    assert partition.state.high_watermark == 0
    lead(context, min_isr=2)
    await send_produce(client, 9, numbered(0))
    await until(lambda: partition.waiting_count == 1)
    partition.follower_fetched(FOLLOWER, 1, 0)
    assert (await receive_produce(client, 9)).base_offset == 0


async def test_acks_all_learns_that_the_leader_is_another(context: Running) -> None:
    partition = lead(context)
    client = await context.connect()
    await send_produce(client, 9, batch())
    await until(lambda: partition.waiting_count == 1)
    lead(context, leader=FOLLOWER, epoch=1)
    assert error_of(await receive_produce(client, 9)) is ErrorCode.not_leader_or_follower


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_a_fetch_between_an_append_and_its_commit_gets_it_at_the_commit(
    context: Running, isolation_level: int
) -> None:
    """No byte is appended after it has parked, so none would wake it."""
    partition = lead(context)
    client, producer = await context.connect(), await context.connect()
    await produce(producer, 9, batch(3), acks=1)
    await send_fetch(client, min_bytes=9, max_wait_ms=LONG_MS, isolation_level=isolation_level)
    await until(lambda: bool(partition.fetches))
    partition.follower_fetched(FOLLOWER, 3, 0)
    found = (await receive_fetch(client)).topics[0].partitions[0]
    assert len(values(found.records)) == 3


async def test_a_marker_releases_a_fetch_that_wants_more_bytes_than_it_has(
    context: Running,
) -> None:
    """The records before it were there when the fetch came."""
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    opened = batch(9, producer_id=9, epoch=0, sequence=0, transactional=True)
    assert partition.append(opened, now_ms=NOW_MS).error is ErrorCode.none
    client = await context.connect()
    await send_fetch(client, min_bytes=len(opened), max_wait_ms=LONG_MS, isolation_level=1)
    await until(lambda: bool(partition.fetches))
    partition.append_marker(9, 0, 0, commit=True, now_ms=NOW_MS, transaction_version=0)
    found = (await receive_fetch(client)).topics[0].partitions[0]
    assert len(values(found.records)) == 9


async def offset_at(client: Client, timestamp: int, version: int = 9, **fields: Any) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsTopic(name="t", partitions=(asked,))
    answer = await client.ask(ApiKey.LIST_OFFSETS, version, topics=(topic,), **fields)
    return answer.topics[0].partitions[0]


async def test_a_new_leader_tells_no_end_that_it_does_not_know(context: Running) -> None:
    """KIP-207: an earlier leader may have committed more, which consumers have seen."""
    partition = lead(context)
    client = await context.connect()
    for _ in range(3):
        await produce(client, 9, batch(), acks=1)
    partition.follower_fetched(FOLLOWER, 2, 0)
    lead(context, epoch=1)
    unknown = ErrorCode.offset_not_available
    for isolation_level in (0, 1):
        found = await offset_at(client, -1, isolation_level=isolation_level)
        assert found.error_code is unknown
    assert (await offset_at(client, -1, 4)).error_code is ErrorCode.leader_not_available
    assert (await offset_at(client, NOW_MS + 1)).error_code is unknown
    assert (await offset_at(client, NOW_MS)).offset == 0
    assert (await offset_at(client, -2)).offset == 0
    assert (await offset_at(client, -1, replica_id=ME)).offset == 3
    partition.follower_fetched(FOLLOWER, 3, 0)
    assert (await offset_at(client, -1)).offset == 3
    assert (await offset_at(client, NOW_MS + 1)).offset == -1


def live(context: Running, *broker_ids: int) -> None:
    feed = context.broker.feed
    brokers = {each: BrokerImage(each, "127.0.0.1", 9) for each in broker_ids}
    feed.image = feed.image.after(ImageDelta(), brokers={**feed.image.brokers, **brokers})


async def delete(client: Client, offset: int, timeout_ms: int = LONG_MS) -> tuple[ErrorCode, int]:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="t", partitions=(asked,))
    answer = await client.ask(ApiKey.DELETE_RECORDS, topics=(topic,), timeout_ms=timeout_ms)
    (found,) = answer.topics[0].partitions
    return found.error_code, found.low_watermark


async def test_records_are_deleted_once_the_live_replicas_have_deleted_them(
    context: Running,
) -> None:
    live(context, FOLLOWER)
    partition = lead(context)
    client = await context.connect()
    await produce(client, 9, batch(4), acks=1)
    partition.follower_fetched(FOLLOWER, 3, 0, log_start_offset=0)
    deleting = asyncio.create_task(delete(client, -1))
    await until(lambda: partition.log.log_start_offset == 3)
    await until(lambda: bool(partition.start_waiters.waiting))
    partition.follower_fetched(FOLLOWER, 4, 0, log_start_offset=2)
    partition.follower_fetched(FOLLOWER, 4, 0, log_start_offset=3)
    assert await deleting == (ErrorCode.none, 3)


async def test_a_deletion_that_a_replica_does_not_follow_times_out(context: Running) -> None:
    live(context, FOLLOWER)
    partition = lead(context)
    client = await context.connect()
    await produce(client, 9, batch(4), acks=1)
    partition.follower_fetched(FOLLOWER, 4, 0, log_start_offset=0)
    assert await delete(client, 2, timeout_ms=1) == (ErrorCode.request_timed_out, -1)


async def test_what_timed_out_waits_at_its_partition_no_more(context: Running) -> None:
    """Else a replica that never deletes would keep every request of that kind in memory."""
    live(context, FOLLOWER)
    partition = lead(context)
    client = await context.connect()
    await produce(client, 9, batch(4), acks=1)
    partition.follower_fetched(FOLLOWER, 4, 0, log_start_offset=0)
    await delete(client, 2, timeout_ms=1)
    timed_out = await produce(client, 9, batch(), timeout_ms=1)
    assert error_of(timed_out) is ErrorCode.request_timed_out
    assert not partition.start_waiters.waiting
    assert partition.waiting_count == 0


async def test_a_replica_that_is_dead_holds_up_no_deletion(context: Running) -> None:
    partition = lead(context)
    client = await context.connect()
    await produce(client, 9, batch(4), acks=1)
    partition.follower_fetched(FOLLOWER, 4, 0, log_start_offset=0)
    assert await delete(client, 2) == (ErrorCode.none, 2)
