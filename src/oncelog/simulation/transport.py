"""Simulates a TCP connection; its two ends behave as asyncio's transports do.

A protocol is called in its own process, never during its own call to the transport, except for
`pause_writing`, which asyncio calls inside `write` too. Written bytes are copied. Unacknowledged
bytes count as the write buffer. `close` sends all written bytes; after an `abort`, a death or a
reset only the first of them may arrive.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from typing import Final

from oncelog.core.limits import SIMULATED_SEND_BUFFER_BYTES
from oncelog.runtime.network import ProtocolFactory
from oncelog.simulation.links import Link
from oncelog.simulation.pipe import Pipe
from oncelog.simulation.process import Process
from oncelog.simulation.wire import Fate, Mark, Wire

__all__ = ["Address", "SimulatedConnection", "SimulatedTransport"]

Address = tuple[str, int]

ABORT_RESETS_PROBABILITY: Final = 0.5
"""The probability that the peer of an aborted connection sees a reset, not the end of the stream.
"""

_WRITE_BUFFER_BYTES_HIGH: Final = 64 * 1024


def reset_error() -> ConnectionResetError:
    """Return the exception asyncio passes to a protocol whose peer reset the connection."""
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


class SimulatedTransport(asyncio.Transport):
    """One end of a connection. `accepts` makes the protocol when the first item comes through.

    `accepts` returns None if there is no listener any more.
    """

    __slots__ = (
        "_buffered",
        "_closing",
        "_connection",
        "_eof_received",
        "_high_bytes",
        "_low_bytes",
        "_paused",
        "_protocol",
        "_resumes",
        "_stream",
        "_told",
        "_writing_paused",
        "accepts",
        "gone",
        "incoming",
        "outgoing",
        "process",
        "reading",
        "waiting",
    )

    def __init__(
        self,
        connection: SimulatedConnection,
        process: Process,
        own_address: Address,
        peer_address: Address,
    ) -> None:
        super().__init__({"sockname": own_address, "peername": peer_address})
        self.process = process
        self.gone = False
        self.reading = True
        self.waiting = False
        self.incoming: Pipe
        self.outgoing: Pipe
        self.accepts: Callable[[], ProtocolFactory | None] | None = None
        self._connection = connection
        self._protocol: asyncio.BaseProtocol | None = None
        self._stream: asyncio.Protocol | None = None
        self._buffered: asyncio.BufferedProtocol | None = None
        self._paused = False
        self._closing = False
        self._eof_received = False
        self._told = False
        self._high_bytes = _WRITE_BUFFER_BYTES_HIGH
        self._low_bytes = _WRITE_BUFFER_BYTES_HIGH // 4
        self._writing_paused = False
        self._resumes = False

    def __repr__(self) -> str:
        return f"<{self.process.name}'s end of {self._connection!r}>"

    # --- what asyncio offers its users

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol that is called from now on."""
        self._protocol = protocol
        self._buffered = protocol if isinstance(protocol, asyncio.BufferedProtocol) else None
        self._stream = protocol if isinstance(protocol, asyncio.Protocol) else None

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that is called."""
        assert self._protocol is not None, "the connection is not accepted yet"
        return self._protocol

    def is_closing(self) -> bool:
        """Return whether no more bytes can be written."""
        return self._closing

    def is_reading(self) -> bool:
        """Return whether the protocol receives bytes."""
        return not self._closing and not self._paused

    def pause_reading(self) -> None:
        """Deliver no bytes to the protocol until `resume_reading`."""
        if not self._closing and not self._paused:
            self._paused = True
            self.reading = False
            self.incoming.reading_changed()

    def resume_reading(self) -> None:
        """Deliver bytes to the protocol again."""
        if not self._closing and self._paused:
            self._paused = False
            self.reading = not self._eof_received
            self.incoming.reading_changed()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a copy of the bytes. Ignored once the connection closes."""
        if self._closing or not data:
            return
        chunk = bytes(data)
        outgoing = self.outgoing
        outgoing.send(chunk)
        if outgoing.unacked_bytes > self._high_bytes and not self._writing_paused:
            self._pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send a copy of all of them, at once."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """A half-closed connection is not simulated: Kafka's clients never make one."""
        return False

    def get_write_buffer_size(self) -> int:
        """Return the count of unacknowledged bytes."""
        return self.outgoing.unacked_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return (low, high)."""
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Pause writing above `high` bytes, resume at `low`; asyncio's defaults."""
        if high is None:
            high = _WRITE_BUFFER_BYTES_HIGH if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_bytes, self._low_bytes = high, low
        if self.outgoing.unacked_bytes > high and not self._writing_paused:
            self._pause_writing()

    def close(self) -> None:
        """Stop reading, send all written bytes, and close."""
        if self._closing:
            return
        self._closing = True
        self.reading = False
        self.incoming.reading_changed()
        if self.outgoing.unacked_bytes <= SIMULATED_SEND_BUFFER_BYTES:
            self._finish()
        else:
            self.waiting = True

    def abort(self) -> None:
        """Close now; some written bytes may never arrive."""
        self._break(None)

    # --- what its pipes call

    def receive(self, data: bytes) -> int:
        """See `End`."""
        peer = self._connection.client
        if peer.is_closing() and peer is not self:
            for told in self._connection.wire.on_late:
                told(peer.process)
        try:
            if self._stream is not None:
                self._stream.data_received(data)
            elif self._buffered is not None:
                return self._fill(self._buffered, data)
        except Exception as error:  # noqa: BLE001 - a task boundary, as in asyncio's transports
            self._fail(error, "the protocol failed at bytes that it received")
        return len(data)

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> int:
        size = len(data)
        position = 0
        while position < size:
            buffer = protocol.get_buffer(-1)
            count = min(len(buffer), size - position)  # type: ignore[arg-type]
            if not count:
                raise RuntimeError("get_buffer() returned an empty buffer")
            buffer[:count] = data[position : position + count]  # type: ignore[index]
            position += count
            # A buffer with views cannot grow.
            del buffer
            protocol.buffer_updated(count)
            if not self.reading:
                break
        return position

    def take_mark(self, mark: Mark) -> None:
        """See `End`."""
        if mark is Mark.ACCEPT:
            self._accept()
        elif mark is Mark.RESET:
            self.lost(reset_error())
        elif not self._closing:
            self._end_of_stream()

    def _accept(self) -> None:
        factory = None if self.accepts is None else self.accepts()
        self.accepts = None
        if factory is None:
            self._break(None)
            return
        protocol = factory()
        self.set_protocol(protocol)
        protocol.connection_made(self)

    def _end_of_stream(self) -> None:
        keep_open: bool | None = False
        try:
            if self._stream is not None:
                keep_open = self._stream.eof_received()
            elif self._buffered is not None:
                keep_open = self._buffered.eof_received()
        except Exception as error:  # noqa: BLE001 - a task boundary, as in asyncio's transports
            self._fail(error, "the protocol failed at the end of the stream")
            return
        if keep_open:
            self._eof_received = True
            self.reading = False
        else:
            self.close()

    def acknowledged(self) -> None:
        """See `End`."""
        unacked_bytes = self.outgoing.unacked_bytes
        if self._writing_paused and not self._resumes and unacked_bytes <= self._low_bytes:
            self._resumes = True
            scheduler = self.process.scheduler
            scheduler.call_at(scheduler.now_s, self.process, self._resume_writing)
        if self._closing and not self.gone and unacked_bytes <= SIMULATED_SEND_BUFFER_BYTES:
            self._finish()

    def lost(self, error: OSError) -> None:
        """See `End`. Runs in this end's process, outside of the protocol's calls."""
        if self.gone:
            return
        self._leave(Fate.REFUSED)
        self.outgoing.keep_only(0)
        self._note(type(error).__name__)
        self._tell(error)

    def die(self, silent: bool) -> None:
        """Its process is dead. `silent`: the machine too, so that the peer gets no reset."""
        fate = Fate.SILENT if silent else Fate.REFUSED
        if self.gone:
            if silent:
                self.outgoing.cut_off()
            self.incoming.set_fate(fate)
            return
        self._told = True
        self._leave(fate)
        self.outgoing.cut_off()
        if not silent:
            self.outgoing.mark(Mark.RESET)
        self._note("silent" if silent else "dead")

    # --- inner

    def _pause_writing(self) -> None:
        self._writing_paused = True
        self.waiting = True
        self._connection.wire.counts["paused writers"] += 1
        if self._protocol is not None:
            self._protocol.pause_writing()

    def _resume_writing(self) -> None:
        self._resumes = False
        if self._told or self.outgoing.unacked_bytes > self._low_bytes:
            return
        self._writing_paused = False
        self.waiting = self._closing
        if self._protocol is not None:
            self._protocol.resume_writing()

    def _fail(self, error: Exception, message: str) -> None:
        self.process.loop.call_exception_handler(
            {
                "message": message,
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )
        self._break(error)

    def _finish(self) -> None:
        """Close the socket, after all bytes were sent."""
        if self.incoming.has_unread:
            # TCP resets a connection that is closed with unread bytes.
            self._break(None)
            return
        self._leave(Fate.REFUSED, Mark.EOF)
        self._note("closed")
        self._tell_soon(None)

    def _break(self, error: Exception | None) -> None:
        """Close the socket without sending the written bytes."""
        if self.gone:
            return
        wire = self._connection.wire
        resets = self.incoming.has_unread or wire.rng.random() < ABORT_RESETS_PROBABILITY
        if resets or self.outgoing.unacked_bytes > SIMULATED_SEND_BUFFER_BYTES:
            self.outgoing.cut_off()
        self._leave(Fate.REFUSED, Mark.RESET if resets else Mark.EOF)
        self._note("aborted")
        self._tell_soon(error)

    def _leave(self, fate: Fate, mark: Mark | None = None) -> None:
        """Handle the closed socket. `mark` is the last item that the peer gets."""
        self.gone = True
        self._closing = True
        self.reading = False
        if mark is not None:
            self.outgoing.mark(mark)
        self.incoming.reader_left(fate)
        self._connection.left()

    def _tell_soon(self, error: Exception | None) -> None:
        scheduler = self.process.scheduler
        scheduler.call_at(scheduler.now_s, self.process, self._tell, error)

    def _tell(self, error: Exception | None) -> None:
        """Call `connection_lost` of the protocol, once."""
        if not self._told:
            self._told = True
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    def _note(self, what: str) -> None:
        self._connection.wire.trace.note(self._connection.id, self.outgoing.direction, what)


class SimulatedConnection:
    """Two ends and the two pipes between them. `forget` is called when both ends are closed."""

    __slots__ = ("_forget", "client", "id", "server", "to_client", "to_server", "wire")

    def __init__(
        self,
        wire: Wire,
        connection_id: int,
        processes: tuple[Process, Process],
        addresses: tuple[Address, Address],
        links: tuple[Link, Link],
        forget: Callable[[int], None],
    ) -> None:
        self.wire = wire
        self.id = connection_id
        self._forget = forget
        self.client = SimulatedTransport(self, processes[0], addresses[0], addresses[1])
        self.server = SimulatedTransport(self, processes[1], addresses[1], addresses[0])
        self.to_server = Pipe(wire, links[0], connection_id, "to server")
        self.to_client = Pipe(wire, links[1], connection_id, "to client")
        self.client.outgoing = self.server.incoming = self.to_server
        self.server.outgoing = self.client.incoming = self.to_client
        # Each pipe uses the other one once it is joined.
        self.to_server.back = self.to_client
        self.to_client.back = self.to_server
        self.to_server.join(self.client, self.server)
        self.to_client.join(self.server, self.client)

    def __repr__(self) -> str:
        return f"{self.client.process.name} -> {self.server.process.name} ({self.id})"

    @property
    def ends(self) -> tuple[SimulatedTransport, SimulatedTransport]:
        """Return the client's end and the server's."""
        return self.client, self.server

    @property
    def pipes(self) -> tuple[Pipe, Pipe]:
        """Return the pipe to the server and the one to the client."""
        return self.to_server, self.to_client

    def is_between(self, a: str, b: str) -> bool:
        """Return whether the ends are at `a` and `b`, in any order: addresses or process names."""
        client, server = self.client.process, self.server.process
        return (a in (client.name, client.host) and b in (server.name, server.host)) or (
            b in (client.name, client.host) and a in (server.name, server.host)
        )

    def left(self) -> None:
        """Handle the close of one end."""
        if self.client.gone and self.server.gone:
            self._forget(self.id)

    def break_off(self, unaware: SimulatedTransport | None = None, *, silent: bool = False) -> None:
        """Break the connection now: no bytes in flight arrive.

        Both ends are notified, except `unaware`: it gets a reset once it has sent something, or, if
        `silent`, no acknowledgement.
        """
        self.wire.trace.note(self.id, "broken", repr(unaware), silent)
        for pipe in self.pipes:
            pipe.keep_only(0)
            is_silent = silent and pipe.writer is unaware
            pipe.set_fate(Fate.SILENT if is_silent else Fate.REFUSED)
            if pipe.reader is not unaware:
                pipe.mark(Mark.RESET)
