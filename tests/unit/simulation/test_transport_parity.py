"""One script on a real socket and on a simulated one: the protocols see the same calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import groupby

import pytest

from oncelog.runtime.network import Network, SystemNetwork
from tests.unit.simulation.network_context import Recorder, World


class Waiting(Recorder):
    """A recorder whose events can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()
        self.on_data = self.changed.set

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The system's transport has the same methods.
        self._transport = transport  # type: ignore[assignment]
        self.loop = asyncio.get_running_loop()
        self.events.append("made")
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.changed.set()

    def eof_received(self) -> bool:
        self.changed.set()
        return super().eof_received()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.changed.wait()
            self.changed.clear()


async def both_ends(network: Network, host: str) -> tuple[Waiting, Waiting]:
    server, client = Waiting(), Waiting()
    listener = await network.listen(host, 0, lambda: server)
    await network.connect(host, listener.addresses[0][1], lambda: client)
    assert client.events == ["made"]
    await server.until(lambda: server.events == ["made"])
    await listener.close()
    return client, server


async def close_after_a_write(client: Waiting, server: Waiting) -> None:
    client.transport.write(b"request")
    client.transport.close()
    client.transport.write(b"ignored")
    client.events.append(f"closing {client.transport.is_closing()}")
    await client.until(lambda: client.is_lost)
    await server.until(lambda: server.is_lost)


async def close_by_the_server_at_data(client: Waiting, server: Waiting) -> None:
    client.transport.write(b"request")
    await server.until(lambda: server.data == b"request")
    server.transport.write(b"reply")
    server.transport.close()
    await client.until(lambda: client.is_lost)
    await server.until(lambda: server.is_lost)


async def abort(client: Waiting, server: Waiting) -> None:
    client.transport.abort()
    client.transport.close()
    client.transport.abort()
    client.transport.write(b"ignored")
    client.events.append(f"closing {client.transport.is_closing()}")
    await client.until(lambda: client.is_lost)
    await server.until(lambda: server.is_lost)
    # The peer sees the end of the stream or a reset, here as there.
    server.events.clear()
    server.errors.clear()


async def half_closed(client: Waiting, server: Waiting) -> None:
    server.keep_open = True
    client.transport.close()
    await client.until(lambda: client.is_lost)
    await server.until(lambda: "eof" in server.events)
    server.events.append(f"closing {server.transport.is_closing()}")
    server.transport.close()
    await server.until(lambda: server.is_lost)


async def paused_then_resumed(client: Waiting, server: Waiting) -> None:
    server.transport.pause_reading()
    server.transport.pause_reading()
    server.events.append(f"reading {server.transport.is_reading()}")
    client.transport.write(b"first")
    await asyncio.sleep(0)
    server.transport.resume_reading()
    server.events.append(f"reading {server.transport.is_reading()}")
    await server.until(lambda: server.data == b"first")
    server.transport.close()
    server.events.append(f"reading {server.transport.is_reading()}")
    await client.until(lambda: client.is_lost)
    await server.until(lambda: server.is_lost)


def seen(ends: tuple[Waiting, Waiting]) -> list[tuple[list[str], bytes, list[str]]]:
    """What each end saw; data in several pieces counts as one."""
    return [
        (
            [event for event, _ in groupby(end.events)],
            bytes(end.data),
            [type(error).__name__ for error in end.errors],
        )
        for end in ends
    ]


SCRIPTS = [
    close_after_a_write,
    close_by_the_server_at_data,
    abort,
    half_closed,
    paused_then_resumed,
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_simulated_transport_calls_as_a_real_one_does(
    script: Callable[[Waiting, Waiting], Awaitable[None]], seed: int
) -> None:
    real = await both_ends(SystemNetwork(), "127.0.0.1")
    await script(*real)

    world = World(seed)
    process = world.process("both")

    async def simulated() -> tuple[Waiting, Waiting]:
        ends = await both_ends(world.networks["both"], process.host)
        await script(*ends)
        return ends

    assert seen(world.ask(process, simulated)) == seen(real)
    assert world.failures == []
