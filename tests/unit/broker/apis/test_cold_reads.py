"""Reads that have to wait for the disk do so in the executor, and nobody else waits (D12)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncelog.broker.apis.list_offsets import MAX_TIMESTAMP
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import COLD_READS_COUNT_MAX
from oncelog.runtime import Lane
from tests.unit.broker.apis.test_damage import fetch_both, list_offset
from tests.unit.broker.cold import Cold, cold_broker
from tests.unit.broker.raw import (
    fetch,
    produce,
    receive_fetch,
    receive_produce,
    send_fetch,
    send_produce,
    until,
    values,
)
from tests.unit.broker.support import NOW_MS, batch

LONG_MS = 60_000
ONE = len(batch())


@pytest.fixture
async def cold(tmp_path: Path) -> AsyncIterator[Cold]:
    """Topics t and u of three batches each, which a restart has made cold."""
    folder = tmp_path / "data"
    async with cold_broker(folder) as first:
        await first.broker.controller.create_topics([TopicToCreate("t"), TopicToCreate("u")])
        client = await first.connect()
        for topic in "tu" * 3:
            await produce(client, 9, batch(), topic=topic)
    async with cold_broker(folder) as started:
        started.disk.read_by.clear()
        yield started


async def test_a_cold_fetch_is_read_in_the_executor(cold: Cold) -> None:
    client = await cold.connect()
    found = await fetch(client)
    assert values(found.records) == [b"value"] * 3
    assert (found.high_watermark, found.log_start_offset) == (3, 0)
    assert cold.disk.read_by
    assert threading.get_ident() not in cold.disk.read_by


async def test_the_tail_is_read_in_the_loop(cold: Cold) -> None:
    client = await cold.connect()
    await produce(client, 9, batch())
    found = await fetch(client, offset=3)
    assert values(found.records) == [b"value"]
    assert set(cold.disk.read_by) == {threading.get_ident()}


async def test_others_are_served_while_a_read_waits_for_the_disk(cold: Cold) -> None:
    reader, other = await cold.connect(), await cold.connect()
    cold.disk.held.add(Lane.READ)
    await send_fetch(reader)
    await until(lambda: cold.disk.running[Lane.READ] == 1)
    assert (await produce(other, 9, batch())).base_offset == 3
    assert values((await fetch(other, offset=3)).records) == [b"value"]
    cold.disk.let_go()
    found = (await receive_fetch(reader)).topics[0].partitions[0]
    # What was readable when the request came; the high watermark is that of now.
    assert (len(values(found.records)), found.high_watermark) == (3, 4)


async def test_replies_keep_their_order_behind_a_cold_read(cold: Cold) -> None:
    """D13: the produce takes effect meanwhile, its reply waits."""
    client = await cold.connect()
    cold.disk.held.add(Lane.READ)
    await send_fetch(client)
    await send_produce(client, 9, batch())
    partition = cold.broker.partitions.get("t", 0)
    assert partition is not None
    await until(lambda: partition.log.log_end_offset == 4)
    cold.disk.let_go()
    assert len(values((await receive_fetch(client)).topics[0].partitions[0].records)) == 3
    assert (await receive_produce(client, 9)).base_offset == 3


async def test_a_partition_deleted_meanwhile_is_answered_as_such(cold: Cold) -> None:
    client = await cold.connect()
    cold.disk.held.add(Lane.READ)
    await send_fetch(client)
    await until(lambda: cold.disk.running[Lane.READ] == 1)
    await cold.broker.controller.delete_topic(cold.broker.image.topics["t"].topic_id)
    cold.disk.let_go()
    found = (await receive_fetch(client)).topics[0].partitions[0]
    assert found.error == ErrorCode.unknown_topic_or_partition
    assert not found.records
    assert cold.broker.stopped_because is None


async def test_records_deleted_meanwhile_are_out_of_range(cold: Cold) -> None:
    client = await cold.connect()
    cold.disk.held.add(Lane.READ)
    await send_fetch(client)
    await until(lambda: cold.disk.running[Lane.READ] == 1)
    partition = cold.broker.partitions.get("t", 0)
    assert partition is not None
    partition.delete_records(2)
    cold.disk.let_go()
    found = (await receive_fetch(client)).topics[0].partitions[0]
    assert (found.error, found.log_start_offset) == (ErrorCode.offset_out_of_range, 2)


async def test_a_cold_read_that_finds_too_little_parks_for_the_rest(cold: Cold) -> None:
    reader, writer = await cold.connect(), await cold.connect()
    await send_fetch(reader, min_bytes=3 * ONE + 1, max_wait_ms=LONG_MS)
    await until(lambda: cold.disk.finished[Lane.READ] == 1)
    await produce(writer, 9, batch())
    found = (await receive_fetch(reader)).topics[0].partitions[0]
    assert len(values(found.records)) == 4


async def test_a_cold_read_whose_time_is_over_is_answered_with_what_there_is(cold: Cold) -> None:
    client = await cold.connect()
    found = await fetch(client, min_bytes=3 * ONE + 1, max_wait_ms=1)
    assert len(values(found.records)) == 3


async def test_only_so_many_cold_reads_are_under_way(cold: Cold) -> None:
    clients = [await cold.connect() for _ in range(COLD_READS_COUNT_MAX + 3)]
    cold.disk.held.add(Lane.READ)
    for client in clients:
        await send_fetch(client)
    await until(lambda: cold.disk.running[Lane.READ] == COLD_READS_COUNT_MAX)
    cold.disk.let_go()
    for client in clients:
        found = (await receive_fetch(client)).topics[0].partitions[0]
        assert len(values(found.records)) == 3
    assert cold.disk.finished[Lane.READ] == len(clients)


async def test_a_read_without_a_waiting_request_is_not_started(cold: Cold) -> None:
    clients = [await cold.connect() for _ in range(COLD_READS_COUNT_MAX + 1)]
    cold.disk.held.add(Lane.READ)
    for client in clients:
        await send_fetch(client)
        await until(lambda: len(cold.broker.server.connections) == len(clients))
    await until(lambda: cold.disk.running[Lane.READ] == COLD_READS_COUNT_MAX)
    clients[-1].writer.close()
    await until(lambda: len(cold.broker.server.connections) == COLD_READS_COUNT_MAX)
    cold.disk.let_go()
    await until(lambda: cold.disk.finished[Lane.READ] == COLD_READS_COUNT_MAX)
    await asyncio.sleep(0)
    assert cold.disk.running[Lane.READ] == 0


async def test_partitions_behind_a_cold_one_share_the_limits_as_ever(cold: Cold) -> None:
    """What the first might have given counts for nothing: else the last were never read."""
    client = await cold.connect()
    assert await fetch_both(client, 0, size=2**20) == [(ErrorCode.none, 3)] * 2
    # The first batch comes whole, and then nothing is left for the second partition.
    assert await fetch_both(client, 0, size=1) == [(ErrorCode.none, 1), (ErrorCode.none, 0)]


async def test_a_session_takes_note_of_what_a_cold_read_found(cold: Cold) -> None:
    client = await cold.connect()
    await send_fetch(client, session_epoch=0)
    first = await receive_fetch(client)
    assert len(values(first.topics[0].partitions[0].records)) == 3
    await send_fetch(client, session_id=first.session_id, session_epoch=1, offset=3)
    again = await receive_fetch(client)
    assert (again.error, list(again.topics)) == (ErrorCode.none, [])


@pytest.mark.parametrize("timestamp", [NOW_MS, MAX_TIMESTAMP])
async def test_a_lookup_by_time_asks_the_disk_in_the_executor(cold: Cold, timestamp: int) -> None:
    client = await cold.connect()
    assert await list_offset(client, "t", timestamp) == (ErrorCode.none, 0)
    assert cold.disk.read_by
    assert threading.get_ident() not in cold.disk.read_by
