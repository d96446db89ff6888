"""Login lines as people copy them."""

import pytest

from oncelog.core.config_definition import ConfigError
from oncelog.core.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "mechanism", "options"),
    [
        (
            f'{PLAIN} required username="u" password="p;=,\\"q";',
            "PLAIN",
            {"username": "u", "password": 'p;=,"q'},
        ),
        (
            f'kafkashaded.{PLAIN}   required\n  username="u"\n  password="p" ;  ',
            "PLAIN",
            {"username": "u", "password": "p"},
        ),
        (
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username=u password="p q";',
            "SCRAM-SHA-512",
            {"username": "u", "password": "p q"},
        ),
        (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
            ' clientId="c" clientSecret="s" extension_logicalCluster="lkc-1";',
            "OAUTHBEARER",
            {"clientId": "c", "clientSecret": "s", "extension_logicalCluster": "lkc-1"},
        ),
    ],
)
def test_a_line_is_read(text: str, mechanism: str, options: dict[str, str]) -> None:
    assert parse_jaas(text, mechanism).options == options


@pytest.mark.parametrize(
    ("text", "mechanism", "what"),
    [
        (f'{PLAIN} required username="u" password="geheim"', "PLAIN", "must be like"),
        ('username="u" password="geheim";', "PLAIN", "must be like"),
        (f'{PLAIN} required username="u" password="geheim;', "PLAIN", "options in sasl.jaas"),
        (f'{PLAIN} required password="geheim";', "SCRAM-SHA-256", "not for SCRAM-SHA-256"),
        ('com.sun.Krb5LoginModule required password="geheim";', "PLAIN", "Krb5LoginModule"),
    ],
)
def test_a_bad_line_is_refused_and_not_shown(text: str, mechanism: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as raised:
        parse_jaas(text, mechanism)
    assert "geheim" not in str(raised.value)
