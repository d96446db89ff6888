"""Which listener of a Kafka file is the broker's own, and which are refused."""

from __future__ import annotations

import pytest

from oncelog.core.config import BrokerConfig, Endpoint
from oncelog.core.config_definition import ConfigError

LISTENERS = "PLAINTEXT://:9092,CONTROLLER://:9093"


def test_a_controllers_listener_is_left_out_and_named() -> None:
    config = BrokerConfig({"listeners": LISTENERS, "controller.listener.names": "CONTROLLER"})
    assert config.listeners[0].bound == Endpoint("", 9092)
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
    assert config.listeners[0].advertised == Endpoint("a", 1)


def test_a_listener_may_have_a_name_of_its_own() -> None:
    given = {"listeners": "LAN://10.0.0.1:9092"}
    given["listener.security.protocol.map"] = "LAN:PLAINTEXT,WAN:SSL"
    assert BrokerConfig(given).listeners[0].bound == Endpoint("10.0.0.1", 9092)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"listeners": "LAN://:9092"}, "no security protocol is defined for the listener LAN"),
        (
            {"listeners": "LAN://:9092", "listener.security.protocol.map": "LAN:KERBEROS"},
            "the protocol of a listener is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({"listeners": "PLAINTEXT://:1,SASL_SSL://:2"}, "sasl.enabled.mechanisms has to name"),
        (
            {"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"},
            "listeners has to name at least one listener",
        ),
        ({"process.roles": "controller"}, "process.roles=controller starts no broker"),
        ({"process.roles": "brokre"}, "each entry must be one of: broker, controller"),
        ({"listener.security.protocol.map": "LAN"}, "expected NAME:PROTOCOL"),
    ],
)
def test_a_listener_that_cannot_be_served_is_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        BrokerConfig(given)


TWO = {
    "listeners": "INTERNAL://10.0.0.1:9092,EXTERNAL://:9093",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


def test_several_listeners_have_names_and_addresses_of_their_own() -> None:
    told = "EXTERNAL://kafka.example:19093,INTERNAL://broker1:9092"
    config = BrokerConfig({**TWO, "advertised.listeners": told})
    internal, external = config.listeners
    assert (internal.name, internal.bound) == ("INTERNAL", Endpoint("10.0.0.1", 9092))
    assert (external.name, external.advertised) == ("EXTERNAL", Endpoint("kafka.example", 19093))
    assert config.inter_broker_listener == "INTERNAL"
    assert not config.warnings


def test_a_listener_that_is_left_out_is_not_advertised() -> None:
    config = BrokerConfig({**TWO, "advertised.listeners": "INTERNAL://broker1:9092"})
    assert [each.is_advertised for each in config.listeners] == [True, False]


def test_one_listener_may_have_a_limit_of_its_own() -> None:
    config = BrokerConfig({**TWO, "listener.name.external.max.connections": "7"})
    assert config.of_listener("EXTERNAL") == {"max.connections": 7}
    assert config.of_listener("INTERNAL") == {}


def test_a_key_of_a_controllers_listener_has_no_effect() -> None:
    given = {"listeners": LISTENERS, "controller.listener.names": "CONTROLLER"}
    config = BrokerConfig({**given, "listener.name.controller.ssl.client.auth": "required"})
    assert config.of_listener("CONTROLLER") == {}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"listeners": "INTERNAL://:1,INTERNAL://:2"}, "Each listener must have a different name"),
        ({"listeners": "INTERNAL://:1,EXTERNAL://:1"}, "Each listener must have a different port,"),
        (
            {"listeners": "INTERNAL://a:1,EXTERNAL://127.0.0.1:1"},
            "Each listener must have a different port unless exactly one listener has an IPv4",
        ),
        (
            {"listeners": "INTERNAL://127.0.0.1:1,EXTERNAL://127.0.0.2:1"},
            "If you have two listeners on the same port then one needs to be IPv4 and the other",
        ),
        (
            {"advertised.listeners": "INTERNAL://a:1,OTHER://a:2"},
            "no security protocol is defined for the listener OTHER",
        ),
        (
            {
                "listeners": "INTERNAL://:1",
                "advertised.listeners": "INTERNAL://a:1,EXTERNAL://a:2",
            },
            "must be equal to or a subset of the ones defined in listeners. Found INTERNAL,EXT",
        ),
        ({"advertised.listeners": "INTERNAL://0.0.0.0:1"}, "nonroutable meta-address 0.0.0.0"),
        ({"advertised.listeners": "EXTERNAL://a:1"}, "must be a listener name defined in adv"),
        (
            {"security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol",
        ),
        ({"inter.broker.listener.name": ""}, "The valid options .* are INTERNAL,EXTERNAL"),
        (
            {"listener.name.lan.max.connections": "1"},
            "names no listener of this broker: listener.name.internal., listener.name.external.",
        ),
        (
            {"listener.name.internal.num.partitions": "1"},
            "listener.name.internal.num.partitions is not supported: it holds for the broker",
        ),
        (
            {"listener.name.internal.sasl.kerberos.service.name": "k"},
            "listener.name.internal.sasl.kerberos.service.name is not supported: the broker has no",
        ),
        ({"listener.name.internal.x": "1"}, "there is no such key"),
        (
            {"listener.name.internal.max.connections": "-1"},
            "listener.name.internal: Invalid value -1 for configuration max.connections",
        ),
    ],
)
def test_listeners_that_do_not_fit_each_other_are_refused(
    given: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        BrokerConfig({**TWO, **given})


def test_an_ipv4_and_an_ipv6_address_may_share_a_port() -> None:
    config = BrokerConfig({**TWO, "listeners": "INTERNAL://127.0.0.1:9092,EXTERNAL://[::1]:9092"})
    assert [str(each.bound) for each in config.listeners] == ["127.0.0.1:9092", "[::1]:9092"]


def test_the_brokers_among_themselves_use_the_only_listener() -> None:
    alone = {**TWO, "listeners": "EXTERNAL://:9093", "inter.broker.listener.name": ""}
    assert BrokerConfig(alone).inter_broker_listener == "EXTERNAL"
    by_protocol = {"security.inter.broker.protocol": "PLAINTEXT"}
    assert BrokerConfig(by_protocol).inter_broker_listener == "PLAINTEXT"
    with pytest.raises(ConfigError, match="must be a listener name"):
        BrokerConfig({"inter.broker.listener.name": "LAN"})


def test_one_listener_has_its_own_certificate_and_the_rest_of_the_brokers() -> None:
    given = {"listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:SSL"}
    given |= {"ssl.client.auth": "required", "ssl.keystore.location": "/all.pem"}
    config = BrokerConfig({**TWO, **given, "listener.name.external.ssl.client.auth": "none"})
    external = config.within("EXTERNAL")
    assert external.get_str("ssl.client.auth") == "none"
    assert external.get_str("ssl.keystore.location") == "/all.pem"
    assert config.get_str("ssl.client.auth") == "required"
    assert not config.warnings


def test_settings_of_tls_without_a_listener_that_has_it_are_named() -> None:
    config = BrokerConfig({"ssl.keystore.location": "/k"})
    assert config.warnings == ["ssl.keystore.location has no effect: no listener has TLS"]
