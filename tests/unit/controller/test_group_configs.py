"""What becomes of a group's settings."""

import pytest

from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.group_configs import decide_group_changes, decide_group_replacement
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import CONFIG_VALUE_LENGTH_MAX

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
BROKER = BrokerConfig()
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def test_settings_are_set_and_deleted_together() -> None:
    changes = [ConfigChange(SESSION, SET, "50000"), ConfigChange(HEARTBEAT, DELETE, None)]
    outcome = decide_group_changes(BROKER, "g", {HEARTBEAT: "6000"}, changes)
    assert (outcome.error, outcome.config) == (ErrorCode.none, {SESSION: "50000"})


def test_one_bad_setting_keeps_all_as_they_are() -> None:
    changes = [ConfigChange(SESSION, SET, "50000"), ConfigChange("no.such", SET, "1")]
    outcome = decide_group_changes(BROKER, "g", {}, changes)
    assert (outcome.error, outcome.message) == (
        ErrorCode.invalid_config,
        "Unknown group config name: no.such",
    )
    assert outcome.config == {}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_no_setting_of_a_group_is_a_list(operation: ConfigOperation) -> None:
    outcome = decide_group_changes(BROKER, "g", {}, [ConfigChange(SESSION, operation, "1")])
    assert outcome.error is ErrorCode.invalid_config
    assert outcome.message == (
        f"Can't {operation.name} to key {SESSION} because its type is not LIST."
    )


def test_a_group_needs_a_name_and_values_a_length() -> None:
    nameless = decide_group_replacement(BROKER, "", {})
    assert nameless.error is ErrorCode.invalid_request
    assert nameless.message == "Default group resources are not allowed."
    long = decide_group_replacement(BROKER, "g", {SESSION: "1" * (CONFIG_VALUE_LENGTH_MAX + 1)})
    assert long.error is ErrorCode.invalid_config
