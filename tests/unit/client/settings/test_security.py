"""TLS and SASL settings: what is missing or does not fit is one sentence that says what to do."""

import sys
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.settings import Security
from oncelog.core.config_definition import ConfigError
from oncelog.core.secret import Secret
from oncelog.peer.sasl.tokens import ClientCredentials
from tests.support.certificates import Authority

JKS = b"\xfe\xed\xfe\xed\0\0\0\2"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
SSL = {"security.protocol": "SSL"}


def test_nothing_given_is_plain_text() -> None:
    assert Security.parse({}) == Security.parse({"security.protocol": "plaintext"}) == Security()


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        ({"sasl.password": "geheim"}, "set security.protocol=SASL_SSL"),
        ({**SSL, "sasl.mechanism": "PLAIN"}, "set security.protocol=SASL_SSL"),
        ({"ssl.ca.location": "x"}, "set security.protocol=SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism must be one of PLAIN"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "'GSSAPI' is not one of PLAIN"),
        (SASL, "sasl.username is missing for PLAIN"),
        ({**SASL, "sasl.username": "u"}, "sasl.password is missing"),
        (BEARER, "needs one of sasl.oauthbearer.token,"),
        ({**BEARER, "sasl.oauthbearer.token.provider": "os:nothing"}, "package.module:function"),
        ({**BEARER, "sasl.oauthbearer.token.endpoint.url": "https://x/"}, "client.credentials"),
        ({**SSL, "ssl.truststore.type": "BKS"}, "must be one of PEM"),
        ({**SSL, "ssl.truststore.location": "/no/file"}, "cannot read /no/file: No such file"),
        ({**SSL, "ssl.truststore.certificates": "x"}, "holds no PEM"),
        ({**SSL, "ssl.keystore.key": "x"}, "a private key is given, and no certificate"),
        ({**SSL, "ssl.ca.location": "a", "ssl.truststore.location": "b"}, "exclude each other"),
        ({**SSL, "ssl.enabled.protocols": "TLSv1.1"}, "'TLSv1.1' is not one of TLSv1.2"),
        ({**SSL, "ssl.endpoint.identification.algorithm": "ldap"}, "must be https, or empty"),
        (
            {**SSL, "ssl.cipher.suites": "AES128-SHA", "ssl.enabled.protocols": "TLSv1.3"},
            "no version in common",
        ),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Security.parse(given)
    assert what in str(raised.value)
    assert "geheim" not in str(raised.value)


def test_a_cipher_that_openssl_does_not_know_is_refused() -> None:
    security = Security.parse({**SSL, "ssl.cipher.suites": "TLS_NO_WITH_SUCH"})
    with pytest.raises(ConfigError, match="no cipher"):
        security.network()


def test_a_jks_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "trust.jks"
    path.write_bytes(JKS)
    with pytest.raises(ConfigError, match=r"keytool -importkeystore .* openssl pkcs12"):
        Security.parse({**SSL, "ssl.truststore.location": str(path), "ssl.truststore.type": "JKS"})


def test_a_pkcs12_store_without_its_library_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.p12"
    path.write_bytes(Authority.make().pkcs12("p"))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(ConfigError, match="install the package cryptography"):
        Security.parse({**SSL, "ssl.keystore.location": str(path), "ssl.keystore.password": "p"})


def test_a_wrong_store_password_is_said_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "own.p12"
    path.write_bytes(Authority.make().pkcs12("p"))
    given = {"ssl.keystore.location": str(path), "ssl.keystore.password": "geheim"}
    with pytest.raises(ConfigError, match="its password is wrong") as raised:
        Security.parse({**SSL, **given})
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize("password", [None, "geheim"])
def test_an_encrypted_key_needs_its_password(password: str | None) -> None:
    own = Authority.make()
    given = {
        "ssl.keystore.certificate.chain": own.pem,
        "ssl.keystore.key": own.key_pem("right"),
        **({"ssl.key.password": password} if password else {}),
    }
    with pytest.raises(ConfigError) as raised:
        Security.parse({**SSL, **given}).network()
    assert "geheim" not in str(raised.value)


def test_client_credentials_come_from_settings_or_the_login_line() -> None:
    url = "https://idp.example/token"
    expected = ClientCredentials(url, "c", Secret("s"), "all")
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' clientId="c" clientSecret="s" scope="all" extension_logicalCluster="lkc";'
    )
    given = {**BEARER, "sasl.oauthbearer.token.endpoint.url": url, "sasl.jaas.config": jaas}
    by_login = Security.parse(given).sasl
    assert by_login is not None
    assert by_login.token == expected
    assert by_login.extensions == (("logicalCluster", "lkc"),)
    by_settings = Security.parse(
        {
            **BEARER,
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.id": "c",
            "sasl.oauthbearer.client.credentials.client.secret": "s",
            "sasl.oauthbearer.scope": "all",
        }
    ).sasl
    assert by_settings is not None
    assert by_settings.token == expected
