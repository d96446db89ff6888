"""OffsetCommit and OffsetFetch against a broker: where offsets are kept, and whose they are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from oncelog.broker.coordination.coordinators import still_named
from oncelog.controller import layout
from oncelog.controller.image import ImageDelta, MetadataImage
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.core.pending import unchanged
from oncelog.group.events import OffsetCommit, OffsetToCommit
from oncelog.group.offset_values import NO_TIMESTAMP, CommittedOffset
from oncelog.metadata.sqlite import SqliteStore
from oncelog.metadata.store import Write
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import offset_commit, offset_fetch
from tests.unit.broker.context import Client, Running, running

NONE = ErrorCode.none
GROUP = "group"
STRICT = {"min.insync.replicas": 2}
OLD = UUID(int=1)
COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)


async def create(context: Running, partitions: int = 1) -> UUID:
    """Make the topic `t`, and that of the offsets; returns the id of `t`."""
    controller = context.broker.controller
    await controller.internal_topic(CONSUMER_OFFSETS_TOPIC)
    (outcome,) = await controller.create_topics([TopicToCreate("t", partitions)])
    assert outcome.topic is not None
    return outcome.topic.topic_id


async def commit(
    client: Client,
    offset: int = 5,
    version: int = 8,
    topic_id: UUID | None = None,
    *,
    first: int = 0,
    count: int = 1,
    **fields: Any,
) -> ErrorCode:
    """Commit an offset for `count` partitions of `t` from the `first` on."""
    partitions = tuple(
        offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index in range(first, first + count)
    )
    topic = offset_commit.OffsetCommitRequestTopic(
        name="t", topic_id=topic_id, partitions=partitions
    )
    answer = await client.ask(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=(topic,),
        **fields,
    )
    (error,) = {p.error_code for topic in answer.topics for p in topic.partitions}
    return ErrorCode(error)


async def fetch(client: Client, version: int = 9, topic_id: UUID | None = None) -> int:
    """The offset committed for `t-0`, -1 for none."""
    topic = offset_fetch.OffsetFetchRequestTopics(
        name="t", topic_id=topic_id, partition_indexes=(0,)
    )
    group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
    answer = await client.ask(ApiKey.OFFSET_FETCH, version, groups=(group,), require_stable=False)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


@pytest.mark.parametrize(
    ("version", "retention_ms"), [(2, 60_000), (4, 60_000), (4, 0), (4, -1), (8, -1)]
)
async def test_a_commit_may_name_its_own_retention_up_to_version_4(
    tmp_path: Path, version: int, retention_ms: int
) -> None:
    async with running(tmp_path / "data") as context:
        await create(context)
        said: dict[str, Any] = {"retention_time_ms": retention_ms} if version <= 4 else {}
        assert await commit(await context.connect(), version=version, **said) is NONE
        (value,) = held(context)
        due_ms = NO_TIMESTAMP if retention_ms < 0 else value.commit_timestamp_ms + retention_ms
        assert value.expire_timestamp_ms == due_ms


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


def held(context: Running) -> list[CommittedOffset]:
    """Every offset that the broker's coordinators hold."""
    coordinators = context.broker.groups._coordinators.values()
    stores = [c.processor.shard.store for c in coordinators]  # type: ignore[attr-defined]
    return [value for store in stores for _, value in store.offsets.of_group(GROUP)]


async def settled(context: Running) -> None:
    """Let loads, and what they leave for later turns of the loop, come to an end."""
    await context.broker.groups.loaded()
    coordinators = context.broker.groups._coordinators.values()
    stores = [c.processor.shard.store for c in coordinators]  # type: ignore[attr-defined]
    while any(store.due for store in stores):  # noqa: ASYNC110 - the timer is already due
        await asyncio.sleep(0)


async def forget_topic(folder: Path) -> None:
    """What a crash leaves right after a deletion was stored: all else is as it was."""
    store = SqliteStore(f"{folder}/metadata.sqlite")
    path = layout.topic_path("t")
    stored = await store.get(path)
    assert stored is not None
    deleted = layout.encode_deleted({layout.decode_topic(stored.value).topic_id: (1,)})
    writes = [Write(path, None, stored.version), Write(layout.deleted_path("t"), deleted, 0)]
    await store.write_all(writes)
    await store.close()


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
async def test_a_commit_of_any_version_is_kept_for_the_topic_by_its_id(
    tmp_path: Path, version: int
) -> None:
    async with running(tmp_path) as context:
        topic_id = await create(context)
        client = await context.connect()
        assert await commit(client, 5, version, topic_id) is NONE
        assert [value.topic_id for value in held(context)] == [topic_id]
    async with running(tmp_path) as context:
        await settled(context)
        assert [value.topic_id for value in held(context)] == [topic_id]


