"""DescribeGroups, ListGroups, DeleteGroups, OffsetDelete, and the same for transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import offset_commit, offset_fetch
from oncelog.protocol.messages.join_group import JoinGroupRequestProtocol
from oncelog.protocol.messages.leave_group import MemberIdentity
from oncelog.protocol.messages.offset_delete import (
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from oncelog.protocol.messages.sync_group import SyncGroupRequestAssignment
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import init_producer

NONE = ErrorCode.none
GROUP = "group"
FEW_SECONDS = 10_000


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data", {"group.initial.rebalance.delay.ms": 0}) as started:
        controller = started.broker.controller
        await controller.create_topics([TopicToCreate("t", 2)])
        await controller.internal_topic(TRANSACTION_STATE_TOPIC)
        await controller.internal_topic(CONSUMER_OFFSETS_TOPIC)
        yield started


async def join(client: Client) -> str:
    """A stable group of one member; returns its id."""
    joined = await client.ask(
        ApiKey.JOIN_GROUP,
        3,
        group_id=GROUP,
        session_timeout_ms=FEW_SECONDS,
        rebalance_timeout_ms=FEW_SECONDS,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b"subscription"),),
    )
    assert joined.error_code is NONE
    mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    synced = await client.ask(
        ApiKey.SYNC_GROUP,
        3,
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(mine,),
    )
    assert synced.error_code is NONE
    return str(joined.member_id)


async def commit(client: Client, *partitions: int) -> None:
    offsets = tuple(
        offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=5)
        for index in partitions
    )
    answer = await client.ask(
        ApiKey.OFFSET_COMMIT,
        8,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=(offset_commit.OffsetCommitRequestTopic(name="t", partitions=offsets),),
    )
    assert {p.error_code for topic in answer.topics for p in topic.partitions} == {NONE}


async def described(client: Client, version: int = 6, **fields: Any) -> Any:
    response = await client.ask(ApiKey.DESCRIBE_GROUPS, version, groups=(GROUP,), **fields)
    (group,) = response.groups
    return group


async def listed(client: Client, **filters: Any) -> Any:
    response = await client.ask(ApiKey.LIST_GROUPS, **filters)
    assert response.error_code is NONE
    return [(group.group_id, group.group_state, group.group_type) for group in response.groups]


async def deleted(client: Client) -> list[ErrorCode]:
    response = await client.ask(ApiKey.DELETE_GROUPS, groups_names=(GROUP, GROUP))
    return [result.error_code for result in response.results]


@pytest.mark.parametrize(
    ("version", "named", "error"),
    [
        (4, {}, NONE),
        (5, {}, ErrorCode.inconsistent_group_protocol),
        (5, {"protocol_type": "consumer"}, ErrorCode.inconsistent_group_protocol),
        (5, {"protocol_name": "range"}, ErrorCode.inconsistent_group_protocol),
        (5, {"protocol_type": "consumer", "protocol_name": "range"}, NONE),
    ],
)
async def test_a_sync_names_the_protocol_from_version_5_on(
    context: Running, version: int, named: dict[str, str], error: ErrorCode
) -> None:
    client = await context.connect()
    member_id = await join(client)
    asked = {"group_id": GROUP, "generation_id": 1, "member_id": member_id}
    answer = await client.ask(ApiKey.SYNC_GROUP, version, **asked, **named)
    assert answer.error_code is error
    assert answer.assignment == (b"all" if error is NONE else b"")


async def test_a_group_is_described_with_its_member(context: Running) -> None:
    client = await context.connect()
    member_id = await join(client)
    group = await described(client, include_authorized_operations=True)
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = group.members
    assert (member.member_id, member.client_id) == (member_id, "test")
    assert (member.member_metadata, member.member_assignment) == (b"subscription", b"all")
    assert group.authorized_operations == 0b1101_0100_1000
    assert (await described(client)).authorized_operations == -(2**31)


async def test_a_group_that_is_not_there_is_dead(context: Running) -> None:
    client = await context.connect()
    new, old = await described(client, 6), await described(client, 5)
    assert (new.error_code, new.group_state) == (ErrorCode.group_id_not_found, "Dead")
    assert new.error_message == f"Group {GROUP} not found."
    assert (old.error_code, old.group_state) == (NONE, "Dead")


async def test_a_deleted_topic_is_left_out_of_what_a_member_has(context: Running) -> None:
    client = await context.connect()
    joined = await client.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        group_id=GROUP,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=FEW_SECONDS,
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )
    assert joined.error_code is NONE

    async def owned() -> list[tuple[str, tuple[int, ...]]]:
        answer = await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=(GROUP,))
        (member,) = answer.groups[0].members
        return [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions]

    assert await owned() == [("t", (0, 1))]
    await context.broker.controller.delete_topic(context.broker.image.topics["t"].topic_id)
    assert await owned() == []


async def test_groups_are_listed_by_state_and_type(context: Running) -> None:
    client = await context.connect()
    await join(client)
    stable = [(GROUP, "Stable", "classic")]
    assert await listed(client) == stable
    assert await listed(client, states_filter=("stable",), types_filter=("Classic",)) == stable
    assert await listed(client, states_filter=("Empty",)) == []
    assert await listed(client, types_filter=("consumer",)) == []


async def test_only_an_empty_group_is_deleted(context: Running) -> None:
    client = await context.connect()
    await join(client)
    assert await deleted(client) == [ErrorCode.non_empty_group]
    await client.ask(ApiKey.LEAVE_GROUP, 2, group_id=GROUP, members=(await member_of(client),))
    assert await deleted(client) == [NONE]
    assert await deleted(client) == [ErrorCode.group_id_not_found]
    assert await listed(client) == []


async def member_of(client: Client) -> Any:
    (member,) = (await described(client)).members
    return MemberIdentity(member_id=member.member_id)


async def forget(client: Client, group: str, *places: tuple[str, int]) -> Any:
    response = await client.ask(
        ApiKey.OFFSET_DELETE,
        group_id=group,
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=(OffsetDeleteRequestPartition(partition_index=index),),
            )
            for topic, index in places
        ),
    )
    return response.error_code, {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


async def test_offsets_are_forgotten_where_they_may_be(context: Running) -> None:
    client = await context.connect()
    await commit(client, 0, 1)
    unknown = ErrorCode.unknown_topic_or_partition
    assert await forget(client, GROUP, ("t", 0), ("t", 9), ("gone", 0)) == (
        NONE,
        {("t", 0): NONE, ("t", 9): unknown, ("gone", 0): unknown},
    )
    asked = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    response = await client.ask(ApiKey.OFFSET_FETCH, 8, groups=(asked,))
    ((topic,),) = [group.topics for group in response.groups]
    assert [p.partition_index for p in topic.partitions] == [1]
    assert await forget(client, "gone", ("t", 0)) == (ErrorCode.group_id_not_found, {})


async def test_transactions_are_listed_and_described(context: Running) -> None:
    client = await context.connect()
    made = await init_producer(client, "tx", transaction_timeout_ms=FEW_SECONDS)

    async def ids(**filters: Any) -> Any:
        response = await client.ask(ApiKey.LIST_TRANSACTIONS, **{"duration_filter": -1, **filters})
        assert response.error_code is NONE
        found = [
            (entry.transactional_id, entry.producer_id, entry.transaction_state)
            for entry in response.transaction_states
        ]
        return found, response.unknown_state_filters

    mine = [("tx", made.producer_id, "Empty")]
    assert await ids() == (mine, ())
    assert await ids(state_filters=("Empty", "Sad")) == (mine, ("Sad",))
    assert await ids(state_filters=("Sad",)) == ([], ("Sad",))
    assert await ids(producer_id_filters=(made.producer_id + 1,)) == ([], ())
    assert await ids(transactional_id_pattern="t.") == (mine, ())
    wrong = await client.ask(
        ApiKey.LIST_TRANSACTIONS, duration_filter=-1, transactional_id_pattern="["
    )
    assert wrong.error_code is ErrorCode.invalid_regular_expression
    response = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=("tx", "gone", ""))
    known, gone, empty = response.transaction_states
    assert (known.transaction_state, known.producer_epoch) == ("Empty", made.producer_epoch)
    assert known.transaction_timeout_ms == FEW_SECONDS
    assert gone.error_code is ErrorCode.transactional_id_not_found
    assert empty.error_code is ErrorCode.invalid_request
