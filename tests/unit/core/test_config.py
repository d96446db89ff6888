"""Values, synonyms and the sentences that refuse a setting."""

from __future__ import annotations

import pytest

from oncelog.core.config import (
    BrokerConfig,
    ConfigSource,
    Endpoint,
    check_topic_overrides,
    parse_listener,
    topic_warnings,
)
from oncelog.core.config_definition import ConfigError, format_value
from oncelog.core.config_keys import TOPIC_KEYS
from oncelog.core.unread_keys import UNREAD_BROKER_KEYS

HOUR_MS = 60 * 60 * 1000


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("foo.bar", "1", "foo.bar is not a known configuration key"),
        ("ssl.keystore.type", "JKS", "only PEM is read; convert the store: keytool"),
        ("retention.ms", "1", "is a topic's key: the broker's default for it is log.retention.ms"),
        ("num.partitions", "many", "num.partitions: not a number of type INT"),
        ("num.partitions", "0", "num.partitions: Value must be at least 1"),
        ("num.partitions", str(2**31), "outside the range of INT"),
        ("auto.create.topics.enable", "yes", "expected true or false"),
        ("log.cleanup.policy", "shred", "each entry must be one of: compact, delete"),
        ("listeners", "SASL_SSL://:9093", "sasl.enabled.mechanisms has to name mechanisms"),
        ("listeners", "PLAINTEXT://host", "expected HOST:PORT"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2", "must have a different name"),
        ("log.dirs", "/a,/b,/a", "log.dirs names a folder more than once"),
        ("log.dirs", "/a,,/b", "at least one folder"),
        ("log.dir", "", "at least one folder"),
    ],
)
def test_what_cannot_be_accepted_is_refused_in_one_sentence(
    key: str, value: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({key: value})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_knob_without_effect_is_named_and_passed_over() -> None:
    config = BrokerConfig({"num.io.threads": "8"})
    assert config.warnings == ["1 setting has no effect on this broker: num.io.threads"]
    assert not BrokerConfig().warnings


def test_what_is_still_to_be_built_is_named_too() -> None:
    for key in UNREAD_BROKER_KEYS:
        config = BrokerConfig({key: format_value(BrokerConfig().get(key)) or ""})
        assert config.warnings == [f"{key} has no effect yet"]
    key = "unclean.leader.election.enable"
    overrides = {"cleanup.policy": "compact", key: "true", "retention.ms": "1"}
    assert topic_warnings(overrides) == []


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        (
            {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"},
            4,
        ),
        ({"log.retention.hours": "2", "log.retention.ms": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
    ],
)
def test_retention_is_found_as_in_kafka(given: dict[str, str], expected_ms: int) -> None:
    config = BrokerConfig(given)
    assert config.topic_value({}, "retention.ms") == expected_ms
    assert config.topic_value({"retention.ms": "9"}, "retention.ms") == 9
    assert not config.warnings


@pytest.mark.parametrize(
    ("given", "segment_ms", "jitter_ms"),
    [
        ({}, 168 * HOUR_MS, 0),
        ({"log.roll.hours": "1", "log.roll.jitter.hours": "2"}, HOUR_MS, 2 * HOUR_MS),
        (
            {
                "log.roll.hours": "1",
                "log.roll.ms": "7",
                "log.roll.jitter.hours": "2",
                "log.roll.jitter.ms": "8",
            },
            7,
            8,
        ),
    ],
)
def test_rolling_is_found_as_in_kafka(
    given: dict[str, str], segment_ms: int, jitter_ms: int
) -> None:
    config = BrokerConfig(given)
    assert config.topic_value({}, "segment.ms") == segment_ms
    assert config.topic_value({}, "segment.jitter.ms") == jitter_ms
    assert not config.warnings


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited (-1) or"),
        ({"log.retention.minutes": "0"}, "log.retention.ms must be unlimited (-1) or"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater than or equal to 0"),
        ({"log.preallocate": "true"}, "log.preallocate: only false is supported"),
    ],
)
def test_times_are_checked_as_in_kafka(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(given)
    assert sentence in str(caught.value)


def test_preallocation_is_refused_for_a_topic_too() -> None:
    with pytest.raises(ConfigError, match="only false is supported"):
        check_topic_overrides({"preallocate": "true"})
    assert not topic_warnings({"preallocate": "false", "segment.jitter.ms": "1"})


def test_records_may_not_have_to_be_compacted_before_they_may_be() -> None:
    check_topic_overrides({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms \(4\) < min"):
        check_topic_overrides({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (10485760.0, "1.048576E7"),
        (1e8, "1.0E8"),
        (0.0001, "1.0E-4"),
        (0.0, "0.0"),
    ],
)
def test_a_double_is_shown_as_java_shows_it(value: float, text: str) -> None:
    assert format_value(value) == text


def test_a_topic_takes_its_own_value_then_the_best_synonym_in_its_own_unit() -> None:
    assert BrokerConfig().topic_value({}, "retention.ms") == 7 * 24 * 3600 * 1000
    minutes = BrokerConfig({"log.retention.minutes": "5", "log.retention.hours": "1"})
    assert minutes.topic_value({}, "retention.ms") == 300_000
    assert minutes.topic_value({"retention.ms": "7"}, "retention.ms") == 7
    assert BrokerConfig({"log.retention.hours": "-1"}).topic_value({}, "retention.ms") == -1
    names = [
        (synonym.name, synonym.value, synonym.source)
        for synonym in minutes.topic_synonyms({"retention.ms": "7"}, "retention.ms")
    ]
    assert names == [
        ("retention.ms", "7", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.minutes", "5", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]


@pytest.mark.parametrize("name", TOPIC_KEYS)
def test_a_synonym_of_a_topics_key_is_shown_as_the_broker_shows_that_key(name: str) -> None:
    config = BrokerConfig({"log.roll.hours": "2", "log.retention.minutes": "-1"})
    for synonym in config.topic_synonyms({}, name):
        assert synonym in config.broker_synonyms(synonym.name)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://:9092", Endpoint("", 9092)),
        ("PLAINTEXT://127.0.0.1:0", Endpoint("127.0.0.1", 0)),
        ("localhost:1", Endpoint("localhost", 1)),
        ("plaintext://[::1]:9092", Endpoint("::1", 9092)),
    ],
)
def test_listeners_are_read_as_kafka_writes_them(text: str, endpoint: Endpoint) -> None:
    assert parse_listener("listeners", text) == endpoint


def test_an_empty_cleanup_policy_is_a_policy_of_its_own() -> None:
    check_topic_overrides({"cleanup.policy": ""})
    config = BrokerConfig({"log.cleanup.policy": ""})
    assert config.topic_value({}, "cleanup.policy") == ()
    assert config.topic_value({"cleanup.policy": "delete"}, "cleanup.policy") == ("delete",)
    assert BrokerConfig().topic_value({"cleanup.policy": ""}, "cleanup.policy") == ()
    for text in (",", "delete,", "delete,shred"):
        with pytest.raises(ConfigError, match="each entry must be one of: compact, delete"):
            check_topic_overrides({"cleanup.policy": text})


def test_the_older_name_of_the_node_id_still_counts() -> None:
    assert BrokerConfig({"broker.id": "4"}).get_int("node.id") == 4
    assert BrokerConfig({"broker.id": "4", "node.id": "5"}).get_int("node.id") == 5


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"retention.ms": "x"}, "retention.ms"),
        ({"color": "red"}, "Unknown topic config name: color"),
        ({"remote.storage.enable": "true"}, "does not support"),
        ({"retention.ms": None}, "Null value not supported"),
        ({"segment.bytes": "1024"}, "at least 1048576"),
    ],
)
def test_a_topic_is_not_created_with_settings_we_would_not_honour(
    overrides: dict[str, str | None], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_topic_overrides(overrides)
    assert sentence in str(caught.value)


def test_settings_of_consumer_groups_lie_within_their_own_limits() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({"group.consumer.session.timeout.ms": "1000"})
    assert "group.consumer.min.session.timeout.ms (45000)" in str(caught.value)
    lower = {"group.consumer.min.session.timeout.ms": "500"}
    config = BrokerConfig({**lower, "group.consumer.session.timeout.ms": "1000"})
    assert config.get_int("group.consumer.session.timeout.ms") == 1000


def test_a_migration_policy_is_taken_in_any_case_of_letters() -> None:
    for policy in ("Bidirectional", "UPGRADE", "downgrade", "disabled"):
        BrokerConfig({"group.consumer.migration.policy": policy})
    with pytest.raises(ConfigError):
        BrokerConfig({"group.consumer.migration.policy": "sideways"})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"replica.fetch.wait.max.ms": "40000"}, "at most replica.lag.time.max.ms"),
        ({"replica.socket.timeout.ms": "400"}, "at most replica.socket.timeout.ms"),
        ({"replica.selector.class": "com.x.Selector"}, "RackAwareReplicaSelector"),
        ({"leader.imbalance.check.interval.seconds": "0"}, "at least 1"),
        ({"replica.fetch.backoff.ms": "-1"}, "at least 0"),
    ],
)
def test_settings_of_replication_are_checked_as_in_kafka(
    given: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        BrokerConfig(given)


def test_an_unset_selector_reads_from_the_leader() -> None:
    assert BrokerConfig({"replica.selector.class": ""}).get_str("replica.selector.class") == ""
