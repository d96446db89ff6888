"""TLS and SASL over real sockets, against a broker that is honest, and ones that are not."""

import asyncio
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Admin, AuthenticationError, ConnectionLostError, Producer
from oncelog.client.cluster import Cluster
from oncelog.core.config_definition import ConfigError
from oncelog.protocol.api import ApiKey
from tests.support.certificates import Authority, Certificate
from tests.support.secure_broker import PASSWORD, TOKEN, USER, SecureBroker

SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


@pytest.fixture(scope="module")
def server(authority: Authority) -> Certificate:
    return authority.sign("broker", "127.0.0.1", "localhost")


@pytest.fixture(autouse=True)
def nothing_secret_is_said(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert PASSWORD not in caplog.text
    assert TOKEN not in caplog.text


def sasl(mechanism: str, **changes: str) -> dict[str, Any]:
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    if mechanism == "OAUTHBEARER":
        given["sasl.oauthbearer.token"] = TOKEN
    return {**given, **{name.replace("_", "."): value for name, value in changes.items()}}


def tls(authority: Certificate, **more: Any) -> dict[str, Any]:
    return {"security.protocol": "SSL", "ssl.truststore.certificates": authority.pem, **more}


async def reach(broker: SecureBroker, given: dict[str, Any], host: str = "127.0.0.1") -> None:
    """One request that only an accepted client may make."""
    own: dict[str, Any] = {"timeout_ms": 200, "retry_backoff_ms": 1, "first_contact_ms": 2_000}
    async with Admin(f"{host}:{broker.port}", **own, **given) as admin:
        await admin.list_topics()


async def refused(broker: SecureBroker, given: dict[str, Any], host: str = "127.0.0.1") -> str:
    """The sentence of a refusal that is final: no second attempt was made."""
    with pytest.raises(AuthenticationError) as raised:
        await reach(broker, given, host)
    text = str(raised.value)
    assert len(broker.connections) <= 1
    assert PASSWORD not in text
    assert TOKEN not in text
    assert len(text) < 1000
    return text


# --- SASL -----------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS, "OAUTHBEARER"])
async def test_every_mechanism_lets_us_in(mechanism: str) -> None:
    async with SecureBroker(mechanisms=(mechanism,)) as broker:
        await reach(broker, sasl(mechanism))
        assert broker.authentications == [mechanism]


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
async def test_a_wrong_password_is_final_and_not_shown(mechanism: str) -> None:
    async with SecureBroker(mechanisms=(mechanism,)) as broker:
        text = await refused(broker, sasl(mechanism, sasl_password="wrong-geheim"))
        assert f"SASL {mechanism} as user {USER}: Authentication failed" in text
        assert "wrong-geheim" not in text


async def test_a_refused_token_is_final() -> None:
    async with SecureBroker(mechanisms=("OAUTHBEARER",)) as broker:
        given = sasl("OAUTHBEARER", sasl_oauthbearer_token="another-geheim")
        text = await refused(broker, given)
        assert "refuses the token: invalid_token" in text
        assert "another-geheim" not in text


async def test_a_token_comes_from_a_function_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    given = sasl("OAUTHBEARER")
    del given["sasl.oauthbearer.token"]
    async with SecureBroker(mechanisms=("OAUTHBEARER",)) as broker:
        await reach(broker, {**given, "sasl.oauthbearer.token.provider": lambda: TOKEN})
        await reach(broker, {**given, "sasl.oauthbearer.token.endpoint.url": path.as_uri()})


async def test_a_mechanism_that_the_broker_lacks_is_named_beside_those_it_has() -> None:
    async with SecureBroker(mechanisms=SCRAMS) as broker:
        text = await refused(broker, sasl("PLAIN"))
        assert "the broker's mechanisms are SCRAM-SHA-256, SCRAM-SHA-512" in text


@pytest.mark.parametrize(
    ("lies", "what"),
    [
        ("iterations", "1073741824 iterations"),
        ("nonce", "nonce"),
        ("signature", "signature is wrong"),
        ("no signature", "did not prove"),
        ("skips the proof", "malformed"),
    ],
)
async def test_a_hostile_scram_broker_is_refused(lies: str, what: str) -> None:
    async with SecureBroker(mechanisms=SCRAMS, lies=lies) as broker:
        assert what in await refused(broker, sasl("SCRAM-SHA-256"))


async def test_a_listener_without_sasl_is_recognised() -> None:
    async with SecureBroker() as broker:
        assert "knows no SASL" in await refused(broker, sasl("PLAIN"))


async def test_a_client_without_sasl_is_told_of_it() -> None:
    async with SecureBroker(mechanisms=("PLAIN",)) as broker:
        with pytest.raises(ConnectionLostError, match="a listener with SASL does that"):
            await reach(broker, {})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_session_is_renewed_before_it_ends_and_loses_no_request(mechanism: str) -> None:
    async with SecureBroker(mechanisms=(mechanism,), lifetime_ms=30) as broker:
        async with Admin(broker.address, timeout_ms=5_000, **sasl(mechanism)) as admin:
            while len(broker.authentications) < 3:
                await asyncio.gather(*(admin.list_topics() for _ in range(20)))
        assert len(broker.connections) == 1
        count = len(broker.requests(ApiKey.METADATA))
        assert count % 20 == 0


async def test_a_session_that_is_not_renewed_closes_the_connection() -> None:
    given = sasl("OAUTHBEARER")
    tokens = [TOKEN, "revoked"]
    given["sasl.oauthbearer.token.provider"] = lambda: tokens.pop(0) if tokens else "revoked"

    async def until_refused(admin: Admin) -> None:
        while True:
            await admin.list_topics()

    async with (
        SecureBroker(mechanisms=("OAUTHBEARER",), lifetime_ms=20) as broker,
        Admin(broker.address, timeout_ms=5_000, **given) as admin,
    ):
        with pytest.raises(AuthenticationError, match="invalid_token"):
            await until_refused(admin)


async def test_a_producer_that_is_shut_out_fails_its_records_and_can_go_on() -> None:
    given = sasl("OAUTHBEARER")
    tokens = ["revoked", TOKEN]
    given["sasl.oauthbearer.token.provider"] = lambda: tokens.pop() if tokens else TOKEN
    async with (
        SecureBroker(mechanisms=("OAUTHBEARER",)) as broker,
        Producer(broker.address, **given) as producer,
    ):
        # The connection to the leader is another one than that to the bootstrap server.
        with pytest.raises(AuthenticationError, match="invalid_token"):
            await producer.send("topic", b"lost", partition=0)
        await producer.send("topic", b"kept", partition=0)
        assert len(broker.log) == 1


# --- TLS ------------------------------------------------------------------------------


async def test_a_broker_with_a_trusted_certificate_is_reached(
    authority: Authority, server: Certificate
) -> None:
    async with SecureBroker(certificate=server, mechanisms=("PLAIN",)) as broker:
        given = {**sasl("PLAIN"), **tls(authority), "security.protocol": "SASL_SSL"}
        await reach(broker, given)
        await reach(broker, given, "localhost")


async def test_an_unknown_authority_is_refused(authority: Authority, server: Certificate) -> None:
    async with SecureBroker(certificate=server) as broker:
        text = await refused(broker, tls(Authority.make("stranger")))
        assert "certificate is refused" in text
        assert "ssl.truststore.location" in text


async def test_the_systems_authorities_are_trusted_by_default(server: Certificate) -> None:
    async with SecureBroker(certificate=server) as broker:
        assert "certificate is refused" in await refused(broker, {"security.protocol": "SSL"})


async def test_a_wrong_host_name_is_refused_unless_the_check_is_off(authority: Authority) -> None:
    elsewhere = authority.sign("broker", "elsewhere.example")
    async with SecureBroker(certificate=elsewhere) as broker:
        text = await refused(broker, tls(authority))
        assert "ssl.endpoint.identification.algorithm" in text
        await reach(broker, tls(authority, **{"ssl.endpoint.identification.algorithm": ""}))


async def test_an_expired_certificate_is_refused(authority: Authority) -> None:
    expired = authority.sign("broker", "127.0.0.1", days=-1)
    async with SecureBroker(certificate=expired) as broker:
        text = await refused(broker, tls(authority))
        assert "expired" in text
        assert "clock" in text


async def test_a_client_shows_its_certificate_from_any_store(
    authority: Authority, server: Certificate, tmp_path: Path
) -> None:
    own = authority.sign("client")
    p12 = tmp_path / "own.p12"
    p12.write_bytes(own.pkcs12("p-geheim"))
    (tmp_path / "cert.pem").write_text(own.pem)
    (tmp_path / "key.pem").write_text(own.key_pem())
    stores: list[dict[str, str]] = [
        {"ssl.keystore.location": own.write(tmp_path / "own.pem")},
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": " ".join(own.pem.split("\n")),
            "ssl.keystore.key": own.key_pem("k-geheim"),
            "ssl.key.password": "k-geheim",
        },
        {"ssl.keystore.location": str(p12), "ssl.keystore.password": "p-geheim"},
        {
            "ssl.certificate.location": str(tmp_path / "cert.pem"),
            "ssl.key.location": str(tmp_path / "key.pem"),
        },
    ]
    async with SecureBroker(certificate=server, trusts=authority) as broker:
        for store in stores:
            await reach(broker, tls(authority, **store))


