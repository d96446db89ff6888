"""The client's end of a connection that sends any bytes and reads when it likes."""

from __future__ import annotations

import asyncio
from typing import cast

from oncelog.simulation.context import ClientContext

__all__ = ["RawPeer"]

_SIZE_BYTES = 4


class RawPeer(asyncio.Protocol):
    """Collects the frames that arrive; `is_closed` once the connection has ended."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.is_closed = False
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._changed = asyncio.Event()

    @classmethod
    async def open(cls, context: ClientContext) -> RawPeer:
        """Connect to the broker. Raises `OSError`."""
        made: list[RawPeer] = []

        def make() -> RawPeer:
            made.append(cls())
            return made[-1]

        await context.network.connect(*context.bootstrap, make)
        return made[-1]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop calls it."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """The loop calls it: cut the bytes into frames."""
        received = self._received
        received += data
        while len(received) >= _SIZE_BYTES:
            end = _SIZE_BYTES + int.from_bytes(received[:_SIZE_BYTES], "big")
            if len(received) < end:
                break
            self.frames.append(bytes(received[_SIZE_BYTES:end]))
            del received[:end]
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The loop calls it."""
        self.is_closed = True
        self._transport = None
        self._changed.set()

    def send(self, data: bytes) -> None:
        """Send bytes, unless the connection has ended."""
        if self._transport is not None:
            self._transport.write(data)

    def pause(self) -> None:
        """Stop reading."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def hang_up(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    async def wait(self, count: int, timeout_s: float) -> bool:
        """Wait for so many frames; return whether they came before the end of the connection."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(self.frames) < count and not self.is_closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return len(self.frames) >= count

    async def wait_closed(self, timeout_s: float) -> bool:
        """Wait for the end of the connection; return whether it came."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.is_closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.is_closed
