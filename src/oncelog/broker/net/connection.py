"""One client connection.

Bytes in, frames out to the dispatcher, replies back in the order of arrival (D13).

The way of the bytes: small frames are cut out of one read buffer that all connections of the loop
share; of a frame that is not there yet, the rest is received straight into that frame's own buffer.
A frame's buffer grows as its bytes arrive, so a peer that only claims a size commits no memory;
the memory of the last large frame serves the next one, which spares a page fault for each 4 KB.
Replies of one loop turn leave in one write.

Back-pressure: reading stops while too many requests or bytes wait here, or while the peer does not
read its replies; in the latter case no further request of it is started either. So one peer's
memory is bounded by the limits below plus one frame.

This module knows frames and order. It must not know any API, nor how a frame is parsed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from oncelog.broker.apis import Buffers, PendingReply
from oncelog.core.limits import (
    CONNECTION_PENDING_REPLIES_COUNT_MAX,
    CONNECTION_QUEUED_BYTES_MAX,
    CONNECTION_QUEUED_REQUESTS_COUNT_MAX,
    CONNECTION_WRITE_BUFFER_BYTES_HIGH,
    CONNECTION_WRITE_TURN_BYTES_MAX,
    FRAME_BYTES_MIN,
    READ_BUFFER_BYTES,
    SPARE_FRAME_BYTES_MAX,
)

if TYPE_CHECKING:
    from oncelog.broker.net.dispatch import Dispatcher
    from oncelog.broker.net.server import Server

__all__ = ["Connection", "ReadBuffer"]

log = logging.getLogger(__name__)

_SIZE_BYTES = 4
_ZEROS = memoryview(bytes(SPARE_FRAME_BYTES_MAX))


class ReadBuffer:
    """What all connections of one loop share: the read buffer, and one spare frame.

    The read buffer is safe because the loop asks for the buffer, receives and calls
    `buffer_updated` without running anything else.
    """

    __slots__ = ("_spare", "view")

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BUFFER_BYTES))
        self._spare: bytearray | None = None

    def new_frame(self, size: int, available: int) -> bytearray:
        """A buffer for a frame of `size` bytes of which `available` are here; grow it with `grow`.

        It may be shorter than the frame, never longer.
        """
        spare = self._spare
        if spare is not None and len(spare) > available and size >= FRAME_BYTES_MIN:
            self._spare = None
            try:
                spare.pop()
            except BufferError:
                pass  # Somebody still looks into that frame, and a buffer with views is not cut.
            else:
                del spare[size:]
                return spare
        return bytearray(min(size, max(2 * available, FRAME_BYTES_MIN)))

    def keep(self, frame: bytearray) -> None:
        """Offer the memory of a frame that was started; nobody may make new views of it."""
        if FRAME_BYTES_MIN <= len(frame) <= SPARE_FRAME_BYTES_MAX:
            self._spare = frame


def grow(frame: bytearray, size: int) -> None:
    """Double the buffer of a frame of `size` bytes; raises `BufferError` if it has views."""
    missing = min(len(frame), size - len(frame))
    while missing > 0:
        # Never written to, so the system keeps one page of it, and reading it costs nothing.
        piece = min(missing, len(_ZEROS))
        frame.extend(_ZEROS[:piece])
        missing -= piece


class Slot:
    """One reply's place in the order. `buffers` is None until the reply is there."""

    __slots__ = ("buffers", "pending")

    def __init__(self, pending: PendingReply | None) -> None:
        self.buffers: Buffers | None = None
        self.pending = pending