async def test_a_missing_or_foreign_client_certificate_is_said(
    authority: Authority, server: Certificate, tmp_path: Path
) -> None:
    foreign = Authority.make("stranger").sign("client").write(tmp_path / "foreign.pem")
    async with SecureBroker(certificate=server, trusts=authority) as broker:
        for given in ({}, {"ssl.keystore.location": foreign}):
            # Whether an alert arrives before the connection breaks is a race.
            with pytest.raises((AuthenticationError, ConnectionLostError), match=r"ssl\.keystore"):
                await reach(broker, tls(authority, **given))


async def test_a_plain_client_at_a_tls_port_is_told_of_it(server: Certificate) -> None:
    async with SecureBroker(certificate=server) as broker:
        with pytest.raises(ConnectionLostError, match="a port with TLS may do that"):
            await reach(broker, {})


async def test_a_tls_alert_to_a_plain_client_is_final() -> None:
    async with SecureBroker(lies="alert") as broker:
        assert "it speaks TLS; set security.protocol=SSL" in await refused(broker, {})


async def test_a_tls_client_at_a_plain_port_is_told_of_it(authority: Authority) -> None:
    async with SecureBroker() as broker:
        with pytest.raises(ConnectionLostError, match="a port without TLS does that"):
            await reach(broker, tls(authority))


async def test_versions_and_ciphers_can_be_chosen(
    authority: Authority, server: Certificate
) -> None:
    async with SecureBroker(certificate=server) as broker:
        for chosen in (
            {"ssl.enabled.protocols": "TLSv1.2"},
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"},
            {"ssl.cipher.suites": "ECDHE-ECDSA-CHACHA20-POLY1305"},
            {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"},
        ):
            await reach(broker, tls(authority, **chosen))
    async with SecureBroker(certificate=server) as broker:
        assert broker.context is not None
        broker.context.maximum_version = ssl.TLSVersion.TLSv1_2
        given = tls(authority, **{"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"})
        with pytest.raises((AuthenticationError, ConnectionLostError), match=r"ssl\.cipher"):
            await reach(broker, given)


def test_tls_needs_the_real_network(authority: Authority) -> None:
    broker = SecureBroker()
    with pytest.raises(ConfigError, match="another one was given"):
        Cluster("b:1", network=broker.network, **_security(tls(authority)))


def _security(given: dict[str, Any]) -> dict[str, Any]:
    from oncelog.client.settings import Role, client_options

    return client_options(Role.ADMIN, given)
