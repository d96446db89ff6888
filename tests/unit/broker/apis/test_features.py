"""UpdateFeatures, the setting of the same name, and what ApiVersions announces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TRANSACTION_STATE_TOPIC
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.update_features import FeatureUpdateKey
from oncelog.protocol.records.transaction_log import decode_value
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import add_partition, init_producer, values

NAME = "transaction.version"
SAFE_DOWNGRADE = 2
ID = "txn"
PREPARE_ABORT = 3


async def announced(client: Client) -> tuple[dict[str, int], int]:
    """Finalized levels, and their epoch."""
    answer = await client.ask(
        ApiKey.API_VERSIONS, 4, client_software_name="a", client_software_version="1"
    )
    levels = {f.name: f.max_version_level for f in answer.finalized_features}
    return levels, answer.finalized_features_epoch


async def update(client: Client, level: int, version: int = 2, **fields: Any) -> Any:
    options = {"upgrade_type": fields.pop("upgrade_type", 1)} if version else fields
    key = FeatureUpdateKey(feature=NAME, max_version_level=level, **options)
    more = fields if version else {}
    return await client.ask(ApiKey.UPDATE_FEATURES, version, feature_updates=(key,), **more)


async def level_of(context: Running) -> int | None:
    levels, _ = await announced(await context.connect())
    return levels.get(NAME)


async def test_a_new_cluster_offers_the_newest_transactions(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        assert await level_of(context) == 2


async def test_an_update_is_announced_under_a_higher_epoch_and_outlives_a_restart(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        _, before = await announced(client)
        answer = await update(client, 1, upgrade_type=SAFE_DOWNGRADE)
        assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
        levels, epoch = await announced(client)
        assert levels[NAME] == 1
        assert epoch > before
    async with running(tmp_path) as context:
        levels, later = await announced(await context.connect())
        assert levels[NAME] == 1
        assert later >= epoch


@pytest.mark.parametrize(("version", "is_told"), [(3, False), (4, True)])
async def test_a_level_0_is_supported_for_clients_that_know_of_it(
    tmp_path: Path, version: int, is_told: bool
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        answer = await client.ask(
            ApiKey.API_VERSIONS, version, client_software_name="a", client_software_version="1"
        )
        levels = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
        assert levels == ({NAME: (0, 2), "group.version": (0, 1)} if is_told else {})


async def test_a_feature_at_level_0_is_not_announced(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await update(client, 0, upgrade_type=SAFE_DOWNGRADE)
        assert await level_of(context) is None


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_refused_update_changes_nothing_and_says_why(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        answer = await update(client, 1, version)
        assert answer.error_code is ErrorCode.invalid_update_version
        assert "Can't downgrade" in answer.error_message
        assert answer.results == ()
        assert await level_of(context) == 2


async def test_up_to_version_1_a_success_lists_its_features(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        for version, names in ((0, [NAME]), (1, [NAME]), (2, [])):
            answer = await update(client, 2, version)
            assert answer.error_code is ErrorCode.none
            assert [result.feature for result in answer.results] == names


async def test_version_0_asks_for_a_downgrade_by_a_flag(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        answer = await update(await context.connect(), 1, 0, allow_downgrade=True)
        assert answer.error_code is ErrorCode.none
        assert await level_of(context) == 1


async def test_a_validation_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        answer = await update(client, 1, upgrade_type=SAFE_DOWNGRADE, validate_only=True)
        assert answer.error_code is ErrorCode.none
        assert await level_of(context) == 2


async def test_the_setting_finalizes_its_level_at_each_start(tmp_path: Path) -> None:
    async with running(tmp_path, {NAME: 1}) as context:
        assert await level_of(context) == 1
        await update(await context.connect(), 2)
        assert await level_of(context) == 2
    async with running(tmp_path, {NAME: 1}) as context:
        assert await level_of(context) == 1
    async with running(tmp_path) as context:
        assert await level_of(context) == 1


async def fenced_under(context: Running, level: int) -> int:
    """Fence an open transaction; returns the version under which the coordinator aborted it."""
    client = await context.connect()
    await update(client, level, upgrade_type=1 if level else SAFE_DOWNGRADE)
    given = await init_producer(client, ID, transaction_timeout_ms=60_000)
    await add_partition(client, ID, given.producer_id, given.producer_epoch)
    assert (
        await init_producer(client, ID, transaction_timeout_ms=60_000)
    ).error_code is ErrorCode.none
    records = context.broker.partitions.get(TRANSACTION_STATE_TOPIC, 0)
    assert records is not None
    raw = records.log.read(0, 2**20, upper_bound=records.log.log_end_offset)
    states = [decode_value(value) for value in values(raw) if value is not None]
    aborts = [state for state in states if state.status == PREPARE_ABORT]
    return aborts[-1].client_transaction_version


async def test_the_coordinator_aborts_by_the_level_that_is_finalized_then(tmp_path: Path) -> None:
    async with running(tmp_path, {"transaction.state.log.num.partitions": 1}) as context:
        controller = context.broker.controller
        await controller.create_topics([TopicToCreate("t")])
        await controller.internal_topic(TRANSACTION_STATE_TOPIC)
        assert [await fenced_under(context, level) for level in (0, 2)] == [0, 2]
