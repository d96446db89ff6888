"""The listeners of a broker and the connections they accepted.

Applies `max.connections`, `max.connections.per.ip` and `connections.max.idle.ms`. It must not know
frames or APIs.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker.net.connection import ServerConnection, Starter
from oncelog.broker.net.decisions import DecisionCounts
from oncelog.broker.net.frames import ReadBuffer
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError, as_int
from oncelog.core.limits import IDLE_SWEEP_MS_MAX, STOP_FLUSH_TURN_MS, STOP_FLUSH_TURNS_COUNT
from oncelog.core.listeners import Endpoint, ListenerConfig, RegisteredListener
from oncelog.core.security_limits import CERTIFICATES_LOOK_MS
from oncelog.runtime.clock import Clock
from oncelog.runtime.network import Listener, Network, SystemNetwork, occupy

if TYPE_CHECKING:
    from oncelog.broker.net.tls import ListenerTls

if TYPE_CHECKING:
    from oncelog.broker.net.sasl import SaslGate
    from oncelog.broker.net.sasl_gates import Image

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
        self.handshakes_count = 0
        self.opened_count = 0
        """Count of connections that were accepted."""
        self.bytes_in = 0
        self.bytes_out = 0
        limit = config.of_listener(given.name).get("max.connections")
        self.connections_max = None if limit is None else as_int(limit)
        self.is_protected = given.name == config.inter_broker_listener
        """Whether clients of other listeners give way to its connections, as in Kafka."""
        self.socket: Listener | None = None
        self.tls: ListenerTls | None = None
        """Its certificates, once they are read."""
        self._server = server
        self._config = config

    @property
    def registered(self) -> RegisteredListener:
        """Where others reach it."""
        bound, told = self.given.bound, self.given.advertised
        if told is None:
            host = _own_name() if bound.host in _ANY_ADDRESS else bound.host
            told = Endpoint(host, self.address.port)
        endpoint = told._replace(port=told.port or self.address.port)
        return RegisteredListener(endpoint, self.given.protocol)

    @property
    def context(self) -> ssl.SSLContext:
        """See `TlsAcceptor`."""
        assert self.tls is not None
        return self.tls.context

    async def bind(self, network: Network, accepted: Callable[[], ServerConnection]) -> None:
        """Bind the address, and before that read the certificates. Raises `ConfigError` for those.

        Raises `AddressUnavailable` as well.
        """
        if self.given.has_tls:
            if not isinstance(network, SystemNetwork):
                raise ConfigError(f"the listener {self.name} cannot have TLS on this network")
            # Imported here because most brokers have no TLS.
            from oncelog.broker.net.tls import ListenerTls

            outgoing = network if self.is_protected else None
            self.tls = ListenerTls(self._config, self.given, outgoing)
            self.socket = await network.listen_tls(*self.given.bound, accepted, self)
        else:
            self.socket = await network.listen(*self.given.bound, accepted, accepts=False)
        self.address = Endpoint(*self.socket.addresses[0])

    def begin(self, host: str, port: int) -> bool:
        """See `TlsAcceptor`."""
        peer = Endpoint(host, port)
        if self._is_full(peer) or not self._server.has_room(peer, host, self):
            return False
        self.handshakes_count += 1
        self._server.take_in(host)
        return True

    def fail(self, host: str, port: int, error: BaseException) -> None:
        """See `TlsAcceptor`."""
        # Imported here because most brokers have no TLS.
        from oncelog.broker.net.tls import handshake_problem

        self._end_handshake(host)
        if not isinstance(error, asyncio.CancelledError):
            reason = handshake_problem(error)
            log.warning("closing connection %s: %s", Endpoint(host, port), reason)

    def _end_handshake(self, host: str) -> None:
        self.handshakes_count -= 1
        self._server.let_go(host)

    def _is_full(self, peer: object) -> bool:
        limit = self.connections_max
        if limit is None or self.connections_count + self.handshakes_count < limit:
            return False
        key = f"{self.given.prefix}max.connections"
        log.warning("refusing connection %s: %s=%d", peer, key, limit)
        return True

    def note_unread(self, change_bytes: int) -> None:
        """See `Acceptor`."""
        self._server.unread_bytes += change_bytes

    def admit(self, connection: ServerConnection, transport: asyncio.Transport) -> bool:
        """Accept a new connection, unless a limit forbids it (one log line)."""
        if self.tls is not None:
            self._end_handshake(connection.peer_host)
        if self.tls is not None and not self.given.has_sasl:
            principal = self.tls.principal_of(transport)
            if principal is None:
                reason = "no rule of ssl.principal.mapping.rules applies to its certificate"
                log.warning("refusing connection %s: %s", connection, reason)
                return False
            connection.principal = principal
        if self._is_full(connection) or not self._server.admit(connection, self):
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

    def __init__(
        self, config: BrokerConfig, network: Network, clock: Clock, rng: random.Random
    ) -> None:
        self.loop = asyncio.get_running_loop()
        # In the order of acceptance.
        self.connections: dict[ServerConnection, None] = {}
        self.unread_bytes = 0
        """Reply bytes that stalled peers have not read, as counted when each stalled."""
        self.expired_count = 0
        """Count of connections that were closed because they were idle."""
        self.listeners = tuple(BoundListener(self, config, each) for each in config.listeners)
        self._config = config
        self._network = network
        self._clock = clock
        self._rng = rng
        self.read_buffer = ReadBuffer()
        self._connections_max = config.get_int("max.connections")
        self._per_ip_max = config.get_int("max.connections.per.ip")
        self._idle_ms_max = config.get_int("connections.max.idle.ms")
        self._per_ip: Counter[str] = Counter()
        self._is_open = False
        self._starter: Starter | None = None
        self.gates: Mapping[str, SaslGate] = {}
        """Of the listeners with SASL, by name."""
        self.decisions = DecisionCounts()
        """Of the authorizer, where there is one."""

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

        Raises `AddressUnavailable` when an address cannot be bound, and `ConfigError` where the TLS
        of a listener does not work.
        """
        self._is_open = True
        for listener in self.listeners:
            await listener.bind(self._network, partial(self._accepted, listener))
        return {each.name: each.registered for each in self.listeners if each.given.is_advertised}

    async def open(self, starter: Starter, image: Image | None = None) -> None:
        """Accept connections, whose requests go to `starter`; `image` has the users of SASL.

        Raises `AddressUnavailable` when another process has come to listen there, and `ConfigError`
        for a file of SASL's that cannot be read.
        """
        self._starter = starter
        if image is not None and self._config.sasl_listeners:
            # Imported here because most brokers have no listener with SASL.
            from oncelog.broker.net.sasl_gates import sasl_gates

            self.gates = sasl_gates(self._config, image, self._clock, self._rng)
        for listener in self.listeners:
            assert listener.socket is not None
            await listener.socket.accept()

    def _accepted(self, listener: BoundListener) -> ServerConnection:
        assert self._starter is not None
        gate = self.gates.get(listener.name)
        if gate is not None:
            return gate.connection(listener, self._starter, self.read_buffer)
        return ServerConnection(listener, self._starter, self.read_buffer)

    def admit(self, connection: ServerConnection, listener: BoundListener) -> bool:
        """Accept a new connection, unless a limit forbids it (one log line).

        One that the system had accepted when the server stopped comes too late.
        """
        if not self._is_open or not self.has_room(connection, connection.peer_host, listener):
            return False
        self.connections[connection] = None
        self.take_in(connection.peer_host)
        return True

    def has_room(self, peer: object, host: str, listener: BoundListener) -> bool:
        """Whether one more may connect (one log line if not). Handshakes count as connections."""
        count = len(self.connections) + sum(each.handshakes_count for each in self.listeners)
        is_full = count >= self._connections_max
        if is_full and not (listener.is_protected and self._make_room()):
            log.warning("refusing connection %s: max.connections=%d", peer, self._connections_max)
            return False
        if self._per_ip[host] >= self._per_ip_max:
            log.warning("refusing connection %s: max.connections.per.ip=%d", peer, self._per_ip_max)
            return False
        return True

    def take_in(self, host: str) -> None:
        """Count a connection or a handshake from this host."""
        self._per_ip[host] += 1

    def let_go(self, host: str) -> None:
        """Count a connection or a handshake from this host no more."""
        self._per_ip[host] -= 1
        if self._per_ip[host] <= 0:
            del self._per_ip[host]

    def _make_room(self) -> bool:
        """Close the client's connection that was idle for longest, for one of a broker."""
        protected = {listener.name for listener in self.listeners if listener.is_protected}
        clients = [
            each for each in self.connections if each.listener not in protected and not each.closed
        ]
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
        self.let_go(connection.peer_host)
        return True

    async def run(self) -> None:
        """Close idle connections and take new certificates, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._idle_ms_max >= 0:
                tasks.create_task(self._close_idle())
            if any(listener.tls is not None for listener in self.listeners):
                tasks.create_task(self._renew_certificates())

    async def _renew_certificates(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._clock.sleep(CERTIFICATES_LOOK_MS)
            for listener in self.listeners:
                if listener.tls is not None:
                    await loop.run_in_executor(None, listener.tls.renew)

    async def _close_idle(self) -> None:
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
