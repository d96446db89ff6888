"""Fetch against a running broker: limits, waiting, isolation, sessions, epochs."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.fetch import FetchPartition, FetchTopic
from tests.unit.broker.context import Running, running
from tests.unit.broker.raw import (
    error_of,
    fetch,
    produce,
    receive_fetch,
    send_fetch,
    until,
    values,
)
from tests.unit.broker.support import NOW_MS, assignment, batch

LONG_MS = 60_000


def is_parked(context: Running) -> bool:
    """Whether a fetch waits at the partition."""
    partition = context.broker.partitions.get("t", 0)
    return partition is not None and bool(partition.fetches)


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data") as started:
        await started.broker.controller.create_topics([TopicToCreate("t")])
        yield started


async def test_every_version_reads_what_was_produced(context: Running) -> None:
    client = await context.connect()
    await produce(client, 9, batch(3))
    topic_id = context.broker.image.topics["t"].topic_id
    for version in range(4, 19):
        found = await fetch(client, version, topic_id=topic_id)
        assert values(found.records) == [b"value"] * 3
        assert (found.high_watermark, found.last_stable_offset) == (3, 3)


async def test_the_first_batch_comes_whole_whatever_the_limits(context: Running) -> None:
    client = await context.connect()
    for _ in range(3):
        await produce(client, 9, batch(10))
    found = await fetch(client, max_bytes=1, partition_max_bytes=1)
    assert len(values(found.records)) == 10
    one = len(batch(10))
    found = await fetch(client, partition_max_bytes=2 * one)
    assert len(values(found.records)) == 20


async def test_a_fetch_waits_for_min_bytes_and_is_woken_by_them(context: Running) -> None:
    reader, writer = await context.connect(), await context.connect()
    await send_fetch(reader, min_bytes=len(batch()) + 1, max_wait_ms=LONG_MS)
    await produce(writer, 9, batch())
    await produce(writer, 9, batch())
    answer = await receive_fetch(reader)
    assert values(answer.topics[0].partitions[0].records) == [b"value"] * 2


async def test_a_fetch_waits_at_every_partition_that_it_names(context: Running) -> None:
    await context.broker.controller.create_topics([TopicToCreate("two", 2)])
    reader, writer = await context.connect(), await context.connect()
    both = [FetchPartition(index, 0, 2**20, -1, -1) for index in (0, 1)]
    more = [FetchTopic("two", None, both)]
    await send_fetch(reader, min_bytes=1, max_wait_ms=LONG_MS, more=more)
    await until(lambda: is_parked(context))
    await produce(writer, 9, batch(), topic="two", partition=1)
    answer = await receive_fetch(reader)
    found = [values(each.records) for topic in answer.topics for each in topic.partitions]
    assert found == [[], [], [b"value"]]


async def test_a_fetch_answers_empty_when_its_time_is_over(context: Running) -> None:
    client = await context.connect()
    found = await fetch(client, min_bytes=1, max_wait_ms=20)
    assert error_of(found) is ErrorCode.none
    assert values(found.records) == []


async def test_a_deleted_topic_answers_its_waiting_fetches(context: Running) -> None:
    client = await context.connect()
    await send_fetch(client, min_bytes=1, max_wait_ms=LONG_MS)
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    await until(lambda: bool(partition.fetches))
    await context.broker.controller.delete_topic(context.broker.image.topics["t"].topic_id)
    answer = await receive_fetch(client)
    error = error_of(answer.topics[0].partitions[0])
    assert error is ErrorCode.unknown_topic_or_partition


def elsewhere() -> FetchTopic:
    """A topic that does not exist, by name or by id."""
    return FetchTopic("nowhere", uuid.UUID(int=7), [FetchPartition(0, 0, 2**20)])


@pytest.mark.parametrize(
    ("version", "error"),
    [(12, ErrorCode.unknown_topic_or_partition), (13, ErrorCode.unknown_topic_id)],
)
async def test_a_fetch_waits_at_an_idle_partition_beside_an_unknown_one(
    context: Running, version: int, error: ErrorCode
) -> None:
    """Kafka reads only the partitions that its metadata has: the others do not end the wait."""
    reader, writer = await context.connect(), await context.connect()
    options: dict[str, Any] = {"topic_id": context.broker.image.topics["t"].topic_id}
    options |= {"min_bytes": 1, "max_wait_ms": LONG_MS, "more": [elsewhere()]}
    await send_fetch(reader, version, **options)
    await until(lambda: is_parked(context))
    await produce(writer, 9, batch())
    known, unknown = (await receive_fetch(reader, version)).topics
    assert values(known.partitions[0].records) == [b"value"]
    assert error_of(unknown.partitions[0]) is error


async def test_a_fetch_of_unknown_partitions_only_is_answered_at_once(context: Running) -> None:
    client = await context.connect()
    options: dict[str, Any] = {"min_bytes": 1, "max_wait_ms": LONG_MS, "more": [elsewhere()]}
    await send_fetch(client, partition=9, **options)
    answers = [topic.partitions[0] for topic in (await receive_fetch(client)).topics]
    assert {error_of(answer) for answer in answers} == {ErrorCode.unknown_topic_or_partition}


async def test_a_partition_deleted_meanwhile_ends_the_wait_beside_an_unknown_one(
    context: Running,
) -> None:
    client = await context.connect()
    await send_fetch(client, min_bytes=1, max_wait_ms=LONG_MS, more=[elsewhere()])
    await until(lambda: is_parked(context))
    await context.broker.controller.delete_topic(context.broker.image.topics["t"].topic_id)
    answers = [topic.partitions[0] for topic in (await receive_fetch(client)).topics]
    assert {error_of(answer) for answer in answers} == {ErrorCode.unknown_topic_or_partition}


async def test_an_epoch_that_diverges_ends_the_wait(context: Running) -> None:
    """The reader has to go back, and does not learn of it later than in Kafka (KIP-595)."""
    client = await context.connect()
    await produce(client, 9, batch())
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    partition.assign(assignment(epoch=4), 0)
    await produce(client, 9, batch())
    found = await fetch(client, offset=2, last_fetched_epoch=0, min_bytes=1, max_wait_ms=LONG_MS)
    assert tuple(found.diverging_epoch) == (0, 1)


async def test_a_lost_connection_leaves_no_fetch_behind(context: Running) -> None:
    client = await context.connect()
    await send_fetch(client, min_bytes=1, max_wait_ms=LONG_MS)
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    await until(lambda: bool(partition.fetches))
    client.writer.close()
    await until(lambda: not partition.fetches)


async def test_read_committed_stops_at_the_open_transaction_and_lists_aborted_ones(
    context: Running,
) -> None:
    """INV-3."""
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    client = await context.connect()
    await produce(client, 9, batch())
    for producer_id in (5, 6):
        data = batch(producer_id=producer_id, epoch=0, sequence=0, transactional=True)
        partition.append(data, now_ms=NOW_MS)
    partition.append_marker(5, 0, 0, commit=False, now_ms=NOW_MS, transaction_version=0)
    found = await fetch(client, isolation_level=1)
    assert (found.high_watermark, found.last_stable_offset) == (4, 2)
    assert len(values(found.records)) == 2
    assert [tuple(aborted)[:2] for aborted in found.aborted_transactions] == [(5, 1)]
    assert len(values((await fetch(client)).records)) == 3


@pytest.mark.parametrize("offset", [-1, 2])
async def test_an_offset_outside_the_log_is_out_of_range(context: Running, offset: int) -> None:
    client = await context.connect()
    await produce(client, 9, batch())
    found = await fetch(client, offset=offset, min_bytes=1, max_wait_ms=LONG_MS)
    assert error_of(found) is ErrorCode.offset_out_of_range


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (0, ErrorCode.none),
        (7, ErrorCode.unknown_leader_epoch),
    ],
)
async def test_the_clients_leader_epoch_is_compared(
    context: Running, epoch: int, expected: ErrorCode
) -> None:
    client = await context.connect()
    assert error_of(await fetch(client, leader_epoch=epoch)) is expected


async def test_an_older_leader_epoch_is_fenced(context: Running) -> None:
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    partition.assign(assignment(epoch=4), 0)
    client = await context.connect()
    assert error_of(await fetch(client, leader_epoch=3)) is ErrorCode.fenced_leader_epoch


async def test_topics_that_are_not_there(context: Running) -> None:
    client = await context.connect()
    unknown_name = await fetch(client, topic="nowhere")
    assert error_of(unknown_name) is ErrorCode.unknown_topic_or_partition
    unknown_id = await fetch(client, 13, topic_id=uuid.uuid4())
    assert error_of(unknown_id) is ErrorCode.unknown_topic_id


@pytest.mark.parametrize("version", [7, 12, 13, 18])
async def test_a_session_waits_and_tells_only_what_is_new(context: Running, version: int) -> None:
    """KIP-227."""
    client, writer = await context.connect(), await context.connect()
    topic = context.broker.image.topic("t")
    assert topic is not None
    options: dict[str, Any] = {"topic_id": topic.topic_id}
    await send_fetch(client, version, session_epoch=0, **options)
    opened = await receive_fetch(client, version)
    assert opened.error is ErrorCode.none
    assert opened.session_id > 0
    options |= {"session_id": opened.session_id, "min_bytes": 1}
    await send_fetch(client, version, session_epoch=1, **options)
    assert (await receive_fetch(client, version)).topics == []
    await send_fetch(client, version, session_epoch=2, max_wait_ms=10_000, **options)
    await produce(writer, 9, batch(2))
    (answered,) = (await receive_fetch(client, version)).topics
    assert len(values(answered.partitions[0].records)) == 2
    await send_fetch(client, version, session_epoch=2, **options)
    repeated = await receive_fetch(client, version)
    assert repeated.error is ErrorCode.invalid_fetch_session_epoch
    await send_fetch(client, version, session_epoch=-1, **options)
    assert (await receive_fetch(client, version)).session_id == 0
    await send_fetch(client, version, session_epoch=3, **options)
    gone = await receive_fetch(client, version)
    assert gone.error is ErrorCode.fetch_session_id_not_found
