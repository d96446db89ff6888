"""One connection to a broker: it sends requests and returns their answers in order.

Requests are pipelined and answered in their order (D13), so the answer to the oldest pending
request is always the next frame; another correlation id means that the peer is broken, and the
connection closes. A request without an answer in time closes it too: later requests could not be
answered either. After a close every pending request fails with `DisconnectedError`, which says that
the request **may or may not** have taken effect.

A connection with SASL authenticates before it is open, and again before its session ends (KIP-368):
requests that are submitted meanwhile are held, since the broker would take them for messages of the
mechanism.

This module knows headers, order and versions. It must not know what a request means.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Self

from oncelog.core.errors import ErrorCode, OncelogError, ProtocolError
from oncelog.core.limits import RESPONSE_SIZE_MAX
from oncelog.peer.failures import CLOSED_AFTER_VERSIONS, explain
from oncelog.peer.negotiation import PeerSupport, negotiate
from oncelog.peer.sasl.authentication import authenticate
from oncelog.peer.sasl.exchange import SaslAuthenticationError
from oncelog.peer.sasl.settings import Sasl
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import encode_request, parse_response
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.protocol.headers import parse_response_header
from oncelog.runtime.framed import Buffer, DisconnectedError, FramedConnection
from oncelog.runtime.network import Network

__all__ = ["Connection"]

_CORRELATION_MODULUS = 2**31 - 1
_SASL_CORRELATION_ID = 2**31 - 1
"""Correlation id of authentication requests: held requests already have the next ids."""

_NO_SASL = "this broker has no SASL; use security.protocol=PLAINTEXT or SSL"

REAUTHENTICATION_SHARE = (0.85, 0.95)
"""The bounds of the share of a session's lifetime after which a connection authenticates again.

