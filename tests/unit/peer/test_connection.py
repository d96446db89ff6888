"""Requests on one connection: order, timeouts, and what a break means for those who wait."""

import asyncio
import struct
from typing import Any

import pytest

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.limits import RESPONSE_SIZE_MAX
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import encode_response, response_class
from oncelog.protocol.headers import parse_request_header
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.runtime.framed import DisconnectedError
from tests.fuzz.virtual import VirtualLoop
from tests.unit.runtime.memory_network import MemoryNetwork, MemoryTransport

VERSIONS = {ApiKey.API_VERSIONS: (0, 4), ApiKey.FIND_COORDINATOR: (0, 3), ApiKey.FETCH: (30, 40)}


def versions_response() -> object:
    from oncelog.protocol.messages import api_versions as schema

    return schema.ApiVersionsResponse(
        api_keys=tuple(
            schema.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in VERSIONS.items()
        ),
        finalized_features_epoch=5,
        finalized_features=(
            schema.FinalizedFeatureKey(
                name="transaction.version",
                max_version_level=2,
                min_version_level=2,
            ),
        ),
    )


class Peer:
    """Answers ApiVersions; keeps every other request until the test answers."""

    def __init__(self) -> None:
        self.is_silent = False
        self.answer_without_body = False
        self.requests: list[tuple[MemoryTransport, bytes]] = []
        self.arrived = asyncio.Event()
        self.network = MemoryNetwork(self.on_frame)

    def on_frame(self, transport: MemoryTransport, frame: bytes) -> None:
        header = parse_request_header(frame)
        if header.api_key != ApiKey.API_VERSIONS:
            self.requests.append((transport, frame))
            self.arrived.set()
            return
        if self.is_silent:
            return
        if self.answer_without_body:
            transport.feed(struct.pack(">i", header.correlation_id))
            return
        version, correlation_id = header.api_version, header.correlation_id
        answer = encode_response(ApiKey.API_VERSIONS, version, correlation_id, versions_response())
        transport.feed(answer, piece_size=3)

    async def open(
        self, request_timeout_ms: float = 10_000, connect_timeout_ms: float = 10_000
    ) -> Connection:
        return await Connection.open(
            self.network,
            "peer",
            1,
            client_id="me",
            request_timeout_ms=request_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
        )

    async def wait_for(self, count: int) -> None:
        while len(self.requests) < count:
            self.arrived.clear()
            await self.arrived.wait()

    def answer(
        self, index: int, text: str, correlation_id: int | None = None, throttle_ms: int = 0
    ) -> None:
        transport, frame = self.requests[index]
        header = parse_request_header(frame)
        cls = response_class(ApiKey.FIND_COORDINATOR)
        from oncelog.protocol.messages.find_coordinator import Coordinator

        found = Coordinator(host=text)
        correlation_id = header.correlation_id if correlation_id is None else correlation_id
        transport.feed(
            encode_response(
                ApiKey.FIND_COORDINATOR,
                header.api_version,
                correlation_id,
                cls(coordinators=(found,), throttle_time_ms=throttle_ms),
            )
        )


def ask(connection: Connection) -> "asyncio.Task[Any]":
    request = FindCoordinatorRequest(coordinator_keys=("k",))
    return asyncio.create_task(connection.request(ApiKey.FIND_COORDINATOR, request))


async def test_versions_and_features_are_learned_when_opening() -> None:
    connection = await Peer().open()
    assert connection.support.features == {"transaction.version": 2}
    assert connection.support.features_epoch == 5
    assert connection.version_for(ApiKey.FIND_COORDINATOR) == 3
    assert connection.version_for(ApiKey.FIND_COORDINATOR, at_most=2) == 2
    assert connection.supports(ApiKey.FIND_COORDINATOR, 3)
    assert not connection.supports(ApiKey.FIND_COORDINATOR, 4)


@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.METADATA])
async def test_versions_that_do_not_meet_are_an_error_by_name(api: ApiKey) -> None:
    connection = await Peer().open()
    with pytest.raises(ProtocolError, match=api.name) as raised:
        connection.version_for(api)
    assert raised.value.code is ErrorCode.unsupported_version


