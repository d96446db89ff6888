"""The address of the metrics: what it answers, and what it lets nobody do."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from oncelog.broker.metrics import METRICS, MetricsServer
from oncelog.core.errors import OncelogError
from oncelog.core.limits import (
    METRICS_CONNECTIONS_COUNT_MAX,
    METRICS_LINES_PER_TURN_COUNT,
    METRICS_REQUEST_BYTES_MAX,
    METRICS_REQUEST_TIMEOUT_S,
)
from oncelog.core.listeners import Endpoint
from oncelog.runtime.clock import SystemClock
from oncelog.runtime.network import Listener, ProtocolFactory
from tests.unit.broker.context import running
from tests.unit.broker.support import HandLoop

GET = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
TURNS = 10


class FakeListener:
    addresses = (("127.0.0.1", 9404),)
    descriptors: tuple[int, ...] = ()

    async def accept(self) -> None:
        pass

    async def close(self) -> None:
        pass


class FakeNetwork:
    def __init__(self) -> None:
        self.accept: ProtocolFactory | None = None
        self.refuses = False

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, *, accepts: bool = True
    ) -> Listener:
        if self.refuses:
            raise OSError(98, "Address already in use")
        self.accept = protocol_factory
        return FakeListener()

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        raise NotImplementedError


class Peer:
    """Somebody who connected: what was written to them, and whether they were let go."""

    def __init__(self, network: FakeNetwork) -> None:
        assert network.accept is not None
        self.protocol = cast(asyncio.Protocol, network.accept())
        self.written = bytearray()
        self.closed = self.aborted = False
        self.protocol.connection_made(cast(Any, self))

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True
        self.protocol.connection_lost(None)

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)


class Served:
    """A server over fakes; time passes as the test says."""

    def __init__(self, lines: Callable[[], Iterator[str]]) -> None:
        self.network = FakeNetwork()
        self.loop = HandLoop()
        self.server = MetricsServer(self.network, SystemClock())
        self.server.lines = lines
        self.exits = AsyncExitStack()
        real = self.server.loop
        self.loop.create_task = real.create_task  # type: ignore[attr-defined]
        self.server.loop = self.loop  # type: ignore[assignment]

    async def start(self) -> None:
        await self.server.start(Endpoint("127.0.0.1", 9404), self.exits)

    async def ask(self, data: bytes = GET) -> Peer:
        peer = Peer(self.network)
        peer.send(data)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        return peer


async def served(lines: Callable[[], Iterator[str]] = lambda: iter(["a 1\n"])) -> Served:
    context = Served(lines)
    await context.start()
    return context


async def test_a_scrape_is_answered_and_the_connection_closed() -> None:
    peer = await (await served()).ask()
    head, _, body = bytes(peer.written).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
    assert b"Content-Length: 4\r\n" in head
    assert body == b"a 1\n"
    assert peer.closed


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1", b"200"),
        (b"GET /metrics?x=1 HTTP/1.0", b"200"),
        (b"GET /other HTTP/1.1", b"404"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"\x00\xff", b"404"),
    ],
)
async def test_nothing_but_metrics_and_health_is_answered(
    request_line: bytes, status: bytes
) -> None:
    peer = await (await served()).ask(request_line + b"\r\n\r\n")
    assert peer.written.startswith(b"HTTP/1.1 " + status)
    assert peer.closed


async def test_a_request_in_pieces_is_taken() -> None:
    context = await served()
    peer = await context.ask(GET[:5])
    assert len(peer.written) == 0
    peer.send(GET[5:])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert peer.written.startswith(b"HTTP/1.1 200")


async def test_a_request_without_an_end_is_refused_at_its_limit() -> None:
    peer = await (await served()).ask(b"x" * (METRICS_REQUEST_BYTES_MAX + 1))
    assert peer.written.startswith(b"HTTP/1.1 431")
    assert peer.closed


async def test_a_peer_that_asks_or_reads_too_slowly_is_cut() -> None:
    context = await served()
    asks, reads = await context.ask(b"GET"), await context.ask()
    context.loop.advance(METRICS_REQUEST_TIMEOUT_S - 1)
    assert (asks.aborted, reads.aborted) == (False, False)
    context.loop.advance(1)
    assert (asks.aborted, reads.aborted) == (True, True)


async def test_one_connection_too_many_is_refused_until_another_one_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = await served()
    peers = [Peer(context.network) for _ in range(METRICS_CONNECTIONS_COUNT_MAX)]
    with caplog.at_level(logging.WARNING):
        assert Peer(context.network).aborted
    assert "refusing a connection for metrics" in caplog.text
    peers[0].abort()
    assert not Peer(context.network).aborted


async def test_those_who_ask_at_the_same_time_share_one_scrape() -> None:
    scrapes = 0

    def lines() -> Iterator[str]:
        nonlocal scrapes
        scrapes += 1
        yield "a 1\n"

    context = await served(lines)
    first, second = Peer(context.network), Peer(context.network)
    first.send(GET)
    second.send(GET)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert first.written == second.written
    assert scrapes == 1


async def test_a_long_scrape_gives_the_loop_its_turn() -> None:
    made = 0

    def lines() -> Iterator[str]:
        nonlocal made
        for _ in range(3 * METRICS_LINES_PER_TURN_COUNT):
            made += 1
            yield "a 1\n"

    context = await served(lines)
    Peer(context.network).send(GET)
    await asyncio.sleep(0)
    assert made == METRICS_LINES_PER_TURN_COUNT


async def test_a_scrape_that_fails_is_said_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> Iterator[str]:
        yield "a 1\n"
        raise ValueError("broken")

    peer = await (await served(lines)).ask()
    assert peer.written.startswith(b"HTTP/1.1 500")
    assert "the metrics could not be read" in caplog.text


async def test_stopping_cuts_those_who_wait() -> None:
    context = await served()
    peer = Peer(context.network)
    peer.send(GET)
    await context.exits.aclose()
    assert peer.aborted


async def test_without_metrics_a_scrape_is_told_why() -> None:
    context = await served()
    context.server.lines = None
    peer = await context.ask()
    assert peer.written.startswith(b"HTTP/1.1 503")
    assert peer.written.endswith(b"\r\n\r\nstarting\n")


@pytest.mark.parametrize(
    ("problem", "status", "said"), [("", b"200 OK", b"ready"), ("fenced", b"503", b"fenced")]
)
async def test_readiness_is_what_the_broker_says(problem: str, status: bytes, said: bytes) -> None:
    context = await served()
    context.server.problem = lambda: problem
    peer = await context.ask(b"GET /readyz HTTP/1.1\r\n\r\n")
    assert peer.written.startswith(b"HTTP/1.1 " + status)
    assert peer.written.endswith(b"\r\n\r\n" + said + b"\n")


async def test_what_answers_is_alive_whatever_its_problem() -> None:
    peer = await (await served()).ask(b"GET /livez HTTP/1.1\r\n\r\n")
    assert peer.written.startswith(b"HTTP/1.1 200 OK")


async def test_an_address_that_is_taken_is_refused_in_one_sentence() -> None:
    context = Served(lambda: iter(()))
    context.network.refuses = True
    with pytest.raises(OncelogError, match=r"oncelog.metrics.address=127.0.0.1:9404 cannot be had"):
        await context.start()


async def test_a_broker_serves_all_metrics_over_its_own_network(tmp_path: Path) -> None:
    config = {"oncelog.metrics.address": "127.0.0.1:0"}
    async with running(tmp_path, config) as context:
        reader, writer = await asyncio.open_connection(*context.broker.metrics.address)
        writer.write(GET)
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
    body = answer.partition(b"\r\n\r\n")[2].decode()
    names = {family.name for family in text_string_to_metric_families(body)}
    assert {metric.name.removesuffix("_total") for metric in METRICS} == names
