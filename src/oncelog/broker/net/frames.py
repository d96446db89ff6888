"""The memory that frames are received into.

Small frames are copied out of one read buffer that all connections of the loop share. A frame that
has only begun to arrive gets its own buffer, into which the rest is received. That buffer grows as
bytes arrive, so a peer that only claims a size commits no memory. The memory of the last large
frame is used for the next one, which avoids a page fault for each 4 KB.
"""

from __future__ import annotations

from oncelog.core.limits import FRAME_BYTES_MIN, READ_BUFFER_BYTES, SPARE_FRAME_BYTES_MAX

__all__ = ["ReadBuffer", "size_problem"]

_CLIENT_HELLO = 0x1603
"""The first two bytes of a TLS connection: a handshake record of any version."""


class ReadBuffer:
    """Memory that all connections of one event loop share: the read buffer, and a spare frame.

    The read buffer is safe because the loop asks for the buffer, receives and calls
    `buffer_updated` without running anything else.
    """

    __slots__ = ("_spare", "view")

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BUFFER_BYTES))
        self._spare: bytearray | None = None

    def new_frame(self, size: int, available: int) -> bytearray:
        """Return a buffer for a frame of `size` bytes, of which `available` have arrived.

        It may be shorter than the frame, never longer; `oncelog.runtime.framed.grow` doubles it.
        """
        spare = self._spare
        if spare is not None and len(spare) > available and size >= FRAME_BYTES_MIN:
            self._spare = None
            try:
                spare.pop()
            except BufferError:
                pass  # The frame is still in use: a buffer with views cannot be resized.
            else:
                del spare[size:]
                return spare
        return bytearray(min(size, max(2 * available, FRAME_BYTES_MIN)))

    def keep(self, frame: bytearray) -> None:
        """Offer the memory of a started frame for the next one; no new view of it may be made."""
        if FRAME_BYTES_MIN <= len(frame) <= SPARE_FRAME_BYTES_MAX:
            self._spare = frame


def size_problem(size: int, bytes_max: int, bound: str = "socket.request.max.bytes") -> str:
    """Return why a frame of this size closes its connection; `bound` names what is exceeded."""
    if size >> 16 == _CLIENT_HELLO:
        return "it speaks TLS, and this listener does not: see security.protocol of the client"
    return f"a frame of {size} bytes ({bound}={bytes_max})"
