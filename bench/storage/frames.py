"""Requests written by hand, on plain connections.

A client library would hold far more for each consumer or producer than the broker does.
"""

import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from bench.work import TIMEOUT_S

CONNECTIONS = 50
"""So many requests are under way at a time."""
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
CONCURRENT_TRANSACTIONS = 51
RETRIED = {
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    CONCURRENT_TRANSACTIONS,
}
RETRY_S = 0.1


def string(text: str) -> bytes:
    """A text as the protocol writes it."""
    return struct.pack(">h", len(text)) + text.encode()


def blob(data: bytes) -> bytes:
    """Bytes as the protocol writes them."""
    return struct.pack(">i", len(data)) + data


class Connection:
    """A connection on which one request is answered after the other."""

    def __init__(self, bootstrap_servers: str, versions: Mapping[int, int]) -> None:
        self._versions = versions
        host, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, api: int, body: bytes) -> None:
        header = struct.pack(">hhih", api, self._versions[api], 1, -1)
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)

    def receive(self) -> bytes:
        """An answer's body. Raises RuntimeError when the connection is closed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)[4:]

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise RuntimeError("a connection was closed instead of answered")
            found += more
        return bytes(found)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@contextmanager
def connected(bootstrap_servers: str, versions: Mapping[int, int]) -> Iterator[list[Connection]]:
    """`CONNECTIONS` connections, closed in the end."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Connection(bootstrap_servers, versions)) for _ in range(CONNECTIONS)
        ]


def shares(count: int) -> Iterator[range]:
    """The numbers below `count`, as many at a time as there are connections."""
    for first in range(0, count, CONNECTIONS):
        yield range(first, min(first + CONNECTIONS, count))


def ask(connections: list[Connection], api: int, bodies: list[bytes], error_at: int) -> list[bytes]:
    """Ask all at once; the answers, whose error stands at that place."""
    for connection, body in zip(connections, bodies, strict=True):
        connection.send(api, body)
    answers = [connection.receive() for connection in connections]
    deadline_s = time.monotonic() + TIMEOUT_S
    for at, connection in enumerate(connections):
        while (error := _error(answers[at], error_at)) in RETRIED:
            if time.monotonic() > deadline_s:
                break
            time.sleep(RETRY_S)
            connection.send(api, bodies[at])
            answers[at] = connection.receive()
        if error:
            raise RuntimeError(f"request {api} was answered with error {error}")
    return answers


def _error(answer: bytes, at: int) -> int:
    return int.from_bytes(answer[at : at + 2] if at >= 0 else answer[at:], "big", signed=True)
