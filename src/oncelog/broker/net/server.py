"""The listening socket and the connections it accepted.

Applies `max.connections`, `max.connections.per.ip` and `connections.max.idle.ms`. It must not know
frames or APIs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter

from oncelog.broker.net.connection import ServerConnection, Starter
from oncelog.broker.net.frames import ReadBuffer
from oncelog.core.config import BrokerConfig
from oncelog.core.limits import IDLE_SWEEP_MS_MAX, STOP_FLUSH_TURN_MS, STOP_FLUSH_TURNS_COUNT
from oncelog.core.listeners import Endpoint
from oncelog.runtime.clock import Clock
from oncelog.runtime.network import Listener, Network, occupy

__all__ = ["Server"]

log = logging.getLogger(__name__)

_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})


def _own_name() -> str:
    """Return this machine's host name, which Kafka advertises when it listens everywhere."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name


class Server:
    """Accepts connections for one broker: `bind` finds its address, `open` begins to serve."""

    def __init__(self, config: BrokerConfig, network: Network, clock: Clock) -> None:
        self.loop = asyncio.get_running_loop()
        self.frame_bytes_max = config.get_int("socket.request.max.bytes")
        # In the order of acceptance.
        self.connections: dict[ServerConnection, None] = {}
        self.unread_bytes = 0
        """Reply bytes that stalled peers have not read, as counted when each stalled."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.opened_count = 0
        self.expired_count = 0
        """Counts of connections that were accepted, and of those closed because they were idle."""
        self.host = ""
        self.port = 0
        self._config = config
        self._network = network
        self._clock = clock
        self._read_buffer = ReadBuffer()
        self._connections_max = config.get_int("max.connections")
        self._per_ip_max = config.get_int("max.connections.per.ip")
        self._idle_ms_max = config.get_int("connections.max.idle.ms")
        self._per_ip: Counter[str] = Counter()
        self._listener: Listener | None = None
        self._starter: Starter | None = None

    async def bind(self) -> Endpoint:
        """Bind the address, without accepting; return where clients are to reach us.

        Raises `AddressUnavailable` when the address cannot be bound.
        """
        listener = self._config.listener
        self._listener = await self._network.listen(
            listener.host, listener.port, self._accepted, accepts=False
        )
        self.host, self.port = self._listener.addresses[0]
        advertised = self._config.advertised_listener
        if advertised is not None:
            return advertised._replace(port=advertised.port or self.port)
        host = _own_name() if listener.host in _ANY_ADDRESS else listener.host
        return listener._replace(host=host, port=self.port)

    async def open(self, starter: Starter) -> None:
        """Accept connections, whose requests go to `starter`.

        Raises `AddressUnavailable` when another process has come to listen there.
        """
        assert self._listener is not None
        self._starter = starter
        await self._listener.accept()

    def _accepted(self) -> ServerConnection:
        assert self._starter is not None
        return ServerConnection(self, self._starter, self._read_buffer)

    def admit(self, connection: ServerConnection) -> bool:
        """Accept a new connection, unless a limit forbids it (one log line).

        One that the system had accepted when the server stopped comes too late.
        """
        if self._listener is None:
            return False
        host = connection.peer_host
        if len(self.connections) >= self._connections_max:
            log.warning(
                "refusing connection %s: max.connections=%d", connection, self._connections_max
            )
            return False
        if self._per_ip[host] >= self._per_ip_max:
            log.warning(
                "refusing connection %s: max.connections.per.ip=%d", connection, self._per_ip_max
            )
            return False
        self.opened_count += 1
        self.connections[connection] = None
        self._per_ip[host] += 1
        return True

    def forget(self, connection: ServerConnection) -> None:
        """Remove a connection that has ended."""
        if connection in self.connections:
            del self.connections[connection]
            self._per_ip[connection.peer_host] -= 1
            if self._per_ip[connection.peer_host] <= 0:
                del self._per_ip[connection.peer_host]

    async def run(self) -> None:
        """Close connections that were idle for too long, until cancelled."""
        if self._idle_ms_max < 0:
            return
        pause_ms = min(max(self._idle_ms_max / 2, 1), IDLE_SWEEP_MS_MAX)
        while True:
            await self._clock.sleep(pause_ms)
            self.close_idle()

    def close_idle(self) -> None:
        """Close connections idle for `connections.max.idle.ms`, stalled readers included."""
        oldest_s = self.loop.time() - self._idle_ms_max / 1000
        for connection in [c for c in self.connections if c.last_active_s < oldest_s and c.idle]:
            self.expired_count += 1
            connection.abort()

    def let_go_in_child(self) -> None:
        """Close the inherited port and connections in a forked child; the parent keeps its own."""
        if self._listener is not None:
            occupy(self._listener.descriptors)
        occupy(connection.descriptor for connection in self.connections)

    def abort(self) -> None:
        """Close every connection at once."""
        for connection in list(self.connections):
            connection.abort()

    async def stop(self) -> None:
        """Stop listening and close every connection; wait a bounded time for unsent replies."""
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.close()
        for _ in range(STOP_FLUSH_TURNS_COUNT):
            if not self.connections:
                return
            await self._clock.sleep(STOP_FLUSH_TURN_MS)
        # The remaining peers do not read their replies.
        self.abort()
