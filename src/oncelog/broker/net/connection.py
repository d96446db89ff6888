"""One client connection: it reads frames and sends replies in the order of arrival (D13).

Frames are received into the memory of `oncelog.broker.net.frames`, and passed to the dispatcher.
Replies of one turn of the event loop are sent by one write. A request that cannot be answered at
once retains its place in the order; behind one that holds others back (`Pending.holds_back`) later
frames queue until it is answered. A bad frame closes the connection after the requests ahead of it
are answered: Apache Kafka does not even read it before.

Back-pressure: reading stops while too many requests or bytes wait here, or while the peer does not
read its replies; in the latter case no further request of it is started either. So one peer's
memory is bounded by the limits below plus one frame.

This module knows frames and order. It must not know any API, nor how a frame is parsed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import TypeAlias, cast

from oncelog.broker.net.frames import ReadBuffer, size_problem
from oncelog.broker.net.parties import AcceptorOf, StarterOf
from oncelog.broker.net.request import Buffers, Request
from oncelog.core.integers import integers
from oncelog.core.limits import (
    CONNECTION_PENDING_REPLIES_COUNT_MAX,
    CONNECTION_QUEUED_BYTES_MAX,
    CONNECTION_QUEUED_REQUESTS_COUNT_MAX,
    CONNECTION_WRITE_BUFFER_BYTES_HIGH,
    CONNECTION_WRITE_TURN_BYTES_MAX,
)
from oncelog.core.pending import Pending
from oncelog.runtime.framed import grow
from oncelog.runtime.network import has_hung_up
from oncelog.security.principal_rules import ANONYMOUS

__all__ = ["Acceptor", "ServerConnection", "Starter"]

log = logging.getLogger(__name__)

_SIZE_BYTES = 4
_SIZE = integers(">i")
_unpack_size = _SIZE.unpack_from
_JOINED_BYTES_MAX = 4096
"""Replies of one turn are joined up to this size: that costs less than to gather them."""


Acceptor: TypeAlias = "AcceptorOf[ServerConnection]"
Starter: TypeAlias = "StarterOf[ServerConnection]"


class ServerConnection(asyncio.BufferedProtocol):
    """The broker's end of a connection."""

    def __init__(self, acceptor: Acceptor, starter: Starter, read_buffer: ReadBuffer) -> None:
        self.listener, self.principal = acceptor.name, ANONYMOUS
        self.peer_host, self.peer_port = "", 0
        self.client_software = ""
        self.closed = False
        self.last_active_s = self._muted_until_s = 0.0
        self._ending = False
        """Whether no further frame is taken: it is closed after the last reply."""
        self._acceptor = acceptor
        self._starter = starter
        self._loop = acceptor.loop
        self._shared = read_buffer
        self._scratch = read_buffer.view
        self._frame_bytes_max = acceptor.frame_bytes_max
        self._transport: asyncio.Transport | None = None
        # The frame being received: its buffer, the bytes received so far, and its full size.
        self._frame: bytearray | None = None
        self._frame_filled = self._frame_size = 0
        self._size_prefix = b""
        # Frames of requests that are not started, each with the time of its arrival.
        self._queue: deque[tuple[bytearray, float]] = deque()
        self._queued_bytes = 0
        self.queued_s = 0.0
        """How long the frame that is being started was queued."""
        # Requests whose replies have not left, in the order of arrival.
        self._waiting: deque[Request[object]] = deque()
        self._held_by: Request[object] | None = None
        self._task: asyncio.Task[None] | None = None
        self._out: list[bytes | bytearray | memoryview] = []
        self._out_bytes = self._unread_bytes = 0
        self._flush_scheduled = self._in_turn = False
        self._writing_paused = self._reading_paused = self._muted = False

    def __repr__(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"

    # --- the loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when a peer has connected; the acceptor may refuse it (connection limits)."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.peer_host, self.peer_port = str(peer[0]), int(peer[1])
        self.last_active_s = self._loop.time()
        self._transport.set_write_buffer_limits(high=CONNECTION_WRITE_BUFFER_BYTES_HIGH)
        if not self._acceptor.admit(self, self._transport):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection has ended: drop its parked requests (D7), send no reply."""
        self._transport = None
        self._no_longer_unread()
        self._finish()
        self._acceptor.forget(self)

    def eof_received(self) -> bool:
        """Close when the peer stops sending: Kafka's clients never half-close."""
        return False

    def pause_writing(self) -> None:
        """Stop reading: the peer does not read its replies."""
        self._writing_paused = True
        if self._transport is not None:
            self._unread_bytes = self._transport.get_write_buffer_size()
            self._acceptor.note_unread(self._unread_bytes)
        self._regulate()

    def resume_writing(self) -> None:
        """Resume: the peer reads its replies again."""
        self._writing_paused = False
        self._no_longer_unread()
        self._run_queue()

    def _no_longer_unread(self) -> None:
        self._acceptor.note_unread(-self._unread_bytes)
        self._unread_bytes = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes.

        That is the frame that is being received, else the shared buffer.
        """
        frame = self._frame
        if frame is None:
            return self._scratch
        if self._frame_filled == len(frame):
            # Doubled as bytes arrive: a peer commits no memory by claiming a size.
            grow(frame, self._frame_size)
        # The caller must not keep this view: a buffer with views cannot grow.
        return memoryview(frame)[self._frame_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Cut received bytes into frames and start those that may start."""
        self.last_active_s = self._loop.time()
        self._acceptor.bytes_in += nbytes
        self._in_turn = True
        try:
            frame = self._frame
            if frame is None:
                size = nbytes - _SIZE_BYTES
                if (
                    0 <= size <= self._frame_bytes_max
                    and not (self._size_prefix or self._ending)
                    and _unpack_size(self._scratch)[0] == size
                ):
                    # One whole frame, as a client sends that waits for each reply.
                    self._take(bytearray(self._scratch[_SIZE_BYTES:nbytes]))
                else:
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
        if self._waiting or self._queue or self._writing_paused or self._reading_paused:
            self._regulate()

    # --- frames

    def _cut(self, nbytes: int) -> None:
        """Cut the shared buffer's bytes into frames; none may remain in it."""
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
        while not self._ending and (rest := nbytes - position) > 0:
            if rest < _SIZE_BYTES:
                self._size_prefix = bytes(scratch[position:nbytes])
                return
            size = int.from_bytes(scratch[position : position + _SIZE_BYTES], "big", signed=True)
            position = self._cut_one(size, position + _SIZE_BYTES, nbytes)

    def _cut_one(self, size: int, position: int, end: int) -> int:
        """Take one frame of `size` bytes from `position`; returns where the next one begins."""
        if size < 0 or size > self._frame_bytes_max:
            self._refuse_size(size)
            return end
        if position + size <= end:
            self._take(bytearray(self._scratch[position : position + size]))
            return position + size
        available = end - position
        frame = self._shared.new_frame(size, available)
        frame[:available] = self._scratch[position:end]
        self._frame, self._frame_filled, self._frame_size = frame, available, size
        return end

    def _refuse_size(self, size: int) -> None:
        log.warning("closing connection %s: %s", self, size_problem(size, self._frame_bytes_max))
        self._take_no_more()

    def _take(self, frame: bytearray) -> bool:
        """Start a complete frame, or queue it behind a request that holds it back.

        Returns whether it was started.
        """
        if (
            self._held_by is not None
            or self._queue
            or self._writing_paused
            or self._muted
            or len(self._waiting) >= CONNECTION_PENDING_REPLIES_COUNT_MAX
        ):
            self._queue.append((frame, self.last_active_s))
            self._queued_bytes += len(frame)
            return False
        self._starter.start(self, frame)
        return True

    def _run_queue(self) -> None:
        """Start queued requests until one holds back the rest.

        None is started once the peer has closed the connection, even where the loop has not read so
        far: its client may have sent them again elsewhere, and gone on (D7).
        """
        if self._queue and has_hung_up(self.descriptor):
            self.close()
            return
        self._in_turn = True
        try:
            while (
                self._queue
                and self._held_by is None
                and not (self._writing_paused or self._muted)
                and len(self._waiting) < CONNECTION_PENDING_REPLIES_COUNT_MAX
                and not self.closed
            ):
                frame, arrived_s = self._queue.popleft()
                self._queued_bytes -= len(frame)
                self.queued_s = self._loop.time() - arrived_s
                self._starter.start(self, frame)
        finally:
            self.queued_s = 0.0
            self._in_turn = False
        if self._out:
            self._flush()
        if self._ending and not (self._waiting or self._queue):
            self.close()
        self._regulate()

    # --- replies

    def answer(self, request: Request[object], buffers: Buffers) -> None:
        """Reply to a request that was just started."""
        if self.closed:
            return
        if self._waiting:
            request.reply = buffers
            request.body = None
            self._waiting.append(request)
        else:
            self._put(buffers)

    def hold(self, request: Request[object], pending: Pending[object]) -> None:
        """Wait for `pending`; the starter is called when it is completed.

        The first call for a request reserves its place in the order.
        """
        if self.closed or request.reply is not None:
            pending.drop()
            return
        if request.pending is None and request is not self._held_by:
            self._waiting.append(request)
        request.pending = pending
        if pending.holds_back:
            self._held_by = request
        elif self._held_by is request:
            self._let_go()
        pending.wait(partial(self._starter.settle, self, request))

    def run(self, request: Request[object], work: Coroutine[object, object, None]) -> None:
        """Run a handler that awaits something; it holds back the requests behind it.

        `work` ends with `reply` or `hold`, or closes the connection.
        """
        self._waiting.append(request)
        self._held_by = request
        self._task = self._loop.create_task(work)

    def reply(self, request: Request[object], buffers: Buffers | None) -> None:
        """Reply to a request that had to wait. None: it gets no reply, and leaves the order."""
        if self.closed:
            return
        request.reply = () if buffers is None else buffers
        request.body = request.pending = None  # The promise's functions refer to the request.
        if self._held_by is request:
            self._let_go()
        waiting = self._waiting
        while waiting and (first := waiting[0].reply) is not None:
            waiting.popleft()
            if len(first):
                self._put(first)
        if not self._in_turn:
            # One write sends it with the other replies of this turn.
            self._flush_soon()

    def _let_go(self) -> None:
        """Start queued requests in the next turn: the caller is in the middle of other work."""
        self._held_by = None
        self._task = None
        self._flush_soon()

    def _put(self, buffers: Buffers) -> None:
        """Write a reply at the end of this turn."""
        out = self._out
        if type(buffers) is bytes and len(buffers) <= _JOINED_BYTES_MAX:
            size = len(buffers)
            out.append(_SIZE.pack(size) + buffers)
        elif isinstance(buffers, (bytes, bytearray, memoryview)):
            size = len(buffers)
            out.append(_SIZE.pack(size))
            out.append(buffers)
        else:
            size = sum(map(len, buffers))
            out.append(_SIZE.pack(size))
            out.extend(buffers)
        self._out_bytes += _SIZE_BYTES + size
        if self._out_bytes > CONNECTION_WRITE_TURN_BYTES_MAX:
            # Written at once, so that the transport can report that the peer does not read.
            self._flush()

    def _flush_soon(self) -> None:
        if not self._flush_scheduled:
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
        size = self._out_bytes
        self._acceptor.bytes_out += size
        self._out_bytes = 0
        if len(out) == 1:
            self._transport.write(out[0])
        elif size <= _JOINED_BYTES_MAX:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)

    # --- back-pressure and the end

    def mute(self, duration_ms: float) -> None:
        """Start no request for so long: the client is over a quota (KIP-219).

        What was started before is answered. A second call while it is muted prolongs it.
        """
        self._muted_until_s = max(self._muted_until_s, self._loop.time() + duration_ms / 1000)
        if not (self._muted or self.closed):
            self._muted = True
            self._loop.call_at(self._muted_until_s, self._unmute)
            self._regulate()

    def _unmute(self) -> None:
        if not self.closed and self._loop.time() < self._muted_until_s:
            self._loop.call_at(self._muted_until_s, self._unmute)
            return
        self._muted = False
        if not self.closed:
            self._run_queue()

    def _regulate(self) -> None:
        """Stop or resume reading, by the number and bytes of the waiting requests and replies."""
        transport = self._transport
        if transport is None or self.closed:
            return
        full = (
            self._writing_paused
            or self._muted
            or len(self._queue) > CONNECTION_QUEUED_REQUESTS_COUNT_MAX
            or self._queued_bytes > CONNECTION_QUEUED_BYTES_MAX
            or len(self._waiting) >= CONNECTION_PENDING_REPLIES_COUNT_MAX
        )
        if full and not self._reading_paused:
            self._reading_paused = True
            transport.pause_reading()
        elif self._reading_paused and not full:
            self._reading_paused = False
            transport.resume_reading()

    @property
    def queued_count(self) -> int:
        """Requests that are not started yet."""
        return len(self._queue)

    @property
    def waiting_count(self) -> int:
        """Requests that were started, and whose replies have not left."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether no request of this peer is in progress, or it does not read its replies."""
        is_queued = bool(self._queue) and not self._muted
        return self._writing_paused or not (self._waiting or is_queued)

    @property
    def descriptor(self) -> int:
        """The socket's descriptor; -1 without one."""
        transport = self._transport
        socket = None if transport is None else transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    def fail(self, reason: str, request: Request[object] | None = None) -> None:
        """Close because of what the peer did, with one log line; see `end`."""
        if not self._ending:
            log.warning("closing connection %s: %s", self, reason)
        self.end(request)

    def end(self, request: Request[object] | None = None) -> None:
        """Start no more requests; close once those ahead of `request`, or all, are answered."""
        self._queue.clear()
        self._queued_bytes = 0
        if request is not None and request in self._waiting:
            self._drop(self._waiting.index(request))
        self._take_no_more()

    def _take_no_more(self) -> None:
        """Ignore what else arrives; close once all frames that were taken are answered."""
        self._ending = True
        self._frame, self._size_prefix = None, b""
        if self._waiting or self._queue:
            self._flush_soon()
        else:
            self.close()

    def close(self) -> None:
        """Close once the written replies are sent. No later request is started."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
        self._finish()

    def abort(self) -> None:
        """Close at once; unsent replies are lost."""
        if self._transport is not None:
            self._transport.abort()
        self._finish()

    def _finish(self) -> None:
        if self.closed:
            return
        self.closed = self._ending = True
        self._queue.clear()
        self._queued_bytes = 0
        self._frame = None
        self._drop(0)

    def _drop(self, position: int) -> None:
        """Give up the waiting requests from `position` on: they get no reply."""
        while len(self._waiting) > position:
            request = self._waiting[position]
            del self._waiting[position]
            request.reply = ()
            if request.pending is not None:
                request.pending.drop()
            if request is self._held_by:
                self._held_by = None
                if (task := self._task) and task is not asyncio.current_task(self._loop):
                    # Not at once: a task that never started would leave a coroutine un-awaited.
                    self._loop.call_soon(task.cancel)
