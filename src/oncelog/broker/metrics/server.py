"""Serves metrics and health over HTTP, for Prometheus, `oncelog metrics` and supervisors.

It answers ``GET /metrics``, ``/livez`` and ``/readyz``, one request per connection, from before the
broker recovers its logs until they are closed. A scrape is made in pieces, so that clients'
requests are served meanwhile, and one at a time: a request during one gets the same result. Bounds:
the size of a request, the connections, and the time of each. It is off unless
`oncelog.metrics.address` is set.

It must not know what any metric means, nor what makes a broker ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Final, cast

from oncelog.broker.metrics.exposition import CONTENT_TYPE
from oncelog.core.errors import OncelogError
from oncelog.core.limits import (
    METRICS_CONNECTIONS_COUNT_MAX,
    METRICS_LINES_PER_TURN_COUNT,
    METRICS_REQUEST_BYTES_MAX,
    METRICS_REQUEST_TIMEOUT_S,
)
from oncelog.core.listeners import Endpoint
from oncelog.runtime.clock import Clock
from oncelog.runtime.network import Listener, Network, occupy

__all__ = ["MetricsServer"]

log = logging.getLogger(__name__)

_END_OF_HEAD: Final = b"\r\n\r\n"
_PATHS: Final = frozenset({b"/", b"/metrics", b"/livez", b"/readyz"})


class MetricsServer:
    """Serves the text of `lines()`, made again for each scrape, and what `problem()` says.

    The broker sets both: `lines` while it has metrics, `problem` to what returns why it is not
    ready, or nothing when it is.
    """

    def __init__(self, network: Network, clock: Clock) -> None:
        self.lines: Callable[[], Iterator[str]] | None = None
        self.problem: Callable[[], str] = lambda: "starting"
        self._network = network
        self._clock = clock
        self._listener: Listener | None = None
        self._connections: set[_Connection] = set()
        self._scrape: asyncio.Task[bytes] | None = None
        self.loop = asyncio.get_running_loop()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port really bound. Only while it serves."""
        assert self._listener is not None
        return self._listener.addresses[0]

    async def start(self, endpoint: Endpoint, exits: AsyncExitStack) -> None:
        """Listen until `exits` closes. Raises `OncelogError` when the address cannot be had."""
        exits.push_async_callback(self.stop)
        try:
            self._listener = await self._network.listen(
                endpoint.host, endpoint.port, lambda: _Connection(self)
            )
        except OSError as error:
            raise OncelogError(
                f"oncelog.metrics.address={endpoint.host}:{endpoint.port} cannot be had: "
                f"{error.strerror or error}; choose another port"
            ) from error
        log.info("metrics are at http://%s:%d/metrics, health at /livez and /readyz", *self.address)

    async def stop(self) -> None:
        """Stop listening, and cut every connection."""
        if self._listener is not None:
            await self._listener.close()
        for connection in list(self._connections):
            connection.abort()
        if self._scrape is not None:
            self._scrape.cancel()
            await asyncio.wait([self._scrape])

    def let_go_in_child(self) -> None:
        """Close the port in a forked child."""
        if self._listener is not None:
            occupy(self._listener.descriptors)

    def admit(self, connection: _Connection) -> bool:
        """Accept a new connection, unless there are too many."""
        if len(self._connections) >= METRICS_CONNECTIONS_COUNT_MAX:
            log.warning("refusing a connection for metrics: %d are open", len(self._connections))
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: _Connection) -> None:
        """The connection is gone."""
        self._connections.discard(connection)

    def scrape(self) -> asyncio.Task[bytes] | None:
        """The scrape that is under way, else a new one; None while there are no metrics."""
        if self._scrape is not None and not self._scrape.done():
            return self._scrape
        if self.lines is None:
            return None
        self._scrape = self.loop.create_task(self._text(self.lines()))
        return self._scrape

    async def _text(self, lines: Iterator[str]) -> bytes:
        pieces: list[str] = []
        for count, line in enumerate(lines, 1):
            pieces.append(line)
            if count % METRICS_LINES_PER_TURN_COUNT == 0:
                await self._clock.sleep(0)
        return "".join(pieces).encode()


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_asked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._server.admit(self):
            self.abort()
            return
        self._timer = self._server.loop.call_later(METRICS_REQUEST_TIMEOUT_S, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._is_asked:
            return
        self._head += data
        if _END_OF_HEAD in self._head:
            self._is_asked = True
            self._answer(bytes(self._head))
        elif len(self._head) > METRICS_REQUEST_BYTES_MAX:
            self._is_asked = True
            self._respond("431 Request Header Fields Too Large", b"the request is too large\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._server.forget(self)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _answer(self, head: bytes) -> None:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path not in _PATHS:
            self._respond("404 Not Found", b"there are /metrics, /livez and /readyz\n")
        elif method != b"GET":
            self._respond("405 Method Not Allowed", b"only GET is answered\n")
        elif path == b"/livez":
            self._respond("200 OK", b"alive\n")
        elif path == b"/readyz":
            self._say(self._server.problem())
        elif (scrape := self._server.scrape()) is not None:
            scrape.add_done_callback(self._scraped)
        else:
            self._say(self._server.problem())

    def _say(self, problem: str) -> None:
        status = "503 Service Unavailable" if problem else "200 OK"
        self._respond(status, f"{problem or 'ready'}\n".encode())

    def _scraped(self, scrape: asyncio.Task[bytes]) -> None:
        if scrape.cancelled():
            self.abort()
        elif (error := scrape.exception()) is not None:
            log.error("the metrics could not be read", exc_info=error)
            self._respond("500 Internal Server Error", b"see the broker's log\n")
        else:
            self._respond("200 OK", scrape.result(), CONTENT_TYPE)

    def _respond(self, status: str, body: bytes, content_type: str = "text/plain") -> None:
        if self._transport is None:
            return
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        self._transport.close()
