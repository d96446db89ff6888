"""A network in memory.

Connections to a scripted peer, every byte at hand, no sockets and no waiting.
"""

import asyncio
import struct
from collections.abc import Callable, Iterable

from oncelog.runtime.network import Listener, ProtocolFactory


class MemoryTransport(asyncio.Transport):
    """The client's end.

    The peer sees whole frames and answers with `feed`, or `cut`s the connection.
    """

    def __init__(
        self, protocol: asyncio.Protocol, on_frame: "Callable[[MemoryTransport, bytes], None]"
    ) -> None:
        super().__init__()
        self._protocol = protocol
        self._on_frame = on_frame
        self._received = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._received += data
        while len(self._received) >= 4:
            size = struct.unpack_from(">i", self._received)[0]
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            asyncio.get_running_loop().call_soon(self._deliver, frame)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def _deliver(self, frame: bytes) -> None:
        if not self.closed:
            self._on_frame(self, frame)

    def feed(self, frame: bytes, *, piece_size: int = 1 << 20) -> None:
        """Give the client one frame, cut into pieces."""
        data = struct.pack(">i", len(frame)) + frame
        for start in range(0, len(data), piece_size):
            self.feed_raw(data[start : start + piece_size])

    def feed_raw(self, data: bytes) -> None:
        """Give the client bytes."""
        if not self.closed:
            self._protocol.data_received(data)

    def cut(self, error: Exception | None = None) -> None:
        """The connection breaks."""
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)

    def abort(self) -> None:
        self.cut()

    def close(self) -> None:
        self.cut()


class MemoryNetwork:
    """Connects to whatever `on_frame` plays. `refused` makes connecting fail."""

    def __init__(self, on_frame: Callable[[MemoryTransport, bytes], None]) -> None:
        self.on_frame = on_frame
        self.transports: list[MemoryTransport] = []
        self.refused = False

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        if self.refused:
            raise ConnectionRefusedError(f"{host}:{port} refused")
        protocol = protocol_factory()
        assert isinstance(protocol, asyncio.Protocol)
        transport = MemoryTransport(protocol, self.on_frame)
        self.transports.append(transport)
        protocol.connection_made(transport)

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, *, accepts: bool = True
    ) -> Listener:
        raise NotImplementedError
