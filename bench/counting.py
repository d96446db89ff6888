"""Counts the Python functions that a broker in the same thread calls for a request."""

import asyncio
import os.path
import socket
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from struct import pack as packed
from types import FrameType

import oncelog

__all__ = ["Calls", "Client", "CountingClient", "TurningClient", "compact", "string", "uvarint"]

QUIET_TURNS = 12
"""The broker is at rest when so many turns of the loop called nothing."""
REPLY_WAIT_S_MAX = 30.0
"""By the clock: how many turns the disk's threads need hangs on what else the machine does."""

CLOCK_STEP_S = 0.002
"""More than the millisecond that a broker's clock counts in."""

_PACKAGE = os.path.dirname(oncelog.__file__) + os.sep
_BENCH = os.path.dirname(__file__) + os.sep


@dataclass(frozen=True, slots=True)
class Calls:
    """Python function calls of one request."""

    until_reply: int
    """In oncelog's files, until the client had the reply."""
    total: int
    """In oncelog's files, until the broker was at rest."""
    everywhere: int
    """In all files and generated functions, until the broker was at rest."""


class Turn:
    """Awaited, it gives the loop one turn."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class _Counter:
    """Counts the Python functions that start in this thread while it is switched on."""

    def __init__(self) -> None:
        self.own = 0
        self.everywhere = 0

    def __enter__(self) -> None:
        self.own = self.everywhere = 0
        sys.setprofile(self._event)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        # By `get_buffer` the loop asks where the bytes shall go: they have not arrived yet.
        if event != "call" or code.co_filename.startswith(_BENCH) or code.co_name == "get_buffer":
            return
        self.everywhere += 1
        if code.co_filename.startswith(_PACKAGE):
            self.own += 1


class Client:
    """A socket that asks one thing after the other."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.calls = Calls(0, 0, 0)

    def close(self) -> None:
        self._socket.close()

    async def ask(self, api: int, version: int, body: bytes, flexible: bool = False) -> bytes:
        """Send one request; returns the reply's body."""
        header = packed(">hhi", api, version, 1) + string("calls") + (b"\0" if flexible else b"")
        frame = packed(">i", len(header) + len(body)) + header + body
        reply = await self._answer(frame)
        return reply[9 if flexible else 8 :]

    async def _answer(self, frame: bytes) -> bytes:
        """Send a frame to a broker of another process, and block until the reply is whole."""
        self._socket.sendall(frame)
        size = int.from_bytes(self._socket.recv(4, socket.MSG_WAITALL), "big")
        return bytes(4) + self._socket.recv(size, socket.MSG_WAITALL)


class TurningClient(Client):
    """Gives the broker, which shares its thread, the turns of the loop in which it answers."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._socket.setblocking(False)

    async def _answer(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        reply = b""
        deadline_s = time.monotonic() + REPLY_WAIT_S_MAX
        while time.monotonic() < deadline_s:
            try:
                piece = self._socket.recv(65536)
            except BlockingIOError:
                await Turn()
                continue
            if not piece:
                raise ConnectionError("the broker closed the connection instead of answering")
            reply += piece
            if len(reply) >= 4 and len(reply) == int.from_bytes(reply[:4], "big") + 4:
                return reply
        raise TimeoutError("the broker does not answer")


class CountingClient(TurningClient):
    """Counts what a request costs the broker, until that is at rest."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._counter = _Counter()

    async def _answer(self, frame: bytes) -> bytes:
        # Within one millisecond a second request moves no timer: chance would decide about a call.
        await asyncio.sleep(CLOCK_STEP_S)
        with self._counter:
            reply = await super()._answer(frame)
            until_reply = self._counter.own
            await self._rest()
        self.calls = Calls(until_reply, self._counter.own, self._counter.everywhere)
        return reply

    async def _rest(self) -> None:
        quiet, before = 0, self._counter.everywhere
        while quiet < QUIET_TURNS:
            await Turn()
            quiet = quiet + 1 if self._counter.everywhere == before else 0
            before = self._counter.everywhere


def string(text: str) -> bytes:
    """A text as older versions of the protocol write it."""
    return packed(">h", len(text)) + text.encode()


def compact(content: str | bytes | None) -> bytes:
    """A text or bytes as flexible versions of the protocol write them."""
    if content is None:
        return b"\0"
    raw = content.encode() if isinstance(content, str) else content
    return uvarint(len(raw) + 1) + raw


def uvarint(value: int) -> bytes:
    """A number without sign, seven bits to a byte."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
