"""Connections between brokers are cut as a router that drops packets cuts them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from oncelog.runtime.network import Listener
from oncelog.testing.network import Cables, ControlledNetwork

A, B = 1, 2
SOON_S = 5.0
NOT_AT_ALL_S = 0.05


class Ear(asyncio.Protocol):
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.received = b""
        self.came = asyncio.Event()
        self.transport: asyncio.Transport | None = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.came.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.came.set()

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    async def hears(self, data: bytes) -> bool:
        """Whether it receives this soon."""
        async with asyncio.timeout(SOON_S):
            while data not in self.received:
                self.came.clear()
                await self.came.wait()
        return True


class BufferedEar(asyncio.BufferedProtocol):
    """The same with a buffer of its own, as a broker's connection has it."""

    def __init__(self) -> None:
        self.ear = Ear()
        self._buffer = bytearray(16)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.ear.connection_made(transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.ear.data_received(bytes(self._buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ear.connection_lost(exc)


class Pair:
    """Broker A connected to broker B."""

    def __init__(self) -> None:
        self.cables = Cables()
        self.a, self.b = ControlledNetwork(A, self.cables), ControlledNetwork(B, self.cables)
        self.at_a, self.at_b = Ear(), Ear()
        self.port = 0
        self.listener: Listener | None = None

    async def open(self) -> None:
        def accept() -> asyncio.BaseProtocol:
            made = BufferedEar()
            self.at_b = made.ear
            return made

        self.listener = await self.b.listen("127.0.0.1", 0, accept)
        self.port = self.listener.addresses[0][1]
        await self.connect()

    async def connect(self) -> None:
        await self.a.connect("127.0.0.1", self.port, lambda: self.at_a)
        self.at_a.write(b"hello")
        assert await self.at_b.hears(b"hello")

    def cut(self, *pairs: tuple[int, int]) -> None:
        self.cables.cuts |= set(pairs)
        self.tell()

    def heal(self) -> None:
        self.cables.cuts.clear()
        self.tell()

    def tell(self) -> None:
        self.a.changed()
        self.b.changed()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    await made.open()
    yield made
    for ear in (made.at_a, made.at_b):
        if ear.transport is not None:
            ear.transport.abort()
    assert made.listener is not None
    await made.listener.close()
    await asyncio.sleep(0)


async def test_nothing_arrives_in_the_direction_that_is_cut_until_it_is_healed(pair: Pair) -> None:
    pair.cut((A, B))
    pair.at_a.write(b"lost on its way")
    pair.at_b.write(b"the other way")
    assert await pair.at_a.hears(b"the other way")
    assert b"lost" not in pair.at_b.received
    pair.heal()
    assert await pair.at_b.hears(b"lost on its way")


async def test_nobody_learns_that_a_cut_connection_was_closed(pair: Pair) -> None:
    pair.cut((A, B), (B, A))
    assert pair.at_a.transport is not None
    pair.at_b.came.clear()
    pair.at_a.transport.abort()
    await asyncio.sleep(NOT_AT_ALL_S)
    assert not pair.at_b.is_lost
    pair.heal()
    async with asyncio.timeout(SOON_S):
        await pair.at_b.came.wait()
    assert pair.at_b.is_lost


@pytest.mark.parametrize("direction", [(A, B), (B, A)])
async def test_a_new_connection_hangs_while_either_direction_is_cut(
    pair: Pair, direction: tuple[int, int]
) -> None:
    pair.cut(direction)
    connecting = asyncio.create_task(pair.a.connect("127.0.0.1", pair.port, Ear))
    done, _ = await asyncio.wait([connecting], timeout=NOT_AT_ALL_S)
    assert not done
    pair.heal()
    async with asyncio.timeout(SOON_S):
        await connecting


async def test_a_protocol_that_pauses_reading_and_a_cut_do_not_undo_each_other(pair: Pair) -> None:
    assert pair.at_b.transport is not None
    pair.at_b.transport.pause_reading()
    pair.cut((A, B))
    pair.at_a.write(b"later")
    pair.heal()
    await asyncio.sleep(NOT_AT_ALL_S)
    assert b"later" not in pair.at_b.received
    pair.cut((A, B))
    pair.at_b.transport.resume_reading()
    await asyncio.sleep(NOT_AT_ALL_S)
    assert b"later" not in pair.at_b.received
    pair.heal()
    assert await pair.at_b.hears(b"later")


async def test_a_client_on_a_port_that_a_broker_had_is_not_taken_for_it(pair: Pair) -> None:
    assert pair.at_a.transport is not None
    assert pair.cables.sources
    pair.at_b.came.clear()
    pair.at_a.transport.abort()
    async with asyncio.timeout(SOON_S):
        await pair.at_b.came.wait()
    assert not pair.cables.sources
