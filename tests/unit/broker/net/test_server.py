"""What a hostile, broken or merely odd peer gets: the protocol's answer, or a closed connection
with one log line.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey
from tests.support.logged import said_by
from tests.unit.broker.context import Client, running


def header(api: int, version: int, correlation_id: int = 7, client_id: bytes = b"test") -> bytes:
    fixed = api.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    return fixed + correlation_id.to_bytes(4, "big") + len(client_id).to_bytes(2, "big") + client_id


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await client.send(header(ApiKey.API_VERSIONS, 99))
        frame = await client.receive()
        assert frame is not None
        assert frame[:4] == (7).to_bytes(4, "big")
        response = codec.parse_response(ApiKey.API_VERSIONS, 0, frame, 4)
        assert response.error_code is ErrorCode.unsupported_version
        ranges = {entry.api_key: entry for entry in response.api_keys}
        assert ranges[ApiKey.API_VERSIONS].max_version == 5


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        pytest.param(header(9999, 0), "unknown API key 9999", id="unknown api"),
        pytest.param(header(ApiKey.METADATA, 99), "version 99 of API METADATA", id="new version"),
        pytest.param(header(ApiKey.METADATA, -1), "version -1 of API METADATA", id="negative"),
        pytest.param(header(ApiKey.PRODUCE, 2), "version 2 of API PRODUCE", id="old produce"),
        pytest.param(b"", "malformed request", id="empty frame"),
        pytest.param(b"\x00\x03", "malformed request", id="half a header"),
        pytest.param(
            header(ApiKey.METADATA, 9) + b"\x00\xff\xff\xff\xff\x0f", "malformed", id="huge array"
        ),
        pytest.param(header(ApiKey.METADATA, 1) + b"\x7f\xff\xff\xff", "malformed", id="huge v1"),
        pytest.param(header(ApiKey.PRODUCE, 9) + b"\x00\x00", "malformed|PRODUCE", id="produce"),
        pytest.param(header(ApiKey.FETCH, 12) + b"\x00\x00", "malformed|FETCH", id="fetch"),
    ],
)
async def test_a_bad_frame_closes_the_connection_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, frame: bytes, reason: str
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        with caplog.at_level(logging.WARNING):
            await client.send(frame)
            assert await client.receive() is None
        (record,) = said_by(caplog)
        assert any(part in record.getMessage() for part in reason.split("|"))
        assert record.exc_info is None
        assert await (await context.connect()).ask(ApiKey.METADATA, topics=())


async def test_random_bytes_never_make_a_traceback_or_end_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seed = 20_261_120
    rng = random.Random(seed)
    apis = [3, 8, 9, 10, 11, 12, 13, 14, 18, 19, 20, 22, 24, 25, 26, 28, 32, 60, 0, 1, 2]
    async with running(tmp_path) as context:
        with caplog.at_level(logging.WARNING):
            for _ in range(200):
                client = await context.connect()
                api, version = rng.choice(apis), rng.randrange(0, 14)
                await client.send(header(api, version) + rng.randbytes(rng.randrange(0, 60)))
                client.writer.write_eof()
                await client.receive()
                client.writer.close()
        failures = [record for record in said_by(caplog) if record.exc_info]
        assert not failures, f"seed {seed}: {failures[0].getMessage()}"
        assert await (await context.connect()).ask(ApiKey.METADATA, topics=())


@pytest.mark.parametrize("rest", [b"", bytes(1001)], ids=["its size alone", "whole"])
async def test_a_frame_above_the_limit_closes_and_the_broker_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rest: bytes
) -> None:
    async with running(tmp_path, {"socket.request.max.bytes": 1000}) as context:
        client = await context.connect()
        client.writer.write((1001).to_bytes(4, "big") + rest)
        assert await client.receive() is None
        assert "socket.request.max.bytes" in caplog.text
        assert await (await context.connect()).ask(ApiKey.METADATA, topics=())


async def test_a_client_that_speaks_tls_is_told_apart_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as context:
        host, _, port = context.broker.bootstrap_servers.rpartition(":")
        with caplog.at_level(logging.WARNING), pytest.raises(ConnectionError):
            await asyncio.open_connection(host, int(port), ssl=ssl.create_default_context())
        (record,) = said_by(caplog)
        assert "it speaks TLS, and this listener does not" in record.getMessage()


async def test_connections_above_the_limit_are_refused_and_counted_down_again(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, {"max.connections.per.ip": 2}) as context:
        first, second = await context.connect(), await context.connect()
        assert await second.ask(ApiKey.METADATA, topics=())
        assert await (await context.connect()).receive() is None
        first.writer.close()
        await first.writer.wait_closed()
        await _until(lambda: len(context.broker.server.connections) == 1)
        assert await (await context.connect()).ask(ApiKey.METADATA, topics=())


async def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path, {"connections.max.idle.ms": 50}) as context:
        client = await context.connect()
        assert await client.receive() is None


async def test_a_connection_that_is_used_is_not_closed_as_idle(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        assert await client.ask(ApiKey.METADATA, topics=())
        context.broker.server.close_idle()
        assert await client.ask(ApiKey.METADATA, topics=())
        assert context.broker.server.expired_count == 0


@pytest.mark.parametrize("bad", [b"", b"\xff" * 4, (4).to_bytes(4, "big") + b"\x03\xe7\x00\x00"])
async def test_pipelined_requests_are_answered_in_order_also_before_a_bad_frame(
    tmp_path: Path, bad: bytes
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        cls = codec.request_class(ApiKey.METADATA)
        body = cls(topics=())
        creating = cls(
            topics=(_topic_class()(name="made"),),
            allow_auto_topic_creation=True,
        )
        for correlation_id, request in enumerate([body, creating, body, body]):
            await client.send(
                codec.encode_request(ApiKey.METADATA, 12, correlation_id, "t", request)
            )
        client.writer.write(bad)
        order = []
        for _ in range(4):
            frame = await client.receive()
            assert frame is not None
            order.append(int.from_bytes(frame[:4], "big"))
        assert order == [0, 1, 2, 3]
        if bad:
            assert await client.receive() is None


async def test_a_connection_lost_in_mid_frame_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client: Client = await context.connect()
        client.writer.write((500_000).to_bytes(4, "big") + b"x" * 300_000)
        await client.writer.drain()
        client.writer.close()
        await client.writer.wait_closed()
        await _until(lambda: not context.broker.server.connections)


def _topic_class() -> type:
    from oncelog.protocol.messages.metadata import MetadataRequestTopic

    return MetadataRequestTopic


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the broker has no event for it
            await asyncio.sleep(0)
