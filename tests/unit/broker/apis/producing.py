"""A transactional producer made of single requests, and what its group has committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import parse_response_header
from oncelog.protocol.messages import metadata, offset_fetch, txn_offset_commit
from oncelog.protocol.produce import encode_produce_request, parse_produce_response
from oncelog.runtime.clock import SystemClock
from tests.unit.broker.context import Client, Running
from tests.unit.broker.raw import add_partition, error_of, init_producer, produce
from tests.unit.broker.support import assignment, batch

ID = "txn"
GROUP = "group"
TIMEOUT = 60_000
FOLLOWER = 99


async def prepare(context: Running) -> None:
    controller = context.broker.controller
    await controller.create_topics([TopicToCreate("t")])
    await controller.internal_topic(TRANSACTION_STATE_TOPIC)
    await controller.internal_topic(CONSUMER_OFFSETS_TOPIC)


class Producing:
    """A transactional producer made of single requests."""

    def __init__(self, client: Client, producer_id: int, epoch: int) -> None:
        self.client = client
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    async def add(self, topic: str = "t", version: int = 3) -> list[ErrorCode]:
        answer = await add_partition(
            self.client, ID, self.producer_id, self.epoch, topic=topic, version=version
        )
        return [
            ErrorCode(partition.partition_error_code)
            for result in answer.results_by_transaction
            for topic_result in result.topic_results
            for partition in topic_result.results_by_partition
        ]

    async def produce(
        self, version: int, *, sequence: int | None = None, topic: str = "t"
    ) -> ErrorCode:
        records = batch(
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=self.sequence if sequence is None else sequence,
            transactional=True,
            # Markers carry the broker's time; a week between two batches would part the segments.
            timestamp_ms=SystemClock().now_ms(),
        )
        answer = await produce(self.client, version, records, transactional_id=ID, topic=topic)
        if error_of(answer) is ErrorCode.none:
            self.sequence += 1
        return error_of(answer)

    async def produce_to(self, *topics: str) -> list[ErrorCode]:
        """One request of the newer protocol with the first batch of each topic."""
        records = batch(
            producer_id=self.producer_id, epoch=self.epoch, sequence=0, transactional=True
        )
        frame = encode_produce_request(
            12,
            77,
            "test",
            transactional_id=ID,
            acks=-1,
            timeout_ms=5000,
            topics=[(topic, None, [(0, records)]) for topic in topics],
        )
        await self.client.send(b"".join(frame))
        answer = await self.client.receive()
        assert answer is not None
        _, offset = parse_response_header(ApiKey.PRODUCE, 12, answer)
        found = parse_produce_response(answer, 12, offset).topics
        return [ErrorCode(topic.partitions[0].error) for topic in found]

    async def end(self, commit: bool, version: int = 4) -> ErrorCode:
        answer = await self.client.ask(
            ApiKey.END_TXN,
            version,
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        if version >= 5 and answer.error_code == ErrorCode.none:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequence = 0
        return ErrorCode(answer.error_code)

    async def add_offsets(self) -> ErrorCode:
        answer = await self.client.ask(
            ApiKey.ADD_OFFSETS_TO_TXN,
            3,
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=GROUP,
        )
        return ErrorCode(answer.error_code)

    async def topic_id(self, name: str) -> UUID | None:
        """None for a topic that does not exist."""
        wanted = metadata.MetadataRequestTopic(topic_id=None, name=name)
        answer = await self.client.ask(
            ApiKey.METADATA, topics=(wanted,), allow_auto_topic_creation=False
        )
        found: UUID | None = answer.topics[0].topic_id
        return found

    async def commit_offset(self, offset: int, version: int) -> ErrorCode:
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="note",
        )
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic(
            name="t", topic_id=await self.topic_id("t"), partitions=(partition,)
        )
        answer = await self.client.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            transactional_id=ID,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=(topic,),
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)


async def started(context: Running) -> Producing:
    client = await context.connect()
    answer = await init_producer(client, ID, transaction_timeout_ms=TIMEOUT)
    assert answer.error_code == ErrorCode.none
    return Producing(client, answer.producer_id, answer.producer_epoch)


def replicated(context: Running, topic: str, index: int = 0) -> Partition:
    """Give a partition a second replica in sync, which fetches when the test says so."""
    partition = context.broker.partitions.get(topic, index)
    assert partition is not None
    both = (context.broker.broker_id, FOLLOWER)
    epoch = partition.state.leader_epoch
    partition.assign(assignment(both, leader=both[0], epoch=epoch), 0)
    partition.follower_fetched(FOLLOWER, partition.log.log_end_offset, 0)
    return partition


async def until(is_so: Callable[[], bool]) -> None:
    """Let the broker work until it has come so far."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - what the broker does next is no event of ours
            await asyncio.sleep(0)


async def offset_of(context: Running) -> tuple[int, ErrorCode]:
    topic = offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=(0,))
    group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
    answer = await (await context.connect()).ask(
        ApiKey.OFFSET_FETCH, 9, groups=(group,), require_stable=True
    )
    partition: Any = answer.groups[0].topics[0].partitions[0]
    return partition.committed_offset, ErrorCode(partition.error_code)
