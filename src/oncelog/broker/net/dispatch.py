"""Passes each frame to its API's handler, and encodes the handler's reply.

The errors, as Kafka answers them: an ApiVersions request in a version we do not know gets an
ApiVersions v0 reply with UNSUPPORTED_VERSION (KIP-511); any other unknown API or version, and any
frame that cannot be parsed, closes the connection with one log line. A handler's bug is logged once
with its traceback and closes the connection; an `InvariantViolation` stops the broker.

This module must not know any single API's rules, apart from the one of ApiVersions above.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from enum import IntEnum
from types import CoroutineType
from typing import TypeAlias

from oncelog.broker.net.connection import ServerConnection
from oncelog.broker.net.request import Api, Buffers, Request, RequestMeter
from oncelog.core.errors import InvariantViolation, ProtocolError
from oncelog.core.pending import Pending
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey, accepts
from oncelog.protocol.headers import RequestHeader, parse_request_header

__all__ = ["Dispatcher", "Find", "Layer"]

log = logging.getLogger(__name__)

_BUFFERS = frozenset({bytes, bytearray, memoryview, list, tuple})
"""Types of a reply that its handler has encoded itself."""


Find: TypeAlias = Callable[[ApiKey], "Api | None"]


class Layer(IntEnum):
    """What may be around the handlers, from the inside to the outside."""

    ACTION_QUOTA = 0
    """Bounds what a request may do, of what its client may do at all."""
    ACCESS = 1
    """Asks whether its client may."""
    QUOTA = 2
    """Measures a request, also one that is refused."""
    WATCH = 3
    """Looks at requests and responses."""
    FAULT = 4
    """Has a request fail."""


class Dispatcher:
    """Finds the handler of each frame and returns its reply to the connection.

    `find(key)` returns an API, None if it is not served; `context` is passed to handlers;
    `stop_because` is called with a violated invariant. With a stopwatch, which returns seconds,
    requests are timed.
    """

    def __init__(
        self,
        context: object,
        find: Find,
        stop_because: Callable[[BaseException], None],
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self._context = context
        self._plain_find = self._find = find
        self._layers: dict[Layer, Callable[[Find], Find] | None] = {}
        self._stop_because = stop_because
        self._stopwatch = stopwatch
        self.meters: dict[tuple[int, int], RequestMeter] = {}
        """Counts by (key, version), of the requests that can be served."""

    def wrap(self, layer: Layer, wrapping: Callable[[Find], Find] | None) -> None:
        """Put something around the handlers from the next request on; None takes it away.

        `wrapping` gets what finds the handlers inside of it, and returns what finds its own.
        """
        self._layers[layer] = wrapping
        self._find = self._plain_find
        for _, each in sorted(self._layers.items()):
            if each is not None:
                self._find = each(self._find)
        for meter in self.meters.values():
            meter.api = self._find(meter.api.key) or meter.api

    def start(self, connection: ServerConnection, frame: bytearray) -> None:
        """Start the request in a frame."""
        try:
            header = parse_request_header(frame)
            meter = self.meters.get(header[:2])
            if meter is None:
                meter = self._look_up(connection, header)
                if meter is None:
                    return
            api = meter.api
            body: object = None
            if api.reads_bytes:
                body = memoryview(frame)[header.body_offset :]
            elif meter.version == header.api_version:
                body = codec.parse_request(api.key, header.api_version, frame, header.body_offset)
        except ProtocolError as error:
            connection.fail(f"malformed request: {error.message}")
            return
        request = Request(meter, header, body, connection)
        meter.count += 1
        stopwatch = self._stopwatch
        if stopwatch is not None:
            request.begun_s = stopwatch() - connection.queued_s
            meter.byte_count += len(frame)
        try:
            value = api.handle(self._context, request)
            while type(value) is Pending and value.done:
                value = value.response()
            if type(value) is Pending:
                connection.hold(request, value)
            elif type(value) is CoroutineType:
                connection.run(request, self._finish(connection, request, value))
            else:
                if value is not None:
                    reply = value if type(value) is bytes else _encode(request, value)
                    connection.answer(request, reply)
                if stopwatch is not None:
                    meter.took(stopwatch() - request.begun_s)
        except Exception as error:  # noqa: BLE001 - a task boundary: one request must not end the others
            self._failed(connection, request, error)

    def settle(self, connection: ServerConnection, request: Request[object]) -> None:
        """Handle the completed `Pending` of `request`."""
        pending = request.pending
        if pending is None or connection.closed:
            return
        try:
            self._deliver(connection, request, pending)
        except Exception as error:  # noqa: BLE001 - a task boundary: the caller is other work
            self._failed(connection, request, error)

    def _look_up(self, connection: ServerConnection, header: RequestHeader) -> RequestMeter | None:
        """Return the meter of a request's API and version; None once the connection was closed.

        ApiVersions is found in any version (KIP-511); an unknown version counts as version 0, the
        version of its reply.
        """
        try:
            key = ApiKey(header.api_key)
        except ValueError:
            connection.fail(f"unknown API key {header.api_key}")
            return None
        api = self._find(key)
        if api is None:
            connection.fail(f"API {key.name} is not served")
            return None
        version = header.api_version
        if not accepts(key, version):
            if key is not ApiKey.API_VERSIONS:
                connection.fail(f"version {version} of API {key.name} is not served")
                return None
            version = 0
        return self.meters.setdefault((key, version), RequestMeter(api, version))

    async def _finish(
        self,
        connection: ServerConnection,
        request: Request[object],
        work: Coroutine[object, object, object],
    ) -> None:
        try:
            self._deliver(connection, request, await work)
        except Exception as error:  # noqa: BLE001 - a task boundary, as in `start`
            self._failed(connection, request, error)

    def _deliver(
        self, connection: ServerConnection, request: Request[object], value: object
    ) -> None:
        """Reply to a request that had to wait, or wait for the next `Pending`."""
        while type(value) is Pending and value.done:
            value = value.response()
        if type(value) is Pending:
            connection.hold(request, value)
        else:
            connection.reply(request, None if value is None else _encode(request, value))
            if self._stopwatch is not None:
                request.meter.took(self._stopwatch() - request.begun_s)

    def _failed(
        self, connection: ServerConnection, request: Request[object], error: Exception
    ) -> None:
        if isinstance(error, ProtocolError):
            connection.fail(f"{request.api.name} request: {error.message}", request)
            return
        if isinstance(error, InvariantViolation):
            connection.abort()
            self._stop_because(error)
            return
        log.error(
            "%s v%d from %s failed", request.api.name, request.version, connection, exc_info=error
        )
        connection.end(request)


def _encode(request: Request[object], value: object) -> Buffers:
    if type(value) in _BUFFERS:
        return value  # type: ignore[return-value]
    version = request.version
    if request.api is ApiKey.API_VERSIONS and not accepts(request.api, version):
        version = 0
    errors = request.meter.errors
    return codec.encode_response(request.api, version, request.correlation_id, value, errors)