class Connection(asyncio.BufferedProtocol):
    """The broker's end of a connection. Handlers use `peer_host`, `closed`, `on_close` and `id`."""

    def __init__(self, server: Server, dispatcher: Dispatcher, read_buffer: ReadBuffer) -> None:
        self.id = 0
        self.peer_host = ""
        self.peer_port = 0
        self.client_software = ""
        self.closed = False
        self.last_active_s = 0.0
        self._server = server
        self._dispatcher = dispatcher
        self._loop = server.loop
        self._shared = read_buffer
        self._scratch = read_buffer.view
        self._frame_bytes_max = server.frame_bytes_max
        self._transport: asyncio.Transport | None = None
        # The frame being received: its buffer, the bytes of it that are there, and its whole size.
        self._frame: bytearray | None = None
        self._frame_filled = 0
        self._frame_size = 0
        self._size_prefix = b""
        self._queue: deque[bytearray] = deque()
        self._queued_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._slots: deque[Slot] = deque()
        self._out: list[bytes | bytearray | memoryview] = []
        self._out_bytes = 0
        self._flush_scheduled = False
        self._in_turn = False
        self._writing_paused = False
        self._unread_bytes = 0
        self._reading_paused = False
        self._close_callbacks: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"

    # --- the loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The peer is there; the server may refuse it (connection limits)."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.peer_host, self.peer_port = str(peer[0]), int(peer[1])
        self.last_active_s = self._loop.time()
        self._transport.set_write_buffer_limits(high=CONNECTION_WRITE_BUFFER_BYTES_HIGH)
        if not self._server.admit(self):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone: parked requests are dropped (D7), no reply will ever leave."""
        self._transport = None
        self._no_longer_unread()
        self._finish()
        self._server.forget(self)

    def eof_received(self) -> bool:
        """A peer that stops sending is done with us (Kafka's clients never half-close)."""
        return False

    def pause_writing(self) -> None:
        """The peer does not read its replies: take nothing more from it."""
        self._writing_paused = True
        if self._transport is not None:
            self._unread_bytes = self._transport.get_write_buffer_size()
            self._server.unread_bytes += self._unread_bytes
        self._regulate()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._writing_paused = False
        self._no_longer_unread()
        self._run_queue()

    def _no_longer_unread(self) -> None:
        self._server.unread_bytes -= self._unread_bytes
        self._unread_bytes = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go.

        Into the frame that is being received, else into the shared buffer.
        """
        frame = self._frame
        if frame is None:
            return self._scratch
        if self._frame_filled == len(frame):
            # Doubled as bytes arrive: a peer commits no memory by claiming a size.
            grow(frame, self._frame_size)
        # Nobody may keep this view: a buffer with views cannot grow.
        return memoryview(frame)[self._frame_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come: cut them into frames and start those whose turn it is."""
        self.last_active_s = self._loop.time()
        self._in_turn = True
        try:
            frame = self._frame
            if frame is None:
                self._cut(nbytes)
            else:
                self._frame_filled += nbytes
                if self._frame_filled == self._frame_size:
                    self._frame = None
                    if self._take(frame):
                        self._shared.keep(frame)
        finally:
            self._in_turn = False
        if self._out:
            self._flush()
        self._regulate()

    # --- frames

    def _cut(self, nbytes: int) -> None:
        """Cut what lies in the shared buffer into frames; nothing may stay in it."""
        scratch = self._scratch
        position = 0
        if self._size_prefix:
            # Rare: the size itself arrived in pieces.
            missing = _SIZE_BYTES - len(self._size_prefix)
            self._size_prefix += bytes(scratch[: min(missing, nbytes)])
            position = min(missing, nbytes)
            if len(self._size_prefix) < _SIZE_BYTES:
                return
            size = int.from_bytes(self._size_prefix, "big", signed=True)
            self._size_prefix = b""
            position = self._cut_one(size, position, nbytes)
        while not self.closed and (rest := nbytes - position) > 0:
            if rest < _SIZE_BYTES:
                self._size_prefix = bytes(scratch[position:nbytes])
                return
            size = int.from_bytes(scratch[position : position + _SIZE_BYTES], "big", signed=True)
            position = self._cut_one(size, position + _SIZE_BYTES, nbytes)

    def _cut_one(self, size: int, position: int, end: int) -> int:
        """Take one frame of `size` bytes from `position`; returns where the next one begins."""
        if size < 0 or size > self._frame_bytes_max:
            self.fail(f"a frame of {size} bytes (socket.request.max.bytes={self._frame_bytes_max})")
            return end
        if position + size <= end:
            self._take(bytearray(self._scratch[position : position + size]))
            return position + size
        available = end - position
        frame = self._shared.new_frame(size, available)
        frame[:available] = self._scratch[position:end]
        self._frame, self._frame_filled, self._frame_size = frame, available, size
        return end

    def _take(self, frame: bytearray) -> bool:
        """A whole frame is there: start it, or queue it behind those that hold it back.

        Returns whether it was started.
        """
        if self._task is not None or self._queue or self._must_wait():
            self._queue.append(frame)
            self._queued_bytes += len(frame)
            return False
        self._start(frame)
        return True

    def _must_wait(self) -> bool:
        return self._writing_paused or len(self._slots) >= CONNECTION_PENDING_REPLIES_COUNT_MAX

    def _run_queue(self) -> None:
        """Start queued requests until one holds back the rest."""
        self._in_turn = True
        try:
            while self._queue and self._task is None and not self._must_wait() and not self.closed:
                frame = self._queue.popleft()
                self._queued_bytes -= len(frame)
                self._start(frame)
        finally:
            self._in_turn = False
        if self._out:
            self._flush()
        self._regulate()

    def _start(self, frame: bytearray) -> None:
        slot = Slot(None)
        self._slots.append(slot)
        waiting = self._dispatcher.dispatch(self, frame, slot)
        if waiting is not None:
            self._task = self._loop.create_task(self._await(waiting))

    async def _await(self, waiting: Awaitable[None]) -> None:
        """Run a handler that holds back this connection's later requests, then go on with those."""
        try:
            await waiting
        finally:
            self._task = None
        if not self.closed:
            self._run_queue()

    # --- replies

    def answer(self, slot: Slot, buffers: Buffers) -> None:
        """Fill a place in the reply order; replies at the head of the order leave."""
        if self.closed:
            return
        slot.buffers = buffers
        self._drain()

    def no_answer(self, slot: Slot) -> None:
        """The request gets no reply (acks=0): its place vanishes."""
        if self.closed:
            return
        slot.buffers = ()
        self._drain()

    def _drain(self) -> None:
        slots = self._slots
        if slots[0].buffers is None:
            return
        out = self._out
        while slots and (buffers := slots[0].buffers) is not None:
            slots.popleft()
            if isinstance(buffers, (bytes, bytearray, memoryview)):
                size = len(buffers)
                out.append(size.to_bytes(_SIZE_BYTES, "big"))
                out.append(buffers)
            elif buffers:
                size = sum(map(len, buffers))
                out.append(size.to_bytes(_SIZE_BYTES, "big"))
                out.extend(buffers)
            else:
                continue
            self._out_bytes += size
        if self._out_bytes > CONNECTION_WRITE_TURN_BYTES_MAX:
            # Written at once, so that the transport can tell us that the peer does not read.
            self._flush()
        if not self._in_turn and not self._flush_scheduled:
            # Completed from outside this connection's own turn: whatever else completes in this
            # turn goes along.
            self._flush_scheduled = True
            self._loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._flush_scheduled = False
        if self.closed:
            return
        self._flush()
        self._run_queue()

    def _flush(self) -> None:
        out = self._out
        if not out or self._transport is None:
            return
        self._out = []
        self._out_bytes = 0
        self._transport.writelines(out)

    # --- back-pressure and the end

    def _regulate(self) -> None:
        """Stop or resume reading, by what is waiting here."""
        transport = self._transport
        if transport is None or self.closed:
            return
        full = (
            self._writing_paused
            or len(self._queue) > CONNECTION_QUEUED_REQUESTS_COUNT_MAX
            or self._queued_bytes > CONNECTION_QUEUED_BYTES_MAX
            or len(self._slots) >= CONNECTION_PENDING_REPLIES_COUNT_MAX
        )
        if full and not self._reading_paused:
            self._reading_paused = True
            transport.pause_reading()
        elif self._reading_paused and not full:
            self._reading_paused = False
            transport.resume_reading()

    @property
    def idle(self) -> bool:
        """Whether nothing is being done for this peer, or it does not take what was done."""
        return self._writing_paused or not (self._slots or self._queue)

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once when the connection ends; returns a function that takes it back."""
        if self.closed:
            callback()
            return lambda: None
        self._close_callbacks.append(callback)

        def forget() -> None:
            if callback in self._close_callbacks:
                self._close_callbacks.remove(callback)

        return forget

    def fail(self, reason: str) -> None:
        """Close because of what the peer did, with one log line."""
        if not self.closed:
            log.warning("closing connection %s: %s", self, reason)
        self.close()

    def close(self) -> None:
        """Close after what was already written has left. No later request is started."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
        self._finish()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        if self._transport is not None:
            self._transport.abort()
        self._finish()

    def _finish(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._queue.clear()
        self._queued_bytes = 0
        self._frame = None
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.pending is not None:
                slot.pending.cancel()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback()
        task = self._task
        if task is not None and task is not asyncio.current_task(self._loop):
            # Not at once: a task that never started would leave its handler's coroutine un-awaited.
            self._loop.call_soon(task.cancel)