The share is drawn at random, as in Java's client.
"""


class _InFlightRequest(NamedTuple):
    api: ApiKey
    version: int
    correlation_id: int
    answer: asyncio.Future[memoryview]
    deadline_s: float


class Connection:
    """One connection; create it with `open`. `support` has what the peer announced."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        request_timeout_ms: float,
        sasl: Sasl | None = None,
        *,
        explains: bool = True,
    ) -> None:
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.support = PeerSupport()
        self._frames = FramedConnection(
            host,
            port,
            frame_bytes_max=RESPONSE_SIZE_MAX,
            on_frame=self._answered,
            on_closed=self._fail_pending,
        )
        self._loop = asyncio.get_running_loop()
        self._pending: deque[_InFlightRequest] = deque()
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sasl = sasl
        self._explains = explains
        self._reauthenticate_at_s: float | None = None
        self._reauthentication: asyncio.Task[None] | None = None
        # Requests submitted while the connection authenticates again; None at other times.
        self._held: deque[tuple[Sequence[Buffer], _InFlightRequest | None]] | None = None
        self._was_used = False
        self._throttled_until_s = 0.0

    # --- opening and closing ----------------------------------------------------------

    @classmethod
    async def open(
        cls,
        network: Network,
        host: str,
        port: int,
        *,
        client_id: str,
        request_timeout_ms: float,
        connect_timeout_ms: float,
        sasl: Sasl | None = None,
        with_tls: bool = False,
        explains: bool = True,
    ) -> Self:
        """Connect, agree on versions, and authenticate if there is a `sasl`.

        `with_tls`: the network speaks TLS; only error messages depend on it. `explains`: they may
        say that the other side wants TLS or SASL, which a broker knows of the others. Raises
        `DisconnectedError` when there is no answer in `connect_timeout_ms`, `TlsError` or
        `SaslAuthenticationError` where trying again cannot help.
        """
        connection = cls(host, port, client_id, request_timeout_ms, sasl, explains=explains)
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await connection.connect(network)
        except TimeoutError as error:
            connection.close("no answer while connecting")
            text = f"{connection.peer}: no answer in {connect_timeout_ms:g} ms"
            raise DisconnectedError(text) from error
        except DisconnectedError as error:
            connection.close("opening failed")
            if not explains:
                raise
            raise explain(error, connection._frames, with_tls) from error
        except BaseException:
            connection.close("opening failed")
            raise
        return connection

    async def connect(self, network: Network) -> None:
        """Connect and agree on versions, without a limit of time; `open` calls it once.

        Raises `DisconnectedError` when there is no answer, `ProtocolError` when the peer does
        not announce its versions, `SaslAuthenticationError` when it refuses the credentials.
        """
        await self._frames.connect(network)
        self.support = await negotiate(self.send, self.peer)
        if self._sasl is not None:
            await self._authenticate(self._sasl)
            # A broker may return less before authentication.
            self.support = await negotiate(self.send, self.peer)

    @property
    def peer(self) -> str:
        """The peer's address, "host:port"."""
        return self._frames.address

    @property
    def is_closed(self) -> bool:
        """True once nothing can be sent any more."""
        return self._frames.is_closed

    def close(self, reason: str = "closed by this side") -> None:
        """Close at once; pending requests fail with `DisconnectedError`. May be called again."""
        self._frames.close(reason)

    async def wait_closed(self) -> None:
        """Return once either side has closed the connection."""
        await self._frames.wait_closed()

    # --- requests ---------------------------------------------------------------------

    def supports(self, api: ApiKey, version: int) -> bool:
        """Whether both sides speak `version` of `api`."""
        return self.support.includes(api, version)

    def version_for(self, api: ApiKey, at_most: int | None = None) -> int:
        """The newest version that both sides speak, `at_most` when given.

        Raises `ProtocolError` (unsupported_version).
        """
        version = self.support.newest_common(api, at_most)
        if version is None:
            theirs = self.support.versions.get(api)
            text = f"{self.peer} has no version of {api.name} in common with us (it has {theirs})"
            raise ProtocolError(ErrorCode.unsupported_version, text)
        return version

    async def request(
        self,
        api: ApiKey,
        request: RequestFor[ResponseT],
        *,
        at_most: int | None = None,
        timeout_ms: float | None = None,
    ) -> ResponseT:
        """Send `request` (the newest class of its API) in the best common version.

        Returns the newest response class.

        Raises `DisconnectedError`, or `ProtocolError` when both sides have no version in common or
        the answer is malformed.
        """
        version = self.version_for(api, at_most)
        body = await self.send(api, version, request, timeout_ms)
        response: ResponseT = parse_response(api, version, body, 0)
        self.throttled(getattr(response, "throttle_time_ms", 0))
        return response

    def throttled(self, duration_ms: int) -> None:
        """Note that a response said so: for that time the broker reads nothing (KIP-219).

        No request is late before it is over, and has had its own time after it.
        """
        if duration_ms > 0:
            self._throttled_until_s = self._loop.time() + duration_ms / 1000

    def send(
        self, api: ApiKey, version: int, request: object, timeout_ms: float | None = None
    ) -> asyncio.Future[memoryview]:
        """Send `request` (the newest class of its API) in `version`.

        The future gets the answer's **body**.
        """
        frame = encode_request(api, version, self.next_correlation_id(), self.client_id, request)
        return self.submit(api, version, (frame,), timeout_ms)

    def next_correlation_id(self) -> int:
        """The id that the next submitted request must carry."""
        return self._correlation_id

    def submit(
        self,
        api: ApiKey,
        version: int,
        buffers: Sequence[Buffer],
        timeout_ms: float | None = None,
    ) -> asyncio.Future[memoryview]:
        """Send an encoded request whose header carries `next_correlation_id()`.

        The future gets the answer's **body**.

        `buffers` is the frame without its size, in pieces. Never blocks: await `writable()` before
        large requests.
        """
        pending = self._expected(api, version, self._correlation_id, timeout_ms)
        try:
            self._send_or_hold(buffers, pending)
        except DisconnectedError as error:
            pending.answer.set_exception(error)
            return pending.answer
        self._advance()
        return pending.answer

    def submit_without_answer(self, buffers: Sequence[Buffer]) -> None:
        """Send a request that the broker never answers (Produce with acks=0).

        Raises `DisconnectedError`.
        """
        self._send_or_hold(buffers, None)
        self._advance()

    async def writable(self) -> None:
        """Wait while the transport's buffer is full.

        Raises `DisconnectedError` when the connection closed.
        """
        await self._frames.writable()

    @property
    def is_writable(self) -> bool:
        """Whether `writable` would return at once."""
        return self._frames.is_writable

    # --- authentication ---------------------------------------------------------------

    async def _authenticate(self, sasl: Sasl) -> None:
        lifetime_ms = await authenticate(self._ask_now, sasl, self.peer)
        if lifetime_ms > 0:
            used_ms = lifetime_ms * sasl.draws.uniform(*REAUTHENTICATION_SHARE)
            self._reauthenticate_at_s = self._loop.time() + used_ms / 1000

    async def _ask_now(self, api: ApiKey, request: RequestFor[ResponseT]) -> ResponseT:
        """Send a request ahead of the held ones and return its answer."""
        try:
            version = self.version_for(api)
        except ProtocolError:
            raise SaslAuthenticationError(_NO_SASL) from None
        frame = encode_request(api, version, _SASL_CORRELATION_ID, self.client_id, request)
        pending = self._expected(api, version, _SASL_CORRELATION_ID, None)
        self._send((frame,), pending)
        response: ResponseT = parse_response(api, version, await pending.answer, 0)
        return response

    async def _authenticate_again(self, sasl: Sasl) -> None:
        try:
            await self._authenticate(sasl)
            while self._held:
                self._send(*self._held[0])
                self._held.popleft()
            self._held = None
        except OncelogError as error:
            self.close(f"authenticating again failed: {error}")

    # --- inner ------------------------------------------------------------------------

    def _expected(
        self, api: ApiKey, version: int, correlation_id: int, timeout_ms: float | None
    ) -> _InFlightRequest:
        wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_s = self._loop.time() + wait_ms / 1000
        return _InFlightRequest(
            api, version, correlation_id, self._loop.create_future(), deadline_s
        )

    def _send_or_hold(self, buffers: Sequence[Buffer], pending: _InFlightRequest | None) -> None:
        if self._is_session_ending() and self._sasl is not None:
            self._reauthenticate_at_s, self._held = None, deque()
            task = self._loop.create_task(self._authenticate_again(self._sasl))
            self._reauthentication = task
        if self._held is None or self.is_closed:
            self._send(buffers, pending)
        else:
            self._held.append((buffers, pending))

    def _is_session_ending(self) -> bool:
        at_s = self._reauthenticate_at_s
        return at_s is not None and self._loop.time() >= at_s and not self.is_closed

    def _send(self, buffers: Sequence[Buffer], pending: _InFlightRequest | None) -> None:
        self._frames.send(buffers)
        if pending is not None:
            self._pending.append(pending)
            if self._timer is None:
                self._timer = self._loop.call_at(pending.deadline_s, self._check_timeout)

    def _advance(self) -> None:
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_MODULUS

    def _answered(self, frame: bytearray) -> None:
        """Complete the oldest pending request with a received frame, or close the connection."""
        if not self._pending:
            self.close("peer sent an answer to nothing")
            return
        pending = self._pending[0]
        try:
            correlation_id, body = parse_response_header(pending.api, pending.version, frame)
        except ProtocolError as error:
            self.close(str(error))
            return
        if correlation_id != pending.correlation_id:
            self.close(f"answer {correlation_id} where {pending.correlation_id} was due")
            return
        self._pending.popleft()
        self._was_used = self._was_used or pending.api is not ApiKey.API_VERSIONS
        if not pending.answer.done():
            pending.answer.set_result(memoryview(frame)[body:])

    def _check_timeout(self) -> None:
        self._timer = None
        if not self._pending or self.is_closed:
            return
        deadline_s = min(pending.deadline_s for pending in self._pending)
        if self._throttled_until_s:
            late_s = self._throttled_until_s + self.request_timeout_ms / 1000
            deadline_s = max(deadline_s, late_s)
        if deadline_s <= self._loop.time():
            self.close("a request had no answer in time")
            return
        self._timer = self._loop.call_at(deadline_s, self._check_timeout)

    def _fail_pending(self, reason: str) -> None:
        """Fail the requests in flight: the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
        if reason == "closed by the peer" and self._is_shut_out():
            reason = CLOSED_AFTER_VERSIONS
        held, self._held = self._held or deque(), None
        waiting = [*self._pending, *(item for _, item in held if item is not None)]
        self._pending.clear()
        for item in waiting:
            if not item.answer.done():
                item.answer.set_exception(DisconnectedError(f"{self.peer}: {reason}"))

    def _is_shut_out(self) -> bool:
        """Whether the peer, without SASL, has answered ApiVersions and nothing else."""
        is_unused = not self._was_used and bool(self.support.versions)
        return self._explains and self._sasl is None and is_unused
