"""A listener with SASL: nothing is served before, failures are late and counted, users log in."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from oncelog.broker.net.sasl import SaslConnection, SaslGate
from oncelog.client import Admin, FatalError, ScramCredentialInfo, UserScramCredentialUpsertion
from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.runtime.clock import SystemClock
from tests.support.logged import said_by
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import until

USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="geheim";'
SASL = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "connection.failed.authentication.delay.ms": "0",
    "listener.name.sasl.plain.sasl.jaas.config": USERS,
}
SECURE = 1


def gate(context: Running) -> SaslGate:
    return context.broker.server.gates["SASL"]


def address(context: Running) -> str:
    return str(context.broker.server.listeners[SECURE].address)


async def connect(context: Running, number: int = SECURE) -> Client:
    host, port = context.broker.server.listeners[number].address
    client = Client(*await asyncio.open_connection(host, port))
    context._clients.append(client)
    return client


async def log_in(client: Client, password: str = "geheim") -> Any:
    shaken = await client.ask(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")
    assert shaken.error_code is ErrorCode.none
    said = f"\0alice\0{password}".encode()
    return await client.ask(ApiKey.SASL_AUTHENTICATE, auth_bytes=said)


async def test_nothing_is_served_before_a_client_has_authenticated(tmp_path: Path) -> None:
    async with running(tmp_path, SASL) as context:
        for api in sorted(ADVERTISED):
            if api in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE):
                continue
            client = await connect(context)
            head = api.to_bytes(2, "big") + ADVERTISED[api].max.to_bytes(2, "big")
            await client.send(head + bytes(60))
            assert await client.receive() is None, api
        meters = {api for api, _ in context.broker.dispatcher.meters}
        assert meters <= {ApiKey.API_VERSIONS}


async def test_versions_before_it_name_what_is_served_after_it(tmp_path: Path) -> None:
    async with running(tmp_path, SASL) as context:
        client = await connect(context)
        before = await client.ask(ApiKey.API_VERSIONS, **named())
        assert (await log_in(client)).error_code is ErrorCode.none
        after = await client.ask(ApiKey.API_VERSIONS, **named())
        assert before.api_keys == after.api_keys
        assert {17, 36} <= {each.api_key for each in before.api_keys}
        assert (await client.ask(ApiKey.METADATA, topics=())).brokers[0].port == (
            context.broker.server.listeners[SECURE].address.port
        )


def named() -> dict[str, Any]:
    return {"client_software_name": "test", "client_software_version": "1"}


async def test_a_connection_without_sessions_costs_nothing_once_it_is_known(tmp_path: Path) -> None:
    async with running(tmp_path, SASL) as context:
        await log_in(await connect(context))
        (connection,) = context.broker.server.connections
        assert isinstance(connection, SaslConnection)
        assert connection.principal == "alice"
        assert connection._starter is context.broker.dispatcher
        assert connection._frame_bytes_max == 100 * 1024 * 1024


async def test_a_wrong_password_is_answered_counted_and_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path, SASL) as context:
        client = await connect(context)
        refused = await log_in(client, "falsch")
        assert refused.error_code is ErrorCode.sasl_authentication_failed
        assert await client.receive() is None
        assert (gate(context).failures_count, gate(context).successes_count) == (1, 0)
        (line,) = [one.getMessage() for one in said_by(caplog) if one.name.endswith("net.sasl")]
        assert line.startswith("Failed authentication with 127.0.0.1:")
        assert "falsch" not in caplog.text


class HeldClock(SystemClock):
    """Its sleeps end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_ms: list[float] = []
        self.is_over = asyncio.Event()

    async def sleep(self, delay_ms: float) -> None:
        self.slept_ms.append(delay_ms)
        await self.is_over.wait()


