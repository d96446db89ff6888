"""Settings of groups (resource type 32) against a running broker."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from oncelog.controller import layout
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.alter_configs import AlterableConfig, AlterConfigsResource
from oncelog.protocol.messages.describe_configs import DescribeConfigsResource
from oncelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsResource,
)
from tests.unit.broker.context import Client, Running, running

GROUP = 32
SET, DELETE = 0, 1
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
OFFLOAD = "consumer.assignor.offload.enable"


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "data") as started:
        await started.broker.controller.create_topics(
            [TopicToCreate("t"), TopicToCreate("__consumer_offsets")]
        )
        yield started


async def alter(client: Client, name: str, config: Mapping[str, str | None], **more: Any) -> Any:
    """Set what has a value, delete the others; the error and its text."""
    entries = tuple(
        IncrementalAlterableConfig(
            name=key, config_operation=DELETE if value is None else SET, value=value
        )
        for key, value in config.items()
    )
    resource = IncrementalAlterConfigsResource(
        resource_type=GROUP, resource_name=name, configs=entries
    )
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=(resource,), **more)
    (response,) = answer.responses
    return response.error_code, response.error_message


async def described(client: Client, name: str, *keys: str) -> dict[str, tuple[str, int]]:
    asked = DescribeConfigsResource(
        resource_type=GROUP, resource_name=name, configuration_keys=keys or None
    )
    (result,) = (
        await client.ask(ApiKey.DESCRIBE_CONFIGS, resources=(asked,), include_synonyms=True)
    ).results
    assert result.error_code is ErrorCode.none
    assert not any(entry.read_only for entry in result.configs)
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


async def beat(client: Client, epoch: int) -> Any:
    says_all: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    }
    return await client.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id="g",
        member_id="m",
        member_epoch=epoch,
        **(says_all if epoch == 0 else {}),
    )


async def test_a_group_without_settings_shows_the_brokers(context: Running) -> None:
    client = await context.connect()
    assert await described(client, "g") == {
        SESSION: ("45000", 5),
        HEARTBEAT: ("5000", 5),
        "consumer.assignment.interval.ms": ("1000", 5),
    }


async def test_a_setting_of_a_group_is_shown_as_its_own(context: Running) -> None:
    client = await context.connect()
    assert await alter(client, "g", {SESSION: "50000", OFFLOAD: "true"}) == (ErrorCode.none, None)
    shown = await described(client, "g")
    assert (shown[SESSION], shown[OFFLOAD]) == (("50000", 8), ("true", 8))
    assert await described(client, "g", SESSION) == {SESSION: ("50000", 8)}
    assert SESSION not in await described(client, "g", HEARTBEAT)
    assert (await described(client, "other"))[SESSION] == ("45000", 5)


async def test_live_members_receive_a_new_interval_with_their_next_heartbeat(
    context: Running,
) -> None:
    client = await context.connect()
    joined = await beat(client, 0)
    assert joined.heartbeat_interval_ms == 5_000
    await alter(client, "g", {HEARTBEAT: "7000"})
    assert (await beat(client, joined.member_epoch)).heartbeat_interval_ms == 7_000
    await alter(client, "g", {HEARTBEAT: None})
    assert (await beat(client, joined.member_epoch)).heartbeat_interval_ms == 5_000


async def test_a_session_lasts_as_long_as_the_group_says(context: Running) -> None:
    client = await context.connect()
    await alter(client, "g", {SESSION: "60000"})
    await beat(client, 0)
    index = context.broker.groups.partition_of("g")
    coordinator = context.broker.groups._coordinators[index]
    ends_ms = coordinator.processor.next_deadline_ms()
    assert ends_ms is not None
    assert ends_ms - context.broker.groups.clock.now_ms() > 50_000


async def test_settings_outlive_the_broker_and_follow_its_limits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as context:
        assert (await alter(await context.connect(), "a/b", {SESSION: "60000"}))[0] == 0
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, {"group.consumer.max.session.timeout.ms": 50_000}) as context:
            shown = await described(await context.connect(), "a/b")
    assert shown[SESSION] == ("60000", 8)
    assert f"group a/b: {SESSION}=60000 is outside the broker's limits: 50000" in caplog.text


async def test_the_groups_that_have_settings_are_listed(context: Running) -> None:
    client = await context.connect()

    async def listed() -> list[str]:
        answer = await client.ask(ApiKey.LIST_CONFIG_RESOURCES, resource_types=(GROUP,))
        return [resource.resource_name for resource in answer.config_resources]

    assert await listed() == []
    await alter(client, "g", {SESSION: "50000"})
    assert await listed() == ["g"]
    await alter(client, "g", {SESSION: None})
    assert await listed() == []
    assert await context.broker.store.list(layout.GROUP_CONFIGS_PREFIX) == {}


async def test_a_bad_setting_changes_nothing_and_says_why(context: Running) -> None:
    client = await context.connect()
    config = {HEARTBEAT: "6000", "share.session.timeout.ms": "45000"}
    assert await alter(client, "g", config) == (
        ErrorCode.invalid_config,
        "share.session.timeout.ms is a key of share groups, which Oncelog does not support",
    )
    assert await alter(client, "g", {SESSION: "50000"}, validate_only=True) == (0, None)
    assert context.broker.image.group_configs == {}


async def test_all_settings_of_a_group_are_replaced(context: Running) -> None:
    client = await context.connect()
    await alter(client, "g", {SESSION: "50000"})
    entry = AlterableConfig(name=HEARTBEAT, value="6000")
    resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=(entry,))
    (response,) = (await client.ask(ApiKey.ALTER_CONFIGS, resources=(resource,))).responses
    assert response.error_code is ErrorCode.none
    assert context.broker.image.group_configs == {"g": {HEARTBEAT: "6000"}}
