"""The frames, the order and the limits of one connection, without sockets: the transport and the
dispatcher are fakes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from oncelog.broker.net.connection import ServerConnection
from oncelog.broker.net.frames import ReadBuffer
from oncelog.broker.net.request import Api, Buffers, Request, RequestMeter
from oncelog.core.limits import (
    CONNECTION_PENDING_REPLIES_COUNT_MAX,
    CONNECTION_QUEUED_REQUESTS_COUNT_MAX,
    FRAME_BYTES_MIN,
    READ_BUFFER_BYTES,
)
from oncelog.core.pending import Pending, unchanged
from oncelog.protocol.api import ApiKey
from oncelog.protocol.headers import RequestHeader
from oncelog.runtime.framed import grow
from tests.support.logged import said_by

FRAME_BYTES_MAX = 8 * 1024 * 1024

Answer = Callable[[bytes, Request[Any]], None]


class FakeTransport:
    def __init__(self) -> None:
        self.written = bytearray()
        self.writes = 0
        self.reading = True
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 4242) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        self.writes += 1
        self.written += data

    def writelines(self, buffers: list[bytes]) -> None:
        self.writes += 1
        for buffer in buffers:
            self.written += buffer

    def get_write_buffer_size(self) -> int:
        return 1000

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close


class FakeServer:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.admits = True
        self.name = "PLAINTEXT"
        self.unread_bytes = self.bytes_in = self.bytes_out = 0

    def note_unread(self, change_bytes: int) -> None:
        self.unread_bytes += change_bytes

    def admit(self, _connection: ServerConnection, _transport: object) -> bool:
        return self.admits

    def forget(self, _connection: ServerConnection) -> None:
        pass


class FakeDispatcher:
    """Answers each frame with itself in capitals, unless the test says otherwise.

    A promise is kept with the bytes of the reply.
    """

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.requests: list[Request[Any]] = []
        self.meter = RequestMeter(Api(ApiKey.METADATA, lambda *_: None, reads_bytes=False), 0)
        self.answer: Answer | None = None

    def start(self, connection: ServerConnection, frame: bytearray) -> None:
        self.frames.append(bytes(frame))
        header = RequestHeader(ApiKey.METADATA, 0, 0, None, 0)
        request: Request[object] = Request(self.meter, header, None, connection)
        self.requests.append(request)
        if self.answer is not None:
            self.answer(bytes(frame), request)
        else:
            connection.answer(request, bytes(frame).upper())

    def settle(self, connection: ServerConnection, request: Request[Any]) -> None:
        assert request.pending is not None
        connection.reply(request, cast("Buffers", request.pending.response()))


def promise(*, holds_back: bool) -> Pending[Buffers]:
    return Pending(unchanged, holds_back=holds_back)


class Peer:
    """The test's end: it feeds bytes as the loop would, and reads what was written."""

    def __init__(self) -> None:
        self.server = FakeServer()
        self.dispatcher = FakeDispatcher()
        self.transport = FakeTransport()
        self.connection = ServerConnection(
            cast(Any, self.server), cast(Any, self.dispatcher), ReadBuffer()
        )
        self.connection.connection_made(cast(Any, self.transport))

    def send(self, data: bytes, piece_bytes: int = READ_BUFFER_BYTES) -> None:
        position = 0
        while position < len(data) and not self.connection.closed:
            buffer = self.connection.get_buffer(-1)
            piece = data[position : position + min(piece_bytes, len(buffer))]
            buffer[: len(piece)] = piece
            del buffer
            self.connection.buffer_updated(len(piece))
            position += len(piece)

    def is_closed(self) -> bool:
        return self.transport.closed

    def is_idle(self) -> bool:
        return self.connection.idle

    def is_reading(self) -> bool:
        return self.transport.reading

    def hold(self, held: bytes, pending: Pending[Buffers]) -> None:
        """From now on a frame `held` waits for `pending`; any other is answered with itself."""

        def answer(frame: bytes, request: Request[Any]) -> None:
            if frame == held:
                self.connection.hold(request, pending)
            else:
                self.connection.answer(request, frame)

        self.dispatcher.answer = answer

    def replies(self) -> list[bytes]:
        data, found = bytes(self.transport.written), []
        while data:
            size = int.from_bytes(data[:4], "big")
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        return found


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


