"""A network in which the connections of two brokers can be cut, in one direction or both.

A cut is what a router that drops packets makes of a connection: nothing more arrives, nothing is
closed, a new connection hangs. It works on bytes: who is cut off stops reading the socket.

Only brokers of one `Cables` can be cut from each other. A broker knows a peer that it connects to
by the port, and one that connects to it by the port from which that connects.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

from oncelog.runtime.network import Listener, ProtocolFactory, SystemNetwork, TlsAcceptor

__all__ = ["Cables", "ControlledNetwork"]


class Cables:
    """What is known of the connections among some brokers, each with a thread of its own.

    Every change is one operation of a set or a dictionary, which threads may do at once.
    """

    def __init__(self) -> None:
        self.listeners: dict[int, int] = {}
        """The broker that listens on each port."""
        self.sources: dict[int, int] = {}
        """The broker that connects from each port, while that connection is open."""
        self.cuts: set[tuple[int, int]] = set()
        """Pairs of brokers (source, target) between which nothing arrives."""

    def is_cut(self, source: int, target: int) -> bool:
        """Whether nothing from one broker arrives at the other."""
        return (source, target) in self.cuts


class ControlledNetwork(SystemNetwork):
    """The network of one broker. `changed` has to be called in its loop after a cut changes."""

    def __init__(self, broker_id: int, cables: Cables) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.cables = cables
        self._guards: set[_GuardedConnection] = set()
        self._waiting: set[asyncio.Future[None]] = set()

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, *, accepts: bool = True
    ) -> Listener:
        """See `Network.listen`."""
        guarded = partial(self._guarded_by, protocol_factory)
        return self._noted(await super().listen(host, port, guarded, accepts=accepts))

    async def listen_tls(
        self, host: str, port: int, protocol_factory: ProtocolFactory, tls: TlsAcceptor
    ) -> Listener:
        """See `SystemNetwork.listen_tls`."""
        guarded = partial(self._guarded_by, protocol_factory)
        return self._noted(await super().listen_tls(host, port, guarded, tls))

    def _guarded_by(self, protocol_factory: ProtocolFactory) -> asyncio.BaseProtocol:
        return self._guarded(protocol_factory())

    def _noted(self, listener: Listener) -> Listener:
        for _, bound in listener.addresses:
            self.cables.listeners[bound] = self.broker_id
        return listener

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        """See `Network.connect`. To a broker that is cut off in either direction it hangs."""
        await self._reachable(port)
        await super().connect(host, port, lambda: self._guarded(protocol_factory()))

    def changed(self) -> None:
        """Stop and go on reading, as the cuts are now."""
        for guard in self._guards:
            guard.follow()
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def _reachable(self, port: int) -> None:
        while self._is_apart(self.cables.listeners.get(port)):
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)

    def _is_apart(self, peer: int | None) -> bool:
        if peer is None:
            return False
        me, cables = self.broker_id, self.cables
        return cables.is_cut(me, peer) or cables.is_cut(peer, me)

    def _guarded(self, protocol: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
        kind = (
            _GuardedBuffered if isinstance(protocol, asyncio.BufferedProtocol) else _GuardedStream
        )
        return kind(protocol, self, self._guards)


class _Transport:
    """A connection's transport, which reads only if both its protocol and the cuts allow it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_paused = False
        self._is_reading = True
        self.is_cut = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        self._is_paused = True
        self._follow()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._follow()

    def cut(self, is_cut: bool) -> None:
        self.is_cut = is_cut
        self._follow()

    def _follow(self) -> None:
        reads = not (self._is_paused or self.is_cut)
        if reads is self._is_reading or self._transport.is_closing():
            return
        self._is_reading = reads
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


class _GuardedConnection(asyncio.BaseProtocol):
    """Stands between a connection and its protocol, and stops reading while it is cut."""

    def __init__(
        self, protocol: Any, network: ControlledNetwork, guards: set[_GuardedConnection]
    ) -> None:
        self.protocol = protocol
        self._network = network
        self._guards = guards
        self._transport: _Transport | None = None
        self._own_port = self._peer_port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cables = self._network.cables
        self._own_port = transport.get_extra_info("sockname")[1]
        # One whose peer is gone already has no address.
        peer = transport.get_extra_info("peername")
        self._peer_port = peer[1] if peer else 0
        if self._own_port not in cables.listeners:
            cables.sources[self._own_port] = self._network.broker_id
        self._transport = _Transport(cast(asyncio.Transport, transport))
        self._guards.add(self)
        self.protocol.connection_made(self._transport)
        self.follow()

    def follow(self) -> None:
        """Read or not, as the cuts are now."""
        cables, port = self._network.cables, self._peer_port
        peer = cables.listeners.get(port, cables.sources.get(port))
        if self._transport is not None:
            is_cut = peer is not None and cables.is_cut(peer, self._network.broker_id)
            if is_cut != self._transport.is_cut:
                self._transport.cut(is_cut)

    def connection_lost(self, error: Exception | None) -> None:
        self._guards.discard(self)
        self._network.cables.sources.pop(self._own_port, None)
        self.protocol.connection_lost(error)

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()

    def eof_received(self) -> bool | None:
        closes: bool | None = self.protocol.eof_received()
        return closes


class _GuardedStream(_GuardedConnection, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        self.protocol.data_received(data)


class _GuardedBuffered(_GuardedConnection, asyncio.BufferedProtocol):
    def get_buffer(self, sizehint: int) -> Any:
        return self.protocol.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.protocol.buffer_updated(nbytes)