async def test_a_refusal_waits_for_its_delay_and_what_comes_meanwhile_is_lost(
    tmp_path: Path,
) -> None:
    delayed = {**SASL, "connection.failed.authentication.delay.ms": "150"}
    async with running(tmp_path, delayed) as context:
        clock = gate(context).clock = HeldClock()
        client = await connect(context)
        refusal = asyncio.create_task(log_in(client, "falsch"))
        await until(lambda: clock.slept_ms == [150])
        await client.send(b"\0\x03" + bytes(60))
        (connection,) = context.broker.server.connections
        await until(lambda: context.broker.server.listeners[SECURE].bytes_in > 100)
        assert not refusal.done()
        assert connection.queued_count == 0
        clock.is_over.set()
        assert (await refusal).error_code is ErrorCode.sasl_authentication_failed
        assert await client.receive() is None


async def test_a_connection_that_ends_during_the_delay_leaves_nothing(tmp_path: Path) -> None:
    delayed = {**SASL, "connection.failed.authentication.delay.ms": "60000"}
    async with running(tmp_path, delayed) as context:
        client = await connect(context)
        refusal = asyncio.create_task(log_in(client, "falsch"))
        await until(lambda: gate(context).failures_count == 1)
        client.writer.close()
        await until(lambda: not context.broker.server.connections)
        refusal.cancel()