async def test_an_unknown_topic_costs_no_other_topic_of_a_commit_its_offset(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as context:
        topic_id = await create(context)
        client = await context.connect()
        part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        names = ("unknown", "t", "other")
        answer = await client.ask(
            ApiKey.OFFSET_COMMIT,
            8,
            group_id=GROUP,
            generation_id_or_member_epoch=-1,
            topics=tuple(
                offset_commit.OffsetCommitRequestTopic(name=name, partitions=(part,))
                for name in names
            ),
        )
        unknown = ErrorCode.unknown_topic_or_partition
        assert [(topic.name, topic.partitions[0].error_code) for topic in answer.topics] == list(
            zip(names, (unknown, NONE, unknown), strict=True)
        )
        assert await fetch(client, 9, topic_id) == 7


async def test_a_partition_that_is_not_there_costs_no_other_its_offset(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        topic_id = await create(context)
        client = await context.connect()
        topic = offset_commit.OffsetCommitRequestTopic(
            name="t",
            partitions=tuple(
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=7
                )
                for index in (-1, 0, 1)
            ),
        )
        answer = await client.ask(
            ApiKey.OFFSET_COMMIT,
            8,
            group_id=GROUP,
            generation_id_or_member_epoch=-1,
            topics=(topic,),
        )
        unknown = ErrorCode.unknown_topic_or_partition
        told = [each.error_code for each in answer.topics[0].partitions]
        assert told == [unknown, NONE, unknown]
        assert await fetch(client, 9, topic_id) == 7


async def test_a_fetch_of_any_version_leaves_out_what_an_earlier_topic_had(tmp_path: Path) -> None:
    """As left by a commit that was parked while its topic was deleted."""
    async with running(tmp_path) as context:
        topic_id = await create(context)
        stale = OffsetCommit(GROUP, 8, -1, "", (OffsetToCommit("t", 0, 5, topic_id=OLD),))
        context.broker.groups.ask(GROUP, stale, unchanged, unchanged)
        assert [value.topic_id for value in held(context)] == [OLD]
        client = await context.connect()
        for version in FETCH_VERSIONS:
            assert await fetch(client, version, topic_id) == -1
        group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None)
        for version in FETCH_VERSIONS[1:]:
            answer = await client.ask(
                ApiKey.OFFSET_FETCH, version, groups=(group,), require_stable=False
            )
            assert answer.groups[0].topics == ()
        assert await commit(client, 7) is NONE
        for version in FETCH_VERSIONS:
            assert await fetch(client, version, topic_id) == 7


async def test_offsets_go_with_their_topic_however_many_there_are(tmp_path: Path) -> None:
    async with running(tmp_path, {"message.max.bytes": 1000}) as context:
        topic_id = await create(context, 100)
        client = await context.connect()
        for first in range(0, 100, 5):
            assert await commit(client, first=first, count=5) is NONE
        assert len(held(context)) == 100
        await context.broker.controller.delete_topic(topic_id)
        await settled(context)
        assert held(context) == []
        await create(context, 100)
        assert await fetch(client) == -1
    async with running(tmp_path) as context:
        await settled(context)
        assert held(context) == []


async def test_a_crash_right_after_a_deletion_leaves_nothing_to_inherit(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        await create(context)
        assert await commit(await context.connect()) is NONE
    await forget_topic(tmp_path)
    async with running(tmp_path) as context:
        topic_id = await create(context)
        client = await context.connect()
        assert await fetch(client, 9) == await fetch(client, 10, topic_id) == -1
    async with running(tmp_path) as context:
        await settled(context)
        assert held(context) == []


async def test_an_image_that_lacks_the_topic_keeps_its_offsets(tmp_path: Path) -> None:
    """Absence is no deletion: a store that was restored may show the topic again tomorrow."""
    async with running(tmp_path) as context:
        topic_id = await create(context)
        assert await commit(await context.connect()) is NONE
        broker = context.broker
        without = MetadataImage(cluster_id="")
        topic = broker.image.topics["t"]
        broker.groups.apply(ImageDelta(deleted=(topic,)), without, broker.groups.metadata)
        assert [value.topic_id for value in held(context)] == [topic_id]
        named = MetadataImage(cluster_id="", deleted={"t": {topic_id: (1,)}})
        runtimes = broker.transactions, broker.groups
        assert still_named(*runtimes, named, broker.broker_id, before_ms=0) == {"t"}
        broker.groups.apply(ImageDelta(), named, broker.groups.metadata)
        await settled(context)
        assert held(context) == []
        assert not still_named(*runtimes, named, broker.broker_id, before_ms=0)
