"""An address can be known before anybody is served there."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import Callable
from functools import partial
from itertools import product

import pytest

from oncelog.runtime.loop import new_event_loop
from oncelog.runtime.network import AddressUnavailable, Network, SystemNetwork
from tests.unit.simulation.network_context import World

HOST = "127.0.0.1"


class Leaving(asyncio.Protocol):
    """Closes the connection once it is made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


async def reached(network: Network, host: str, port: int) -> bool:
    try:
        await network.connect(host, port, Leaving)
    except ConnectionRefusedError:
        return False
    return True


async def refused_until_it_accepts(network: Network, host: str) -> None:
    listener = await network.listen(host, 0, Leaving, accepts=False)
    _, port = listener.addresses[0]
    assert port > 0
    assert not await reached(network, host, port)
    await listener.accept()
    assert await reached(network, host, port)
    await listener.close()
    assert not await reached(network, host, port)


async def test_a_bound_address_refuses_until_it_accepts() -> None:
    await refused_until_it_accepts(SystemNetwork(), HOST)


def test_a_simulated_address_refuses_until_it_accepts() -> None:
    world = World(0)
    process = world.process("server")
    network = world.networks[process.name]
    world.ask(process, lambda: refused_until_it_accepts(network, process.host))


async def test_a_connection_that_comes_as_a_listener_closes_is_not_leaked() -> None:
    listener = await SystemNetwork().listen(HOST, 0, Leaving)
    with socket.create_connection(listener.addresses[0]) as peer:
        # Accepted, and not given to a protocol yet.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await listener.close()
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
        peer.settimeout(5)
        assert peer.recv(1) == b""


async def test_of_two_that_are_bound_to_one_address_one_accepts() -> None:
    network = SystemNetwork()
    first = await network.listen(HOST, 0, Leaving, accepts=False)
    _, port = first.addresses[0]
    second = await network.listen(HOST, port, Leaving, accepts=False)
    await first.accept()
    with pytest.raises(AddressUnavailable, match="in use by another process"):
        await second.accept()
    for listener in (first, second):
        await listener.close()


class Counting:
    """Lets peers in or not, and counts them."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, lets_in: bool = False) -> None:
        self.count = 0
        self.failed: list[BaseException] = []
        self._lets_in = lets_in

    def begin(self, host: str, port: int) -> bool:
        self.count += 1
        return self._lets_in

    def fail(self, host: str, port: int, error: BaseException) -> None:
        self.failed.append(error)


with_each_loop = pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop])


@with_each_loop
def test_handshakes_that_a_close_cuts_off_in_any_turn_are_counted_and_not_leaked(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def cut_off(peers_count: int, turns_count: int) -> None:
        acceptor = Counting(lets_in=True)
        listener = await SystemNetwork().listen_tls(HOST, 0, asyncio.Protocol, acceptor)
        await listener.accept()
        with contextlib.ExitStack() as stack:
            connect = partial(socket.create_connection, listener.addresses[0], timeout=5)
            peers = [stack.enter_context(connect()) for _ in range(peers_count)]
            for _ in range(turns_count):
                await asyncio.sleep(0)
            await listener.close()
            # The loop closes what it took over in the next turns.
            await asyncio.sleep(0.01)
            for peer in peers:
                with contextlib.suppress(ConnectionResetError):
                    assert peer.recv(1) == b"", turns_count
        assert len(acceptor.failed) == acceptor.count, turns_count

    with asyncio.Runner(loop_factory=loop) as runner:
        for peers_count, turns_count in product((1, 3), range(8)):
            runner.run(cut_off(peers_count, turns_count))
    gc.collect()


@with_each_loop
def test_connections_that_wait_are_accepted_one_in_each_turn(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    acceptor = Counting()

    async def most_in_one_turn() -> int:
        listener = await SystemNetwork().listen_tls(HOST, 0, asyncio.Protocol, acceptor)
        await listener.accept()
        most, before = 0, 0
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(socket.create_connection(listener.addresses[0]))
            while before < 20:
                await asyncio.sleep(0)
                most, before = max(most, acceptor.count - before), acceptor.count
        await listener.close()
        return most

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(most_in_one_turn()) == 1
    assert not acceptor.failed