async def test_answers_go_to_the_requests_in_their_order() -> None:
    peer = Peer()
    connection = await peer.open()
    first, second = ask(connection), ask(connection)
    await peer.wait_for(2)
    peer.answer(0, "one")
    peer.answer(1, "two")
    hosts = [answer.coordinators[0].host for answer in await asyncio.gather(first, second)]
    assert hosts == ["one", "two"]


async def test_an_abandoned_request_does_not_shift_the_answers() -> None:
    peer = Peer()
    connection = await peer.open()
    first, second = ask(connection), ask(connection)
    await peer.wait_for(2)
    first.cancel()
    peer.answer(0, "one")
    peer.answer(1, "two")
    assert (await second).coordinators[0].host == "two"


async def test_a_wrong_correlation_id_breaks_the_connection() -> None:
    peer = Peer()
    connection = await peer.open()
    waiting = ask(connection)
    await peer.wait_for(1)
    peer.answer(0, "one", correlation_id=99)
    with pytest.raises(DisconnectedError, match="answer 99"):
        await waiting
    assert connection.is_closed


async def test_a_broken_connection_fails_everything_pending_and_later() -> None:
    peer = Peer()
    connection = await peer.open()
    waiting = [ask(connection), ask(connection)]
    await peer.wait_for(2)
    peer.network.transports[0].cut(OSError("reset"))
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, DisconnectedError)
    with pytest.raises(DisconnectedError):
        await ask(connection)
    await connection.wait_closed()


async def test_a_request_without_an_answer_in_time_closes_the_connection() -> None:
    connection = await Peer().open(request_timeout_ms=20)
    with pytest.raises(DisconnectedError, match="in time"):
        await ask(connection)
    assert connection.is_closed


def test_while_a_broker_throttles_nothing_is_late() -> None:
    async def throttled() -> None:
        peer = Peer()
        connection = await peer.open(request_timeout_ms=20)
        first, second = ask(connection), ask(connection)
        await peer.wait_for(2)
        peer.answer(0, "one", throttle_ms=100)
        await first
        third = ask(connection)
        done, _ = await asyncio.wait({second, third}, timeout=0.08)
        assert not done
        peer.answer(1, "two")
        assert (await second).coordinators[0].host == "two"
        with pytest.raises(DisconnectedError, match="in time"):
            await third

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(throttled())


@pytest.mark.parametrize("frame", [b"", b"\0\0\0"])
async def test_an_answer_that_is_cut_short_closes_the_connection(frame: bytes) -> None:
    peer = Peer()
    connection = await peer.open()
    waiting = ask(connection)
    await peer.wait_for(1)
    peer.network.transports[0].feed(frame)
    with pytest.raises(DisconnectedError):
        await waiting
    assert connection.is_closed


async def test_an_impossible_frame_size_closes_the_connection() -> None:
    peer = Peer()
    connection = await peer.open()
    peer.network.transports[0].feed_raw(struct.pack(">i", RESPONSE_SIZE_MAX + 1))
    assert connection.is_closed


async def test_a_peer_that_never_tells_its_versions_is_a_disconnect() -> None:
    peer = Peer()
    peer.is_silent = True
    with pytest.raises(DisconnectedError, match="peer:1: no answer in 20 ms"):
        await peer.open(connect_timeout_ms=20)
    assert peer.network.transports[0].closed


async def test_an_answer_about_versions_without_a_body_breaks_the_protocol() -> None:
    peer = Peer()
    peer.answer_without_body = True
    with pytest.raises(ProtocolError):
        await peer.open()
    assert peer.network.transports[0].closed


async def test_an_answer_to_nothing_closes_the_connection() -> None:
    peer = Peer()
    connection = await peer.open()
    peer.network.transports[0].feed(b"\0\0\0\7")
    assert connection.is_closed


async def test_no_listener_at_the_address_is_a_disconnect() -> None:
    peer = Peer()
    peer.network.refused = True
    with pytest.raises(DisconnectedError, match="peer:1"):
        await peer.open()
