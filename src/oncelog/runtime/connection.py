"""One outgoing connection that speaks Kafka: frames, correlation ids, versions, timeouts.

Requests are pipelined and answered in their order (D13), so the answer to the oldest pending
request is always the next frame; another correlation id means that the peer is broken, and the
connection closes. A request without an answer in time closes it too: whatever is behind it in the
pipe could not be answered either. After a close every pending request fails with
`DisconnectedError`, which says that the request **may or may not** have taken effect.

Nothing here knows what a request means; the ranges of versions come from the peer's ApiVersions
answer (KIP-35, KIP-584).
"""

import asyncio
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from kio.schema.api_versions.v4.request import ApiVersionsRequest

from oncelog.core.errors import ErrorCode, OncelogError, ProtocolError
from oncelog.core.limits import RESPONSE_SIZE_MAX
from oncelog.protocol.api import ADVERTISED, ApiKey, VersionRange
from oncelog.protocol.headers import parse_response_header
from oncelog.protocol.messages import encode_request, message, parse_response
from oncelog.runtime.network import Network

__all__ = ["Connection", "DisconnectedError", "PeerSupport"]

Buffer = bytes | bytearray | memoryview

_SIZE = struct.Struct(">i")
_CORRELATION_MODULUS = 2**31
_ERROR_CODE = struct.Struct(">h")
SOFTWARE_NAME = "oncelog"
SOFTWARE_VERSION = "0.1.0"


class DisconnectedError(OncelogError):
    """The connection is closed. A request that was pending may or may not have taken effect."""


@dataclass(frozen=True, slots=True)
class PeerSupport:
    """What the peer announced: a range of versions per API key, finalized feature levels (-1.

    The epoch is unknown).
    """

    versions: Mapping[int, VersionRange] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    features_epoch: int = -1


class _Pending(NamedTuple):
    api: ApiKey
    version: int
    correlation_id: int
    answer: asyncio.Future[memoryview]
    deadline_s: float


