"""What a broker names, it serves: it answers from what it has applied, not from what it knows.

Lanes of the disk are held, so that a test decides what happens before a folder is made or read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.create_partitions import CreatePartitionsTopic
from oncelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsTopic
from oncelog.protocol.messages.metadata import MetadataRequestTopic
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from oncelog.runtime import Lane
from tests.unit.broker.apis.test_topics import create, topic
from tests.unit.broker.cold import Cold, cold_broker
from tests.unit.broker.context import Client
from tests.unit.broker.raw import error_of, produce, until
from tests.unit.broker.support import batch

NONE = ErrorCode.none
CLIENTS_COUNT = 8


async def metadata(client: Client, name: str = "t", *, create_it: bool = False) -> Any:
    (found,) = (
        await client.ask(
            ApiKey.METADATA,
            topics=(MetadataRequestTopic(topic_id=None, name=name),),
            allow_auto_topic_creation=create_it,
        )
    ).topics
    return found


async def committed(client: Client) -> Any:
    wanted = OffsetFetchRequestTopics(name="t", partition_indexes=(0,))
    group = OffsetFetchRequestGroup(group_id="g", topics=(wanted,))
    return (await client.ask(ApiKey.OFFSET_FETCH, 8, groups=(group,))).groups[0]


async def find(client: Client, kind: int, key: str) -> ErrorCode:
    found = await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=(key,), key_type=kind)
    return ErrorCode(found.coordinators[0].error_code)


async def use_group(client: Client) -> ErrorCode:
    error = await find(client, 0, "g")
    return error if error is not NONE else ErrorCode((await committed(client)).error_code)


async def use_transactions(client: Client) -> ErrorCode:
    error = await find(client, 1, "me")
    if error is not NONE:
        return error
    asked = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=("me",))
    (state,) = asked.transaction_states
    is_served = state.error_code is ErrorCode.transactional_id_not_found
    return NONE if is_served else ErrorCode(state.error_code)


async def use_leader(client: Client) -> ErrorCode:
    found = await metadata(client, create_it=True)
    if found.error_code is not NONE:
        return ErrorCode(found.error_code)
    return error_of(await produce(client, 13, batch(), topic_id=found.topic_id))


async def known(cold: Cold, is_so: Callable[[Any], bool]) -> None:
    """Wait until the broker knows of a change, which the disk keeps it from applying."""
    await until(lambda: is_so(cold.broker.feed.known.image.topics))


@pytest.mark.parametrize("use", [use_group, use_transactions, use_leader])
async def test_eight_clients_of_a_fresh_broker_are_served_at_first_try(
    tmp_path: Path, use: Callable[[Client], Awaitable[ErrorCode]]
) -> None:
    """The first one's request makes the topic; the others come while its folders are made."""
    async with cold_broker(tmp_path, num_partitions="3") as cold:
        clients = [await cold.connect() for _ in range(CLIENTS_COUNT)]
        cold.disk.held.add(Lane.UPKEEP)
        tries = [asyncio.ensure_future(use(clients[0]))]
        await known(cold, bool)
        tries += [asyncio.ensure_future(use(client)) for client in clients[1:]]

        def all_wait() -> bool:
            waiting = sum(each.waiting_count for each in cold.broker.server.connections)
            return waiting == CLIENTS_COUNT or any(one.done() for one in tries)

        await until(all_wait)
        cold.disk.let_go()
        assert await asyncio.gather(*tries) == [NONE] * CLIENTS_COUNT


async def test_a_topic_is_not_named_before_it_is_served(tmp_path: Path) -> None:
    async with cold_broker(tmp_path) as cold:
        maker, client = await cold.connect(), await cold.connect()
        cold.disk.held.add(Lane.UPKEEP)
        making = asyncio.ensure_future(create(maker, topic("t", 2)))
        await known(cold, lambda topics: "t" in topics)
        assert (await client.ask(ApiKey.METADATA, topics=None)).topics == ()
        assert (await metadata(client)).error_code is ErrorCode.unknown_topic_or_partition
        described = await client.ask(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            topics=(DescribeTopicPartitionsTopic(name="t"),),
            response_partition_limit=9,
        )
        assert described.topics[0].error_code is ErrorCode.unknown_topic_or_partition
        cold.disk.let_go()
        topic_id = (await making)["t"].topic_id
        assert (await metadata(client)).topic_id == topic_id
        assert error_of(await produce(client, 13, batch(), topic_id=topic_id)) is NONE


async def test_a_name_that_is_taken_is_answered_once_its_topic_is_served(tmp_path: Path) -> None:
    async with cold_broker(tmp_path) as cold:
        maker, client = await cold.connect(), await cold.connect()
        cold.disk.held.add(Lane.UPKEEP)
        making = asyncio.ensure_future(create(maker, topic("t")))
        await known(cold, lambda topics: "t" in topics)
        asking = asyncio.ensure_future(create(client, topic("t")))
        await until(lambda: sum(c.waiting_count for c in cold.broker.server.connections) == 2)
        cold.disk.let_go()
        assert (await asking)["t"].error_code is ErrorCode.topic_already_exists
        assert error_of(await produce(client, 9, batch())) is NONE
        assert (await making)["t"].error_code is NONE


