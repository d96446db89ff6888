"""Kafka's names beside our keywords."""

import pickle
from typing import Any

import pytest

from oncelog.client import Admin, Consumer, Producer, TransactionDriver
from oncelog.client.settings import Role, Security, client_options, hide_secrets
from oncelog.core.config_definition import ConfigError
from oncelog.core.secret import HIDDEN, Secret
from oncelog.peer.sasl.settings import Sasl

PASSWORD = "geheimes-wort"
SCRAM: dict[str, Any] = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "u",
    "sasl.password": PASSWORD,
}


def test_names_become_keywords_with_or_without_sparks_prefix() -> None:
    given = {"kafka.linger.ms": "5", "batch.size": 100, "acks": "all", "compression_type": "zstd"}
    assert client_options(Role.PRODUCER, given) == {
        "linger_ms": 5,
        "batch_size": 100,
        "acks": "all",
        "compression_type": "zstd",
    }


def test_what_is_another_clients_is_passed_over() -> None:
    given = {"linger.ms": 5, "isolation.level": "read_committed", "client.id": "me"}
    assert client_options(Role.ADMIN, given) == {"client_id": "me"}


def test_what_has_no_effect_here_is_passed_over() -> None:
    assert client_options(Role.CONSUMER, {"fetch.min.bytes": "1", "retries": 3}) == {}
    assert client_options(Role.PRODUCER, {"retries": "3"}) == {"retries": 3}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"security.protocl": "SSL"}, "did you mean security.protocol?"),
        ({"kafka.sasl.mechanizm": "PLAIN"}, "did you mean sasl.mechanism?"),
        ({"no.such.thing.at.all": 1}, "not a known setting"),
        ({"linger.ms": "soon"}, "linger.ms 'soon' must be a whole number"),
        ({"linger.ms": "-1"}, "must be a whole number"),
        ({"check.crcs": "yes"}, "check.crcs 'yes' must be true or false"),
        ({"enable.idempotence": "yes"}, "must be true or false"),
        ({"compression.type": "rar"}, "must be one of none"),
        ({"linger.ms": 1, "linger_ms": 2}, "linger.ms is given twice"),
        ({"linger.ms": 1, "kafka.linger.ms": 2}, "linger.ms is given twice"),
        ({"interceptor.classes": "x.Y"}, "classes of Java cannot be loaded"),
        ({"sasl.client.callback.handler.class": "x.Y"}, "token.provider"),
        ({"sasl.kerberos.kinit.cmd": "x"}, "GSSAPI"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(given: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as raised:
        client_options(Role.PRODUCER, given)
    assert what in str(raised.value)
    assert len(str(raised.value)) < 1000


def test_security_is_one_keyword() -> None:
    options = client_options(Role.ADMIN, SCRAM)
    sasl = Sasl("SCRAM-SHA-256", "u", Secret(PASSWORD))
    assert options == {"security": Security(sasl=sasl)}


async def test_every_client_takes_them() -> None:
    for made in (
        Producer("h:1", linger_ms=5, **{**SCRAM, "batch.size": "7"}),
        Producer(**{**SCRAM, "bootstrap.servers": "h:1"}),
        Producer.attach("h:1", "t", 1, 1, **SCRAM),
        Consumer("h:1", **{**SCRAM, "kafka.group.id": "g"}),
        Admin("h:1", **SCRAM),
        TransactionDriver("h:1", "t", **SCRAM),
    ):
        assert made._cluster._connector._security.sasl is not None
        await made.close()


def test_an_address_is_given_once() -> None:
    options: dict[str, Any] = {"bootstrap.servers": "h:1"}
    with pytest.raises(ConfigError, match="twice"):
        Producer("h:1", **options)


def test_secrets_are_not_shown_and_can_be_pickled() -> None:
    jaas = f'x.PlainLoginModule required username="u" password="{PASSWORD}";'
    given = {**SCRAM, "kafka.sasl.jaas.config": jaas, "my.unknown.secret": PASSWORD, "acks": "all"}
    hidden = hide_secrets(given)
    for text in (repr(hidden), str(hidden), f"{hidden}", repr(client_options(Role.ADMIN, SCRAM))):
        assert PASSWORD not in text
        assert HIDDEN in text
    again = pickle.loads(pickle.dumps(hidden))
    assert again == hidden
    assert again["sasl.password"].value == PASSWORD
    assert hidden["acks"] == "all"
    hidden_scram = hide_secrets(SCRAM)
    assert client_options(Role.ADMIN, hidden_scram) == client_options(Role.ADMIN, SCRAM)
    assert hide_secrets(hidden_scram) == hidden_scram
