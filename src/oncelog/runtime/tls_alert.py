"""Tells a client why its TLS handshake has failed, as TLS has it (RFC 8446, 6).

Neither asyncio nor uvloop does: they drop the connection with what OpenSSL has to say in a buffer.
"""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final, cast

__all__ = ["ServerContext", "handshake_of"]

_UNREAD_BYTES_MAX: Final = 65536
_accepted: ContextVar[socket.socket] = ContextVar("accepted")


@contextmanager
def handshake_of(accepted: socket.socket) -> Iterator[None]:
    """Name the connection whose handshake is begun within."""
    token = _accepted.set(accepted)
    try:
        yield
    finally:
        _accepted.reset(token)


class ServerContext(ssl.SSLContext):
    """The context of a listener."""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """See `ssl.SSLContext`; called by the loop."""
        self.sslobject_class = _Handshake
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        handshake = cast(_Handshake, made)
        handshake.outgoing, handshake.accepted = outgoing, _accepted.get(None)
        return made


class _Handshake(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    accepted: socket.socket | None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.accepted is not None:
                with suppress(OSError):
                    self.accepted.send(self.outgoing.read())
                    # A connection that is closed with unread bytes is reset, and the alert lost.
                    self.accepted.recv(_UNREAD_BYTES_MAX)
            raise
        self.accepted = None
