"""A listener with TLS: who gets in, who is told apart in the log, and how certificates change."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from oncelog.core.config_definition import ConfigError
from oncelog.protocol.api import ApiKey
from oncelog.runtime.tls import Tls
from tests.support.certificates import Authority, Certificate
from tests.support.logged import said_by
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import until

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


@asynccontextmanager
async def secured(
    folder: Path, own: Certificate, config: Mapping[str, object] | None = None
) -> AsyncIterator[Running]:
    """A broker whose only listener has TLS."""
    given = {
        "listeners": f"SSL://{HOST}:0",
        "ssl.keystore.location": own.write(folder / "broker.pem"),
    }
    async with running(folder / "data", {**given, **(config or {})}) as context:
        yield context


async def connect(context: Running, tls: ssl.SSLContext | None) -> Client:
    host, port = context.broker.server.listeners[0].address
    client = Client(*await asyncio.open_connection(host, port, ssl=tls))
    context._clients.append(client)
    return client


def trusting(authority: Authority, own: Certificate | None = None) -> ssl.SSLContext:
    tls = Tls(authority.pem)
    if own is not None:
        from oncelog.core.secret import Secret

        tls = Tls(authority.pem, own.pem, Secret(own.key_pem()))
    return tls.context()


async def refusal_of(
    context: Running, tls: ssl.SSLContext | None, caplog: pytest.LogCaptureFixture
) -> str:
    """The one line that is logged for a client that does not get in."""
    with caplog.at_level(logging.WARNING):
        try:
            client = await connect(context, tls)
            if tls is None:
                client.writer.write(b"\0\0\0\x0e\0\x12\0\3\0\0\0\1\0\4test")
            assert await client.receive() is None
        except OSError:
            pass  # Where the client itself ends the handshake.
        await until(lambda: bool(said_by(caplog)))
    await until(lambda: context.broker.server.listeners[0].handshakes_count == 0)
    assert not context.broker.server._per_ip
    (record,) = said_by(caplog)
    assert record.exc_info is None
    return record.getMessage()


async def test_a_client_that_trusts_the_broker_gets_in(
    tmp_path: Path, authority: Authority
) -> None:
    async with secured(tmp_path, authority.sign("broker", HOST)) as context:
        client = await connect(context, trusting(authority))
        found = await client.ask(ApiKey.METADATA, topics=())
        assert [each.port for each in found.brokers] == [context.broker.server.port]
        (connection,) = context.broker.server.connections
        assert connection.principal == "ANONYMOUS"
        assert context.broker.image.brokers[1].listeners["SSL"].protocol == "SSL"


@pytest.mark.parametrize(
    ("asks", "shown", "reason"),
    [
        ("required", None, "it shows no certificate, and ssl.client.auth=required asks for one"),
        ("required", "expired", "its certificate is not accepted: certificate has expired"),
        ("requested", "foreign", "its certificate is not accepted: "),
        ("requested", "expired", "its certificate is not accepted: certificate has expired"),
    ],
)
async def test_a_client_whose_certificate_is_missing_or_bad_is_refused(
    *,
    tmp_path: Path,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    asks: str,
    shown: str | None,
    reason: str,
) -> None:
    certificates = {
        None: None,
        "expired": authority.sign("c", days=-1),
        "foreign": Authority.make("another").sign("c"),
    }
    config = {"ssl.client.auth": asks, "ssl.truststore.certificates": authority.pem}
    async with secured(tmp_path, authority.sign("broker", HOST), config) as context:
        said = await refusal_of(context, trusting(authority, certificates[shown]), caplog)
        assert f": {reason}" in said


async def test_plain_text_to_a_listener_with_tls_is_told_apart(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path, authority.sign("broker", HOST)) as context:
        said = await refusal_of(context, None, caplog)
        assert "it does not speak TLS, and this listener does" in said


async def test_a_version_that_is_not_enabled_is_refused(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"ssl.enabled.protocols": "TLSv1.3"}
    async with secured(tmp_path, authority.sign("broker", HOST), config) as context:
        older = Tls(authority.pem, protocols=("TLSv1.2",)).context()
        assert "unsupported protocol" in await refusal_of(context, older, caplog)


async def test_a_client_that_trusts_someone_else_goes_away(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path, authority.sign("broker", HOST)) as context:
        said = await refusal_of(context, trusting(Authority.make("another")), caplog)
        assert "went away during the TLS handshake" in said or "alert" in said


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "CN=app,O=Sun\\, Inc."),
        ("RULE:^CN=(.*?),.*$/$1/U", "APP"),
    ],
)
async def test_a_clients_certificate_names_its_user(
    tmp_path: Path, authority: Authority, rules: str, principal: str
) -> None:
    config = {
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.truststore.certificates": authority.pem,
        "ssl.principal.mapping.rules": rules,
    }
    kinds = [(NameOID.ORGANIZATION_NAME, "Sun, Inc."), (NameOID.COMMON_NAME, "app")]
    name = x509.Name([x509.NameAttribute(kind, text) for kind, text in kinds])
    async with secured(tmp_path, authority.sign("broker", HOST), config) as context:
        client = await connect(context, trusting(authority, authority.sign(name)))
        assert await client.ask(ApiKey.METADATA, topics=())
        (connection,) = context.broker.server.connections
        assert connection.principal == principal


async def test_a_user_whom_no_rule_names_is_refused(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    config = {
        "ssl.client.auth": "required",
        "ssl.truststore.certificates": authority.pem,
        "ssl.principal.mapping.rules": "RULE:^O=.*$/x/",
    }
    async with secured(tmp_path, authority.sign("broker", HOST), config) as context:
        said = await refusal_of(context, trusting(authority, authority.sign("app")), caplog)
        assert "no rule of ssl.principal.mapping.rules applies" in said


async def test_handshakes_count_as_connections(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("max.connections", "max.connections.per.ip", "listener.name.ssl.max.connections"):
        folder = tmp_path / key
        folder.mkdir()
        async with secured(folder, authority.sign("broker", HOST), {key: 1}) as context:
            listener = context.broker.server.listeners[0]
            silent = await connect(context, None)
            await until(lambda listener=listener: listener.handshakes_count == 1)  # type: ignore[misc]
            with caplog.at_level(logging.WARNING), pytest.raises(OSError):  # noqa: PT011 - reset or end
                await connect(context, trusting(authority))
            assert said_by(caplog)[-1].getMessage().endswith(f"{key}=1")
            silent.writer.close()
            await until(lambda listener=listener: listener.handshakes_count == 0)  # type: ignore[misc]
            assert await (await connect(context, trusting(authority))).ask(ApiKey.METADATA)


async def test_a_handshake_that_does_not_end_is_cut_off(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.runtime.network.TLS_HANDSHAKE_MS_MAX", 50)
    async with secured(tmp_path, authority.sign("broker", HOST)) as context:
        silent = await connect(context, None)
        assert await silent.receive() is None
        # The connection closes some turns before its handshake is counted down.
        await until(lambda: context.broker.server.listeners[0].handshakes_count == 0)


async def test_a_stop_ends_handshakes_too(tmp_path: Path, authority: Authority) -> None:
    async with secured(tmp_path, authority.sign("broker", HOST)) as context:
        silent = await connect(context, None)
        listener = context.broker.server.listeners[0]
        await until(lambda: listener.handshakes_count == 1)
        await context.broker.server.stop()
        assert await silent.receive() is None
        assert listener.handshakes_count == 0


# --- new certificates


def serial_of(client: Client) -> int:
    shown: Any = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return x509.load_der_x509_certificate(shown).serial_number


async def test_a_new_certificate_is_taken_and_old_connections_live_on(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (authority.sign("broker", HOST) for _ in range(2))
    async with secured(tmp_path, first) as context:
        tls = context.broker.server.listeners[0].tls
        assert tls is not None
        before = await connect(context, trusting(authority))
        assert serial_of(before) == first.certificate.serial_number
        second.write(tmp_path / "broker.pem")
        with caplog.at_level(logging.INFO):
            tls.renew()
            tls.renew()
        assert [record.levelname for record in said_by(caplog)] == ["INFO"]
        after = await connect(context, trusting(authority))
        assert serial_of(after) == second.certificate.serial_number
        for client in (before, after):
            assert await client.ask(ApiKey.METADATA, topics=())


@pytest.mark.parametrize(
    ("names", "setting", "sentence"),
    [
        (None, None, "holds no PEM"),
        (("another", HOST), "ssl.allow.dn.changes", "DistinguishedName does not match"),
        (("broker", "other.example"), "ssl.allow.san.changes", "SubjectAltNames do not match"),
    ],
)
async def test_a_new_certificate_that_does_not_fit_is_one_error(
    *,
    tmp_path: Path,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    names: tuple[str, str] | None,
    setting: str | None,
    sentence: str,
) -> None:
    first = authority.sign("broker", HOST)
    for allowed in (False, True) if setting else (False,):
        folder = tmp_path / str(allowed)
        folder.mkdir()
        config = {str(setting): "true"} if allowed else {}
        caplog.clear()
        async with secured(folder, first, config) as context:
            tls = context.broker.server.listeners[0].tls
            assert tls is not None
            file = folder / "broker.pem"
            if names is None:
                file.write_text("-----BEGIN")
            else:
                authority.sign(*names).write(file)
            old = tls.context
            with caplog.at_level(logging.ERROR):
                tls.renew()
                tls.renew()
            if allowed:
                assert not said_by(caplog)
                assert tls.context is not old
                continue
            (record,) = said_by(caplog)
            assert sentence in record.getMessage()
            client = await connect(context, trusting(authority))
            assert serial_of(client) == first.certificate.serial_number
            # A file that is right again is taken.
            authority.sign("broker", HOST, "more.example").write(file)
            tls.renew()
            assert tls.context is not old


async def test_files_are_looked_at_in_the_background(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.broker.net.server.CERTIFICATES_LOOK_MS", 1)
    async with secured(tmp_path, authority.sign("broker", HOST)) as context:
        tls = context.broker.server.listeners[0].tls
        assert tls is not None
        old = tls.context
        authority.sign("broker", HOST).write(tmp_path / "next.pem")
        os.replace(tmp_path / "next.pem", tmp_path / "broker.pem")
        await until(lambda: tls.context is not old)


# --- what stops the start


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"ssl.keystore.location": ""}, "it has no certificate: ssl.keystore.location, or"),
        ({"ssl.keystore.location": "/none"}, "cannot read /none: No such file"),
        ({"ssl.keystore.key": "x"}, "exclude each other"),
        ({"ssl.truststore.location": "/none"}, "ssl.truststore.location: cannot read /none"),
        ({"ssl.truststore.certificates": "x"}, "ssl.truststore.certificates holds no PEM"),
        ({"ssl.cipher.suites": "NONE"}, "no cipher of NONE is known here"),
        ({"ssl.principal.mapping.rules": "x"}, "Invalid rule: `x`"),
        ({"ssl.keystore.type": "PKCS12"}, "only PEM is read; convert the store: openssl pkcs12"),
        ({"ssl.keystore.type": "JKS"}, "only PEM is read; convert the store: keytool"),
        ({"ssl.keystore.password": "x"}, "PEM has none, only a key may have one"),
        ({"listeners": "SASL_SSL://127.0.0.1:0"}, "sasl.enabled.mechanisms has to name"),
    ],
)
async def test_a_listener_whose_tls_does_not_work_stops_the_start(
    tmp_path: Path, authority: Authority, config: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        async with secured(tmp_path, authority.sign("broker", HOST), config):
            raise AssertionError("it has started")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("start", [b"\xfe\xed\xfe\xed", b"\x30\x82"])
async def test_a_store_that_is_no_pem_is_refused_with_the_command_that_converts_it(
    tmp_path: Path, authority: Authority, start: bytes
) -> None:
    (tmp_path / "store").write_bytes(start)
    config = {"ssl.keystore.location": str(tmp_path / "store")}
    with pytest.raises(ConfigError, match=r"convert it: (keytool|openssl)"):
        async with secured(tmp_path, authority.sign("broker", HOST), config):
            raise AssertionError("it has started")


@pytest.mark.parametrize("password", [None, "wrong", "secret"])
async def test_an_encrypted_key_needs_its_password(
    tmp_path: Path, authority: Authority, password: str | None
) -> None:
    own = authority.sign("broker", HOST)
    own.write(tmp_path / "locked.pem", "secret")
    config = {"ssl.keystore.location": str(tmp_path / "locked.pem")}
    if password is not None:
        config["ssl.key.password"] = password
    if password == "secret":
        async with secured(tmp_path, own, config) as context:
            assert await (await connect(context, trusting(authority))).ask(ApiKey.METADATA)
        return
    with pytest.raises(ConfigError) as caught:
        async with secured(tmp_path, own, config):
            raise AssertionError("it has started")
    assert "secret" not in str(caught.value)


async def test_certificate_and_key_may_stand_in_the_settings(
    tmp_path: Path, authority: Authority
) -> None:
    own = authority.sign("broker", HOST)
    config = {
        "ssl.keystore.location": "",
        "ssl.keystore.certificate.chain": own.pem.replace("\n", " "),
        "ssl.keystore.key": own.key_pem(),
    }
    async with secured(tmp_path, own, config) as context:
        client = await connect(context, trusting(authority))
        assert serial_of(client) == own.certificate.serial_number
        found = await client.ask(ApiKey.DESCRIBE_CONFIGS, **_all_configs())
        for entry in found.results[0].configs:
            assert "PRIVATE KEY" not in repr(entry)


def _all_configs() -> dict[str, Any]:
    from oncelog.protocol.messages.describe_configs import DescribeConfigsResource

    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    return {"resources": (resource,), "include_synonyms": True}
