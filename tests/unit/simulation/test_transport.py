"""One end of a simulated connection behaves as asyncio's transports do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from oncelog.core.limits import SIMULATED_CHUNK_BYTES_MAX, SIMULATED_SOCKET_BUFFER_BYTES
from oncelog.simulation.transport import SimulatedTransport
from tests.unit.simulation.network_context import Pair, Recorder, World, for_each_seed


def pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def test_bytes_arrive_in_order_in_both_directions() -> None:
    pair = Pair()
    for index in range(100):
        pair.write(pair.client, b"%d," % index)
        pair.write(pair.server, b"%d;" % index)
    pair.run(1)
    assert pair.server.data == b"".join(b"%d," % index for index in range(100))
    assert pair.client.data == b"".join(b"%d;" % index for index in range(100))


def test_a_write_is_not_delivered_inside_the_call() -> None:
    pair = Pair()
    order: list[str] = []
    pair.server.on_data = lambda: order.append("received")

    def write() -> None:
        pair.client.transport.write(b"a")
        order.append("returned")

    pair.world.call(pair.client_process, write)
    pair.run(1)
    assert order == ["returned", "received"]


def test_what_is_written_is_copied() -> None:
    pair = Pair()
    buffer = bytearray(b"before")

    def write() -> None:
        pair.client.transport.write(memoryview(buffer))
        pair.client.transport.writelines([b"-", memoryview(buffer)[:2], buffer])
        buffer[:] = b"behind"

    pair.world.call(pair.client_process, write)
    pair.run(1)
    assert pair.server.data == b"before-bebefore"


def test_an_end_knows_both_addresses() -> None:
    pair = Pair()
    own = pair.client.transport.get_extra_info("sockname")
    peer = pair.client.transport.get_extra_info("peername")
    assert own[0] == "10.0.0.1"
    assert peer == ("10.0.0.2", 9092)
    assert pair.server.transport.get_extra_info("peername") == own
    assert pair.server.transport.get_extra_info("sockname") == peer
    assert pair.server.transport.get_extra_info("socket") is None


@for_each_seed
def test_close_sends_what_was_written_then_both_ends_are_lost_once(seed: int) -> None:
    pair = Pair(seed)
    data = pattern(1_000_000)

    def write_and_close() -> None:
        pair.client.transport.write(data)
        pair.client.transport.close()
        pair.client.transport.close()
        assert pair.client.transport.is_closing()
        assert not pair.client.is_lost
        pair.client.transport.write(b"ignored")

    pair.world.call(pair.client_process, write_and_close)
    pair.run(5)
    assert pair.server.data == data
    assert pair.server.events[-2:] == ["eof", "lost"]
    assert pair.server.errors == [None]
    assert pair.client.errors == [None]
    assert not pair.network.connections


@for_each_seed
def test_abort_loses_an_end_of_the_stream_at_most(seed: int) -> None:
    pair = Pair(seed)
    data = pattern(200_000)

    def write_and_abort() -> None:
        pair.client.transport.write(data)
        pair.client.transport.abort()
        pair.client.transport.abort()
        assert not pair.client.is_lost

    pair.world.call(pair.client_process, write_and_abort)
    pair.run(5)
    assert data.startswith(pair.server.data)
    assert pair.client.errors == [None]
    (error,) = pair.server.errors
    assert error is None or isinstance(error, ConnectionResetError)


def test_an_end_with_a_half_open_connection_gets_a_reset_when_it_writes() -> None:
    pair = Pair()
    pair.server.keep_open = True
    pair.do(pair.client, "close")
    pair.run(1)
    assert pair.server.events == ["made", "eof"]
    pair.write(pair.server, b"reply")
    pair.run(1)
    (error,) = pair.server.errors
    assert isinstance(error, ConnectionResetError)


@for_each_seed
def test_a_paused_reader_gets_nothing_and_later_everything(seed: int) -> None:
    pair = Pair(seed)
    pair.do(pair.server, "pause_reading")
    assert not pair.server.transport.is_reading()
    data = pattern(2_000_000)
    pair.write(pair.client, data)
    pair.run(60)
    assert pair.server.data == b""
    assert not pair.client.is_lost
    pair.do(pair.server, "resume_reading")
    pair.run(1)
    assert pair.server.data == data


def test_a_paused_reader_takes_a_socket_buffer_then_the_writer_keeps_the_rest() -> None:
    pair = Pair()
    pair.do(pair.server, "pause_reading")
    written = 0
    while pair.client.writable:
        pair.write(pair.client, bytes(10_000))
        written += 10_000
        pair.run(0.1)
    unsent = pair.client.transport.get_write_buffer_size()
    low, high = pair.client.transport.get_write_buffer_limits()
    assert low < high < unsent <= high + 10_000
    assert written - unsent >= SIMULATED_SOCKET_BUFFER_BYTES
    assert written - unsent < SIMULATED_SOCKET_BUFFER_BYTES + SIMULATED_CHUNK_BYTES_MAX


def test_a_paused_writer_resumes_when_its_bytes_are_taken() -> None:
    pair = Pair()

    def write() -> None:
        pair.client.transport.set_write_buffer_limits(high=1000)
        pair.client.transport.write(bytes(1000))
        assert pair.client.events == ["made"]
        pair.client.transport.write(b"a")
        assert pair.client.events == ["made", "pause"]
        assert pair.client.transport.get_write_buffer_size() == 1001

    pair.world.call(pair.client_process, write)
    pair.run(1)
    assert pair.client.events == ["made", "pause", "resume"]
    assert pair.client.transport.get_write_buffer_size() == 0


def test_reading_can_pause_in_the_middle_of_what_arrives() -> None:
    pair = Pair()
    pair.server.on_data = lambda: pair.server.transport.pause_reading()
    data = pattern(SIMULATED_CHUNK_BYTES_MAX * 3)
    pair.write(pair.client, data)
    pair.run(1)
    sizes = []
    while len(pair.server.data) < len(data):
        sizes.append(len(pair.server.data))
        assert pair.server.events.count("data") == len(sizes)
        pair.do(pair.server, "resume_reading")
        pair.run(1)
    assert len(sizes) >= 2
    assert pair.server.data == data


class Growing(asyncio.BufferedProtocol):
    """Receives into a buffer that it doubles, as the broker does with frames."""

    def __init__(self, pause: bool) -> None:
        self.pause = pause
        self.data = bytearray()
        self.frame = bytearray(16)
        self.filled = 0
        self.errors: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.filled == len(self.frame):
            self.frame.extend(bytes(len(self.frame)))
        return memoryview(self.frame)[self.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport.is_reading()
        self.filled += nbytes
        if self.filled == len(self.frame) and self.pause:
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.errors.append(exc)


@pytest.mark.parametrize("pause", [False, True])
def test_a_buffered_protocol_is_given_bytes_in_its_own_buffers(pause: bool) -> None:
    world = World()
    client_process, server_process = world.process("client"), world.process("server")
    server = Growing(pause)
    network = world.networks["server"]
    world.ask(server_process, lambda: network.listen("10.0.0.2", 9092, lambda: server))
    client = world.connect(client_process, server_process)
    data = pattern(100_000)
    world.call(client_process, client.transport.write, data)
    for _ in range(20):
        world.run(0.1)
        world.call(server_process, server.transport.resume_reading)
    assert server.frame[: server.filled] == data
    assert server.errors == []


@pytest.mark.parametrize("name", ["data_received", "eof_received"])
def test_a_protocol_that_fails_loses_its_connection_and_the_loop_is_told(name: str) -> None:
    pair = Pair()

    def fail(*args: object) -> None:
        raise ValueError("a bug")

    setattr(pair.server, name, fail)
    pair.write(pair.client, b"a")
    pair.do(pair.client, "close")
    pair.run(1)
    assert pair.world.failures == ["server: ValueError('a bug')"]
    (error,) = pair.server.errors
    assert isinstance(error, ValueError)


def closing(name: str) -> Callable[[Recorder], None]:
    def close(recorder: Recorder) -> None:
        getattr(recorder.transport, name)()

    return close


@pytest.mark.parametrize("name", ["close", "abort"])
def test_nothing_is_received_after_the_own_close(name: str) -> None:
    pair = Pair()
    pair.server.on_data = lambda: closing(name)(pair.server)
    pair.write(pair.client, pattern(SIMULATED_CHUNK_BYTES_MAX * 4))
    pair.run(1)
    assert pair.server.events == ["made", "data", "lost"]
    assert pair.client.is_lost


def test_the_limits_of_the_write_buffer_follow_asyncio() -> None:
    pair = Pair()
    transport = pair.client.transport
    assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
    transport.set_write_buffer_limits(low=10)
    assert transport.get_write_buffer_limits() == (10, 40)
    transport.set_write_buffer_limits(high=100)
    assert transport.get_write_buffer_limits() == (25, 100)
    with pytest.raises(ValueError, match="must be"):
        transport.set_write_buffer_limits(high=1, low=2)
