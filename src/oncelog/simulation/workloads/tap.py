"""Listens on a client's connections: what it sends, when, and what it leaves open.

`TapNetwork` passes everything on. A frame is handed over before it is sent.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import parse_request_header
from oncelog.protocol.produce import ProduceRequest, parse_produce_request
from oncelog.runtime.network import Listener, Network, ProtocolFactory

__all__ = ["TapNetwork"]

_HEAD: Final = struct.Struct(">hh")
_SIZE: Final = 4


class TapNetwork:
    """A client's network. `produced` is called with each Produce request."""

    def __init__(self, inner: Network, produced: Callable[[ProduceRequest], None]) -> None:
        self._inner = inner
        self._produced = produced
        self.sent: Counter[ApiKey] = Counter()
        """The requests so far, by their kind."""
        self.opened_count = 0
        self._transports: list[asyncio.Transport] = []

    @property
    def open_count(self) -> int:
        """How many connections are not closed."""
        return sum(not transport.is_closing() for transport in self._transports)

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, *, accepts: bool = True
    ) -> Listener:
        """See `Network`."""
        return await self._inner.listen(host, port, protocol_factory, accepts=accepts)

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        """See `Network`."""
        await self._inner.connect(host, port, lambda: _TapProtocol(protocol_factory(), self))

    def made(self, transport: asyncio.Transport) -> asyncio.Transport:
        """Return the transport that the client is given."""
        self.opened_count += 1
        self._transports = [each for each in self._transports if not each.is_closing()]
        self._transports.append(transport)
        return cast(asyncio.Transport, _TapTransport(transport, self.frame))

    def frame(self, data: bytes) -> None:
        """Take one request, without its size."""
        api, version = _HEAD.unpack_from(data)
        self.sent[ApiKey(api)] += 1
        if api == ApiKey.PRODUCE:
            view = memoryview(data)
            position = parse_request_header(view).body_offset
            self._produced(parse_produce_request(view, version, position))


class _TapProtocol(asyncio.Protocol):
    """The client's protocol, which is given another transport."""

    def __init__(self, inner: asyncio.BaseProtocol, tap: TapNetwork) -> None:
        self._inner = cast(asyncio.Protocol, inner)
        self._tap = tap

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(self._tap.made(cast(asyncio.Transport, transport)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _TapTransport:
    """A transport on which each frame is written by one call."""

    def __init__(self, inner: asyncio.Transport, frame: Callable[[bytes], None]) -> None:
        self._inner = inner
        self._frame = frame

    def writelines(self, buffers: Sequence[Any]) -> None:
        self._frame(b"".join(bytes(each) for each in buffers)[_SIZE:])
        self._inner.writelines(buffers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
