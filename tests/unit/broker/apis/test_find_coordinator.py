"""FindCoordinator and ApiVersions: where clients begin."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncelog.broker.apis import HANDLERS
from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import PRIVATE, ApiKey
from oncelog.protocol.messages.api_versions import ApiVersionsResponse
from tests.unit.broker.context import running


@pytest.mark.parametrize("version", range(7))
async def test_the_internal_topic_comes_with_its_first_use(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        for key_type, name in ((0, "__consumer_offsets"), (1, "__transaction_state")):
            if version == 0 and key_type == 1:
                continue
            response = await client.ask(
                ApiKey.FIND_COORDINATOR, version, coordinator_keys=("me",), key_type=key_type
            )
            (found,) = response.coordinators
            assert found.error_code is ErrorCode.none
            assert f"{found.host}:{found.port}" == context.broker.bootstrap_servers
            topic = context.broker.image.topics[name]
            assert len(topic.partitions) == 2
            assert {partition.replicas for partition in topic.partitions} == {(1,)}
            assert topic.config["cleanup.policy"] == "compact"


async def test_a_lone_broker_needs_one_in_sync_replica_for_transactions(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=("me",), key_type=1)
        config = context.broker.image.topics["__transaction_state"].config
        assert config["min.insync.replicas"] == "1"


async def test_several_keys_are_found_at_once_and_odd_types_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        keys = ("a", "b", "c")
        response = await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=keys, key_type=0)
        assert tuple(found.key for found in response.coordinators) == keys
        response = await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=keys, key_type=9)
        assert {found.error_code for found in response.coordinators} == {ErrorCode.invalid_request}


@pytest.mark.parametrize("version", range(6))
async def test_api_versions_announces_what_has_a_handler(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        response = await client.ask(
            ApiKey.API_VERSIONS, version, client_software_name="x", client_software_version="1"
        )
        assert response.error_code is ErrorCode.none
        assert {entry.api_key for entry in response.api_keys} == HANDLERS.keys() - PRIVATE
        if version >= 3:
            levels = {each.name: each.max_version_level for each in response.finalized_features}
            assert levels == {"transaction.version": 2, "group.version": 1}
            assert response.finalized_features_epoch >= 0


async def test_a_client_that_names_itself_badly_is_told(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        response = await client.ask(
            ApiKey.API_VERSIONS, 3, client_software_name="", client_software_version="!"
        )
        assert response == ApiVersionsResponse(error_code=ErrorCode.invalid_request)


async def test_a_client_that_means_another_broker_is_told_to_start_again(tmp_path: Path) -> None:
    """KIP-1242: cluster and broker must both be this one's, and be named together or not at all."""
    async with running(tmp_path) as context:
        cluster_id = context.broker.image.cluster_id
        node_id = context.broker.broker_id
        client = await context.connect()
        answers = {
            meant: await client.ask(
                ApiKey.API_VERSIONS,
                client_software_name="x",
                client_software_version="1",
                cluster_id=meant[0],
                node_id=meant[1],
            )
            for meant in (
                (cluster_id, node_id),
                (cluster_id, node_id + 1),
                ("another", node_id),
                ("", node_id),
                (cluster_id, -1),
                (None, node_id),
            )
        }
        none, *errors = (answer.error_code for answer in answers.values())
        assert none is ErrorCode.none
        other, half = ErrorCode.rebootstrap_required, ErrorCode.invalid_request
        assert errors == [other, other, other, half, half]
        refused = answers["another", node_id]
        assert refused == ApiVersionsResponse(error_code=ErrorCode.rebootstrap_required)
        # The connection stays: the client decides.
        again = await client.ask(
            ApiKey.API_VERSIONS, client_software_name="x", client_software_version="1"
        )
        assert again.error_code is ErrorCode.none


async def test_a_topic_that_a_lost_connection_asked_for_still_comes_into_being(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        request = codec.request_class(ApiKey.FIND_COORDINATOR)(coordinator_keys=("me",), key_type=0)
        frame = codec.encode_request(ApiKey.FIND_COORDINATOR, 6, 1, "test", request)
        changes = context.broker.controller._changes
        while changes:  # noqa: ASYNC110 - nobody announces it: the start's own
            await asyncio.sleep(0)
        await client.send(frame)
        while not changes:  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0)
        client.writer.close()
        await client.writer.wait_closed()
        await asyncio.wait(changes)
        assert "__consumer_offsets" in context.broker.image.topics
        assert context.broker.partitions.get("__consumer_offsets", 0) is not None
