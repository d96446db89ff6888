"""DeleteRecords, OffsetForLeaderEpoch, DescribeLogDirs, DescribeProducers, WriteTxnMarkers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from oncelog.protocol.messages.describe_log_dirs import DescribableLogDirTopic
from oncelog.protocol.messages.describe_producers import DescribeProducersTopic
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from oncelog.protocol.record import Record, build_batch
from tests.unit.broker.apis.producing import replicated
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import error_of, fetch, produce, values
from tests.unit.broker.support import batch

NONE = ErrorCode.none
OFFSETS = "__consumer_offsets"
PRODUCER_ID, EPOCH = 77, 3


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data") as started:
        compacted = TopicToCreate("compacted", config={"cleanup.policy": "compact"})
        await started.broker.controller.create_topics(
            [TopicToCreate("t"), compacted, TopicToCreate(OFFSETS)]
        )
        yield started


async def delete(client: Client, offset: int, topic: str = "t") -> tuple[ErrorCode, int]:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    asked = DeleteRecordsTopic(name=topic, partitions=(partition,))
    response = await client.ask(ApiKey.DELETE_RECORDS, topics=(asked,))
    ((result,),) = [answer.partitions for answer in response.topics]
    return result.error_code, result.low_watermark


async def test_records_below_an_offset_are_gone_for_good(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        await context.broker.controller.create_topics([TopicToCreate("t")])
        client = await context.connect()
        for _ in range(4):
            await produce(client, 9, batch(1))
        assert await delete(client, 2) == (NONE, 2)
        assert await delete(client, 1) == (NONE, 2)
        assert (await fetch(client, offset=1)).error == ErrorCode.offset_out_of_range
        # As after a crash: nothing is written at the end.
        context.broker.logs.close = lambda **_: context.broker.logs.abandon()  # type: ignore[method-assign]
    async with running(tmp_path) as context:
        client = await context.connect()
        assert len(values((await fetch(client, offset=2)).records)) == 2
        assert await delete(client, -1) == (NONE, 4)
        assert (await fetch(client, offset=4)).log_start_offset == 4


@pytest.mark.parametrize("where", ["topic", "broker"])
async def test_without_a_cleanup_policy_only_records_deleted_by_hand_go(
    tmp_path: Path, where: str
) -> None:
    settings: dict[str, object] = {"log.retention.ms": 1, "log.retention.bytes": 1}
    policy = {"log.cleanup.policy": ""} if where == "broker" else {}
    async with running(tmp_path, settings | policy) as context:
        config = {"cleanup.policy": ""} if where == "topic" else {}
        await context.broker.controller.create_topics([TopicToCreate("t", config=config)])
        client = await context.connect()
        partition = context.broker.partitions.get("t", 0)
        assert partition is not None
        # A segment for each batch.
        partition.log.config = replace(partition.log.config, segment_bytes=100)
        for _ in range(4):
            await produce(client, 9, batch(1))
        retain = context.broker.partitions._upkeep._retain
        retain()()
        assert partition.log.segment_base_offsets == [0, 1, 2, 3]
        assert await delete(client, 2) == (NONE, 2)
        retain()()
        assert partition.log.segment_base_offsets == [2, 3]


async def test_records_that_may_not_be_deleted_are_kept(context: Running) -> None:
    client = await context.connect()
    await produce(client, 9, batch(1))
    assert await delete(client, 2) == (ErrorCode.offset_out_of_range, -1)
    assert await delete(client, -2) == (ErrorCode.offset_out_of_range, -1)
    assert await delete(client, 0, "compacted") == (ErrorCode.policy_violation, -1)
    assert await delete(client, 0, OFFSETS) == (ErrorCode.invalid_topic_exception, -1)
    assert await delete(client, 0, "gone") == (ErrorCode.unknown_topic_or_partition, -1)


async def test_a_topic_that_inherits_compaction_is_a_compacted_one(tmp_path: Path) -> None:
    settings: dict[str, object] = {"log.cleanup.policy": "compact"}
    async with running(tmp_path, settings) as context:
        await context.broker.controller.create_topics([TopicToCreate("t")])
    # Again after a start, where the logs are opened before the topics are followed.
    async with running(tmp_path, settings) as context:
        client = await context.connect()
        partition = context.broker.partitions.get("t", 0)
        assert partition is not None
        assert partition.log.config.is_compacted
        keyless = await produce(client, 9, build_batch([Record(0, 1, None, b"v")]))
        assert error_of(keyless) is ErrorCode.invalid_record
        assert await delete(client, 0) == (ErrorCode.policy_violation, -1)


async def test_records_of_an_open_transaction_can_be_deleted(context: Running) -> None:
    client = await context.connect()
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    open_batch = batch(3, producer_id=PRODUCER_ID, epoch=EPOCH, sequence=0, transactional=True)
    partition.append(open_batch, now_ms=context.broker.clock.now_ms())
    assert partition.last_stable_offset == 0
    assert await delete(client, 2) == (NONE, 2)
    assert partition.last_stable_offset == 2


async def test_the_end_of_an_epoch_is_found(context: Running) -> None:
    client = await context.connect()
    await produce(client, 9, batch(3))

    async def end_of(epoch: int, current: int = -1, topic: str = "t") -> tuple[Any, ...]:
        asked = OffsetForLeaderTopic(
            topic=topic,
            partitions=(
                OffsetForLeaderPartition(
                    partition=0,
                    current_leader_epoch=current,
                    leader_epoch=epoch,
                ),
            ),
        )
        response = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, replica_id=-1, topics=(asked,))
        ((found,),) = [answer.partitions for answer in response.topics]
        return found.error_code, found.leader_epoch, found.end_offset

    assert await end_of(0) == (NONE, 0, 3)
    assert await end_of(5) == (NONE, -1, -1)
    assert await end_of(0, current=5) == (ErrorCode.unknown_leader_epoch, -1, -1)
    assert await end_of(0, topic="gone") == (ErrorCode.unknown_topic_or_partition, -1, -1)


async def test_the_folder_is_described_for_all_topics_or_for_some(context: Running) -> None:
    client = await context.connect()
    await produce(client, 9, batch(1))
    (folder,) = (await client.ask(ApiKey.DESCRIBE_LOG_DIRS, topics=None)).results
    assert {topic.name for topic in folder.topics} == {"t", "compacted", OFFSETS}
    assert folder.log_dir == context.broker.logs.folders[0].directory
    assert folder.total_bytes >= folder.usable_bytes > 0
    asked = DescribableLogDirTopic(topic="t", partitions=(0, 9))
    (folder,) = (await client.ask(ApiKey.DESCRIBE_LOG_DIRS, topics=(asked,))).results
    ((partition,),) = [topic.partitions for topic in folder.topics]
    held = context.broker.partitions.get("t", 0)
    assert held is not None
    assert partition.partition_size == held.log.size_bytes > 0


async def test_a_log_that_its_followers_lack_does_not_lag_itself(context: Running) -> None:
    replicated(context, "t")
    client = await context.connect()
    await produce(client, 9, batch(1), acks=1)
    asked = DescribableLogDirTopic(topic="t", partitions=(0,))
    (folder,) = (await client.ask(ApiKey.DESCRIBE_LOG_DIRS, topics=(asked,))).results
    assert [each.offset_lag for each in folder.topics[0].partitions] == [0]


async def producers(client: Client, topic: str = "t") -> Any:
    asked = DescribeProducersTopic(name=topic, partition_indexes=(0,))
    response = await client.ask(ApiKey.DESCRIBE_PRODUCERS, topics=(asked,))
    ((partition,),) = [answer.partitions for answer in response.topics]
    return partition


async def mark(client: Client, *, epoch: int, coordinator_epoch: int = 5, **fields: Any) -> Any:
    topics = tuple(
        WritableTxnMarkerTopic(name=name, partition_indexes=(0,)) for name in ("t", "gone")
    )
    marker = WritableTxnMarker(
        producer_id=PRODUCER_ID,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        topics=topics,
        **fields,
    )
    response = await client.ask(ApiKey.WRITE_TXN_MARKERS, markers=(marker,))
    (answer,) = response.markers
    assert answer.producer_id == PRODUCER_ID
    return {topic.name: topic.partitions[0].error_code for topic in answer.topics}


async def test_a_hanging_transaction_is_seen_and_ended(context: Running) -> None:
    client = await context.connect()
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    hanging = batch(2, producer_id=PRODUCER_ID, epoch=EPOCH, sequence=0, transactional=True)
    partition.append(hanging, now_ms=context.broker.clock.now_ms())
    (state,) = (await producers(client)).active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (PRODUCER_ID, EPOCH, 1)
    assert (state.current_txn_start_offset, state.coordinator_epoch) == (0, -1)
    gone = {"gone": ErrorCode.unknown_topic_or_partition}
    stale = await mark(client, epoch=EPOCH - 1)
    assert stale == gone | {"t": ErrorCode.invalid_producer_epoch}
    assert await mark(client, epoch=EPOCH) == gone | {"t": NONE}
    (state,) = (await producers(client)).active_producers
    assert (state.current_txn_start_offset, state.coordinator_epoch) == (-1, 5)
    fenced = await mark(client, epoch=EPOCH, coordinator_epoch=4)
    assert fenced == gone | {"t": ErrorCode.transaction_coordinator_fenced}
    assert partition.last_stable_offset == 3


async def test_producers_of_what_is_not_here_are_refused(context: Running) -> None:
    client = await context.connect()
    unknown = await producers(client, "gone")
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition
    assert (await producers(client, "a b")).error_code is ErrorCode.invalid_topic_exception
