"""From a frame to its handler, and from what the handler returns to the reply's bytes.

The errors, as Kafka answers them: an ApiVersions request in a version we do not know gets an
ApiVersions v0 reply with UNSUPPORTED_VERSION (KIP-511); any other unknown API or version, and any
frame that cannot be parsed, closes the connection with one log line. A handler's bug is logged once
with its traceback and closes the connection; an `InvariantViolation` stops the broker.

This module must not know any single API's rules, apart from the one of ApiVersions above.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from oncelog.broker.apis import RAW_APIS, Buffers, PendingReply, Request, handler_of
from oncelog.core.errors import InvariantViolation, ProtocolError
from oncelog.protocol import messages
from oncelog.protocol.api import ApiKey, accepts

if TYPE_CHECKING:
    from oncelog.broker.broker import Broker
    from oncelog.broker.net.connection import Connection, Slot
    from oncelog.protocol.messages import RequestHeader

__all__ = ["Dispatcher"]

log = logging.getLogger(__name__)

_PLAIN = frozenset({bytes, bytearray, list, tuple, PendingReply, type(None)})
"""What Produce and Fetch return: spares them the question whether it is awaitable."""


class Dispatcher:
    """Finds the handler of each frame and gives its answer to the connection."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._served: dict[tuple[int, int], ApiKey] = {}
        """(key, version) pairs that were looked up once and can be served."""

    def dispatch(
        self, connection: Connection, frame: bytearray, slot: Slot
    ) -> Awaitable[None] | None:
        """Start one request.

        An awaitable comes back when the later requests of the connection have to wait.
        """
        try:
            request = self._parse(connection, frame)
        except ProtocolError as error:
            connection.fail(f"malformed request: {error.message}")
            return None
        if request is None:
            return None
        handler = handler_of(request.api)
        if handler is None:  # pragma: no cover - _parse refuses what has no handler
            return None
        try:
            result = handler(self._broker, request)
            if type(result) not in _PLAIN and inspect.isawaitable(result):
                return self._finish(connection, request, slot, result)
            self._deliver(connection, request, slot, result)
        except Exception as error:  # noqa: BLE001 - a task boundary: one request must not end the others
            self._failed(connection, request, error)
        return None

    def _parse(self, connection: Connection, frame: bytearray) -> Request | None:
        header = messages.parse_request_header(frame)
        api = self._served.get((header.api_key, header.api_version))
        if api is None:
            api = self._look_up(connection, header)
            if api is None:
                return None
            if not accepts(api, header.api_version):
                return Request(api, header, None, connection)
            self._served[header.api_key, header.api_version] = api
        body: Any
        if api in RAW_APIS:
            body = memoryview(frame)[header.body_offset :]
        else:
            body = messages.parse_request(api, header.api_version, frame, header.body_offset)
        return Request(api, header, body, connection)

    def _look_up(self, connection: Connection, header: RequestHeader) -> ApiKey | None:
        """The API of a request, or None once the connection was closed because of it.

        ApiVersions is found in any version (KIP-511).
        """
        try:
            api = ApiKey(header.api_key)
        except ValueError:
            connection.fail(f"unknown API key {header.api_key}")
            return None
        if handler_of(api) is None:
            connection.fail(f"API {api.name} is not served")
            return None
        if not accepts(api, header.api_version) and api is not ApiKey.API_VERSIONS:
            connection.fail(f"version {header.api_version} of API {api.name} is not served")
            return None
        return api

    async def _finish(
        self, connection: Connection, request: Request, slot: Slot, waiting: Awaitable[Any]
    ) -> None:
        try:
            self._deliver(connection, request, slot, await waiting)
        except Exception as error:  # noqa: BLE001 - a task boundary, as in `dispatch`
            self._failed(connection, request, error)

    def _deliver(self, connection: Connection, request: Request, slot: Slot, result: Any) -> None:
        if connection.closed:
            if isinstance(result, PendingReply):
                result.cancel()
            return
        if result is None:
            connection.no_answer(slot)
        elif isinstance(result, PendingReply):
            slot.pending = result
            header = request.header

            def deliver(value: Any) -> None:
                if connection.closed:
                    return
                try:
                    buffers = self._encode(request.api, header, value)
                except Exception as error:  # noqa: BLE001 - the caller is other work
                    self._failed(connection, request, error)
                else:
                    connection.answer(slot, buffers)

            result.attach(deliver)
        else:
            connection.answer(slot, self._encode(request.api, request.header, result))

    @staticmethod
    def _encode(api: ApiKey, header: RequestHeader, value: Any) -> Buffers:
        if isinstance(value, (bytes, bytearray, memoryview, list, tuple)):
            return value
        version = header.api_version
        if api is ApiKey.API_VERSIONS and not accepts(api, version):
            version = 0
        return messages.encode_response(api, version, header.correlation_id, value)

    def _failed(self, connection: Connection, request: Request, error: Exception) -> None:
        if isinstance(error, ProtocolError):
            connection.fail(f"{request.api.name} request: {error.message}")
            return
        if isinstance(error, InvariantViolation):
            connection.abort()
            self._broker.stop_because(error)
            return
        log.error(
            "%s v%d from %s failed", request.api.name, request.version, connection, exc_info=error
        )
        connection.close()
