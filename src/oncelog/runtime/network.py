"""Network: how the process reaches others, and how others reach it.

Broker and client open sockets only through the `Network` they are given (D3): `SystemNetwork` here
is the real one, the simulation brings another that delays, drops, resets and partitions. Both speak
asyncio's transports and protocols, so what runs on top is the same code. This module knows nothing
of Kafka.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

from oncelog.core.limits import LISTEN_BACKLOG_COUNT

__all__ = ["Listener", "Network", "ProtocolFactory", "SystemNetwork"]

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Listener(Protocol):
    """A listening socket.

    `addresses` holds the (host, port) pairs really bound, so port 0 can be asked what it became.
    """

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Bound addresses, in the order of binding."""
        ...

    async def close(self) -> None:
        """Stop listening; connections that were accepted stay."""
        ...


class Network(Protocol):
    """Opens and accepts byte streams."""

    async def listen(self, host: str, port: int, protocol_factory: ProtocolFactory) -> Listener:
        """Listen on `host`:`port` (0: any free port).

        Raises `OSError` when the address cannot be had.
        """
        ...

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        """Connect and call the protocol's `connection_made`.

        Raises `OSError` when nobody answers.
        """
        ...


class _SystemListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple(s.getsockname()[:2] for s in self._server.sockets)

    async def close(self) -> None:
        # `wait_closed` would wait for every accepted connection (Python 3.12.1+); their owner
        # closes those.
        self._server.close()
        await asyncio.sleep(0)


class SystemNetwork:
    """TCP, by the running event loop (uvloop's or asyncio's). Nagle's algorithm is off in both.

    With `tls` what it connects to has to speak TLS; what connects to it never does.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls

    async def listen(self, host: str, port: int, protocol_factory: ProtocolFactory) -> Listener:
        """See `Network.listen`."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            protocol_factory, host, port, backlog=LISTEN_BACKLOG_COUNT
        )
        return _SystemListener(server)

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        """See `Network.connect`. A handshake that fails raises `ssl.SSLError`, an `OSError`."""
        loop = asyncio.get_running_loop()
        name = None if self._tls is None else host
        await loop.create_connection(
            protocol_factory, host, port, ssl=self._tls, server_hostname=name
        )
