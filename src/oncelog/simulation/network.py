"""The network of a simulated world: listeners and connections of its processes.

`SimulatedNetwork.of` gives each process the `Network` that broker and client code uses. A process
that dies loses its listeners, and its connections break: peers see a reset, or, if the machine died
with it, only that nothing they send is acknowledged any more. Whatever the faults, the bytes of an
open connection arrive complete and in order.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from functools import partial
from typing import Final

from oncelog.runtime.network import Listener, Network, ProtocolFactory
from oncelog.simulation.network_faults import NetworkFaults
from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import Scheduler
from oncelog.simulation.trace import Trace
from oncelog.simulation.transport import Address, SimulatedConnection, SimulatedTransport
from oncelog.simulation.wire import Mark

__all__ = ["SimulatedNetwork"]

CONNECT_TIMEOUT_S: Final = (3.0, 10.0)
"""The time after which an attempt to connect without a response fails."""

CONNECT_RETRY_S: Final = 0.5
"""The time after which a first packet without a response is sent again; it doubles."""

LISTENING_PORTS: Final = range(40_000, 50_000)
CLIENT_PORTS: Final = range(50_000, 65_536)

_OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


class SimulatedNetwork(NetworkFaults):
    """The network of a run. `rng` makes its random choices."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, trace: Trace) -> None:
        super().__init__(scheduler, rng, trace)
        self._listeners: dict[Address, _Listener] = {}
        # Machines without power, and processes whose end is known.
        self._dark_hosts: dict[str, None] = {}
        self._dead: dict[Process, None] = {}
        self._connection_count = 0
        self._listening_port_counts: Counter[str] = Counter()
        self._client_port_counts: Counter[str] = Counter()

    def of(self, process: Process) -> Network:
        """Return the process's `Network`; once per process. Its machine is up."""
        if self._links.name(process.name, process.host):
            self._links_changed()
        process.on_death.append(partial(self.process_died, process))
        if process.host in self._dark_hosts:
            del self._dark_hosts[process.host]
            for connection in self.connections.values():
                for pipe in connection.pipes:
                    if pipe.reader.process.host == process.host:
                        pipe.machine_is_back()
        return _ProcessNetwork(self, process)

    def process_died(self, process: Process, silent: bool = False) -> None:
        """Remove the process's listeners and connections; a second call does nothing.

        `silent`: its machine lost power, so nothing is answered until a process starts on it.
        Otherwise peers see a reset. A killed process calls this itself with False, so a loss of
        power calls it before the kill.
        """
        if process in self._dead:
            return
        self._dead[process] = None
        self.counts["silent death" if silent else "death"] += 1
        if silent:
            self._dark_hosts[process.host] = None
        self._listeners = {
            address: listener
            for address, listener in self._listeners.items()
            if listener.process is not process
        }
        for connection in list(self.connections.values()):
            for end in connection.ends:
                if end.process is process:
                    end.die(silent)

    # --- for the networks of processes

    def bind(self, process: Process, host: str, port: int, factory: ProtocolFactory) -> _Listener:
        """Listen at the process's machine. Raises `OSError`."""
        if host not in (process.host, *_OWN_NAMES, *_EVERYWHERE):
            raise OSError(errno.EADDRNOTAVAIL, f"cannot listen at {host}: not an own address")
        while not port:
            counts = self._listening_port_counts
            candidate = LISTENING_PORTS[counts[process.host] % len(LISTENING_PORTS)]
            counts[process.host] += 1
            port = candidate if (process.host, candidate) not in self._listeners else 0
        if (process.host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"address ('{host}', {port}) is in use")
        listener = _Listener(self, process, host, port, factory)
        self._listeners[process.host, port] = listener
        return listener

    def unbind(self, listener: _Listener) -> None:
        """Close a listener, if it is open."""
        if self._is_bound(listener):
            del self._listeners[listener.process.host, listener.port]

    def is_listening(self, listener: _Listener) -> bool:
        """Return whether a listener accepts connections."""
        return listener.accepts and self._is_bound(listener)

    def _is_bound(self, listener: _Listener) -> bool:
        return self._listeners.get((listener.process.host, listener.port)) is listener

    def listener_at(self, address: Address) -> _Listener | None:
        """Return the listener at an address."""
        return self._listeners.get(address)

    def answers(self, source: str, target: str) -> bool:
        """Return whether a packet from one machine to another would be answered now."""
        links = self._links
        return not (
            target in self._dark_hosts
            or links.between(source, target).blocked
            or links.between(target, source).blocked
        )

    def draw_s(self, low_s: float, high_s: float) -> float:
        """Draw a time between these, in seconds."""
        return self._wire.rng.uniform(low_s, high_s)

    def packet_s(self, source: str, target: str) -> float:
        """Draw the delay of a packet now, in seconds."""
        return self._links.between(source, target).delay_s(self._wire.rng.random())

    def open(self, process: Process, listener: _Listener) -> SimulatedConnection:
        """Create a connection; its server accepts it when the first item arrives."""
        counts = self._client_port_counts
        port = CLIENT_PORTS[counts[process.host] % len(CLIENT_PORTS)]
        counts[process.host] += 1
        self._connection_count += 1
        server = listener.process
        connection = SimulatedConnection(
            self._wire,
            self._connection_count,
            (process, server),
            ((process.host, port), (server.host, listener.port)),
            (
                self._links.between(process.host, server.host),
                self._links.between(server.host, process.host),
            ),
            self._forget,
        )
        connection.server.accepts = lambda: (
            listener.factory if self.is_listening(listener) else None
        )
        self._wire.trace.note(connection.id, "opened", process.name, server.name)
        self._opened(connection)
        connection.to_server.mark(Mark.ACCEPT)
        return connection


