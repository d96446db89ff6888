"""The settings of the authorizer."""

from __future__ import annotations

import pytest

from oncelog.core.acl import AuthorizerConfig
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.config_keys import STANDARD_AUTHORIZER

CLASS, USERS = "authorizer.class.name", "super.users"
EVERYONE = "allow.everyone.if.no.acl.found"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, None),
        ({CLASS: ""}, None),
        ({CLASS: f" {STANDARD_AUTHORIZER} "}, AuthorizerConfig()),
        (
            {CLASS: STANDARD_AUTHORIZER, USERS: " User:a; User:CN=b,O=c ", EVERYONE: " true "},
            AuthorizerConfig(frozenset({"User:a", "User:CN=b,O=c"}), allow_everyone=True),
        ),
    ],
)
def test_an_authorizer_is_there_where_its_class_is_named(
    given: dict[str, str], found: AuthorizerConfig | None
) -> None:
    config = BrokerConfig(given)
    assert config.authorizer == found
    assert config.warnings == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({CLASS: "kafka.security.authorizer.AclAuthorizer"}, f"only {STANDARD_AUTHORIZER} is"),
        ({CLASS: STANDARD_AUTHORIZER, USERS: "admin"}, "principalType:principalName but got"),
        ({CLASS: STANDARD_AUTHORIZER, EVERYONE: "yes"}, "expected true or false"),
    ],
)
def test_what_is_no_authorizer_is_refused_in_one_sentence(
    given: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(given)
    (text,) = caught.value.args
    assert problem in text


def test_settings_without_an_authorizer_are_named() -> None:
    config = BrokerConfig({USERS: "User:a", EVERYONE: "true"})
    assert config.authorizer is None
    assert config.warnings == [
        f"{name} has no effect: authorizer.class.name names no authorizer"
        for name in (USERS, EVERYONE)
    ]
