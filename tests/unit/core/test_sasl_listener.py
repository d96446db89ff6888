"""The configs of a listener with SASL: what is taken, and what is refused in one line."""

from __future__ import annotations

import pytest

from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.sasl_listener import BrokerLogin
from oncelog.core.secret import Secret

LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="x" user_b="y";'
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)
BASE = {
    "listeners": "PLAINTEXT://127.0.0.1:0,IN://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT",
}
PLAIN = {
    **BASE,
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.in.plain.sasl.jaas.config": LINE,
}
CLAIMS = {
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
    "sasl.oauthbearer.expected.audience": "brokers",
}
KEY = "sasl.mechanism.inter.broker.protocol"
BETWEEN = {**PLAIN, "inter.broker.listener.name": "IN", KEY: "PLAIN"}
SCRAM = {**BETWEEN, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512", KEY: "SCRAM-SHA-512"}


def test_a_listener_s_own_values_come_before_the_broker_s() -> None:
    config = BrokerConfig(
        {
            **PLAIN,
            "listener.name.in.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "connections.max.reauth.ms": "5",
            "listener.name.in.connections.max.reauth.ms": "6",
            "listener.name.in.plain.connections.max.reauth.ms": "7",
        }
    )
    found = config.sasl_listeners["IN"]
    assert config.sasl_listeners.keys() == {"IN"}
    assert found.mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert found.sessions_ms == {"PLAIN": 7, "SCRAM-SHA-512": 6}
    assert found.passwords == {"a": Secret("x"), "b": Secret("y")}
    assert "x" not in repr(found).replace("max", "")


def test_a_certificate_is_asked_of_users_of_sasl_only_for_their_listener() -> None:
    secure = {
        **PLAIN,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_SSL",
        "ssl.client.auth": "required",
    }
    config = BrokerConfig(secure)
    assert config.within("IN").get_str("ssl.client.auth") == "none"
    (warning,) = config.warnings
    assert warning.endswith("listener.name.in.ssl.client.auth would be")
    own = {"listener.name.in.ssl.client.auth": "requested"}
    config = BrokerConfig({**secure, **own})
    assert config.within("IN").get_str("ssl.client.auth") == "requested"
    assert not config.warnings


def test_who_a_broker_is_to_the_others_is_in_the_login_line_of_their_mechanism() -> None:
    line = LINE.replace("required", 'required username="a" password="x"')
    config = BrokerConfig({**BETWEEN, "listener.name.in.plain.sasl.jaas.config": line})
    assert config.broker_login == BrokerLogin("PLAIN", "a", Secret("x"))
    assert config.sasl_listeners["IN"].passwords == {"a": Secret("x"), "b": Secret("y")}
    line = 'my.ScramLoginModule required username="b" password="p\\"q";'
    config = BrokerConfig({**SCRAM, "listener.name.in.scram-sha-512.sasl.jaas.config": line})
    assert config.broker_login == BrokerLogin("SCRAM-SHA-512", "b", Secret('p"q'))
    assert 'p"q' not in repr(config.broker_login)
    assert BrokerConfig(PLAIN).broker_login is None


def test_unsecured_tokens_are_taken_only_when_they_are_named() -> None:
    handler = {"listener.name.in.oauthbearer.sasl.server.callback.handler.class": UNSECURED}
    bearer = {**BASE, "sasl.enabled.mechanisms": "OAUTHBEARER"}
    assert BrokerConfig({**bearer, **handler}).sasl_listeners["IN"].keys_file is None
    keys = {"sasl.oauthbearer.jwks.endpoint.url": "file:///etc/a%20b/jwks.json", **CLAIMS}
    assert BrokerConfig({**bearer, **keys}).sasl_listeners["IN"].keys_file == "/etc/a b/jwks.json"


def test_signed_tokens_of_any_issuer_or_for_anybody_are_taken_only_when_that_is_said() -> None:
    bearer = {**BASE, "sasl.enabled.mechanisms": "OAUTHBEARER"}
    bearer["sasl.oauthbearer.jwks.endpoint.url"] = "file:///keys"
    for claim in ("issuer", "audience"):
        given = {**bearer, **CLAIMS}
        del given[f"sasl.oauthbearer.expected.{claim}"]
        with pytest.raises(ConfigError) as raised:
            _ = BrokerConfig(given).sasl_listeners
        assert f"set sasl.oauthbearer.expected.{claim}, or" in str(raised.value)
        given[f"sasl.oauthbearer.allow.unverified.{claim}"] = "true"
        assert BrokerConfig(given).sasl_listeners["IN"].keys_file == "/keys"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (BASE, "sasl.enabled.mechanisms has to name mechanisms for listener.name.in"),
        ({**PLAIN, "sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI is none of PLAIN"),
        ({**BASE, "sasl.enabled.mechanisms": "PLAIN"}, "has to name the users of PLAIN"),
        (
            {**PLAIN, "listener.name.in.plain.sasl.jaas.config": LINE.replace("user_", "")},
            "has to name the users of PLAIN",
        ),
        (
            {**PLAIN, "listener.name.in.plain.sasl.jaas.config": "hush"},
            "listener.name.in.plain.sasl.jaas.config: sasl.jaas.config must be like",
        ),
        ({**BASE, "sasl.enabled.mechanisms": "OAUTHBEARER"}, "OAUTHBEARER needs"),
        (
            {
                **BASE,
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "https://example/jwks",
            },
            "only file:///path/of/a/file is",
        ),
        (
            {
                **BASE,
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.in.oauthbearer.sasl.server.callback.handler.class": "my.Handler",
            },
            "a Java class cannot be loaded",
        ),
        (
            {**PLAIN, "inter.broker.listener.name": "IN"},
            "sasl.mechanism.inter.broker.protocol has to name how brokers log in at each other's "
            "listener.name.in: one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; or name a listener",
        ),
        ({**BETWEEN, KEY: "OAUTHBEARER"}, "OAUTHBEARER is not supported: it is none of PLAIN"),
        ({**BETWEEN, KEY: "SCRAM-SHA-256"}, "must be included in sasl.enabled.mechanisms when"),
        (BETWEEN, "plain.sasl.jaas.config has to name the user that this broker is to the others"),
        (
            {**SCRAM, "listener.name.in.scram-sha-512.sasl.jaas.config": LINE},
            "sasl.jaas.config names PlainLoginModule, which is not for SCRAM-SHA-512",
        ),
        (SCRAM, "listener.name.in.scram-sha-512.sasl.jaas.config has to name the user that"),
        (
            {**PLAIN, f"listener.name.in.{KEY}": "PLAIN"},
            "it holds for the broker as a whole",
        ),
        ({**PLAIN, "listener.name.in.plain.sasl.kerberos.x": "y"}, "is not supported"),
    ],
)
def test_what_cannot_be_served_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(given)
    assert text in str(caught.value)
    assert "hush" not in str(caught.value)
