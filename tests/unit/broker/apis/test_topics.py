"""Metadata, CreateTopics, DeleteTopics, DescribeConfigs and DescribeCluster against a running
broker.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from oncelog.protocol.messages.delete_topics import DeleteTopicState
from oncelog.protocol.messages.describe_configs import DescribeConfigsResource
from oncelog.protocol.messages.metadata import MetadataRequestTopic
from tests.unit.broker.context import Client, running


def topic(name: str, partitions: int = 1, factor: int = 1, **config: str | None) -> Any:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=tuple(
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ),
    )


async def create(
    client: Client, *topics: Any, version: int = 7, validate_only: bool = False
) -> Any:
    response = await client.ask(
        ApiKey.CREATE_TOPICS, version, topics=topics, validate_only=validate_only
    )
    return {result.name: result for result in response.topics}


def named(*names: str) -> tuple[Any, ...]:
    return tuple(MetadataRequestTopic(name=name, topic_id=None) for name in names)


@pytest.mark.parametrize("version", range(ADVERTISED[ApiKey.METADATA].max + 1))
async def test_metadata_shows_topics_and_this_broker_in_every_version(
    tmp_path: Path, version: int
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await create(client, topic("b", 3), topic("a"))
        everything = () if version == 0 else None
        response = await client.ask(ApiKey.METADATA, version, topics=everything)
        assert [found.name for found in response.topics] == ["a", "b"]
        assert [len(found.partitions) for found in response.topics] == [1, 3]
        leaders = {p.leader_id for found in response.topics for p in found.partitions}
        assert leaders == {1}
        (broker,) = response.brokers
        assert f"{broker.host}:{broker.port}" == context.broker.bootstrap_servers


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_who_asks_for_authorized_operations_is_told_all_of_them(
    tmp_path: Path, version: int
) -> None:
    async with running(tmp_path, {"auto.create.topics.enable": False}) as context:
        client = await context.connect()
        await create(client, topic("a"))
        asked = {"topics": named("a", "missing"), "include_topic_authorized_operations": True}
        cluster = {"include_cluster_authorized_operations": True}
        response = await client.ask(ApiKey.METADATA, version, **asked, **cluster)
        # Create, alter, describe, cluster action, describe and alter configs, idempotent write.
        assert response.cluster_authorized_operations == 0b1_1111_1010_0000
        assert [found.topic_authorized_operations for found in response.topics] == [
            0b1101_1111_1000,
            0b1101_1111_1000,
        ]
        response = await client.ask(ApiKey.METADATA, version, topics=named("a"))
        assert response.cluster_authorized_operations == -(2**31)
        assert response.topics[0].topic_authorized_operations == -(2**31)


async def test_an_empty_list_asks_for_no_topic_from_version_1_on(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await create(client, topic("a"))
        assert (await client.ask(ApiKey.METADATA, 1, topics=())).topics == ()


async def test_a_named_topic_is_created_when_client_and_broker_allow_it(tmp_path: Path) -> None:
    async with running(tmp_path, {"num.partitions": 3}) as context:
        client = await context.connect()
        asked: dict[str, Any] = {"topics": named("new"), "allow_auto_topic_creation": False}
        (missing,) = (await client.ask(ApiKey.METADATA, **asked)).topics
        assert missing.error_code is ErrorCode.unknown_topic_or_partition
        asked["allow_auto_topic_creation"] = True
        (made,) = (await client.ask(ApiKey.METADATA, **asked)).topics
        assert made.error_code is ErrorCode.none
        assert len(made.partitions) == 3
        (bad,) = (await client.ask(ApiKey.METADATA, topics=named("no/good"))).topics
        assert bad.error_code is ErrorCode.invalid_topic_exception


async def test_auto_creation_can_be_switched_off(tmp_path: Path) -> None:
    async with running(tmp_path, {"auto.create.topics.enable": False}) as context:
        client = await context.connect()
        (missing,) = (await client.ask(ApiKey.METADATA, topics=named("new"))).topics
        assert missing.error_code is ErrorCode.unknown_topic_or_partition


async def test_a_topic_is_found_by_its_id_and_never_created_by_one(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        made = (await create(client, topic("a")))["a"]
        asked = tuple(
            MetadataRequestTopic(name=None, topic_id=topic_id)
            for topic_id in (made.topic_id, uuid.uuid4())
        )
        asked += (MetadataRequestTopic(name="new", topic_id=uuid.uuid4()),)
        found, *missing = (await client.ask(ApiKey.METADATA, topics=asked)).topics
        assert (found.name, found.error_code) == ("a", ErrorCode.none)
        assert [each.name for each in missing] == [None, "new"]
        assert {each.error_code for each in missing} == {ErrorCode.unknown_topic_id}
        everything = (await client.ask(ApiKey.METADATA, topics=None)).topics
        assert [each.name for each in everything] == ["a"]


@pytest.mark.parametrize("version", [10, 11])
async def test_versions_with_a_place_for_ids_refuse_them_as_apache_kafka_does(
    tmp_path: Path, version: int
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        topic_id = (await create(client, topic("a")))["a"].topic_id
        for asked in (
            MetadataRequestTopic(name="", topic_id=topic_id),
            MetadataRequestTopic(name="a", topic_id=topic_id),
        ):
            both = (MetadataRequestTopic(name="b"), asked)
            answer = await client.ask(ApiKey.METADATA, version, topics=both)
            assert [each.name for each in answer.topics] == ["b", asked.name]
            assert {each.error_code for each in answer.topics} == {ErrorCode.invalid_request}
        assert context.broker.image.topics.keys() == {"a"}


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_topics_says_for_each_topic_what_became_of_it(
    tmp_path: Path, version: int
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await create(client, topic("there"))
        results = await create(
            client,
            topic("good", 2, retention_ms="1000"),
            topic("there"),
            topic("no good"),
            topic("many", 1, 2),
            topic("none", 0),
            topic("config", color="red"),
            topic("value", retention_ms="soon"),
            topic("twice"),
            topic("twice"),
            topic("goo_d.x"),
            version=version,
        )
        assert {name: result.error_code for name, result in results.items()} == {
            "good": ErrorCode.none,
            "there": ErrorCode.topic_already_exists,
            "no good": ErrorCode.invalid_topic_exception,
            "many": ErrorCode.invalid_replication_factor,
            "none": ErrorCode.invalid_partitions,
            "config": ErrorCode.invalid_config,
            "value": ErrorCode.invalid_config,
            "twice": ErrorCode.invalid_request,
            "goo_d.x": ErrorCode.none,
        }
        assert set(context.broker.image.topics) == {"good", "there", "goo_d.x"}


async def test_the_settings_of_a_new_topic_come_with_their_sources(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        results = await create(await context.connect(), topic("a", retention_ms="1000"))
        settings = {entry.name: entry for entry in results["a"].configs}
        retention, compression = settings["retention.ms"], settings["compression.type"]
        assert (retention.value, retention.config_source) == ("1000", 1)
        assert (compression.value, compression.config_source) == ("producer", 5)


async def test_validation_alone_creates_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        results = await create(client, topic("a"), topic("b", 0), validate_only=True)
        assert results["a"].error_code is ErrorCode.none
        assert results["b"].error_code is ErrorCode.invalid_partitions
        assert not context.broker.image.topics


async def test_replicas_can_be_assigned_by_hand_to_brokers_that_exist(tmp_path: Path) -> None:
    def assigned(name: str, *replicas: tuple[int, ...]) -> Any:
        return CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
                for index, ids in enumerate(replicas)
            ),
        )

    async with running(tmp_path) as context:
        client = await context.connect()
        results = await create(client, assigned("a", (1,), (1,)), assigned("b", (2,)))
        assert results["a"].error_code is ErrorCode.none
        assert results["a"].num_partitions == 2
        assert results["b"].error_code is ErrorCode.invalid_replica_assignment


@pytest.mark.parametrize("version", range(1, 7))
async def test_topics_are_deleted_by_name_and_from_version_6_by_id(
    tmp_path: Path, version: int
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        made = await create(client, topic("a"), topic("b"))
        states = [DeleteTopicState(name=name, topic_id=None) for name in ("a", "nope")]
        if version >= 6:
            states.append(DeleteTopicState(name=None, topic_id=made["b"].topic_id))
        response = await client.ask(ApiKey.DELETE_TOPICS, version, topics=tuple(states))
        errors = {result.name: result.error_code for result in response.responses}
        assert errors["a"] is ErrorCode.none
        assert errors["nope"] is ErrorCode.unknown_topic_or_partition
        assert ("b" in context.broker.image.topics) is (version < 6)
        assert not [name for name in os.listdir(tmp_path) if name == "a-0"]


async def test_a_topic_made_again_has_a_new_id_and_an_empty_log(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        first = (await create(client, topic("a")))["a"].topic_id
        state = DeleteTopicState(name="a", topic_id=None)
        await client.ask(ApiKey.DELETE_TOPICS, topics=(state,))
        assert (await create(client, topic("a")))["a"].topic_id != first


async def test_topics_and_the_cluster_id_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        made = (await create(await context.connect(), topic("a", 4, retention_ms="5")))["a"]
        cluster_id = context.broker.image.cluster_id
    async with running(tmp_path) as context:
        image = context.broker.image
        assert image.cluster_id == cluster_id
        assert image.topics["a"].topic_id == made.topic_id
        assert image.topics["a"].config == {"retention.ms": "5"}
        assert len(image.topics["a"].partitions) == 4


async def test_describe_configs_names_value_source_and_synonyms(tmp_path: Path) -> None:
    async with running(tmp_path, {"log.retention.hours": 2}) as context:
        client = await context.connect()
        await create(client, topic("a", segment_bytes="2000000"))
        response = await client.ask(
            ApiKey.DESCRIBE_CONFIGS,
            resources=(
                _resource(2, "a", None),
                _resource(4, "1", ("log.retention.hours", "num.partitions")),
                _resource(2, "nope", None),
                _resource(4, "9", None),
            ),
            include_synonyms=True,
            include_documentation=True,
        )
        of_topic, of_broker, no_topic, no_broker = response.results
        configs = {entry.name: entry for entry in of_topic.configs}
        assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == (
            "2000000",
            1,
        )
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == (
            "7200000",
            4,
        )
        assert [s.name for s in configs["segment.bytes"].synonyms] == [
            "segment.bytes",
            "log.segment.bytes",
        ]
        assert configs["cleanup.policy"].documentation
        assert [(e.name, e.value, e.config_source) for e in of_broker.configs] == [
            ("log.retention.hours", "2", 4),
            ("num.partitions", "1", 5),
        ]
        assert no_topic.error_code is ErrorCode.unknown_topic_or_partition
        assert no_broker.error_code is ErrorCode.invalid_request


def _resource(kind: int, name: str, keys: tuple[str, ...] | None) -> Any:
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster_names_the_one_broker(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        response = await client.ask(ApiKey.DESCRIBE_CLUSTER, version, endpoint_type=1)
        assert response.cluster_id == context.broker.image.cluster_id
        assert [broker.broker_id for broker in response.brokers] == [1]
        assert response.controller_id == 1
        if version >= 1:
            wrong = await client.ask(ApiKey.DESCRIBE_CLUSTER, version, endpoint_type=2)
            assert wrong.error_code is ErrorCode.mismatched_endpoint_type
