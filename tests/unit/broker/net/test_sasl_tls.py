"""SASL over TLS: who logs in is who a client is, whatever certificate it shows."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Admin, AuthenticationError
from oncelog.core.secret import Secret
from oncelog.protocol.api import ApiKey
from oncelog.runtime.tls import Tls
from tests.support.certificates import Authority, Certificate
from tests.support.logged import said_by
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import until

HOST = "127.0.0.1"
LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="geheim";'
SECURE = 1


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


@asynccontextmanager
async def secured(
    folder: Path, authority: Authority, config: Mapping[str, object] | None = None
) -> AsyncIterator[Running]:
    """A broker with a listener that has both, beside one in plain text."""
    given: dict[str, object] = {
        "listeners": f"PLAINTEXT://{HOST}:0,CLIENTS://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "connection.failed.authentication.delay.ms": "0",
        "listener.name.clients.plain.sasl.jaas.config": LINE,
        "ssl.keystore.location": authority.sign("broker", HOST).write(folder / "broker.pem"),
        "ssl.truststore.certificates": authority.pem,
    }
    async with running(folder / "data", {**given, **(config or {})}) as context:
        yield context


async def connect(context: Running, tls: ssl.SSLContext) -> Client:
    host, port = context.broker.server.listeners[SECURE].address
    client = Client(*await asyncio.open_connection(host, port, ssl=tls))
    context._clients.append(client)
    return client


def trusting(authority: Authority, own: Certificate | None = None) -> ssl.SSLContext:
    if own is None:
        return Tls(authority.pem).context()
    return Tls(authority.pem, own.pem, Secret(own.key_pem())).context()


async def code_of_login(client: Client, password: str = "geheim") -> int:
    await client.ask(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")
    said = f"\0alice\0{password}".encode()
    answer: Any = await client.ask(ApiKey.SASL_AUTHENTICATE, auth_bytes=said)
    return int(answer.error_code)


async def test_a_client_is_who_it_logs_in_as(tmp_path: Path, authority: Authority) -> None:
    rules = {
        "listener.name.clients.ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": "RULE:^O=.*$/nobody/",
    }
    async with secured(tmp_path, authority, rules) as context:
        assert context.broker.image.brokers[1].listeners["CLIENTS"].protocol == "SASL_SSL"
        for own in (None, authority.sign("mallory")):
            client = await connect(context, trusting(authority, own))
            assert await code_of_login(client) == 0
            assert await client.ask(ApiKey.METADATA, topics=())
            *_, connection = context.broker.server.connections
            assert connection.principal == "alice"
            client = await connect(context, trusting(authority, own))
            assert await code_of_login(client, "falsch") == 58
            assert await client.receive() is None


async def test_a_certificate_may_be_asked_for_besides(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    required = {"listener.name.clients.ssl.client.auth": "required"}
    async with secured(tmp_path, authority, required) as context:
        client = await connect(context, trusting(authority, authority.sign("app")))
        assert await code_of_login(client) == 0
        with caplog.at_level(logging.WARNING), pytest.raises((OSError, AssertionError)):
            await code_of_login(await connect(context, trusting(authority)))
        await until(lambda: bool(said_by(caplog)))
        assert "ssl.client.auth=required asks for one" in said_by(caplog)[-1].getMessage()


async def test_our_own_clients_get_in_and_are_told_why_not(
    tmp_path: Path, authority: Authority
) -> None:
    async with secured(tmp_path, authority) as context:
        address = str(context.broker.server.listeners[SECURE].address)
        given: Any = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.certificates": authority.pem,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "geheim",
        }
        async with Admin(address, given) as admin:
            assert await admin.list_topics() == {}
        with pytest.raises(AuthenticationError, match="Invalid username or password"):
            await Admin(address, given | {"sasl.password": "falsch"}).start()
        untrusted = given | {"ssl.truststore.certificates": Authority.make("another").pem}
        with pytest.raises(AuthenticationError, match="its certificate is refused"):
            await Admin(address, untrusted).start()
