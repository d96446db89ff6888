"""OffsetCommit and OffsetFetch against a broker: where offsets are kept, and whose they are."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from oncelog.controller.topics import NewTopic
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.protocol import canonical
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import message
from tests.unit.broker.context import Client, Running, running

NONE = ErrorCode.none
GROUP = "group"
STRICT = {"min.insync.replicas": 2}


async def create(context: Running, partitions: int = 1) -> UUID:
    """Make the topic `t`, and that of the offsets; returns the id of `t`."""
    controller = context.broker.controller
    await controller.internal_topic(CONSUMER_OFFSETS_TOPIC)
    (outcome,) = await controller.create_topics([NewTopic("t", partitions)])
    assert outcome.topic is not None
    return outcome.topic.topic_id


async def commit(
    client: Client, offset: int = 5, version: int = 8, topic_id: UUID | None = None, count: int = 1
) -> ErrorCode:
    """Commit an offset for the first `count` partitions of `t`."""
    partitions = tuple(
        message(
            canonical.OffsetCommitRequestPartition, partition_index=index, committed_offset=offset
        )
        for index in range(count)
    )
    topic = message(
        canonical.OffsetCommitRequestTopic, name="t", topic_id=topic_id, partitions=partitions
    )
    answer = await client.ask(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=(topic,),
    )
    (error,) = {p.error_code for topic in answer.topics for p in topic.partitions}
    return ErrorCode(error)


async def fetch(client: Client, version: int = 9, topic_id: UUID | None = None) -> int:
    """The offset committed for `t-0`, -1 for none."""
    topic = canonical.OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=(0,))
    group = canonical.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
    answer = await client.ask(ApiKey.OFFSET_FETCH, version, groups=(group,), require_stable=False)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


async def test_a_lone_broker_takes_offsets_whatever_min_insync_replicas_says(
    tmp_path: Path,
) -> None:
    """D9."""
    async with running(tmp_path, STRICT) as context:
        await create(context)
        client = await context.connect()
        assert await commit(client) is NONE
        assert await fetch(client) == 5


async def test_a_lone_broker_takes_offsets_in_a_folder_of_before_that_setting(
    tmp_path: Path,
) -> None:
    """D9."""
    async with running(tmp_path) as context:
        await create(context)
    async with running(tmp_path, STRICT) as context:
        await context.broker.groups.loaded()
        client = await context.connect()
        assert await commit(client) is NONE
        assert await fetch(client) == 5