async def test_frames_in_one_read_are_answered_in_order_with_one_write() -> None:
    peer = Peer()
    peer.send(framed(b"a", b"bc", b"def"))
    assert peer.replies() == [b"A", b"BC", b"DEF"]
    assert peer.transport.writes == 1


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 5, 7, 64])
async def test_frames_survive_any_fragmentation(piece_bytes: int) -> None:
    peer = Peer()
    bodies = [b"x" * size for size in (0, 1, 3, 4, 100, 1)]
    peer.send(framed(*bodies), piece_bytes)
    assert peer.dispatcher.frames == bodies


async def test_a_frame_larger_than_the_read_buffer_arrives_whole() -> None:
    peer = Peer()
    body = bytes(range(256)) * (READ_BUFFER_BYTES // 64)
    peer.send(framed(b"first", body, b"last"))
    assert peer.dispatcher.frames == [b"first", body, b"last"]


async def test_a_claimed_size_commits_no_memory() -> None:
    peer = Peer()
    peer.send(FRAME_BYTES_MAX.to_bytes(4, "big") + b"only this")
    assert len(peer.connection.get_buffer(-1)) < FRAME_BYTES_MIN
    assert peer.connection._frame is not None
    assert len(peer.connection._frame) == FRAME_BYTES_MIN


@pytest.mark.parametrize("size", [-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
async def test_an_impossible_size_closes_with_one_line(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer()
    with caplog.at_level(logging.WARNING):
        peer.send(framed(b"good") + size.to_bytes(4, "big", signed=True) + b"rest" * 100)
    assert peer.transport.closed
    assert peer.replies() == [b"GOOD"]
    assert len(said_by(caplog)) == 1
    assert "socket.request.max.bytes" in caplog.text


async def test_a_pending_reply_holds_back_later_replies_but_not_later_requests() -> None:
    peer = Peer()
    parked = promise(holds_back=False)

    peer.hold(b"slow", parked)
    peer.send(framed(b"slow", b"fast"))
    assert peer.dispatcher.frames == [b"slow", b"fast"]
    assert peer.replies() == []
    parked.complete([b"sl", b"ow"])
    await asyncio.sleep(0)
    assert peer.replies() == [b"slow", b"fast"]


async def test_a_promise_that_holds_back_lets_later_requests_start_when_it_is_kept() -> None:
    peer = Peer()
    parked = promise(holds_back=True)

    peer.hold(b"slow", parked)
    peer.send(framed(b"slow", b"next"))
    assert peer.dispatcher.frames == [b"slow"]
    parked.complete(b"slow")
    assert peer.dispatcher.frames == [b"slow"], "a promise is kept within other work"
    await asyncio.sleep(0)
    assert peer.dispatcher.frames == [b"slow", b"next"]
    assert peer.replies() == [b"slow", b"next"]


async def test_a_second_promise_of_a_request_may_stop_holding_back() -> None:
    """A produce that was verified and then waits for the high watermark (D13)."""
    peer = Peer()
    first, second = promise(holds_back=True), promise(holds_back=False)
    peer.dispatcher.answer = lambda _frame, request: peer.connection.hold(request, first)
    peer.send(framed(b"produce", b"next"))
    assert peer.dispatcher.frames == [b"produce"]
    peer.connection.hold(peer.dispatcher.requests[0], second)
    peer.dispatcher.answer = None
    await asyncio.sleep(0)
    assert peer.dispatcher.frames == [b"produce", b"next"]
    assert peer.replies() == []
    second.complete(b"produced")
    await asyncio.sleep(0)
    assert peer.replies() == [b"produced", b"NEXT"]


async def test_an_awaiting_handler_holds_back_later_requests() -> None:
    peer = Peer()
    gate = asyncio.Event()

    async def work(request: Request[Any], frame: bytes) -> None:
        await gate.wait()
        peer.connection.reply(request, frame)

    def answer(frame: bytes, request: Request[Any]) -> None:
        if frame == b"slow":
            peer.connection.run(request, work(request, frame))
        else:
            peer.connection.answer(request, frame)

    peer.dispatcher.answer = answer
    peer.send(framed(b"slow", b"next"))
    assert peer.dispatcher.frames == [b"slow"]
    gate.set()
    for _ in range(4):
        await asyncio.sleep(0)
    assert peer.dispatcher.frames == [b"slow", b"next"]
    assert peer.replies() == [b"slow", b"next"]


async def test_a_request_without_reply_leaves_no_gap_in_the_order() -> None:
    peer = Peer()
    parked = promise(holds_back=False)

    peer.hold(b"acks=0", parked)
    peer.send(framed(b"acks=0", b"a", b"b"))
    assert peer.replies() == []
    parked.complete(None)
    await asyncio.sleep(0)
    assert peer.replies() == [b"a", b"b"]


async def test_a_peer_that_does_not_read_gets_nothing_more_done() -> None:
    peer = Peer()
    peer.connection.pause_writing()
    assert not peer.transport.reading
    peer.send(framed(b"a", b"b"))
    assert peer.dispatcher.frames == []
    peer.connection.resume_writing()
    assert peer.is_reading()
    assert peer.replies() == [b"A", b"B"]


async def test_reading_stops_when_too_many_replies_wait_and_resumes() -> None:
    peer = Peer()
    promises: list[Pending[Buffers]] = []

    def answer(_frame: bytes, request: Request[Any]) -> None:
        promises.append(promise(holds_back=False))
        peer.connection.hold(request, promises[-1])

    peer.dispatcher.answer = answer
    peer.send(framed(*[b"r"] * (CONNECTION_PENDING_REPLIES_COUNT_MAX + 10)))
    assert not peer.transport.reading
    assert len(peer.dispatcher.frames) == CONNECTION_PENDING_REPLIES_COUNT_MAX
    for pending in list(promises):
        pending.complete(b"ok")
    await asyncio.sleep(0)
    assert peer.is_reading()
    assert len(peer.dispatcher.frames) == CONNECTION_PENDING_REPLIES_COUNT_MAX + 10


async def test_reading_stops_when_too_many_requests_are_queued() -> None:
    peer = Peer()
    gate = asyncio.Event()

    async def wait(request: Request[Any]) -> None:
        await gate.wait()
        peer.connection.reply(request, b"ok")

    peer.dispatcher.answer = lambda _frame, request: peer.connection.run(request, wait(request))
    peer.send(framed(*[b"r"] * (CONNECTION_QUEUED_REQUESTS_COUNT_MAX + 2)))
    assert not peer.transport.reading
    task = peer.connection._task
    assert task is not None
    peer.connection.abort()
    for _ in range(3):
        await asyncio.sleep(0)
    assert task.cancelled()


async def test_a_lost_connection_drops_what_waits_for_it() -> None:
    peer = Peer()
    pending = promise(holds_back=False)
    dropped: list[str] = []
    pending.on_drop = lambda: dropped.append("promise")
    peer.dispatcher.answer = lambda _frame, request: peer.connection.hold(request, pending)
    peer.send(framed(b"wait"))
    peer.connection.connection_lost(None)
    assert dropped == ["promise"]
    assert pending.dropped
    pending.complete(b"too late")
    await asyncio.sleep(0)
    assert peer.replies() == []


async def test_a_promise_made_on_a_closed_connection_is_dropped_at_once() -> None:
    peer = Peer()
    pending = promise(holds_back=True)

    def answer(_frame: bytes, request: Request[Any]) -> None:
        peer.connection.abort()
        peer.connection.hold(request, pending)

    peer.dispatcher.answer = answer
    peer.send(framed(b"wait"))
    assert pending.dropped


async def test_a_connection_that_is_not_admitted_is_cut() -> None:
    server_says_no = Peer()
    server_says_no.server.admits = False
    connection = ServerConnection(
        cast(Any, server_says_no.server), cast(Any, server_says_no.dispatcher), ReadBuffer()
    )
    transport = FakeTransport()
    connection.connection_made(cast(Any, transport))
    assert transport.closed
    assert connection.closed


async def test_large_frames_take_turns_in_the_same_memory_and_arrive_as_sent() -> None:
    peer = Peer()
    shared = peer.connection._shared
    for size in (300_000, 290_000, 400_000, FRAME_BYTES_MIN + 1, 300_001):
        body = random.Random(size).randbytes(size)
        peer.send(framed(body), piece_bytes=50_000)
        assert peer.dispatcher.frames[-1] == body
        assert shared._spare is not None
    frame = shared.new_frame(200_000, 10)
    assert shared._spare is None
    grow(frame, 200_000)
    assert len(frame) <= 200_000


NEGATIVE_SIZE = b"\xff" * 4


@pytest.mark.parametrize("holds_back", [False, True])
@pytest.mark.parametrize("pieces", [1, READ_BUFFER_BYTES])
async def test_requests_ahead_of_a_bad_size_are_answered_before_the_end(
    holds_back: bool, pieces: int
) -> None:
    """One that waits, and one that is queued behind it or waits for its turn to be answered."""
    peer = Peer()
    parked = promise(holds_back=holds_back)
    peer.hold(b"slow", parked)
    peer.send(framed(b"slow", b"next") + NEGATIVE_SIZE + framed(b"never"), pieces)
    assert not peer.is_closed()
    peer.send(framed(b"never"), pieces)
    parked.complete(b"slow")
    await asyncio.sleep(0)
    assert peer.replies() == [b"slow", b"next"]
    assert peer.is_closed()
    assert peer.dispatcher.frames == [b"slow", b"next"]


@pytest.mark.parametrize("holds_back", [False, True])
async def test_requests_ahead_of_a_malformed_one_are_answered_before_the_end(
    holds_back: bool, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer()
    parked = promise(holds_back=holds_back)

    def answer(frame: bytes, request: Request[Any]) -> None:
        if frame == b"slow":
            peer.connection.hold(request, parked)
        else:
            peer.connection.fail(f"malformed request: {frame!r}")

    peer.dispatcher.answer = answer
    peer.send(framed(b"slow", b"bad", b"never"))
    assert not peer.is_closed()
    parked.complete(b"slow")
    await asyncio.sleep(0)
    assert peer.replies() == [b"slow"]
    assert peer.is_closed()
    assert peer.dispatcher.frames == [b"slow", b"bad"]
    assert len(said_by(caplog)) == 1


async def test_a_request_that_fails_ends_those_behind_it_and_none_ahead() -> None:
    peer = Peer()
    parked = {name: promise(holds_back=False) for name in (b"ahead", b"fails", b"behind")}
    peer.dispatcher.answer = lambda frame, request: peer.connection.hold(request, parked[frame])
    peer.send(framed(*parked))
    peer.connection.end(peer.dispatcher.requests[1])
    assert [pending.dropped for pending in parked.values()] == [False, True, True]
    later = promise(holds_back=False)
    peer.connection.hold(peer.dispatcher.requests[2], later)
    assert later.dropped, "it has left the order"
    parked[b"ahead"].complete(b"ahead")
    await asyncio.sleep(0)
    assert peer.replies() == [b"ahead"]
    assert peer.is_closed()


async def test_a_handler_behind_a_request_that_fails_is_cancelled() -> None:
    peer = Peer()
    parked = {name: promise(holds_back=False) for name in (b"ahead", b"fails")}

    def answer(frame: bytes, request: Request[Any]) -> None:
        if frame in parked:
            peer.connection.hold(request, parked[frame])
        else:
            peer.connection.run(request, work())

    async def work() -> None:
        await asyncio.Event().wait()

    peer.dispatcher.answer = answer
    peer.send(framed(*parked, b"runs"))
    task = peer.connection._task
    assert task is not None
    peer.connection.end(peer.dispatcher.requests[1])
    parked[b"ahead"].complete(b"ahead")
    for _ in range(3):
        await asyncio.sleep(0)
    assert task.cancelled()
    assert peer.replies() == [b"ahead"]
    assert peer.is_closed()


async def test_a_peer_that_hangs_up_is_not_waited_for_after_a_bad_frame() -> None:
    peer = Peer()
    parked = promise(holds_back=True)
    peer.hold(b"slow", parked)
    peer.send(framed(b"slow", b"next") + NEGATIVE_SIZE)
    peer.connection.connection_lost(None)
    assert parked.dropped
    assert peer.connection.closed
