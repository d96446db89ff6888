"""Updates of features against brokers that know less than ours."""

import pytest

from oncelog.client import Admin, FatalError
from oncelog.client.feature_admin import FeatureChange
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import update_features as schema
from tests.unit.client.scripted_broker import ScriptedBroker

NAME = "transaction.version"


def old_broker() -> ScriptedBroker:
    """One that speaks UpdateFeatures v0 only."""
    broker = ScriptedBroker()
    broker.newest[ApiKey.UPDATE_FEATURES] = 0
    return broker


@pytest.mark.parametrize(("change", "dry_run"), [("upgrade", True), ("unsafe downgrade", False)])
async def test_what_an_old_broker_would_not_see_is_not_sent(
    change: FeatureChange, dry_run: bool
) -> None:
    broker = old_broker()
    async with Admin("b:1", **broker.options()) as admin:
        with pytest.raises(FatalError) as caught:
            await admin.update_features({NAME: 1}, change, dry_run=dry_run)
    assert caught.value.code is ErrorCode.unsupported_version
    assert ApiKey.UPDATE_FEATURES not in broker.apis()


async def test_the_error_of_one_feature_is_raised() -> None:
    broker = old_broker()
    refused = schema.UpdatableFeatureResult(
        feature=NAME, error_code=ErrorCode.invalid_update_version, error_message="too new"
    )
    broker.on(ApiKey.UPDATE_FEATURES, schema.UpdateFeaturesResponse(results=(refused,)))
    async with Admin("b:1", **broker.options()) as admin:
        with pytest.raises(FatalError, match=f"{NAME}: too new") as caught:
            await admin.update_features({NAME: 9})
    assert caught.value.code is ErrorCode.invalid_update_version


async def test_a_downgrade_is_told_in_the_words_of_each_version() -> None:
    broker = old_broker()
    broker.on(ApiKey.UPDATE_FEATURES, schema.UpdateFeaturesResponse())
    async with Admin("b:1", **broker.options()) as admin:
        await admin.update_features({NAME: 1}, "downgrade")
    ((_, version, request),) = [s for s in broker.seen if s[0] is ApiKey.UPDATE_FEATURES]
    assert version == 0
    assert request.feature_updates[0].allow_downgrade