async def test_a_new_partition_is_not_named_before_it_is_served(tmp_path: Path) -> None:
    async with cold_broker(tmp_path) as cold:
        maker, client = await cold.connect(), await cold.connect()
        await create(maker, topic("t"))
        cold.disk.held.add(Lane.UPKEEP)
        grown = CreatePartitionsTopic(name="t", count=3, assignments=None)
        making = asyncio.ensure_future(maker.ask(ApiKey.CREATE_PARTITIONS, topics=(grown,)))
        await known(cold, lambda topics: len(topics["t"].partitions) == 3)
        assert len((await metadata(client)).partitions) == 1
        assert error_of(await produce(client, 9, batch())) is NONE
        cold.disk.let_go()
        assert (await making).results[0].error_code is NONE
        assert len((await metadata(client)).partitions) == 3
        assert error_of(await produce(client, 9, batch(), partition=2)) is NONE


async def test_a_deleted_topic_is_named_no_more_while_its_folder_is_there(tmp_path: Path) -> None:
    async with cold_broker(tmp_path) as cold:
        client = await cold.connect()
        await create(client, topic("t"))
        old_id = (await metadata(client)).topic_id
        cold.disk.held.add(Lane.UPKEEP)
        deleting = asyncio.ensure_future(cold.broker.controller.delete_topic(old_id))
        await known(cold, lambda topics: "t" not in topics)
        await until(lambda: bool(cold.disk.running[Lane.UPKEEP]))
        assert (await metadata(client)).error_code is ErrorCode.unknown_topic_or_partition
        unknown = await produce(client, 9, batch())
        assert error_of(unknown) is ErrorCode.unknown_topic_or_partition
        unknown = await produce(client, 13, batch(), topic_id=old_id)
        assert error_of(unknown) is ErrorCode.unknown_topic_id
        # Made again meanwhile, it is named once it is served.
        making = asyncio.ensure_future(metadata(client, create_it=True))
        await until(lambda: bool(cold.broker.controller._changes))
        cold.disk.let_go()
        new_id = (await making).topic_id
        assert await deleting is NONE
        assert new_id != old_id
        assert error_of(await produce(client, 13, batch(), topic_id=new_id)) is NONE


async def commit_and_stop(folder: Path) -> None:
    """Leave a committed offset, so that the next start has something to load."""
    async with cold_broker(folder) as cold:
        client = await cold.connect()
        await create(client, topic("t"))
        assert await use_group(client) is NONE
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        wanted = OffsetCommitRequestTopic(name="t", partitions=(offset,))
        done = await client.ask(ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=(wanted,))
        assert done.topics[0].partitions[0].error_code is NONE


async def test_a_request_that_comes_while_its_shard_loads_is_held(tmp_path: Path) -> None:
    await commit_and_stop(tmp_path)
    async with cold_broker(tmp_path, held=(Lane.READ,)) as cold:
        client, gone = await cold.connect(), await cold.connect()
        assert await find(client, 0, "g") is NONE
        asking = asyncio.ensure_future(committed(client))
        lost = asyncio.ensure_future(committed(gone))
        await until(lambda: sum(c.waiting_count for c in cold.broker.server.connections) == 2)
        lost.cancel()
        gone.writer.close()
        await until(lambda: len(cold.broker.server.connections) == 1)
        cold.disk.let_go()
        found = await asking
        assert found.error_code is NONE
        assert found.topics[0].partitions[0].committed_offset == 7


async def test_a_list_waits_for_the_shards_that_load(tmp_path: Path) -> None:
    await commit_and_stop(tmp_path)
    async with cold_broker(tmp_path, held=(Lane.READ,)) as cold:
        client = await cold.connect()
        listing = asyncio.ensure_future(client.ask(ApiKey.LIST_GROUPS))
        await until(lambda: any(c.waiting_count for c in cold.broker.server.connections))
        cold.disk.let_go()
        listed = await listing
        assert listed.error_code is NONE
        assert [group.group_id for group in listed.groups] == ["g"]


@pytest.mark.damages
async def test_a_shard_that_cannot_be_loaded_is_named_by_nobody(tmp_path: Path) -> None:
    await commit_and_stop(tmp_path)
    (log,) = (tmp_path / f"{CONSUMER_OFFSETS_TOPIC}-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    async with cold_broker(tmp_path) as cold:
        client = await cold.connect()
        await cold.broker.groups.loaded()
        assert (await committed(client)).error_code is ErrorCode.not_coordinator
        assert await find(client, 0, "g") is ErrorCode.coordinator_not_available
        assert await find(client, 1, "me") is NONE
