"""Settings of one group: Kafka's names, limits and messages."""

import pytest

from oncelog.core.config import BrokerConfig, ConfigSource
from oncelog.core.config_definition import ConfigError
from oncelog.core.group_keys import (
    GROUP_KEYS,
    check_group_overrides,
    group_interval_ms,
    group_synonyms,
    group_value,
    group_warnings,
)

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
OFFLOAD = "consumer.assignor.offload.enable"
BROKER = BrokerConfig()


def test_the_keys_are_those_of_consumer_groups_in_kafka() -> None:
    assert set(GROUP_KEYS) == {SESSION, HEARTBEAT, ASSIGNMENT, OFFLOAD}


def test_a_group_without_settings_has_the_brokers() -> None:
    broker = BrokerConfig({f"group.{SESSION}": "50000"})
    assert group_value(broker, {}, SESSION) == 50_000
    assert group_value(broker, {SESSION: "46000"}, SESSION) == 46_000


def test_the_sources_of_a_value_are_named_best_first() -> None:
    broker = BrokerConfig({f"group.{SESSION}": "50000"})
    sources = [(each.name, each.value, each.source) for each in group_synonyms(broker, {}, SESSION)]
    assert sources == [
        (f"group.{SESSION}", "50000", ConfigSource.STATIC_BROKER),
        (f"group.{SESSION}", "45000", ConfigSource.DEFAULT),
    ]
    own = group_synonyms(broker, {SESSION: " 46000 "}, SESSION)[0]
    assert own == (SESSION, "46000", ConfigSource.GROUP)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({HEARTBEAT: "4999"}, f"{HEARTBEAT} must be in the range 5000 to 15000 inclusive."),
        ({HEARTBEAT: "15001"}, f"{HEARTBEAT} must be in the range 5000 to 15000 inclusive."),
        ({SESSION: "44999"}, f"{SESSION} must be in the range 45000 to 60000 inclusive."),
        ({SESSION: "60001"}, f"{SESSION} must be in the range 45000 to 60000 inclusive."),
        ({ASSIGNMENT: "15001"}, f"{ASSIGNMENT} must be in the range 0 to 15000 inclusive."),
        ({ASSIGNMENT: "-1"}, f"Invalid value -1 for configuration {ASSIGNMENT}"),
        ({SESSION: "soon"}, f"Invalid value soon for configuration {SESSION}"),
        ({OFFLOAD: "maybe"}, f"Invalid value maybe for configuration {OFFLOAD}"),
        ({"no.such": "1"}, "Unknown group config name: no.such"),
        ({"share.session.timeout.ms": "1"}, "share.session.timeout.ms is a key of share groups"),
        ({"errors.deadletterqueue.topic.name": "t"}, "is a key of share groups, which Oncelog"),
        ({"streams.num.standby.replicas": "1"}, "is a key of streams groups, which Oncelog"),
    ],
)
def test_what_kafka_refuses_is_refused_in_its_words(
    overrides: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem.replace(".", r"\.")):
        check_group_overrides(BROKER, overrides)


def test_a_session_is_longer_than_a_heartbeat_interval() -> None:
    broker = BrokerConfig({"group.consumer.min.session.timeout.ms": "1"})
    check_group_overrides(broker, {SESSION: "5001"})
    with pytest.raises(ConfigError, match=f"{SESSION} must be greater than {HEARTBEAT}"):
        check_group_overrides(broker, {SESSION: "5000"})
    with pytest.raises(ConfigError, match="must be greater than"):
        check_group_overrides(broker, {SESSION: "9000", HEARTBEAT: "9000"})


def test_what_is_within_the_limits_is_accepted() -> None:
    accepted = {SESSION: "60000", HEARTBEAT: "15000", ASSIGNMENT: "0", OFFLOAD: "true"}
    check_group_overrides(BROKER, accepted)


def test_a_broker_with_narrower_limits_moves_a_setting_into_them_and_says_so() -> None:
    narrow = BrokerConfig({"group.consumer.max.session.timeout.ms": "50000"})
    overrides = {SESSION: "60000", HEARTBEAT: "6000"}
    assert group_interval_ms(narrow, overrides, SESSION) == 50_000
    assert group_interval_ms(narrow, overrides, HEARTBEAT) == 6_000
    assert group_warnings(narrow, overrides) == [
        f"{SESSION}=60000 is outside the broker's limits: 50000 is used"
    ]
    low = BrokerConfig({"group.consumer.min.heartbeat.interval.ms": "5000"})
    assert group_interval_ms(low, {HEARTBEAT: "1000"}, HEARTBEAT) == 5_000


def test_a_setting_without_effect_is_named() -> None:
    assert group_warnings(BROKER, {OFFLOAD: "true"}) == [f"{OFFLOAD} has no effect"]