class Connection(asyncio.Protocol):
    """Made by `Connection.open`. `support` is what the peer announced."""

    def __init__(self, client_id: str, request_timeout_ms: float) -> None:
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.support = PeerSupport()
        self.peer = "?"
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Pending] = deque()
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed_because: str | None = None
        self._closed = self._loop.create_future()
        self._writable = asyncio.Event()
        self._writable.set()
        self._head = bytearray()
        self._frame: bytearray | None = None
        self._filled = 0

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
    ) -> "Connection":
        """Connect and agree on versions.

        Raises `DisconnectedError` when nobody answers in `connect_timeout_ms`.
        """
        connection = cls(client_id, request_timeout_ms)
        connection.peer = f"{host}:{port}"
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await network.connect(host, port, lambda: connection)
                connection.support = await _negotiate(connection)
        except TimeoutError as error:
            connection.close("no answer while connecting")
            text = f"{host}:{port}: no answer in {connect_timeout_ms:g} ms"
            raise DisconnectedError(text) from error
        except OSError as error:
            raise DisconnectedError(f"{host}:{port}: {error.strerror or error}") from error
        except BaseException:
            connection.close("opening failed")
            raise
        return connection

    @property
    def is_closed(self) -> bool:
        """True once nothing can be sent any more."""
        return self._closed_because is not None

    def close(self, reason: str = "closed by this side") -> None:
        """Close at once; pending requests fail with `DisconnectedError`. May be called again."""
        self._shut(reason)
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Return once the connection is closed, by whomever."""
        await asyncio.shield(self._closed)

    # --- requests ---------------------------------------------------------------------

    def supports(self, api: ApiKey, version: int) -> bool:
        """Whether both sides speak `version` of `api`."""
        theirs = self.support.versions.get(api)
        return theirs is not None and version in theirs and version in ADVERTISED[api]

    def version_for(self, api: ApiKey, at_most: int | None = None) -> int:
        """The newest version that both sides speak, `at_most` when given.

        Raises `ProtocolError` (unsupported_version).
        """
        theirs = self.support.versions.get(api)
        ours = ADVERTISED[api]
        if theirs is not None:
            newest = min(ours.max, theirs.max, ours.max if at_most is None else at_most)
            if newest >= max(ours.min, theirs.min):
                return newest
        text = f"{self.peer} has no version of {api.name} in common with us (it has {theirs})"
        raise ProtocolError(ErrorCode.unsupported_version, text)

    async def request(
        self,
        api: ApiKey,
        request: object,
        *,
        at_most: int | None = None,
        timeout_ms: float | None = None,
    ) -> Any:
        """Send `request` (the newest class of its API) in the best common version.

        Returns the newest response class.

        Raises `DisconnectedError`, or `ProtocolError` when versions do not meet or the answer is
        malformed.
        """
        version = self.version_for(api, at_most)
        frame = encode_request(api, version, self.next_correlation_id(), self.client_id, request)
        body = await self.submit(api, version, (frame,), timeout_ms)
        return parse_response(api, version, body, 0)

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
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        if not self._write(buffers):
            answer.set_exception(DisconnectedError(f"{self.peer}: {self._closed_because}"))
            return answer
        wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_s = self._loop.time() + wait_ms / 1000
        self._pending.append(_Pending(api, version, self._advance(), answer, deadline_s))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline_s, self._check_timeout)
        return answer

    def submit_without_answer(self, buffers: Sequence[Buffer]) -> None:
        """Send a request that the broker never answers (Produce with acks=0).

        Raises `DisconnectedError`.
        """
        if not self._write(buffers):
            raise DisconnectedError(f"{self.peer}: {self._closed_because}")
        self._advance()

    async def writable(self) -> None:
        """Wait while the transport's buffer is full.

        Raises `DisconnectedError` when the connection closed.
        """
        await self._writable.wait()
        if self._closed_because is not None:
            raise DisconnectedError(f"{self.peer}: {self._closed_because}")

    # --- asyncio's side ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the network."""
        self._transport = cast(asyncio.Transport, transport)
        if self._closed_because is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the transport when the stream ended."""
        self._shut(f"connection lost ({exc})" if exc else "closed by the peer")

    def pause_writing(self) -> None:
        """Called by the transport: too much is unsent."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Called by the transport: there is room again."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Called by the transport: cut the stream into frames."""
        view = memoryview(data)
        while view and self._closed_because is None:
            if self._frame is None:
                view = self._take_size(view)
                continue
            taken = min(len(view), len(self._frame) - self._filled)
            self._frame[self._filled : self._filled + taken] = view[:taken]
            self._filled += taken
            view = view[taken:]
            if self._filled == len(self._frame):
                frame, self._frame, self._filled = self._frame, None, 0
                self._frame_received(frame)

    # --- inner ------------------------------------------------------------------------

    def _take_size(self, view: memoryview) -> memoryview:
        missing = _SIZE.size - len(self._head)
        self._head += view[:missing]
        if len(self._head) == _SIZE.size:
            size = _SIZE.unpack(self._head)[0]
            self._head.clear()
            if 4 <= size <= RESPONSE_SIZE_MAX:
                self._frame = bytearray(size)
            else:
                self.close(f"peer announced a frame of {size} bytes")
        return view[missing:]

    def _frame_received(self, frame: bytearray) -> None:
        if not self._pending:
            self.close("peer sent an answer to nothing")
            return
        pending = self._pending.popleft()
        try:
            correlation_id, body = parse_response_header(pending.api, pending.version, frame)
        except ProtocolError as error:
            self._refuse(pending, str(error))
            return
        if correlation_id != pending.correlation_id:
            text = f"answer {correlation_id} where {pending.correlation_id} was due"
            self._refuse(pending, text)
        elif not pending.answer.done():
            pending.answer.set_result(memoryview(frame)[body:])

    def _refuse(self, pending: _Pending, reason: str) -> None:
        self._pending.appendleft(pending)
        self.close(reason)

    def _write(self, buffers: Sequence[Buffer]) -> bool:
        if self._closed_because is not None or self._transport is None:
            return False
        size = sum(len(buffer) for buffer in buffers)
        self._transport.writelines([_SIZE.pack(size), *buffers])
        return True

    def _advance(self) -> int:
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) % _CORRELATION_MODULUS
        return correlation_id

    def _check_timeout(self) -> None:
        self._timer = None
        if not self._pending or self._closed_because is not None:
            return
        deadline_s = min(pending.deadline_s for pending in self._pending)
        if deadline_s <= self._loop.time():
            self.close("a request had no answer in time")
            return
        self._timer = self._loop.call_at(deadline_s, self._check_timeout)

    def _shut(self, reason: str) -> None:
        if self._closed_because is not None:
            return
        self._closed_because = reason
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()
        pending, self._pending = self._pending, deque()
        for item in pending:
            if not item.answer.done():
                item.answer.set_exception(DisconnectedError(f"{self.peer}: {reason}"))
        if not self._closed.done():
            self._closed.set_result(None)


async def _negotiate(connection: Connection) -> PeerSupport:
    """Ask for the peer's versions, going down to what it knows when it refuses ours (KIP-511)."""
    version = ADVERTISED[ApiKey.API_VERSIONS].max
    answer = await _ask_versions(connection, version)
    if answer is None:
        answer = await _ask_versions(connection, 0)
    if answer is None:
        text = f"{connection.peer} refuses ApiVersions v{version} and v0"
        raise ProtocolError(ErrorCode.unsupported_version, text)
    if answer.error_code is not ErrorCode.none:
        raise ProtocolError(answer.error_code, f"{connection.peer}: ApiVersions")
    return PeerSupport(
        versions={
            key.api_key: VersionRange(key.min_version, key.max_version) for key in answer.api_keys
        },
        features={f.name: f.max_version_level for f in answer.finalized_features},
        features_epoch=answer.finalized_features_epoch,
    )


async def _ask_versions(connection: Connection, version: int) -> Any:
    api = ApiKey.API_VERSIONS
    request = message(
        ApiVersionsRequest,
        client_software_name=SOFTWARE_NAME,
        client_software_version=SOFTWARE_VERSION,
    )
    frame = encode_request(
        api, version, connection.next_correlation_id(), connection.client_id, request
    )
    body = await connection.submit(api, version, (frame,))
    # A refusal is always written as version 0: the code stands first.
    if _ERROR_CODE.unpack_from(body)[0] == ErrorCode.unsupported_version:
        return None
    return parse_response(api, version, body, 0)
