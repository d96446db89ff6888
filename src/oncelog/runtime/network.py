"""Defines the network: outgoing connections and listeners.

Broker and client open sockets only through the `Network` they are given (D3): `SystemNetwork` here
is the real one, the simulation has another that delays, drops, resets and partitions. Both speak
asyncio's transports and protocols, so what runs on top is the same code. This module knows nothing
of Kafka.
"""

import asyncio
import errno
import logging
import os
import select
import socket
import ssl
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Protocol

from oncelog.core.errors import OncelogError
from oncelog.core.limits import LISTEN_BACKLOG_COUNT
from oncelog.core.security_limits import TLS_HANDSHAKE_MS_MAX
from oncelog.runtime.tls_alert import handshake_of

__all__ = [
    "AddressUnavailable",
    "Listener",
    "Network",
    "ProtocolFactory",
    "SystemNetwork",
    "TlsAcceptor",
    "has_hung_up",
    "occupy",
]

log = logging.getLogger(__name__)

_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_DESCRIPTORS_PAUSE_S = 1.0
"""Pause before the next attempt to accept when no descriptor is left, as in asyncio."""

_HUNG_UP = select.POLLRDHUP if sys.platform == "linux" else 0
"""Linux tells that the peer has closed its half; elsewhere only that both are closed."""

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class TlsAcceptor(Protocol):
    """Has the certificates of a listener with TLS, and is told of each handshake."""

    @property
    def context(self) -> ssl.SSLContext:
        """The one for the next connection."""
        ...

    def begin(self, host: str, port: int) -> bool:
        """Whether a peer may begin a handshake; if so it is counted until `fail` or its end."""
        ...

    def fail(self, host: str, port: int, error: BaseException) -> None:
        """Note that a handshake has failed, or was cut off."""
        ...


class AddressUnavailable(OncelogError, OSError):  # noqa: N818 - names a state of the address
    """The address cannot be bound: another process listens on it, or it is not this machine's."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        in_use = error.errno == errno.EADDRINUSE
        reason = "the address is in use by another process" if in_use else error.strerror or error
        shown = f"[{host}]" if ":" in host else host
        super().__init__(f"cannot listen on {shown}:{port}: {reason}")
        self.errno = error.errno


class Listener(Protocol):
    """A listening socket, or one that is bound and refuses connections until `accept`.

    `addresses` has the (host, port) pairs bound, so that port 0 is resolved.
    """

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Bound addresses, in the order of binding."""
        ...

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors of the listening sockets; none where they are simulated."""
        ...

    async def accept(self) -> None:
        """Accept connections from now on.

        Raises `AddressUnavailable`: several sockets may be bound to an address where no process
        listens yet.
        """
        ...

    async def close(self) -> None:
        """Stop listening; connections that were accepted stay."""
        ...


class Network(Protocol):
    """Opens and accepts byte streams."""

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, *, accepts: bool = True
    ) -> Listener:
        """Listen on `host`:`port` (0: any free port); without `accepts` only bind it.

        Raises `AddressUnavailable` when the address cannot be bound.
        """
        ...

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        """Connect and call the protocol's `connection_made`.

        Raises `OSError` when the address does not answer.
        """
        ...


class _SystemListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple(s.getsockname()[:2] for s in self._server.sockets)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(s.fileno() for s in self._server.sockets)

    async def accept(self) -> None:
        host, port = self.addresses[0]
        try:
            await self._server.start_serving()
        except OSError as error:
            raise AddressUnavailable(host, port, error) from error

    async def close(self) -> None:
        # CPython 3.11 leaks a connection that it accepts in the turn in which its server closes:
        # first no more are accepted, and those that are get their protocols.
        loop = asyncio.get_running_loop()
        if isinstance(loop, asyncio.SelectorEventLoop):
            for bound in self._server.sockets:
                loop.remove_reader(bound.fileno())
            await asyncio.sleep(0)
        # `wait_closed` would wait for every accepted connection (Python 3.12.1+); their owner
        # closes those.
        self._server.close()
        await asyncio.sleep(0)


class SystemNetwork:
    """TCP, by the running event loop (uvloop's or asyncio's), without Nagle's algorithm.

    With `tls` its outgoing connections use TLS, by what it is when they begin.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, *, accepts: bool = True
    ) -> Listener:
        """See `Network.listen`."""
        create = partial(
            asyncio.get_running_loop().create_server,
            protocol_factory,
            backlog=LISTEN_BACKLOG_COUNT,
            start_serving=accepts,
        )
        try:
            bound = _bound(host, port)
            server = await (create(host, port) if bound is None else create(sock=bound))
        except OSError as error:
            raise AddressUnavailable(host, port, error) from error
        return _SystemListener(server)

    async def listen_tls(
        self, host: str, port: int, protocol_factory: ProtocolFactory, tls: TlsAcceptor
    ) -> Listener:
        """As `listen` without `accepts`: a protocol is connected once its handshake is complete."""
        sockets: list[socket.socket] = []
        try:
            for address in await _addresses(host, port):
                bound = _bound(address, port)
                assert bound is not None  # The address is numeric.
                bound.setblocking(False)
                sockets.append(bound)
        except OSError as error:
            for each in sockets:
                each.close()
            raise AddressUnavailable(host, port, error) from error
        return _TlsListener(sockets, protocol_factory, tls)

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        """See `Network.connect`. A handshake that fails raises `ssl.SSLError`, an `OSError`."""
        loop = asyncio.get_running_loop()
        name = None if self.tls is None else host
        await loop.create_connection(
            protocol_factory, host, port, ssl=self.tls, server_hostname=name
        )


