"""Which levels a feature may be given, and the answer."""

import pytest

from oncelog.controller.features import (
    GROUP_VERSION,
    TRANSACTION_VERSION,
    FeatureUpdate,
    UpgradeType,
    all_levels,
    decide_update,
    demanded_updates,
)
from oncelog.core.errors import ErrorCode

UP, SAFE, UNSAFE = UpgradeType


def update(level: int, kind: int = UP, name: str = TRANSACTION_VERSION) -> FeatureUpdate:
    return FeatureUpdate(name, level, kind)


def test_a_feature_without_a_chosen_level_is_at_its_default() -> None:
    assert all_levels({})[TRANSACTION_VERSION] == 2
    assert all_levels({TRANSACTION_VERSION: 0})[TRANSACTION_VERSION] == 0


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
@pytest.mark.parametrize("level", [0, 1])
def test_a_level_falls_only_where_that_is_asked_for(level: int, kind: UpgradeType) -> None:
    assert decide_update({}, [update(level, kind)]).chosen == {TRANSACTION_VERSION: level}
    refused = decide_update({}, [update(level)])
    assert refused.error is ErrorCode.invalid_update_version
    assert refused.message is not None
    assert "Can't downgrade the version of this feature" in refused.message


def test_a_level_rises_by_an_upgrade_only() -> None:
    at_0 = {TRANSACTION_VERSION: 0}
    assert decide_update(at_0, [update(2)]).chosen == {TRANSACTION_VERSION: 2}
    refused = decide_update(at_0, [update(2, SAFE)])
    assert refused.message is not None
    assert "Can't downgrade to a newer version" in refused.message


@pytest.mark.parametrize("kind", [UP, SAFE, UNSAFE])
def test_the_level_that_is_there_already_is_taken(kind: UpgradeType) -> None:
    assert decide_update({}, [update(2, kind)]).error is ErrorCode.none


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (update(3), "only supports versions 0-2"),
        (update(-1, SAFE), "cannot be less than 0"),
        (update(1, 0), "does not support the given upgrade type"),
        (update(1, 9), "does not support the given upgrade type"),
        (update(1, name="metadata.version"), "does not support this feature"),
    ],
)
def test_one_wrong_update_refuses_all(wrong: FeatureUpdate, reason: str) -> None:
    before = {TRANSACTION_VERSION: 1}
    outcome = decide_update(before, [update(2), wrong])
    assert outcome.error is ErrorCode.invalid_update_version
    assert outcome.message is not None
    assert reason in outcome.message
    assert f"Invalid update version {wrong.level} for feature {wrong.name}" in outcome.message
    assert outcome.chosen == before


@pytest.mark.parametrize("chosen", [0, 1, 2])
@pytest.mark.parametrize("demanded", [0, 1, 2])
def test_a_setting_reaches_its_level_from_any_other(chosen: int, demanded: int) -> None:
    before = {TRANSACTION_VERSION: chosen}
    updates = demanded_updates(before, {TRANSACTION_VERSION: demanded})
    assert len(updates) == (chosen != demanded)
    assert decide_update(before, updates).chosen == {TRANSACTION_VERSION: demanded}


def test_a_setting_that_is_unset_demands_nothing() -> None:
    assert demanded_updates({TRANSACTION_VERSION: 0}, {}) == []


def test_every_feature_that_is_set_is_brought_to_its_level() -> None:
    levels = {TRANSACTION_VERSION: 1, GROUP_VERSION: 0}
    updates = demanded_updates({}, levels)
    assert {update.name: update.level for update in updates} == levels
