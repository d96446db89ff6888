"""A blocking connection that sends one request at a time, in any version, as any user."""

from __future__ import annotations

import socket
from typing import Any, Final

from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest

__all__ = ["RawClient"]

_TIMEOUT_S: Final = 30


class RawClient:
    """One connection; a context manager. With a user it logs in by PLAIN."""

    def __init__(self, address: str, user: str = "", password: str = "") -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _TIMEOUT_S)
        self._correlation_id = 0
        self.address = address
        if user:
            self.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
            said = f"\0{user}\0{password}".encode()
            told = self.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=said))
            assert told.error_code is ErrorCode.none, told

    def ask(self, api: ApiKey, version: int, request: object) -> Any:
        """Send a request; return its response. Raises `ConnectionError` if it is closed."""
        self._correlation_id += 1
        frame = codec.encode_request(api, version, self._correlation_id, "test", request)
        answer = self.exchange(frame)
        correlation_id, offset = codec.parse_response_header(api, version, answer)
        assert correlation_id == self._correlation_id
        return codec.parse_response(api, version, answer, offset)

    def exchange(self, frame: bytes) -> bytes:
        """Send a frame; return the next one. Raises `ConnectionError` if there is none."""
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        return self._read(int.from_bytes(self._read(4), "big"))

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            some = self._socket.recv(size - len(found))
            if not some:
                raise ConnectionError("the broker has closed the connection")
            found += some
        return found

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
