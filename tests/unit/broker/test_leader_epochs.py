"""The leader epoch moves where a log may have lost its end, and only there (KIP-101, KIP-320)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.folders import registration
from oncelog.controller.decision import ChangeOutcome
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.metadata import Write
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import fetch, produce, values
from tests.unit.broker.support import batch

NONE = ErrorCode.none
PARTITIONS_COUNT = 2
"""What `running` sets for the internal topics."""


def epoch_of(context: Running, name: str = "t", index: int = 0) -> int:
    image = context.broker.image.partition(name, index)
    held = context.broker.partitions.get(name, index)
    assert image is not None
    assert held is not None
    assert held.state.leader_epoch == image.leader_epoch
    return image.leader_epoch


def crash(context: Running) -> None:
    context.broker.logs.close = context.broker.logs.abandon  # type: ignore[assignment]


async def end_of_epoch(client: Client, epoch: int, current: int) -> tuple[ErrorCode, int, int]:
    partition = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    asked = OffsetForLeaderTopic(topic="t", partitions=(partition,))
    response = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, replica_id=-1, topics=(asked,))
    ((found,),) = [answer.partitions for answer in response.topics]
    return found.error_code, found.leader_epoch, found.end_offset


async def start_with_records(folder: Path, count: int, *, clean: bool) -> None:
    async with running(folder) as context:
        internal = (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)
        topics = [TopicToCreate("t"), *(TopicToCreate(name, PARTITIONS_COUNT) for name in internal)]
        await context.broker.controller.create_topics(topics)
        client = await context.connect()
        for _ in range(count):
            await produce(client, 9, batch(1))
        if not clean:
            crash(context)


@pytest.mark.parametrize("clean", [True, False])
async def test_a_new_epoch_begins_after_an_unclean_stop_in_every_partition(
    tmp_path: Path, clean: bool
) -> None:
    await start_with_records(tmp_path, 3, clean=clean)
    for start in (1, 2):
        async with running(tmp_path) as context:
            expected = 0 if clean else start
            for name in ("t", CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
                assert epoch_of(context, name) == expected
            assert context.broker.transactions._coordinators[0].leader_epoch == expected
            if not clean:
                crash(context)


async def test_a_reader_is_told_where_the_epoch_ended_that_it_read(tmp_path: Path) -> None:
    """20 records are lost, 20 others come in their place, and a reader stands in the middle."""
    await start_with_records(tmp_path, 40, clean=False)
    path = tmp_path / "t-0" / "00000000000000000000.log"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    async with running(tmp_path) as context:
        client = await context.connect()
        assert epoch_of(context) == 1
        assert await end_of_epoch(client, 0, 1) == (NONE, 0, 20)
        assert await end_of_epoch(client, 1, 1) == (NONE, 1, 20)
        for _ in range(20):
            await produce(client, 9, batch(1))
        topic_id = context.broker.image.topics["t"].topic_id
        fenced = await fetch(client, 16, offset=30, leader_epoch=0, topic_id=topic_id)
        assert fenced.error == ErrorCode.fenced_leader_epoch
        assert fenced.current_leader == (1, 1)
        fenced = await fetch(client, offset=30, leader_epoch=0)
        assert (fenced.error, fenced.current_leader) == (ErrorCode.fenced_leader_epoch, None)
        assert await end_of_epoch(client, 0, 1) == (NONE, 0, 20)
        told = await fetch(client, offset=30, leader_epoch=1, last_fetched_epoch=0)
        assert (told.error, told.diverging_epoch, values(told.records)) == (NONE, (0, 20), [])
        told = await fetch(client, offset=20, leader_epoch=1, last_fetched_epoch=0)
        assert (told.diverging_epoch, len(values(told.records))) == (None, 20)
        told = await fetch(client, offset=30, leader_epoch=1, last_fetched_epoch=1)
        assert (told.diverging_epoch, len(values(told.records))) == (None, 10)
        told = await fetch(client, offset=30, last_fetched_epoch=5)
        assert told.error == ErrorCode.offset_out_of_range


async def test_a_partition_whose_folder_is_gone_begins_a_new_epoch(tmp_path: Path) -> None:
    await start_with_records(tmp_path, 3, clean=True)
    (tmp_path / "t-0").rename(tmp_path / "elsewhere")
    async with running(tmp_path) as context:
        assert epoch_of(context) == 1
        assert epoch_of(context, CONSUMER_OFFSETS_TOPIC) == 0


async def test_the_new_epoch_is_above_that_of_the_log(tmp_path: Path) -> None:
    """The metadata may be an older copy."""
    await start_with_records(tmp_path, 0, clean=True)
    async with running(tmp_path) as context:
        held = context.broker.partitions.get("t", 0)
        assert held is not None
        held.log.append(batch(1), leader_epoch=7, now_ms=context.broker.clock.now_ms())
    async with running(tmp_path) as context:
        assert epoch_of(context) == 8


async def test_epochs_of_many_topics_are_written_in_one_step(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        topics = [TopicToCreate(f"t{index}", partitions=3) for index in range(20)]
        await context.broker.controller.create_topics(topics)
        crash(context)
    calls: list[int] = []
    async with running(tmp_path) as context:
        assert {epoch_of(context, f"t{index}", 2) for index in range(20)} == {1}
        store: Any = context.broker.store
        write_all = store.write_all

        async def counted(writes: list[Write], **options: Any) -> None:
            calls.append(len(writes))
            await write_all(writes, **options)

        store.write_all = counted
        latest = {partition.topic_partition: (0, 0) for partition in context.broker.partitions}
        broker = context.broker
        epoch = broker.membership.broker_epoch
        event = registration(broker.logs, broker.image, broker.config)
        event = replace(event, broker_epoch=epoch, uncertain=latest)
        assert await context.broker.controller.submit(event) == ChangeOutcome()
        assert calls == [60]
        assert {epoch_of(context, f"t{index}", 2) for index in range(20)} == {2}
