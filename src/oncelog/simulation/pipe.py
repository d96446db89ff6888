"""Simulates one direction of a TCP connection: a queue of bytes in order.

Written bytes are in one queue, in three parts: bytes in the reader's socket buffer (`_held`), bytes
that have arrived but wait for buffer space or for the network (`_due`), and bytes in flight. A
write is one scheduled callback, and each such callback delivers the oldest item in flight, so the
order is kept. No byte is lost while the connection is open.

The fast paths are `send` and `arrive`; unusual cases (a paused reader, a fault) clear a flag and
take the slow ones. This module knows no protocols and no addresses.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import Final
from zlib import crc32

from oncelog.core.limits import SIMULATED_CHUNK_BYTES_MAX, SIMULATED_SOCKET_BUFFER_BYTES
from oncelog.simulation.links import Link
from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import Handle
from oncelog.simulation.wire import End, Fate, Mark, Wire

__all__ = ["Pipe"]

CUT_PROBABILITY: Final = 0.03
"""The probability that the bytes of one write arrive in several pieces."""

MERGE_LUCK_MAX: Final = 0.5
"""The probability that a write that would overtake the previous one is merged with it."""

TCP_TIMEOUT_S: Final = (5.0, 20.0)
"""The time without an acknowledgement after which a machine drops a connection."""

RETRANSMISSION_S: Final = (0.05, 2.0)
"""The delay after a partition heals until the bytes are sent again."""

THROTTLED_CHUNK_S: Final = 0.05
"""A throttled link delivers a write in pieces of about this duration."""

_THROTTLED_CHUNK_BYTES_MIN: Final = 512
_NO_CUT: Final = -1


Item = bytes | Mark


class Pipe:
    """Bytes from `writer` to `reader`. `back` is the pipe in the other direction."""

    __slots__ = (
        "_call_at",
        "_cut_after",
        "_due",
        "_held",
        "_held_bytes",
        "_is_bounced",
        "_is_lost_in_network",
        "_is_retransmitting",
        "_is_usual_arrival",
        "_is_usual_send",
        "_items",
        "_last_s",
        "_luck",
        "_note",
        "_on_cut",
        "_owed_bytes",
        "_process",
        "_scheduler",
        "_settles",
        "_timer",
        "_wire",
        "back",
        "delivered_bytes",
        "direction",
        "fate",
        "id",
        "link",
        "reader",
        "unacked_bytes",
        "writer",
    )

    def __init__(self, wire: Wire, link: Link, connection_id: int, direction: str) -> None:
        self.id = connection_id
        self.direction = direction
        self.link = link
        self.fate = Fate.ARRIVES
        self.unacked_bytes = 0
        """Bytes of the writer that no machine has acknowledged."""
        self.delivered_bytes = 0
        """The count of bytes that have reached the reader's machine."""
        self.back: Pipe
        self.writer: End
        self.reader: End
        self._wire = wire
        self._scheduler = wire.scheduler
        self._call_at = wire.scheduler.call_at
        self._luck = wire.rng.random
        self._note = wire.trace.note
        self._process: Process
        self._items: deque[Item] = deque()
        self._held = 0
        self._held_bytes = 0
        self._due = 0
        self._last_s = 0.0
        self._owed_bytes = 0
        self._is_usual_send = True
        self._is_usual_arrival = True
        self._is_lost_in_network = False
        self._is_retransmitting = False
        self._is_bounced = False
        self._settles = False
        self._cut_after = _NO_CUT
        self._on_cut: Callable[[], None] | None = None
        self._timer: Handle | None = None

    def join(self, writer: End, reader: End) -> None:
        """Set what it connects; once, after `back` was set."""
        self.writer = writer
        self.reader = reader
        self._process = reader.process
        self.refresh()

    # --- sending

    def send(self, data: bytes) -> None:
        """Send bytes that the writer wrote."""
        self.unacked_bytes += len(data)
        luck = self._luck()
        if (
            not self._is_usual_send
            or luck < CUT_PROBABILITY
            or len(data) > SIMULATED_CHUNK_BYTES_MAX
        ):
            self._send_unusually(data, luck)
        else:
            self._put(data, luck)

    def _put(self, data: bytes, luck: float) -> None:
        when_s = self.link.arrival_s(self._scheduler.now_s, len(data), luck)
        if when_s <= self._last_s:
            # Earlier bytes are still in flight, and are not overtaken.
            if luck < MERGE_LUCK_MAX and self._merge(data):
                return
            when_s = self._last_s
        self._last_s = when_s
        self._items.append(data)
        self._call_at(when_s, self._process, self.arrive)

    def _merge(self, data: bytes) -> bool:
        items = self._items
        if not items or self._due >= len(items):
            return False
        last = items[-1]
        if type(last) is not bytes or len(last) + len(data) > SIMULATED_CHUNK_BYTES_MAX:
            return False
        items[-1] = last + data
        self._wire.counts["merged writes"] += 1
        return True

    def _send_unusually(self, data: bytes, luck: float) -> None:
        if self.fate is Fate.ARRIVES:
            for piece in self._pieces(data, luck):
                self._put(piece, self._luck())
        self._watch()

    def _pieces(self, data: bytes, luck: float) -> Iterator[bytes]:
        """Return the pieces in which a write arrives."""
        size = len(data)
        cuts = [0, size]
        if luck < CUT_PROBABILITY and size > 1:
            rng = self._wire.rng
            cuts = sorted({0, size, *(rng.randrange(size) for _ in range(rng.randint(1, 3)))})
            self._wire.counts["cut writes"] += 1
        step = SIMULATED_CHUNK_BYTES_MAX
        if self.link.bytes_per_s:
            step_of_link = int(self.link.bytes_per_s * THROTTLED_CHUNK_S)
            step = min(step, max(step_of_link, _THROTTLED_CHUNK_BYTES_MIN))
        for start, end in pairwise(cuts):
            for position in range(start, end, step):
                yield data[position : min(end, position + step)]

    def mark(self, mark: Mark, extra_s: float = 0.0) -> None:
        """Send a mark after all bytes."""
        if self.reader.gone:
            return
        now_s = self._scheduler.now_s
        delay_s = extra_s + self.link.delay_s(self._luck())
        self._last_s = max(self._last_s, now_s + delay_s)
        self._items.append(mark)
        self._call_at(self._last_s, self._process, self.arrive)

    # --- arriving

    def arrive(self) -> None:
        """Deliver the oldest item in flight. The scheduler calls it in the reader's process."""
        items = self._items
        if not self._is_usual_arrival:
            self._due = min(self._due + 1, len(items))
            self._settle()
        elif items:
            item = items.popleft()
            if type(item) is bytes:
                self._count(item)
                taken = self.reader.receive(item)
                if taken < len(item):
                    self._put_back(item[taken:])
            else:
                self.reader.take_mark(item)  # type: ignore[arg-type]

    def _count(self, data: bytes) -> None:
        """Acknowledge bytes that have reached the reader's machine."""
        size = len(data)
        self.delivered_bytes += size
        self._note(self.id, self.direction, size, crc32(data))
        if self.back.link.blocked:
            self._owed_bytes += size
            return
        self.unacked_bytes -= size
        if self.writer.waiting:
            self.writer.acknowledged()

    def _put_back(self, rest: bytes) -> None:
        """Keep the rest of a chunk, in which the reader stopped reading."""
        if self.reader.gone:
            return
        self._items.appendleft(rest)
        self._due += 1
        self._held += 1
        self._held_bytes += len(rest)
        self.refresh()

    def _settle(self) -> None:
        """Accept what is due, and deliver one item if the reader reads."""
        if self.link.blocked or self._is_lost_in_network:
            self._keep_in_network()
        else:
            while self._held < self._due and self._held_bytes < SIMULATED_SOCKET_BUFFER_BYTES:
                self._let_in()
        reader = self.reader
        if self._resets_a_reader_that_pauses():
            reader.take_mark(Mark.RESET)
        elif self._held and reader.reading:
            item = self._items.popleft()
            self._held -= 1
            self._due -= 1
            if type(item) is bytes:
                self._held_bytes -= len(item)
                taken = reader.receive(item)
                if taken < len(item):
                    self._put_back(item[taken:])
            else:
                reader.take_mark(item)  # type: ignore[arg-type]
        if self._held and reader.reading:
            self._settle_soon()
        self.refresh()

    def _settle_soon(self) -> None:
        if not self._settles:
            self._settles = True
            self._call_at(self._scheduler.now_s, self._process, self._settle_now)

    def _settle_now(self) -> None:
        self._settles = False
        self._settle()

    def _let_in(self) -> None:
        """Take the next item that is due into the reader's socket buffer."""
        item = self._items[self._held]
        if type(item) is bytes:
            if self._cut_after != _NO_CUT:
                item = self._use_up(item)
                if not item:
                    return
            self._held += 1
            self._held_bytes += len(item)
            self._count(item)
            return
        self._held += 1

    def _resets_a_reader_that_pauses(self) -> bool:
        """Return whether a reset overtakes bytes that wait for the reader.

        A socket with unsent bytes gets a reset even if its owner does not read.
        """
        items = self._items
        return (
            not self.reader.reading
            and self.back.unacked_bytes > 0
            and 0 < self._due == len(items)
            and items[-1] is Mark.RESET
            and not self._is_lost_in_network
        )

    def _use_up(self, data: bytes) -> bytes:
        """Break the connection after the armed number of bytes; return those that still arrive."""
        left = self._cut_after
        if len(data) < left:
            self._cut_after = left - len(data)
            return data
        data = data[:left]
        on_cut = self._on_cut
        self.disarm()
        if data:
            # Counted before the connection breaks, which drops all uncounted bytes.
            self._items[self._held] = data
            self._held += 1
            self._held_bytes += left
            self._count(data)
        if on_cut is not None:
            on_cut()
        return b""

    def _keep_in_network(self) -> None:
        if not self._is_lost_in_network and self._due > self._held:
            self._is_lost_in_network = True
            self._wire.counts["bytes held by a partition"] += 1

    def _retransmit(self) -> None:
        self._is_lost_in_network = False
        self._is_retransmitting = False
        self._settle()

    # --- what changes around it

    def refresh(self) -> None:
        """Use the fast paths only if no fault or pause is active."""
        passable = not self.link.blocked and not self.back.link.blocked
        self._is_usual_send = passable and self.fate is Fate.ARRIVES and not self.link.bytes_per_s
        self._is_usual_arrival = (
            passable
            and not self._due
            and not self._is_lost_in_network
            and self._cut_after == _NO_CUT
            and self.reader.reading
        )

    def reading_changed(self) -> None:
        """The reader paused or resumed."""
        self.refresh()
        if self._due and self.reader.reading:
            self._settle_soon()

    def link_changed(self) -> None:
        """A fault on a link began or ended."""
        now_s = self._scheduler.now_s
        link = self.link
        if not self.back.link.blocked and self._owed_bytes:
            self.unacked_bytes -= self._owed_bytes
            self._owed_bytes = 0
            if self.writer.waiting:
                self.writer.acknowledged()
        if self._is_lost_in_network and not link.blocked and not self._is_retransmitting:
            self._is_retransmitting = True
            delay_s = self._wire.rng.uniform(*RETRANSMISSION_S)
            self._call_at(now_s + delay_s, self._process, self._retransmit)
        if self._last_s > now_s + link.latency_s + link.jitter_s:
            self._hasten(now_s)
        self.refresh()
        self._watch()

    def _hasten(self, now_s: float) -> None:
        """Speed up bytes in flight that a fault had slowed down.

        The old callbacks remain; they find nothing, or deliver a later item somewhat earlier.
        """
        self._last_s = now_s
        for item in islice(self._items, self._due, None):
            size = len(item) if type(item) is bytes else 0
            self._last_s = max(self._last_s, self.link.arrival_s(now_s, size, self._luck()))
            self._call_at(self._last_s, self._process, self.arrive)

    def arm(self, after_bytes: int, on_cut: Callable[[], None]) -> None:
        """Break after so many more bytes have arrived, and call `on_cut` then."""
        self._cut_after = after_bytes
        self._on_cut = on_cut
        self.refresh()

    def disarm(self) -> None:
        """Forget `arm`."""
        self._cut_after = _NO_CUT
        self._on_cut = None
        self.refresh()

    @property
    def is_armed(self) -> bool:
        """Return whether the connection will break after some bytes."""
        return self._cut_after != _NO_CUT

    # --- the end

    @property
    def has_unread(self) -> bool:
        """Return whether bytes are in the reader's socket buffer."""
        return self._held > 0

    def cut_off(self) -> None:
        """Handle the writer's end: all bytes in flight arrive, or those up to a random byte."""
        if not self._items:
            return
        under_way = sum(len(i) for i in islice(self._items, self._held, None) if type(i) is bytes)
        rng = self._wire.rng
        self.keep_only(under_way if rng.random() < 0.5 else rng.randint(0, under_way))

    def keep_only(self, byte_count: int) -> None:
        """Drop all bytes in flight but the first `count`, and the end of the stream with them."""
        kept = deque(islice(self._items, self._held))
        is_whole = True
        for item in islice(self._items, self._held, None):
            if type(item) is bytes:
                is_whole = len(item) <= byte_count
                if byte_count:
                    kept.append(item[:byte_count])
                byte_count -= min(byte_count, len(item))
            elif is_whole or item is not Mark.EOF:
                kept.append(item)
        self._items = kept
        self._due = min(self._due, len(kept))
        self.refresh()

    def reader_left(self, fate: Fate) -> None:
        """Handle the close of the reader's socket: bytes that arrive from now on get that fate."""
        self._items.clear()
        self._due = self._held = self._held_bytes = 0
        self._is_lost_in_network = False
        self.set_fate(fate)

    def set_fate(self, fate: Fate) -> None:
        """Set the fate of bytes sent from now on. A silent pipe stays silent."""
        if self.fate is not Fate.SILENT:
            self.fate = fate
        self.refresh()
        self._watch()

    def machine_is_back(self) -> None:
        """Handle the restart of a silent machine, which does not know this connection."""
        if self.fate is Fate.SILENT:
            self.fate = Fate.REFUSED
            delay_s = self._wire.rng.uniform(*RETRANSMISSION_S)
            self._call_at(self._scheduler.now_s + delay_s, None, self._watch)

    def _watch(self) -> None:
        """Notify a writer that its bytes reach no reader."""
        if self.unacked_bytes and not self.writer.gone:
            if self.fate is Fate.SILENT or self.link.blocked or self.back.link.blocked:
                if self._timer is None:
                    wait_s = self._wire.rng.uniform(*TCP_TIMEOUT_S)
                    when_s = self._scheduler.now_s + wait_s
                    self._timer = self._call_at(when_s, None, self._time_out)
                return
            if self.fate is Fate.REFUSED and not self._is_bounced:
                self._is_bounced = True
                self.back.mark(Mark.RESET, extra_s=self.link.delay_s(self._luck()))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self.unacked_bytes and not self.writer.gone:
            self._wire.counts["tcp timeout"] += 1
            error = TimeoutError(errno.ETIMEDOUT, "Connection timed out")
            self._call_at(self._scheduler.now_s, self.writer.process, self.writer.lost, error)
