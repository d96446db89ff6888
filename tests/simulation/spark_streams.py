"""asyncio's streams over the simulated network, for the turns of tasks that share partitions.

`oncelog.spark.turn_server` listens and connects by `asyncio.start_server` and `open_connection`,
which a simulated loop has not. Here asyncio's own `StreamReaderProtocol` is joined to a simulated
connection instead. Driver and tasks are processes of one machine, as in a local Spark.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from oncelog.runtime.network import Listener
from oncelog.simulation.loop import ProcessLoop
from oncelog.simulation.process import Process

__all__ = ["here", "open_connection", "start_server", "token_hex"]

OnConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def here() -> Process:
    """The process whose loop runs."""
    process: Any = getattr(asyncio.get_running_loop(), "_process", None)
    assert isinstance(process, Process)
    return process


class _Protocol(asyncio.StreamReaderProtocol):
    """Keeps the transport, which `Network.connect` does not return."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        super().connection_made(transport)


class _Server:
    """As much of `asyncio.Server` as is used."""

    def __init__(self, process: Process, listener: Listener) -> None:
        self._process, self._listener = process, listener
        address = listener.addresses[0]
        self.sockets = (SimpleNamespace(getsockname=lambda: address),)

    def close(self) -> None:
        """Stop listening; open connections stay."""
        loop = self._process.loop
        assert isinstance(loop, ProcessLoop)
        loop.keep(self._listener.close())


async def start_server(on_connection: OnConnection, host: str, port: int) -> _Server:
    """In the place of `asyncio.start_server`."""
    process = here()

    def accept() -> _Protocol:
        loop = process.loop
        return _Protocol(asyncio.StreamReader(loop=loop), on_connection, loop=loop)

    return _Server(process, await process.network.listen(host, port, accept))


async def open_connection(
    host: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """In the place of `asyncio.open_connection`. Raises `OSError`."""
    process = here()
    reader = asyncio.StreamReader(loop=process.loop)
    protocol = _Protocol(reader, loop=process.loop)
    await process.network.connect(host, port, lambda: protocol)
    return reader, asyncio.StreamWriter(protocol.transport, protocol, reader, process.loop)


def token_hex(byte_count: int) -> str:
    """In the place of `secrets.token_hex`: a seed decides it."""
    return here().rng.randbytes(byte_count).hex()
