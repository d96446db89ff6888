"""A scripted broker on a real socket, with TLS and SASL, honest or not.

It authenticates as Kafka's does: no other request is served before, and a session that has a
lifetime has to be renewed. `lies` are the ways in which it cheats.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import struct
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import encode_response, parse_request
from oncelog.protocol.headers import parse_request_header
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests.support.certificates import Certificate
from tests.unit.client.scripted_broker import ScriptedBroker

USER, PASSWORD, TOKEN = "alice", "alice-geheim", "token-geheim"
ITERATIONS = 4096
SALT = b"a salt of sixteen"


class SecureBroker(ScriptedBroker):
    """`async with SecureBroker(...) as broker: Admin(broker.address, ...)`."""

    def __init__(
        self,
        *,
        certificate: Certificate | None = None,
        trusts: Certificate | None = None,
        mechanisms: tuple[str, ...] = (),
        lifetime_ms: int = 0,
        lies: str = "",
    ) -> None:
        super().__init__()
        self.mechanisms = mechanisms
        self.lifetime_ms = lifetime_ms
        self.lies = lies
        self.authentications: list[str] = []
        """The mechanism of each authentication that was begun."""
        self.context = None if certificate is None else _server_context(certificate, trusts)
        self.connections: list[_Connection] = []

    async def __aenter__(self) -> "SecureBroker":
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", 0, ssl=self.context
        )
        self.host, self.port = self._server.sockets[0].getsockname()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for connection in self.connections:
            connection.cut()
        await asyncio.sleep(0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def serve(self, connection: "_Connection", frame: bytes) -> None:
        """Answer what needs no authentication."""
        self._on_frame(connection, frame)  # type: ignore[arg-type]  # it can feed and cut, too


class _Connection(asyncio.Protocol):
    def __init__(self, broker: SecureBroker) -> None:
        self._broker = broker
        self._received = bytearray()
        self._mechanism: str | None = None
        self._scram: _ScramServer | None = None
        self._is_known = not broker.mechanisms

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._broker.connections.append(self)

    def data_received(self, data: bytes) -> None:
        if self._broker.lies == "alert":
            # What a TLS port of Java's says to plain text.
            self._transport.write(bytes.fromhex("15030300020250"))
            return
        self._received += data
        while len(self._received) >= 4:
            size = struct.unpack_from(">i", self._received)[0]
            if size > 1 << 20:
                self._transport.abort()
                return
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            self._take(frame)

    def feed(self, frame: bytes) -> None:
        self._transport.write(struct.pack(">i", len(frame)) + frame)

    def cut(self) -> None:
        self._transport.abort()

    def _take(self, frame: bytes) -> None:
        header = parse_request_header(frame)
        api, version = ApiKey(header.api_key), header.api_version
        if api in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            request = parse_request(api, version, frame, header.body_offset)
            shake = api is ApiKey.SASL_HANDSHAKE
            answer = self._shake_hands(request) if shake else self._authenticate(request.auth_bytes)
            self.feed(encode_response(api, version, header.correlation_id, answer))
        elif self._is_known or (api is ApiKey.API_VERSIONS and self._mechanism is None):
            self._broker.serve(self, frame)
        else:
            # As Kafka's: whoever is not authenticated, or is about to be, may ask nothing else.
            self.cut()

    def _shake_hands(self, request: Any) -> Any:
        known = self._broker.mechanisms
        code = ErrorCode.none
        if not known:
            code = ErrorCode.illegal_sasl_state
        elif request.mechanism not in known:
            code = ErrorCode.unsupported_sasl_mechanism
        else:
            self._mechanism, self._is_known = request.mechanism, False
            self._scram = None
            self._broker.authentications.append(request.mechanism)
        return SaslHandshakeResponse(error_code=code, mechanisms=known)

    def _authenticate(self, said: bytes) -> Any:
        reply: bytes | None
        if self._mechanism == "PLAIN":
            reply = b"" if said == f"\0{USER}\0{PASSWORD}".encode() else None
            self._is_known = reply is not None
        elif self._mechanism == "OAUTHBEARER":
            self._is_known = f"auth=Bearer {TOKEN}\x01".encode() in said
            reply = b"" if self._is_known else json.dumps({"status": "invalid_token"}).encode()
        else:
            self._scram = self._scram or _ScramServer(self._mechanism or "", self._broker.lies)
            reply = self._scram.answer(said)
            self._is_known = self._scram.is_done
        code = ErrorCode.none if reply is not None else ErrorCode.sasl_authentication_failed
        return SaslAuthenticateResponse(
            error_code=code,
            error_message=None if reply is not None else "Authentication failed",
            auth_bytes=reply or b"",
            session_lifetime_ms=self._broker.lifetime_ms,
        )


class _ScramServer:
    def __init__(self, mechanism: str, lies: str) -> None:
        self._hash = "sha512" if mechanism.endswith("512") else "sha256"
        self._lies = lies
        self._messages: list[str] = []
        self.is_done = False

    def answer(self, said: bytes) -> bytes | None:
        text = said.decode()
        if not self._messages:
            return self._begin(text.removeprefix("n,,"))
        return self._end(text)

    def _begin(self, bare: str) -> bytes:
        nonce = bare.partition(",r=")[2]
        count = 1 << 30 if self._lies == "iterations" else ITERATIONS
        nonce = "someone-elses" if self._lies == "nonce" else nonce + "server"
        first = f"r={nonce},s={base64.b64encode(SALT).decode()},i={count}"
        self._messages = [bare, first]
        return b"" if self._lies == "skips the proof" else first.encode()

    def _end(self, text: str) -> bytes | None:
        without_proof, _, proof = text.rpartition(",p=")
        signed = ",".join([*self._messages, without_proof]).encode()
        password = "another" if self._lies == "signature" else PASSWORD
        salted = hashlib.pbkdf2_hmac(self._hash, password.encode(), SALT, ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, signed, self._hash)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if base64.b64decode(proof) != expected and not self._lies:
            return None
        self.is_done = True
        if self._lies == "no signature":
            return b""
        own = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        return b"v=" + base64.b64encode(own)


def _server_context(certificate: Certificate, trusts: Certificate | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        context.load_cert_chain(certificate.write(Path(folder) / "server.pem"))
    if trusts is not None:
        context.load_verify_locations(cadata=trusts.pem)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