class _Listener:
    """A listening socket; see `oncelog.runtime.network.Listener`."""

    def __init__(
        self,
        network: SimulatedNetwork,
        process: Process,
        host: str,
        port: int,
        factory: ProtocolFactory,
    ) -> None:
        self._network = network
        self.process = process
        self.port = port
        self.factory = factory
        self.accepts = True
        self.addresses: tuple[Address, ...] = ((host, port),)
        self.descriptors: tuple[int, ...] = ()

    async def accept(self) -> None:
        """Accept connections from now on."""
        self.accepts = True

    async def close(self) -> None:
        """Stop listening."""
        self._network.unbind(self)
        await asyncio.sleep(0)


class _Attempt:
    """One attempt to connect: a packet and its response, repeated until the response arrives."""

    def __init__(
        self,
        network: SimulatedNetwork,
        process: Process,
        address: Address,
        factory: ProtocolFactory,
    ) -> None:
        self.done: asyncio.Future[None] = process.loop.create_future()
        self.transport: SimulatedTransport | None = None
        self._network = network
        self._process = process
        self._address = address
        self._factory = factory
        self._scheduler = process.scheduler
        self._deadline_s = self._scheduler.now_s + network.draw_s(*CONNECT_TIMEOUT_S)
        self._retry_s = CONNECT_RETRY_S
        self._send()

    def _send(self) -> None:
        delay_s = self._network.packet_s(self._process.host, self._address[0])
        self._scheduler.call_after(delay_s, None, self._arrive)

    def _arrive(self) -> None:
        """Handle the first packet at the other machine, unless it is lost."""
        process, network, scheduler = self._process, self._network, self._scheduler
        if not process.alive or self.done.done():
            return
        host = self._address[0]
        if network.answers(process.host, host):
            listener = network.listener_at(self._address)
            delay_s = network.packet_s(host, process.host)
            scheduler.call_after(delay_s, process, self._answered, listener)
        elif scheduler.now_s + self._retry_s < self._deadline_s:
            scheduler.call_after(self._retry_s, None, self._send)
            self._retry_s *= 2
        else:
            scheduler.call_at(self._deadline_s, process, self._time_out)

    def _answered(self, listener: _Listener | None) -> None:
        if self.done.done():
            return
        network = self._network
        if listener is None or not network.is_listening(listener):
            network.counts["connection refused"] += 1
            self.done.set_exception(
                ConnectionRefusedError(errno.ECONNREFUSED, f"connect to {self._address} refused")
            )
            return
        transport = self.transport = network.open(self._process, listener).client
        protocol = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        self.done.set_result(None)

    def _time_out(self) -> None:
        if not self.done.done():
            self._network.counts["connection timed out"] += 1
            self.done.set_exception(
                TimeoutError(errno.ETIMEDOUT, f"connect to {self._address} timed out")
            )


class _ProcessNetwork:
    """One process's view of the network; see `oncelog.runtime.network.Network`."""

    def __init__(self, network: SimulatedNetwork, process: Process) -> None:
        self._network = network
        self._process = process

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, *, accepts: bool = True
    ) -> Listener:
        """See `Network.listen`."""
        listener = self._network.bind(self._process, host, port, protocol_factory)
        listener.accepts = accepts
        return listener

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        """See `Network.connect`."""
        if host in _OWN_NAMES:
            host = self._process.host
        attempt = _Attempt(self._network, self._process, (host, port), protocol_factory)
        try:
            await attempt.done
        except asyncio.CancelledError:
            if attempt.transport is not None:
                attempt.transport.close()
            raise
