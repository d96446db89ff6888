"""A client that a listener with TLS does not let in is told why, by TLS's own means."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

import pytest

from oncelog.core.secret import Secret
from oncelog.runtime.loop import new_event_loop
from oncelog.runtime.network import SystemNetwork
from oncelog.runtime.tls import Tls
from tests.support.certificates import Authority, Certificate

HOST = "127.0.0.1"


class Acceptor:
    """A listener that asks for a certificate."""

    def __init__(self, authority: Authority) -> None:
        own = authority.sign("server", HOST)
        tls = Tls(trusted=authority.pem, certificates=own.pem, key=Secret(own.key_pem()))
        self.context = tls.server_context("required")
        self.failed: list[BaseException] = []

    def begin(self, host: str, port: int) -> bool:
        return True

    def fail(self, host: str, port: int, error: BaseException) -> None:
        self.failed.append(error)


def reply_to(address: tuple[str, int], context: ssl.SSLContext) -> str:
    """What becomes of a client that sends at once, as those of TLS 1.3 do."""
    plain = socket.create_connection(address)
    try:
        with context.wrap_socket(plain, server_hostname=HOST) as secured:
            secured.sendall(b"x" * 100)
            return str(secured.recv(1))
    except ssl.SSLError as error:
        return str(error.reason)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_is_told_why_its_handshake_has_failed(
    loop: Callable[[], asyncio.AbstractEventLoop], version: str
) -> None:
    authority = Authority.make()
    shown: dict[str, Certificate | None] = {
        "TLSV1_ALERT_UNKNOWN_CA": Authority.make("another").sign("client"),
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": authority.sign("client", days=-1),
        (
            "TLSV13_ALERT_CERTIFICATE_REQUIRED"
            if version == "TLSv1.3"
            else "SSLV3_ALERT_HANDSHAKE_FAILURE"
        ): None,
    }
    acceptor = Acceptor(authority)

    async def work() -> list[str]:
        listener = await SystemNetwork().listen_tls(HOST, 0, asyncio.Protocol, acceptor)
        await listener.accept()
        found = []
        for own in shown.values():
            key = None if own is None else Secret(own.key_pem())
            pem = None if own is None else own.pem
            tls = Tls(authority.pem, pem, key, protocols=(version,))
            address = listener.addresses[0]
            found.append(await asyncio.to_thread(reply_to, address, tls.context()))
        await listener.close()
        return found

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(work()) == [*shown]
    assert len(acceptor.failed) == len(shown)
