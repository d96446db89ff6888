"""One outgoing connection: it carries frames over a byte stream, each after its size.

A size is four bytes, big-endian and signed. A frame's buffer grows as its bytes arrive, so a peer
that only claims a size commits no memory. Writing never blocks: `writable` waits while the
transport holds too much that is unsent. A connection closes once, for one reason, which every later
`DisconnectedError` names.

This module knows frames. It must not know their content, nor which frame answers which.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Final, cast

from oncelog.core.errors import OncelogError
from oncelog.core.integers import integers
from oncelog.core.limits import FRAME_BYTES_MIN
from oncelog.runtime.network import Network

__all__ = ["Buffer", "DisconnectedError", "FramedConnection", "grow"]

Buffer = bytes | bytearray | memoryview

_SIZE: Final = integers(">i")
_ZEROS: Final = memoryview(bytes(2 * 1024 * 1024))
_TLS_ALERT: Final = range(0x150300, 0x150305)
"""The first bytes of a TLS alert: its type, and a TLS version."""


class DisconnectedError(OncelogError):
    """The connection is closed. What was sent on it may or may not have taken effect."""


class FramedConnection(asyncio.Protocol):
    """Sends frames to one address, and hands each frame that arrives to `on_frame`.

    A frame of no bytes, or of more than `frame_bytes_max`, closes the connection. `on_closed` is
    called once, with the reason.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        frame_bytes_max: int,
        on_frame: Callable[[bytearray], None],
        on_closed: Callable[[str], None],
    ) -> None:
        self._host = host
        self._port = port
        self._frame_bytes_max = frame_bytes_max
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._closed_because: str | None = None
        self.tls_failure: ssl.SSLError | None = None
        """The reason why TLS ended the connection, if it did."""
        self.peer_speaks_tls = False
        """Whether the peer answered a plain text frame with a TLS alert."""
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        # The frame being received: the bytes of its size, then its buffer, how many bytes have
        # arrived, and its full size.
        self._head = bytearray()
        self._frame: bytearray | None = None
        self._filled = 0
        self._size = 0

    # --- opening and closing ----------------------------------------------------------

    @property
    def address(self) -> str:
        """The peer's address, "host:port"."""
        return f"{self._host}:{self._port}"

    async def connect(self, network: Network) -> None:
        """Connect. Raises `DisconnectedError` when the address does not answer."""
        try:
            await network.connect(self._host, self._port, lambda: self)
        except OSError as error:
            self._note(error)
            text = error.strerror or str(error) or type(error).__name__
            raise DisconnectedError(f"{self.address}: {text}") from error

    @property
    def is_closed(self) -> bool:
        """True once nothing can be sent any more."""
        return self._closed_because is not None

    def close(self, reason: str) -> None:
        """Close at once. May be called again; the first reason stays."""
        self._shut(reason)
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Return once either side has closed the connection."""
        await self._closed.wait()

    # --- sending ----------------------------------------------------------------------

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Send one frame, in pieces and without its size. Raises `DisconnectedError`."""
        if self._closed_because is not None or self._transport is None:
            raise self._disconnected()
        size = sum(len(buffer) for buffer in buffers)
        self._transport.writelines([_SIZE.pack(size), *buffers])

    async def writable(self) -> None:
        """Wait while the transport holds too much that is unsent. Raises `DisconnectedError`."""
        await self._writable.wait()
        if self._closed_because is not None:
            raise self._disconnected()

    @property
    def is_writable(self) -> bool:
        """Whether `writable` would return at once."""
        return self._writable.is_set() and self._closed_because is None

    # --- asyncio's side ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the network."""
        self._transport = cast(asyncio.Transport, transport)
        if self._closed_because is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the transport when the stream ended."""
        self._note(exc)
        self._shut(f"connection lost ({exc})" if exc else "closed by the peer")

    def pause_writing(self) -> None:
        """Called by the transport: too much is unsent."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Called by the transport: its buffer has space again."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Called by the transport: cut the stream into frames."""
        view = memoryview(data)
        while view and self._closed_because is None:
            view = self._take_size(view) if self._frame is None else self._fill(self._frame, view)

    # --- inner ------------------------------------------------------------------------

    def _take_size(self, view: memoryview) -> memoryview:
        missing = _SIZE.size - len(self._head)
        self._head += view[:missing]
        rest = view[missing:]
        if len(self._head) == _SIZE.size:
            size = _SIZE.unpack(self._head)[0]
            self._head.clear()
            return self._begin(size, rest)
        return rest

    def _begin(self, size: int, view: memoryview) -> memoryview:
        """Begin a frame of `size` bytes; return the bytes after it, none while it is incomplete."""
        if not 0 < size <= self._frame_bytes_max:
            self.peer_speaks_tls = size >> 8 in _TLS_ALERT
            self.close(_no_frame(size))
            return view
        if size <= len(view):
            self._on_frame(bytearray(view[:size]))
            return view[size:]
        self._size = size
        self._frame = bytearray(min(size, max(2 * len(view), FRAME_BYTES_MIN)))
        return view

    def _fill(self, frame: bytearray, view: memoryview) -> memoryview:
        """Put the next bytes of the stream into the frame; return the bytes after it."""
        filled = self._filled
        if filled == len(frame):
            grow(frame, self._size)
        taken = min(len(view), len(frame) - filled)
        frame[filled : filled + taken] = view[:taken]
        self._filled = filled + taken
        if self._filled == self._size:
            self._frame, self._filled = None, 0
            self._on_frame(frame)
        return view[taken:]

    def _note(self, error: Exception | None) -> None:
        if isinstance(error, ssl.SSLError):
            self.tls_failure = error

    def _disconnected(self) -> DisconnectedError:
        return DisconnectedError(f"{self.address}: {self._closed_because or 'not connected'}")

    def _shut(self, reason: str) -> None:
        if self._closed_because is not None:
            return
        self._closed_because = reason
        self._writable.set()
        self._closed.set()
        self._on_closed(reason)


def grow(frame: bytearray, size: int) -> None:
    """Double the buffer of a frame of `size` bytes; raises `BufferError` if it has views."""
    missing = min(len(frame), size - len(frame))
    while missing > 0:
        # It is never written to, so the system allocates one page for it, and reading it costs
        # nothing.
        piece = min(missing, len(_ZEROS))
        frame.extend(_ZEROS[:piece])
        missing -= piece


def _no_frame(size: int) -> str:
    """Why no frame of this size is read; four letters are the greeting of another protocol."""
    begin = _SIZE.pack(size)
    if begin.isascii() and begin.decode().isprintable():
        return f"it does not speak Kafka's protocol: it began with {begin.decode()!r}"
    return f"peer announced a frame of {size} bytes"
