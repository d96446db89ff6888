"""The listeners of a broker and the connections they accepted.

Applies `max.connections`, `max.connections.per.ip` and `connections.max.idle.ms`. It must not know
frames or APIs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Mapping
from functools import partial

from oncelog.broker.net.connection import ServerConnection, Starter
from oncelog.broker.net.frames import ReadBuffer
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import as_int
from oncelog.core.limits import IDLE_SWEEP_MS_MAX, STOP_FLUSH_TURN_MS, STOP_FLUSH_TURNS_COUNT
from oncelog.core.listeners import Endpoint, ListenerConfig, RegisteredListener
from oncelog.runtime.clock import Clock
from oncelog.runtime.network import Listener, Network, occupy

__all__ = ["BoundListener", "Server"]

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


class BoundListener:
    """One listener of the broker: it makes the connections and counts what is theirs."""

    def __init__(self, server: Server, config: BrokerConfig, given: ListenerConfig) -> None:
        self.name = given.name
        self.given = given
        self.loop = server.loop
        self.frame_bytes_max = config.get_int("socket.request.max.bytes")
        self.address = Endpoint("", 0)
        """Where it listens, once it is bound."""
        self.connections_count = 0
        self.opened_count = 0
        """Count of connections that were accepted."""
        self.bytes_in = 0
        self.bytes_out = 0
        limit = config.of_listener(given.name).get("max.connections")
        self.connections_max = None if limit is None else as_int(limit)
        self.is_protected = given.name == config.inter_broker_listener
        """Whether clients of other listeners give way to its connections, as in Kafka."""
        self.socket: Listener | None = None
        self._server = server

    @property
    def registered(self) -> RegisteredListener:
        """Where others reach it."""
        bound, told = self.given.bound, self.given.advertised
        if told is None:
            host = _own_name() if bound.host in _ANY_ADDRESS else bound.host
            told = Endpoint(host, self.address.port)
        endpoint = told._replace(port=told.port or self.address.port)
        return RegisteredListener(endpoint, self.given.protocol)

    def note_unread(self, change_bytes: int) -> None:
        """See `Acceptor`."""
        self._server.unread_bytes += change_bytes

    def admit(self, connection: ServerConnection) -> bool:
        """Accept a new connection, unless a limit forbids it (one log line)."""
        limit = self.connections_max
        if limit is not None and self.connections_count >= limit:
            key = f"{self.given.prefix}max.connections"
            log.warning("refusing connection %s: %s=%d", connection, key, limit)
            return False
        if not self._server.admit(connection, self):
            return False
        self.opened_count += 1
        self.connections_count += 1
        return True

    def forget(self, connection: ServerConnection) -> None:
        """Remove a connection that has ended."""
        if self._server.forget(connection):
            self.connections_count -= 1


class Server:
    """Accepts connections for one broker: `bind` finds its addresses, `open` begins to serve."""

    def __init__(self, config: BrokerConfig, network: Network, clock: Clock) -> None:
        self.loop = asyncio.get_running_loop()
        # In the order of acceptance.
        self.connections: dict[ServerConnection, None] = {}
        self.unread_bytes = 0
        """Reply bytes that stalled peers have not read, as counted when each stalled."""
        self.expired_count = 0
        """Count of connections that were closed because they were idle."""
        self.listeners = tuple(BoundListener(self, config, each) for each in config.listeners)
        self._network = network
        self._clock = clock
        self.read_buffer = ReadBuffer()
        self._connections_max = config.get_int("max.connections")
        self._per_ip_max = config.get_int("max.connections.per.ip")
        self._idle_ms_max = config.get_int("connections.max.idle.ms")
        self._per_ip: Counter[str] = Counter()
        self._is_open = False
        self._starter: Starter | None = None

    @property
    def port(self) -> int:
        """The port that the first listener has bound."""
        return self.listeners[0].address.port

    @property
    def bootstrap_servers(self) -> str:
        """The address that the first listener that is advertised advertises."""
        told = next(each for each in self.listeners if each.given.is_advertised)
        return str(told.registered.endpoint)

    async def bind(self) -> Mapping[str, RegisteredListener]:
        """Bind the addresses, without accepting; return where clients are to reach each listener.

        Raises `AddressUnavailable` when an address cannot be bound.
        """
        self._is_open = True
        for listener in self.listeners:
            listener.socket = await self._network.listen(
                *listener.given.bound, partial(self._accepted, listener), accepts=False
            )
            listener.address = Endpoint(*listener.socket.addresses[0])
        return {each.name: each.registered for each in self.listeners if each.given.is_advertised}

    async def open(self, starter: Starter) -> None:
        """Accept connections, whose requests go to `starter`.

        Raises `AddressUnavailable` when another process has come to listen there.
        """
        self._starter = starter
        for listener in self.listeners:
            assert listener.socket is not None
            await listener.socket.accept()

    def _accepted(self, listener: BoundListener) -> ServerConnection:
        assert self._starter is not None
        return ServerConnection(listener, self._starter, self.read_buffer)

    def admit(self, connection: ServerConnection, listener: BoundListener) -> bool:
        """Accept a new connection, unless a limit forbids it (one log line).

        One that the system had accepted when the server stopped comes too late.
        """
        if not self._is_open:
            return False
        host = connection.peer_host
        is_full = len(self.connections) >= self._connections_max
        if is_full and not (listener.is_protected and self._make_room()):
            log.warning(
                "refusing connection %s: max.connections=%d", connection, self._connections_max
            )
            return False
        if self._per_ip[host] >= self._per_ip_max:
            log.warning(
                "refusing connection %s: max.connections.per.ip=%d", connection, self._per_ip_max
            )
            return False
        self.connections[connection] = None
        self._per_ip[host] += 1
        return True

    def _make_room(self) -> bool:
        """Close the client's connection that was idle for longest, for one of a broker."""
        protected = {listener.name for listener in self.listeners if listener.is_protected}
        clients = [each for each in self.connections if each.listener not in protected]
        if not clients:
            return False
        longest = min(clients, key=lambda each: each.last_active_s)
        log.warning(
            "closing connection %s for one of a broker: max.connections=%d",
            *(longest, self._connections_max),
        )
        longest.abort()
        return True

    def forget(self, connection: ServerConnection) -> bool:
        """Remove a connection that has ended; return whether it was accepted."""
        if connection not in self.connections:
            return False
        del self.connections[connection]
        self._per_ip[connection.peer_host] -= 1
        if self._per_ip[connection.peer_host] <= 0:
            del self._per_ip[connection.peer_host]
        return True

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
        """Close the inherited ports and connections in a forked child; the parent keeps its own."""
        for listener in self.listeners:
            if listener.socket is not None:
                occupy(listener.socket.descriptors)
        occupy(connection.descriptor for connection in self.connections)

    def abort(self) -> None:
        """Close every connection at once."""
        for connection in list(self.connections):
            connection.abort()

    async def stop(self) -> None:
        """Stop listening and close every connection; wait a bounded time for unsent replies."""
        self._is_open = False
        for listener in self.listeners:
            bound, listener.socket = listener.socket, None
            if bound is not None:
                await bound.close()
        for connection in list(self.connections):
            connection.close()
        for _ in range(STOP_FLUSH_TURNS_COUNT):
            if not self.connections:
                return
            await self._clock.sleep(STOP_FLUSH_TURN_MS)
        # The remaining peers do not read their replies.
        self.abort()
