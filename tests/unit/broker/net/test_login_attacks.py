"""Those who do not get in, many at a time: others go on, and nothing stays behind."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from oncelog.broker.net.frames import ReadBuffer
from oncelog.broker.net.sasl import SaslConnection, SaslGate
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.describe_configs import DescribeConfigsResource
from oncelog.runtime.clock import SystemClock
from oncelog.runtime.open_files import raise_limit
from oncelog.runtime.tls import Tls
from tests.support.certificates import Authority
from tests.support.logged import said_by
from tests.support.login_frames import SECRET, login_frames
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.net.test_connection import FakeDispatcher, FakeServer, FakeTransport
from tests.unit.broker.raw import until
from tests.unit.security.test_login_fuzz import RULES

HOST = "127.0.0.1"
LINE = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_alice="{SECRET}" username="alice" password="{SECRET}";'
)
PLAIN_TEXT, SECURE = 0, 1


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


@pytest.fixture
async def context(
    tmp_path: Path, authority: Authority, request: pytest.FixtureRequest
) -> AsyncIterator[Running]:
    """A broker whose second listener has SASL over TLS."""
    raise_limit()
    config = {
        "listeners": f"PLAINTEXT://{HOST}:0,IN://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": "1",
        "listener.name.in.plain.sasl.jaas.config": LINE,
        "ssl.keystore.location": authority.sign("broker", HOST).write(tmp_path / "broker.pem"),
        **getattr(request, "param", {}),
    }
    async with running(tmp_path / "data", config) as context:
        yield context


async def connected(context: Running, authority: Authority | None = None) -> Client:
    host, port = context.broker.server.listeners[SECURE].address
    tls = None if authority is None else Tls(authority.pem).context()
    client = Client(*await asyncio.open_connection(host, port, ssl=tls))
    context._clients.append(client)
    return client


async def code_of_login(client: Client, password: str) -> int:
    await client.ask(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")
    said = f"\0alice\0{password}".encode()
    answer = await client.ask(ApiKey.SASL_AUTHENTICATE, auth_bytes=said)
    return int(answer.error_code)


@pytest.mark.parametrize(
    ("count", "handshake_ms"), [(60, 1_500), pytest.param(1_000, 8_000, marks=pytest.mark.soak)]
)
async def test_half_open_handshakes_count_end_and_hold_nobody_up(
    *,
    context: Running,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    handshake_ms: int,
) -> None:
    monkeypatch.setattr("oncelog.runtime.network.TLS_HANDSHAKE_MS_MAX", handshake_ms)
    server = context.broker.server
    listener = server.listeners[SECURE]
    silent = [await connected(context) for _ in range(count)]
    for number, client in enumerate(silent):
        # The beginning of a ClientHello, or nothing at all.
        client.writer.write(b"\x16\x03\x01\x02\0\x01"[: number % 7])
    await until(lambda: listener.handshakes_count == count)
    server._connections_max = count + 1
    known = await connected(context, authority)
    assert await code_of_login(known, SECRET) == 0
    with pytest.raises(OSError):  # noqa: PT011 - reset or end
        await connected(context, authority)
    assert await known.ask(ApiKey.METADATA, topics=())
    await until(lambda: listener.handshakes_count == 0)
    for client in silent:
        assert await client.receive() is None
    assert server._per_ip == {HOST: 1}
    assert await code_of_login(await connected(context, authority), SECRET) == 0


@pytest.mark.parametrize("count", [60, pytest.param(3_000, marks=pytest.mark.soak)])
async def test_a_flood_of_wrong_passwords_is_counted_and_others_go_on(
    context: Running, authority: Authority, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    caplog.set_level(logging.DEBUG)
    known = await connected(context, authority)
    assert await code_of_login(known, SECRET) == 0
    gate = context.broker.server.gates["IN"]

    async def guess(number: int) -> int:
        return await code_of_login(await connected(context, authority), f"guess-{number}")

    for begin in range(0, count, 30):
        guesses = [asyncio.create_task(guess(number)) for number in range(begin, begin + 30)]
        assert await known.ask(ApiKey.METADATA, topics=())
        assert set(await asyncio.gather(*guesses)) == {58}
    assert (gate.failures_count, gate.successes_count) == (count, 1)
    await until(lambda: len(context.broker.server.connections) == 1)
    own = DescribeConfigsResource(resource_type=4, resource_name=str(context.broker.broker_id))
    described = await known.ask(ApiKey.DESCRIBE_CONFIGS, resources=(own,))
    texts = [caplog.text, repr(described), *map(repr, context.broker.config.listeners)]
    assert not any(SECRET in text or "guess-" in text for text in texts)
    assert all(record.exc_info is None for record in said_by(caplog))


class _Peer:
    """A connection without a socket."""

    def __init__(self, gate: SaslGate, shared: ReadBuffer) -> None:
        self.dispatcher = FakeDispatcher()
        self.transport = FakeTransport()
        self.connection = SaslConnection(
            cast(Any, FakeServer()), cast(Any, self.dispatcher), shared, gate
        )
        self.connection.connection_made(cast(Any, self.transport))

    def send(self, data: bytes, piece_bytes: int) -> None:
        view = memoryview(data)
        while view and not self.connection.closed:
            buffer = self.connection.get_buffer(-1)
            size = min(piece_bytes, len(buffer), len(view))
            buffer[:size] = view[:size]
            del buffer
            self.connection.buffer_updated(size)
            view = view[size:]


@pytest.mark.parametrize(
    "count", [500, pytest.param(50_000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])]
)
async def test_bytes_of_all_kinds_before_a_login_reach_no_handler(count: int) -> None:
    draw = random.Random(count)
    frames = login_frames(count)
    gate = SaslGate(RULES, SystemClock(), random.Random(1))
    shared = ReadBuffer()
    for _ in range(count):
        peer = _Peer(gate, shared)
        for _ in range(draw.randrange(1, 5)):
            frame = next(frames)
            lie = draw.choice((0, 0, 0, 0, 1, -1, 1_000_000, -(2**31)))
            size = max(-(2**31), min(2**31 - 1, len(frame) + lie))
            data = size.to_bytes(4, "big", signed=True) + frame
            peer.send(data, draw.choice((1, 7, 100_000)) if len(frame) < 500 else 100_000)
        held = peer.connection._frame
        assert held is None or len(held) <= 2 * 65536
        assert all(each[:2] == b"\0\x12" for each in peer.dispatcher.frames)
        assert peer.connection.principal == "ANONYMOUS"
        peer.connection.abort()
        peer.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert SECRET.encode() not in b"".join([bytes(peer.transport.written)])
    assert gate.successes_count == 0
