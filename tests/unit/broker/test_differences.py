"""What docs/differences.md says that a client sees, where no other test holds it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.apis import HANDLERS
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.delete_topics import DeleteTopicState
from oncelog.protocol.messages.describe_configs import DescribeConfigsResource
from oncelog.protocol.messages.metadata import MetadataRequestTopic
from tests.unit.broker.context import Running, running

CLIENT_METRICS = 16
NOT_ANNOUNCED = {
    "DescribeQuorum": 55,
    "GetTelemetrySubscriptions": 71,
    "PushTelemetry": 72,
    "ShareGroupHeartbeat": 76,
    "StreamsGroupHeartbeat": 88,
}


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data", {"log.retention.hours": 2}) as started:
        await started.broker.controller.create_topics([TopicToCreate("t")])
        yield started


@pytest.mark.parametrize("key", NOT_ANNOUNCED.values(), ids=NOT_ANNOUNCED.keys())
async def test_what_is_not_there_is_not_announced_and_closes_the_connection(
    context: Running, key: int
) -> None:
    assert key not in HANDLERS
    client = await context.connect()
    await client.send(key.to_bytes(2, "big") + b"\0\0" + b"\0\0\0\7" + b"\xff\xff" + b"\0" * 8)
    assert await client.receive() is None


async def test_a_read_of_a_topic_just_deleted_creates_it_again_unless_disallowed(
    context: Running,
) -> None:
    client = await context.connect()
    before = context.broker.image.topics["t"].topic_id
    asked = (DeleteTopicState(name="t", topic_id=None),)
    await client.ask(ApiKey.DELETE_TOPICS, topics=asked)

    async def read(**fields: Any) -> Any:
        asked = (MetadataRequestTopic(name="t", topic_id=None),)
        (topic,) = (await client.ask(ApiKey.METADATA, topics=asked, **fields)).topics
        return topic

    gone = await read(allow_auto_topic_creation=False)
    assert gone.error_code is ErrorCode.unknown_topic_or_partition
    assert (await client.ask(ApiKey.METADATA, topics=None)).topics == ()
    made = await read()
    assert made.error_code is ErrorCode.none
    assert made.topic_id not in (None, before)


async def test_no_setting_of_a_broker_can_be_changed_while_it_runs(context: Running) -> None:
    client = await context.connect()

    async def described(kind: int, name: str) -> Any:
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name)
        (result,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, resources=(asked,))).results
        return result

    settings = {entry.name: entry for entry in (await described(4, "1")).configs}
    assert all(entry.read_only for entry in settings.values())
    assert "num.io.threads" not in settings
    of_all = await described(4, "")
    assert (of_all.error_code, of_all.configs) == (ErrorCode.none, ())
    of_topic = {entry.name: entry for entry in (await described(2, "t")).configs}
    assert (of_topic["retention.ms"].value, of_topic["retention.ms"].config_source) == (
        "7200000",
        4,
    )


async def test_client_metrics_are_not_among_the_resources(context: Running) -> None:
    client = await context.connect()
    listed = await client.ask(ApiKey.LIST_CONFIG_RESOURCES, resource_types=())
    kinds = {resource.resource_type for resource in listed.config_resources}
    assert CLIENT_METRICS not in kinds
