"""With flush.messages=1 many requests wait for one fsync, off the loop (INV-1, INV-7, D12)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TRANSACTION_STATE_TOPIC
from oncelog.protocol.api import ApiKey
from oncelog.runtime import DiskFile, Lane, StorageFailure
from tests.unit.broker.cold import Cold, ColdFile, cold_broker
from tests.unit.broker.raw import (
    error_of,
    fetch,
    produce,
    receive_produce,
    send_fetch,
    send_produce,
    until,
    values,
)
from tests.unit.broker.support import batch

CLIENTS_COUNT = 20


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Cold]:
    async with cold_broker(tmp_path / "data", log_flush_interval_messages="1") as started:
        await started.broker.controller.create_topics([TopicToCreate("t")])
        started.disk.synced_by.clear()
        yield started


def partition_of(cold: Cold, topic: str = "t") -> Partition:
    partition = cold.broker.partitions.get(topic, 0)
    assert partition is not None
    return partition


@pytest.mark.parametrize("acks", [-1, 1])
async def test_an_acknowledgement_waits_for_the_sync_and_the_loop_does_not(
    broker: Cold, acks: int
) -> None:
    client, other = await broker.connect(), await broker.connect()
    broker.disk.held.add(Lane.SYNC)
    await send_produce(client, 9, batch(), acks=acks)
    await until(lambda: broker.disk.running[Lane.SYNC] == 1)
    # Nobody is given what a loss of power may take.
    found = await fetch(other)
    assert (found.high_watermark, values(found.records)) == (0, [])
    assert partition_of(broker).log.recovery_point == 0
    broker.disk.let_go()
    assert error_of(await receive_produce(client, 9)) is ErrorCode.none
    assert partition_of(broker).log.recovery_point == 1
    assert threading.get_ident() not in broker.disk.synced_by
    assert len(values((await fetch(other)).records)) == 1


async def test_all_that_comes_during_a_sync_shares_the_next_one(broker: Cold) -> None:
    clients = [await broker.connect() for _ in range(CLIENTS_COUNT)]
    partition = partition_of(broker)
    broker.disk.held.add(Lane.SYNC)
    for client in clients:
        await send_produce(client, 9, batch())
    await until(lambda: partition.log.log_end_offset == CLIENTS_COUNT)
    before = len(broker.disk.synced_by)
    broker.disk.let_go()
    for client in clients:
        assert error_of(await receive_produce(client, 9)) is ErrorCode.none
    # One more of the first sync, for the id of the topic.
    assert len(broker.disk.synced_by) - before <= 3
    assert broker.disk.finished[Lane.SYNC] <= 2
    assert partition.state.high_watermark == CLIENTS_COUNT


async def test_what_came_during_a_sync_is_not_acknowledged_by_it(broker: Cold) -> None:
    first, second = await broker.connect(), await broker.connect()
    partition = partition_of(broker)
    flush = partition.log.flush
    points: list[int] = []

    def flush_and_append_behind_it() -> None:
        flush()
        points.append(partition.log.recovery_point)

    partition.log.flush = flush_and_append_behind_it  # type: ignore[method-assign]
    broker.disk.held.add(Lane.SYNC)
    await send_produce(first, 9, batch())
    await until(lambda: broker.disk.running[Lane.SYNC] == 1)
    broker.disk.let_go()
    await send_produce(second, 9, batch())
    for client, offset in ((first, 0), (second, 1)):
        assert (await receive_produce(client, 9)).base_offset == offset
        assert points[-1] > offset


async def test_a_parked_fetch_is_woken_by_the_sync(broker: Cold) -> None:
    reader, writer = await broker.connect(), await broker.connect()
    await send_fetch(reader, min_bytes=1, max_wait_ms=60_000)
    await until(lambda: bool(partition_of(broker).fetches))
    broker.disk.held.add(Lane.SYNC)
    await send_produce(writer, 9, batch())
    await until(lambda: broker.disk.running[Lane.SYNC] == 1)
    await asyncio.sleep(0)
    assert partition_of(broker).fetches
    broker.disk.let_go()
    assert error_of(await receive_produce(writer, 9)) is ErrorCode.none
    await until(lambda: not partition_of(broker).fetches)


async def test_other_settings_sync_after_so_many_messages(broker: Cold) -> None:
    topic = TopicToCreate("u", config={"flush.messages": "3"})
    await broker.broker.controller.create_topics([topic])
    client = await broker.connect()
    broker.disk.held.add(Lane.SYNC)
    for offset in (0, 1):
        assert (await produce(client, 9, batch(), topic="u")).base_offset == offset
    assert broker.disk.running[Lane.SYNC] == 0
    await send_produce(client, 9, batch(), topic="u")
    await until(lambda: broker.disk.running[Lane.SYNC] == 1)
    await send_produce(client, 9, batch(), topic="u")
    partition = partition_of(broker, "u")
    await until(lambda: partition.log.log_end_offset == 4)
    assert partition.state.high_watermark == 2
    broker.disk.let_go()
    for offset in (2, 3):
        assert (await receive_produce(client, 9)).base_offset == offset


async def test_no_marker_is_written_before_prepare_is_synced(broker: Cold) -> None:
    """INV-4: else a loss of power could take PREPARE and leave markers."""
    client = await broker.connect()
    await broker.broker.controller.internal_topic(TRANSACTION_STATE_TOPIC)
    await broker.broker.transactions.loaded()
    init = await client.ask(
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id="x",
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert init.error_code is ErrorCode.none, init
    ids = {"producer_id": init.producer_id, "epoch": init.producer_epoch}
    written = batch(sequence=0, transactional=True, **ids)
    answer = await produce(client, 12, written, transactional_id="x")
    assert error_of(answer) is ErrorCode.none
    end, states = (
        partition_of(broker).log.log_end_offset,
        partition_of(broker, TRANSACTION_STATE_TOPIC),
    )
    state_end = states.log.log_end_offset
    broker.disk.held.add(Lane.SYNC)
    asked = asyncio.create_task(
        client.ask(
            ApiKey.END_TXN,
            4,
            transactional_id="x",
            producer_id=init.producer_id,
            producer_epoch=init.producer_epoch,
            committed=True,
        )
    )
    await until(lambda: states.log.log_end_offset > state_end)
    for _ in range(20):
        await asyncio.sleep(0)
    assert partition_of(broker).log.log_end_offset == end
    assert not asked.done()
    broker.disk.let_go()
    assert (await asked).error_code is ErrorCode.none
    await until(lambda: partition_of(broker).last_stable_offset == end + 1)


async def test_a_failed_sync_is_no_acknowledgement_and_is_final(
    broker: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: DiskFile) -> None:
        raise StorageFailure("fsync", file.path, "input/output error")

    client = await broker.connect()
    monkeypatch.setattr(ColdFile, "fsync", refuse)
    await send_produce(client, 9, batch())
    frame = await client.receive()
    assert frame is None or ErrorCode.kafka_storage_error.to_bytes(2, "big") in frame
    await until(lambda: broker.broker.stopped_because is not None)
    assert isinstance(broker.broker.stopped_because, StorageFailure)
    assert partition_of(broker).log.failure is broker.broker.stopped_because
    assert partition_of(broker).state.high_watermark == 0


async def test_a_topic_deleted_during_a_sync_harms_no_other(broker: Cold) -> None:
    client, other = await broker.connect(), await broker.connect()
    await broker.broker.controller.create_topics([TopicToCreate("u")])
    broker.disk.held.add(Lane.SYNC)
    await send_produce(client, 9, batch())
    await until(lambda: broker.disk.running[Lane.SYNC] == 1)
    await broker.broker.controller.delete_topic(broker.broker.image.topics["t"].topic_id)
    broker.disk.let_go()
    assert error_of(await receive_produce(client, 9)) is ErrorCode.unknown_topic_or_partition
    assert error_of(await produce(other, 9, batch(), topic="u")) is ErrorCode.none
    assert broker.broker.stopped_because is None


async def test_what_a_killed_process_left_unsynced_is_synced_before_it_is_shown(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    async with cold_broker(folder) as killed:
        await killed.broker.controller.create_topics([TopicToCreate("t")])
        client = await killed.connect()
        await produce(client, 9, batch())
        killed.broker.logs.close = lambda **_: None  # type: ignore[method-assign]
        killed.broker.logs.abandon()
    async with cold_broker(folder, log_flush_interval_messages="1") as started:
        log = partition_of(started).log
        assert (log.recovery_point, log.log_end_offset) == (1, 1)