async def test_a_frame_above_64_kb_closes_before_it_is_read_and_is_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path, SASL) as context:
        client = await connect(context)
        client.writer.write((64 * 1024 + 1).to_bytes(4, "big"))
        assert await client.receive() is None
        chosen = await connect(context)
        await chosen.ask(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")
        chosen.writer.write((512 * 1024 + 1).to_bytes(4, "big"))
        assert await chosen.receive() is None
        known = await connect(context)
        await log_in(known)
        known.writer.write((100 * 1024 * 1024 + 1).to_bytes(4, "big"))
        assert await known.receive() is None
        assert gate(context).failures_count == 2
        said = [one.getMessage() for one in said_by(caplog) if " bytes (" in one.getMessage()]
        assert [line.rpartition("(")[2] for line in said] == [
            "before a mechanism is chosen=65536))",
            "sasl.server.max.receive.size=524288))",
            "socket.request.max.bytes=104857600)",
        ]


async def test_a_large_message_of_a_mechanism_is_taken_up_to_its_setting(tmp_path: Path) -> None:
    async with running(tmp_path, SASL) as context:
        for size, is_answered in ((500_000, True), (600_000, False)):
            client = await connect(context)
            await client.ask(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")
            try:
                refused = await client.ask(ApiKey.SASL_AUTHENTICATE, auth_bytes=bytes(size))
            except (AssertionError, ConnectionError):
                assert not is_answered
            else:
                assert is_answered
                assert refused.error_code is ErrorCode.sasl_authentication_failed


async def test_a_session_that_has_ended_is_closed_and_one_that_is_renewed_goes_on(
    tmp_path: Path,
) -> None:
    sessions = {**SASL, "listener.name.sasl.plain.connections.max.reauth.ms": "300"}
    async with running(tmp_path, sessions) as context:
        kept, late = await connect(context), await connect(context)
        assert (await log_in(kept)).session_lifetime_ms == 300
        await log_in(late)
        ends_ms = [each._authentication.ends_at_ms for each in connections(context)]
        await until(lambda: context.broker.clock.monotonic_ms() > max(map(float, ends_ms)))
        assert (await log_in(kept)).session_lifetime_ms == 300
        assert (await kept.ask(ApiKey.LIST_GROUPS)).error_code is ErrorCode.none
        await late.send(b"\0\x10\0\0" + bytes(6))
        assert await late.receive() is None
        assert gate(context).expired_count == 1
        assert gate(context).successes_again_count == 1


def connections(context: Running) -> list[Any]:
    return list(context.broker.server.connections)


async def test_requests_before_a_renewal_are_answered_in_their_order(tmp_path: Path) -> None:
    sessions = {**SASL, "listener.name.sasl.plain.connections.max.reauth.ms": "60000"}
    async with running(tmp_path, sessions) as context:
        client = await connect(context)
        await log_in(client)
        sent = [
            (ApiKey.LIST_GROUPS, codec.request_class(ApiKey.LIST_GROUPS)()),
            (ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN")),
        ]
        for number, (api, request) in enumerate(sent):
            frame = codec.encode_request(api, 1, number, "test", request)
            client.writer.write(len(frame).to_bytes(4, "big") + frame)
        for number in range(2):
            reply = await client.receive()
            assert reply is not None
            assert int.from_bytes(reply[:4], "big") == number


async def test_on_a_listener_without_sasl_both_apis_are_an_illegal_state(tmp_path: Path) -> None:
    async with running(tmp_path, SASL) as context:
        client = await connect(context, 0)
        shaken = await client.ask(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")
        said = await client.ask(ApiKey.SASL_AUTHENTICATE, auth_bytes=b"x")
        assert {shaken.error_code, said.error_code} == {ErrorCode.illegal_sasl_state}
        assert not isinstance(connections(context)[0], SaslConnection)


async def admin_error(context: Running, **settings: str) -> ErrorCode:
    given: Any = {"security.protocol": "SASL_PLAINTEXT"}
    given |= {key.replace("_", "."): text for key, text in settings.items()}
    try:
        async with Admin(address(context), given) as admin:
            await admin.list_topics()
    except FatalError as error:
        return error.code
    return ErrorCode.none


async def test_a_user_logs_in_as_soon_as_there_is_one_and_no_longer(tmp_path: Path) -> None:
    async with running(tmp_path, SASL) as context:
        login = {
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "bob",
            "sasl_password": "sesam",
        }
        refused = ErrorCode.sasl_authentication_failed
        assert await admin_error(context, **login) is refused
        async with Admin(context.broker.bootstrap_servers) as admin:
            info = ScramCredentialInfo("SCRAM-SHA-256", 4096)
            await admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("bob", info, "sesam")]
            )
        assert await admin_error(context, **login) is ErrorCode.none
        assert await admin_error(context, **{**login, "sasl_password": "x"}) is refused
        assert await admin_error(context, **{**login, "sasl_username": "eve"}) is refused
        wrong = {**login, "sasl_mechanism": "SCRAM-SHA-512"}
        assert await admin_error(context, **wrong) is ErrorCode.unsupported_sasl_mechanism


async def test_tokens_are_judged_by_the_keys_of_the_file_as_it_is_now(tmp_path: Path) -> None:
    keys = [rsa.generate_private_key(65537, 2048) for _ in range(2)]
    file = tmp_path / "jwks.json"

    def publish(key: rsa.RSAPrivateKey) -> None:
        found = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        file.write_text(json.dumps({"keys": [{**found, "kid": str(id(key)), "alg": "RS256"}]}))

    def token(key: rsa.RSAPrivateKey) -> str:
        claims = {"sub": "app", "exp": time.time() + 60}
        return jwt.encode(claims, key, "RS256", {"kid": str(id(key))})

    publish(keys[0])
    config = {
        **SASL,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "sasl.oauthbearer.allow.unverified.audience": "true",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    async with running(tmp_path / "data", config) as context:

        def login(key: rsa.RSAPrivateKey) -> Mapping[str, str]:
            return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token": token(key)}

        assert await admin_error(context, **login(keys[0])) is ErrorCode.none
        assert await admin_error(context, **login(keys[1])) is ErrorCode.sasl_authentication_failed
        publish(keys[1])
        assert await admin_error(context, **login(keys[1])) is ErrorCode.none
        file.write_text("{")
        assert await admin_error(context, **login(keys[1])) is ErrorCode.none


async def test_a_stranger_is_challenged_where_users_have_another_mechanism(tmp_path: Path) -> None:
    async with (
        running(tmp_path, SASL) as context,
        Admin(context.broker.bootstrap_servers) as admin,
    ):
        known = UserScramCredentialUpsertion("alice", ScramCredentialInfo("SCRAM-SHA-512"), "pass")
        await admin.alter_user_scram_credentials([known])
        client = await connect(context)
        await client.ask(ApiKey.SASL_HANDSHAKE, mechanism="SCRAM-SHA-256")
        first = b"n,,n=stranger,r=abc"
        answer = await client.ask(ApiKey.SASL_AUTHENTICATE, auth_bytes=first)
        assert answer.error_code is ErrorCode.none
        assert answer.auth_bytes.startswith(b"r=abc")
