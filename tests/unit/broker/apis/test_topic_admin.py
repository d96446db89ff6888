"""DescribeTopicPartitions, ElectLeaders, ListConfigResources and what is asked of security."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.create_acls import AclCreation
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter
from oncelog.protocol.messages.describe_client_quotas import ComponentData
from oncelog.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsTopic
from oncelog.protocol.messages.describe_user_scram_credentials import UserName
from oncelog.protocol.messages.elect_leaders import TopicPartitions
from tests.unit.broker.context import Client, Running, running

NONE = ErrorCode.none


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data", {"max.request.partition.size.limit": 4}) as started:
        await started.broker.controller.create_topics(
            [TopicToCreate("a", 3), TopicToCreate("b", 3)]
        )
        yield started


async def page(client: Client, *names: str, limit: int = 99, cursor: Any = None) -> Any:
    response = await client.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        topics=tuple(DescribeTopicPartitionsTopic(name=name) for name in names),
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    shown = [
        (topic.name, partition.partition_index)
        for topic in response.topics
        for partition in topic.partitions
    ]
    following = response.next_cursor
    return shown, following and (following.topic_name, following.partition_index), response.topics


async def test_topics_come_in_pages(context: Running) -> None:
    client = await context.connect()
    shown, cursor, topics = await page(client)
    assert shown == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    assert cursor == ("b", 1)
    assert topics[0].topic_id == context.broker.image.topics["a"].topic_id
    assert (await page(client, cursor=cursor))[:2] == ([("b", 1), ("b", 2)], None)
    assert (await page(client, "b", "a", limit=3))[:2] == ([("a", 0), ("a", 1), ("a", 2)], ("b", 0))
    assert (await page(client, "b", limit=0))[:2] == ([("b", 0)], ("b", 1))


async def test_topics_that_are_not_there_and_cursors_that_do_not_fit_are_told(
    context: Running,
) -> None:
    client = await context.connect()
    _, _, topics = await page(client, "gone", "a b", "a")
    assert {topic.name: topic.error_code for topic in topics} == {
        "a": NONE,
        "a b": ErrorCode.invalid_topic_exception,
        "gone": ErrorCode.unknown_topic_or_partition,
    }
    for cursor in (("a", -1), ("b", 0)):
        _, _, topics = await page(client, "a", cursor=cursor)
        assert [topic.error_code for topic in topics] == [ErrorCode.invalid_request]


async def elected(client: Client, kind: int, partitions: Any) -> tuple[ErrorCode, Any]:
    response = await client.ask(
        ApiKey.ELECT_LEADERS, election_type=kind, topic_partitions=partitions
    )
    return response.error_code, {
        (result.topic, partition.partition_id): partition.error_code
        for result in response.replica_election_results
        for partition in result.partition_result
    }


async def test_no_election_is_needed(context: Running) -> None:
    client = await context.connect()
    asked = tuple(
        TopicPartitions(topic=topic, partitions=(index,))
        for topic, index in (("a", 0), ("a", 9), ("gone", 0))
    )
    unknown = ErrorCode.unknown_topic_or_partition
    for kind in (0, 1):
        error, outcomes = await elected(client, kind, asked)
        assert (error, list(outcomes.values())) == (
            NONE,
            [ErrorCode.election_not_needed, unknown, unknown],
        )
        assert await elected(client, kind, None) == (NONE, {})
    error, outcomes = await elected(client, 7, asked[:1])
    assert error is ErrorCode.invalid_request
    assert outcomes == {("a", 0): ErrorCode.invalid_request}


async def test_resources_with_settings_are_listed_by_type(context: Running) -> None:
    client = await context.connect()

    async def listed(*kinds: int, version: int = 1) -> Any:
        response = await client.ask(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=kinds)
        return response.error_code, {
            (resource.resource_type, resource.resource_name)
            for resource in response.config_resources
        }

    topics, brokers = {(2, "a"), (2, "b")}, {(4, "1")}
    assert await listed(2) == (NONE, topics)
    assert await listed(4, 32) == (NONE, brokers)
    assert await listed() == (NONE, topics | brokers | {(8, "1")})
    assert await listed(version=0) == (NONE, set())
    assert await listed(3) == (ErrorCode.unsupported_version, set())


async def test_there_is_no_authorizer(context: Running) -> None:
    client = await context.connect()
    disabled = ErrorCode.security_disabled
    described = await client.ask(ApiKey.DESCRIBE_ACLS)
    created = await client.ask(ApiKey.CREATE_ACLS, creations=(AclCreation(),) * 2)
    deleted = await client.ask(ApiKey.DELETE_ACLS, filters=(DeleteAclsFilter(),) * 2)
    assert described.error_code is disabled
    assert [result.error_code for result in created.results] == [disabled] * 2
    assert [result.error_code for result in deleted.filter_results] == [disabled] * 2


async def test_there_are_no_credentials(context: Running) -> None:
    client = await context.connect()

    async def errors(*names: str) -> list[ErrorCode]:
        users = tuple(UserName(name=name) for name in names)
        response = await client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=users)
        return [result.error_code for result in response.results]

    assert await errors() == []
    assert await errors("x") == [ErrorCode.resource_not_found]
    assert await errors("x", "x") == [ErrorCode.duplicate_resource]


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("user", 0, "x"), ("client-id", 1, None)], NONE),
        ([("ip", 2, None)], NONE),
        ([("", 0, "x")], ErrorCode.invalid_request),
        ([("user", 0, "x"), ("user", 1, None)], ErrorCode.invalid_request),
        ([("planet", 0, "x")], ErrorCode.unsupported_version),
        ([("user", 0, None)], ErrorCode.invalid_request),
        ([("user", 1, "x")], ErrorCode.invalid_request),
        ([("user", 5, "x")], ErrorCode.invalid_request),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.invalid_request),
    ],
)
async def test_there_are_no_quotas(
    context: Running, components: list[tuple[str, int, str | None]], error: ErrorCode
) -> None:
    client = await context.connect()
    asked = tuple(
        ComponentData(entity_type=kind, match_type=how, match=name)
        for kind, how, name in components
    )
    response = await client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, components=asked)
    assert response.error_code is error
    assert response.entries == (() if error is NONE else None)
