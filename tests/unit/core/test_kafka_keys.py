"""Keys of Apache Kafka's that Oncelog does not have: passed over, or refused with the reason."""

from __future__ import annotations

import pytest

from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.config_keys import BROKER_KEYS
from oncelog.core.kafka_keys import PASSED_OVER
from tests.support.stock_files import STOCK_FILES


@pytest.mark.parametrize("release", STOCK_FILES)
def test_the_stock_file_of_a_release_is_taken(release: str) -> None:
    given = STOCK_FILES[release]
    config = BrokerConfig(given)
    assert config.listeners[0].bound.port == 9092
    assert config.get_int("node.id") == int(given.get("node.id", given.get("broker.id", "")))
    (summary,) = [w for w in config.warnings if "have no effect on this broker" in w]
    assert "num.io.threads" in summary
    assert len(config.warnings) <= 3


def test_settings_of_zookeeper_are_taken_and_some_passed_over() -> None:
    given = {"zookeeper.ssl.client.enable": "false", "zookeeper.ssl.protocol": "TLSv1.2"}
    config = BrokerConfig({"zookeeper.connect": "zk:2181/a", **given})
    assert config.get_str("zookeeper.connect") == "zk:2181/a"
    assert config.get_int("zookeeper.session.timeout.ms") == 18_000
    assert config.warnings == [
        "1 setting has no effect on this broker: zookeeper.ssl.protocol",
    ]


@pytest.mark.parametrize("key", ["zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"])
def test_what_would_secure_zookeeper_and_is_not_there_is_refused(key: str) -> None:
    """Passed over, an operator would believe it done."""
    with pytest.raises(ConfigError, match=f"{key} is not supported"):
        BrokerConfig({"zookeeper.connect": "zk:2181/a", key: "true"})


def test_a_class_of_javas_client_of_zookeeper_is_explained() -> None:
    name = "org.apache.zookeeper.ClientCnxnSocketNetty"
    config = BrokerConfig({"zookeeper.clientCnxnSocket": name})
    (said,) = config.warnings
    assert "zookeeper.ssl.client.enable alone decides" in said


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(
            {
                "num.partitons": "3",
                "sasl.kerberos.x": "PLAIN",
                "num.partitions": "0",
                "retention.ms": "1",
                "process.roles": "controller",
            }
        )
    assert [problem.split(" ")[0] for problem in caught.value.problems] == [
        "num.partitons",
        "sasl.kerberos.x",
        "Invalid",
        "retention.ms",
        "process.roles=controller",
    ]


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (
            "num.partitons",
            "3",
            "num.partitons is not a known configuration key: did you mean num.partitions?",
        ),
        ("zzz", "3", "zzz is not a known configuration key"),
        (
            "sasl.kerberos.x",
            "y",
            "sasl.kerberos.x is not supported: the broker has no Kerberos and no delegation tokens",
        ),
        ("remote.log.storage.system.enable", "true", "there is no tiered storage"),
        ("create.topic.policy.class.name", "com.x.Policy", "a Java class cannot be loaded"),
        (
            "log.message.timestamp.difference.max.ms",
            "5",
            "Kafka 4 replaced it by log.message.timestamp.before.max.ms",
        ),
        ("confluent.balancer.enable", "true", "a key of Confluent's distribution"),
    ],
)
def test_what_would_change_a_promise_is_refused_with_the_reason(
    key: str, value: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({key: value})
    (problem,) = caught.value.problems
    assert sentence in problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authorizer.class.name", ""),
        ("transaction.two.phase.commit.enable", "false"),
        ("remote.log.storage.system.enable", "false"),
        ("max.connections.per.ip.overrides", ""),
    ],
)
def test_to_ask_for_what_is_so_anyway_is_no_error(key: str, value: str) -> None:
    assert BrokerConfig({key: value}).warnings == []


def test_secrets_among_what_is_passed_over_are_secret() -> None:
    assert BROKER_KEYS["zookeeper.ssl.keystore.password"].type.name == "PASSWORD"
    assert BROKER_KEYS["password.encoder.secret"].type.name == "PASSWORD"
    assert BROKER_KEYS["zookeeper.connect"].type.name == "STRING"


def test_no_key_is_both_passed_over_and_known() -> None:
    assert all(BROKER_KEYS[name].support.value == "has no effect" for name in PASSED_OVER)
