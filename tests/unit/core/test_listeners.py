"""Which listener of a Kafka file is the broker's own, and which are refused."""

from __future__ import annotations

import pytest

from oncelog.core.config import BrokerConfig, Endpoint
from oncelog.core.config_definition import ConfigError

LISTENERS = "PLAINTEXT://:9092,CONTROLLER://:9093"


def test_a_controllers_listener_is_left_out_and_named() -> None:
    config = BrokerConfig({"listeners": LISTENERS, "controller.listener.names": "CONTROLLER"})
    assert config.listener == Endpoint("", 9092)
    (sentence,) = config.warnings
    assert sentence.startswith("the listener CONTROLLER://:9093 is ignored")


def test_a_controllers_address_is_not_advertised() -> None:
    config = BrokerConfig(
        {
            "listeners": LISTENERS,
            "advertised.listeners": "PLAINTEXT://a:1,CONTROLLER://a:2",
            "controller.listener.names": "CONTROLLER",
        }
    )
    assert config.advertised_listener == Endpoint("a", 1)


def test_a_listener_may_have_a_name_of_its_own() -> None:
    given = {"listeners": "LAN://10.0.0.1:9092"}
    given["listener.security.protocol.map"] = "LAN:PLAINTEXT,WAN:SSL"
    assert BrokerConfig(given).listener == Endpoint("10.0.0.1", 9092)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"listeners": "LAN://:9092"}, "no security protocol is defined for the listener LAN"),
        (
            {"listeners": "LAN://:9092", "listener.security.protocol.map": "LAN:SSL"},
            "listeners other than PLAINTEXT need authentication",
        ),
        ({"listeners": "PLAINTEXT://:1,SSL://:2"}, "listeners other than PLAINTEXT"),
        (
            {"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"},
            "listeners has to name exactly one listener",
        ),
        ({"process.roles": "controller"}, "process.roles=controller starts no broker"),
        ({"process.roles": "brokre"}, "each entry must be one of: broker, controller"),
        ({"listener.security.protocol.map": "LAN"}, "expected NAME:PROTOCOL"),
    ],
)
def test_a_listener_that_cannot_be_served_is_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        BrokerConfig(given)


def test_the_brokers_among_themselves_use_the_one_listener() -> None:
    config = BrokerConfig({"inter.broker.listener.name": "PLAINTEXT"})
    assert not any("inter.broker.listener.name" in warning for warning in config.warnings)
    with pytest.raises(ConfigError, match="has to name the broker's listener"):
        BrokerConfig({"inter.broker.listener.name": "LAN"})
