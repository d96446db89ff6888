"""AlterConfigs, IncrementalAlterConfigs and CreatePartitions against a running broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.apis.config_changes import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.alter_configs import AlterableConfig as PlainConfig
from oncelog.protocol.messages.alter_configs import AlterConfigsResource as PlainResource
from oncelog.protocol.messages.create_partitions import CreatePartitionsTopic
from oncelog.protocol.messages.describe_configs import DescribeConfigsResource
from oncelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsResource,
)
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import error_of, produce
from tests.unit.broker.support import NOW_MS, batch

SET, DELETE = 0, 1


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data") as started:
        await started.broker.controller.create_topics(
            [TopicToCreate("t"), TopicToCreate("__consumer_offsets")]
        )
        yield started


def changes(name: str, *entries: tuple[str, int, str | None], kind: int = TOPIC_RESOURCE) -> Any:
    return IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in entries
        ),
    )


async def alter(client: Client, *resources: Any, validate_only: bool = False) -> list[ErrorCode]:
    response = await client.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=resources, validate_only=validate_only
    )
    return [answer.error_code for answer in response.responses]


async def test_a_setting_is_in_effect_when_the_answer_is_there(context: Running) -> None:
    client = await context.connect()
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    assert await alter(client, changes("t", ("max.message.bytes", SET, "70"))) == [ErrorCode.none]
    assert partition.log.config.max_message_bytes == 70
    assert error_of(await produce(client, 9, batch(9))) is ErrorCode.message_too_large
    assert await alter(client, changes("t", ("max.message.bytes", DELETE, None))) == [
        ErrorCode.none
    ]
    assert error_of(await produce(client, 9, batch(9))) is ErrorCode.none


async def test_a_setting_that_is_set_already_writes_nothing(context: Running) -> None:
    client = await context.connect()
    setting = changes("t", ("max.message.bytes", SET, "70"))
    assert await alter(client, setting) == [ErrorCode.none]
    revision = context.broker.image.revision
    assert await alter(client, setting) == [ErrorCode.none]
    assert context.broker.image.revision == revision


async def test_a_setting_outlives_the_broker(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        await context.broker.controller.create_topics([TopicToCreate("t")])
        client = await context.connect()
        await alter(client, changes("t", ("max.message.bytes", SET, "70")))
    async with running(tmp_path) as context:
        partition = context.broker.partitions.get("t", 0)
        assert partition is not None
        assert partition.log.config.max_message_bytes == 70


async def test_more_in_sync_replicas_than_there_are_cannot_be_asked_for(context: Running) -> None:
    """Kafka's effective min ISR is the smaller of the setting and the number of replicas."""
    client = await context.connect()
    await alter(client, changes("t", ("min.insync.replicas", SET, "2")))
    assert error_of(await produce(client, 9, batch())) is ErrorCode.none


async def test_a_validation_changes_nothing(context: Running) -> None:
    client = await context.connect()
    good = changes("t", ("retention.ms", SET, "1"))
    assert await alter(client, good, validate_only=True) == [ErrorCode.none]
    bad = changes("t", ("retention.ms", SET, "x"))
    assert await alter(client, bad, validate_only=True) == [ErrorCode.invalid_config]
    assert context.broker.image.topics["t"].config == {}


@pytest.mark.parametrize(
    "resource",
    [
        changes("t", ("retention.ms", SET, None)),
        changes("t", ("retention.ms", 9, "1")),
        changes("t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        changes("1", ("log.retention.ms", SET, "1"), kind=BROKER_RESOURCE),
        changes("", ("log.retention.ms", SET, "1"), kind=BROKER_RESOURCE),
        changes("2", kind=BROKER_RESOURCE),
        changes("one", kind=BROKER_RESOURCE),
        changes("1", kind=8),
        changes("m", ("interval.ms", SET, "1000"), kind=16),
        changes("", ("consumer.session.timeout.ms", SET, "45000"), kind=GROUP_RESOURCE),
    ],
)
async def test_a_request_that_makes_no_sense_is_invalid(context: Running, resource: Any) -> None:
    assert await alter(await context.connect(), resource) == [ErrorCode.invalid_request]


async def test_each_resource_is_answered_by_itself_unless_it_comes_twice(context: Running) -> None:
    client = await context.connect()
    twice = changes("t", ("retention.ms", SET, "1"))
    broker = changes("1", ("log.retention.ms", DELETE, None), kind=BROKER_RESOURCE)
    errors = await alter(client, twice, broker, twice, changes("gone"))
    assert errors == [
        ErrorCode.invalid_request,
        ErrorCode.none,
        ErrorCode.invalid_request,
        ErrorCode.unknown_topic_or_partition,
    ]


async def test_all_settings_are_replaced(context: Running) -> None:
    client = await context.connect()
    await alter(client, changes("t", ("retention.ms", SET, "1")))
    entry = PlainConfig(name="segment.ms", value="7")
    resource = PlainResource(resource_type=2, resource_name="t", configs=(entry,))
    response = await client.ask(ApiKey.ALTER_CONFIGS, resources=(resource,))
    assert [answer.error_code for answer in response.responses] == [ErrorCode.none]
    assert context.broker.image.topics["t"].config == {"segment.ms": "7"}


def grown(name: str, count: int) -> Any:
    return CreatePartitionsTopic(name=name, count=count, assignments=None)


async def test_new_partitions_can_be_written_to(context: Running) -> None:
    client = await context.connect()
    asked = (grown("t", 3), grown("gone", 2), grown("__consumer_offsets", 9))
    response = await client.ask(ApiKey.CREATE_PARTITIONS, topics=asked)
    assert [result.error_code for result in response.results] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_partitions,
    ]
    added = context.broker.partitions.get("t", 2)
    assert added is not None
    assert added.state.is_leader
    assert added.append(batch(2), now_ms=NOW_MS).error is ErrorCode.none


async def test_a_topic_named_twice_gets_no_partitions(context: Running) -> None:
    client = await context.connect()
    asked = (grown("t", 3), grown("t", 4))
    (result,) = (await client.ask(ApiKey.CREATE_PARTITIONS, topics=asked)).results
    assert (result.name, result.error_code) == ("t", ErrorCode.invalid_request)
    validated = await client.ask(
        ApiKey.CREATE_PARTITIONS, topics=(grown("t", 3),), validate_only=True
    )
    assert validated.results[0].error_code is ErrorCode.none
    assert len(context.broker.image.topics["t"].partitions) == 1


async def test_client_metrics_have_no_settings(context: Running) -> None:
    client = await context.connect()

    async def described(kind: int, name: str) -> tuple[ErrorCode, int]:
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name)
        (result,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, resources=(asked,))).results
        return result.error_code, len(result.configs)

    assert await described(16, "name") == (ErrorCode.none, 0)
    assert await described(16, "") == (ErrorCode.invalid_request, 0)
    assert await described(GROUP_RESOURCE, "") == (ErrorCode.invalid_request, 0)
    assert await described(8, "1") == (ErrorCode.invalid_request, 0)
