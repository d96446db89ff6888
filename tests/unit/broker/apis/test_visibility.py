"""Why a read_committed reader may see a part of a transaction only (docs/transactions.md).

INV-3 is kept in each of them: what is shown is committed. Nothing promises that all of it is there,
or there at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from oncelog.protocol.record import Record, build_batch
from tests.unit.broker.apis.producing import (
    FOLLOWER,
    ID,
    Producing,
    prepare,
    replicated,
    until,
)
from tests.unit.broker.apis.test_stuck_transactions import producing_on
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import error_of, fetch, produce, values

NONE = ErrorCode.none
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.ms": "1"}


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data", {"log.cleaner.backoff.ms": 1}) as started:
        await prepare(started)
        topics = [TopicToCreate("u"), TopicToCreate("compacted", config=COMPACTED)]
        await started.broker.controller.create_topics(topics)
        yield started


async def send(
    producing: Producing, topic: str, *pairs: tuple[bytes, bytes], now_ms: int = 1_000_000
) -> None:
    """Records with keys, in one batch of the transaction (TV2: it joins by itself)."""
    records = [Record(offset, now_ms, key, value, ()) for offset, (key, value) in enumerate(pairs)]
    data = build_batch(
        records,
        producer_id=producing.producer_id,
        producer_epoch=producing.epoch,
        base_sequence=0,
        transactional=True,
    )
    answer = await produce(producing.client, 12, data, transactional_id=ID, topic=topic)
    assert error_of(answer) is NONE


async def committed(context: Running, topic: str, offset: int = 0) -> list[bytes | None]:
    return await committed_for(await context.connect(), topic, offset)


async def committed_for(client: Client, topic: str, offset: int = 0) -> list[bytes | None]:
    found = await fetch(client, topic=topic, offset=offset, isolation_level=1)
    assert not found.aborted_transactions
    return values(found.records)


async def test_partitions_show_a_transaction_one_after_the_other(context: Running) -> None:
    """Each shows it when its own marker is committed; nothing waits for the slowest."""
    producing = await producing_on(context)
    await send(producing, "t", (b"k", b"in t"))
    await send(producing, "u", (b"k", b"in u"))
    partitions = [replicated(context, "t"), replicated(context, "u")]
    assert await producing.end(commit=True, version=5) is NONE
    await until(lambda: all(one.log.log_end_offset == 2 for one in partitions))
    partitions[0].follower_fetched(FOLLOWER, 2, 0)
    partitions[1].follower_fetched(FOLLOWER, 1, 0)
    assert (await committed(context, "t"), await committed(context, "u")) == ([b"in t"], [])
    partitions[1].follower_fetched(FOLLOWER, 2, 0)
    assert (await committed(context, "t"), await committed(context, "u")) == ([b"in t"], [b"in u"])


async def test_a_reader_without_all_partitions_sees_a_part(context: Running) -> None:
    producing = await producing_on(context)
    await send(producing, "t", (b"k", b"in t"))
    await send(producing, "u", (b"k", b"in u"))
    assert await producing.end(commit=True, version=5) is NONE
    await until(lambda: all(stable(context, name) == 2 for name in "tu"))
    assert await committed(context, "u") == [b"in u"]


async def test_a_reader_that_seeks_into_a_transaction_sees_its_end(context: Running) -> None:
    producing = await producing_on(context)
    await send(producing, "t", (b"a", b"1"), (b"b", b"2"))
    assert await producing.end(commit=True, version=5) is NONE
    await until(lambda: stable(context, "t") == 3)
    found = await fetch(await context.connect(), topic="t", offset=1, isolation_level=1)
    # The broker gives whole batches; a client passes over what stands before its position.
    assert found.last_stable_offset == 3
    seen = [record for offset, record in enumerate(values(found.records)) if offset >= 1]
    assert seen == [b"2"]


async def test_records_deleted_from_the_start_are_missing(context: Running) -> None:
    producing = await producing_on(context)
    await send(producing, "t", (b"a", b"1"))
    data = build_batch(
        [Record(0, 1_000_000, b"b", b"2", ())],
        producer_id=producing.producer_id,
        producer_epoch=producing.epoch,
        base_sequence=1,
        transactional=True,
    )
    answer = await produce(producing.client, 12, data, transactional_id=ID)
    assert error_of(answer) is NONE
    assert await producing.end(commit=True, version=5) is NONE
    await until(lambda: stable(context, "t") == 3)
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    asked = DeleteRecordsTopic(name="t", partitions=(partition,))
    await producing.client.ask(ApiKey.DELETE_RECORDS, topics=(asked,))
    assert await committed(context, "t", offset=1) == [b"2"]


async def test_records_that_compaction_replaced_are_missing(context: Running) -> None:
    producing = await producing_on(context)
    # Each a second after the one before, so that each begins a segment, however fast they come.
    begun_ms = context.broker.clock.now_ms()
    records = ([(b"a", b"1"), (b"b", b"2")], [(b"a", b"3")], [(b"c", b"4")])
    for seconds, pairs in enumerate(records, 1):
        await send(producing, "compacted", *pairs, now_ms=begun_ms + 1000 * seconds)
        assert await producing.end(commit=True, version=5) is NONE

    await until(lambda: stable(context, "compacted") == 7)
    found: list[bytes | None] = []
    reader = await context.connect()
    async with asyncio.timeout(10):
        while found[:1] != [b"2"]:
            found = await committed_for(reader, "compacted")
    # Of the first transaction only b is left; what follows may be in the next segment.
    assert found[:2] == [b"2", b"3"]


def stable(context: Running, topic: str) -> int:
    partition = context.broker.partitions.get(topic, 0)
    assert partition is not None
    return partition.last_stable_offset