def _bound(host: str, port: int) -> socket.socket | None:
    """Return a socket bound to a numeric address; None for a name, which the loop resolves.

    uvloop resolves even numeric addresses in threads of libuv, and a forked child of a process that
    has such threads crashes when it ends.
    """
    try:
        family = socket.AF_INET if ip_address(host).version == 4 else socket.AF_INET6
    except ValueError:
        return None
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def _host_and_port(address: Sequence[object]) -> tuple[str, int]:
    """The first two parts of a socket's address, which IPv6 has more of."""
    return str(address[0]), int(str(address[1]))


async def _addresses(host: str, port: int) -> list[str]:
    """Return the numeric addresses of a host; "" is every interface."""
    try:
        ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return list(dict.fromkeys(str(address[0]) for *_, address in found))
    return [host]


class _TlsListener:
    """Accepts by itself, and shakes hands in a task for each connection.

    The loop's own server would neither say which handshakes fail, nor have them counted, nor take a
    new certificate for the next connection.
    """

    def __init__(
        self, sockets: list[socket.socket], protocol_factory: ProtocolFactory, tls: TlsAcceptor
    ) -> None:
        self._sockets = sockets
        self._protocol_factory = protocol_factory
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self.addresses = tuple(_host_and_port(each.getsockname()) for each in sockets)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(each.fileno() for each in self._sockets)

    async def accept(self) -> None:
        for each, (host, port) in zip(self._sockets, self.addresses, strict=True):
            try:
                each.listen(LISTEN_BACKLOG_COUNT)
            except OSError as error:
                raise AddressUnavailable(host, port, error) from error
            self._accepting.append(self._loop.create_task(self._accept_all(each)))

    async def close(self) -> None:
        # A connection that was accepted in this turn would be lost with the task that awaits it.
        self._is_closing = True
        for each in self._sockets:
            self._loop.remove_reader(each.fileno())
        await asyncio.sleep(0)
        tasks = {*self._accepting, *self._handshakes}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for each in self._sockets:
            each.close()

    async def _accept_all(self, listening: socket.socket) -> None:
        while True:
            # `sock_accept` returns at once while connections wait there: others have turns between.
            await asyncio.sleep(0)
            if self._is_closing:
                return  # Not before the turn: what is accepted from here on would be lost.
            try:
                accepted, address = await self._loop.sock_accept(listening)
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    continue  # The peer has gone already.
                log.warning("no connection can be accepted: %s", error)
                await asyncio.sleep(_NO_DESCRIPTORS_PAUSE_S)
                continue
            host, port = _host_and_port(address)
            if not self._tls.begin(host, port):
                accepted.close()
                continue
            task = self._loop.create_task(self._shake_hands(accepted))
            self._handshakes.add(task)
            task.add_done_callback(partial(self._end_handshake, accepted, host, port))

    async def _shake_hands(self, accepted: socket.socket) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with handshake_of(accepted):
            await self._loop.connect_accepted_socket(
                self._protocol_factory,
                accepted,
                ssl=self._tls.context,
                ssl_handshake_timeout=TLS_HANDSHAKE_MS_MAX / 1000,
            )

    def _end_handshake(
        self, accepted: socket.socket, host: str, port: int, task: asyncio.Task[None]
    ) -> None:
        # Not in the task: one that is cancelled before its first step runs none of its code.
        self._handshakes.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            accepted.close()
            self._tls.fail(host, port, error)


def has_hung_up(descriptor: int) -> bool:
    """Whether the peer of a connection has closed it, also while bytes before that are unread."""
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, _HUNG_UP)
    return bool(poll.poll(0))


def occupy(descriptors: Iterable[int]) -> None:
    """Release the parent's sockets of these descriptors in a forked child.

    The numbers then refer to /dev/null, because their owners may still close them.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for descriptor in descriptors:
            if descriptor >= 0:
                os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)
