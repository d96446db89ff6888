"""What waits in a connection: bytes for their rest or for a reader, requests for those ahead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncelog.broker.net.request import Buffers, Request
from oncelog.core.limits import CONNECTION_PENDING_REPLIES_COUNT_MAX
from tests.unit.broker.net.test_connection import Peer, framed, promise


async def test_bytes_that_a_peer_does_not_read_are_counted_until_it_reads_or_is_gone() -> None:
    peer, other = Peer(), Peer()
    other.connection.pause_writing()
    other.connection.connection_lost(None)
    assert other.server.unread_bytes == 0
    counts = []

    def answer(_frame: bytes, _request: Request[Any]) -> None:
        counts.append(peer.server.unread_bytes)

    peer.dispatcher.answer = answer
    peer.connection.pause_writing()
    assert peer.server.unread_bytes == peer.transport.get_write_buffer_size()
    peer.send(framed(b"a"))
    peer.connection.resume_writing()
    assert counts == [0], "what it asked for meanwhile is answered as if it had always read"


async def test_a_queued_request_waits_for_a_peer_that_does_not_read_the_reply_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer, parked = Peer(), promise(holds_back=True)
    peer.hold(b"a", parked)
    peer.send(framed(b"a", b"b"))
    monkeypatch.setattr(peer.transport, "write", lambda _data: peer.connection.pause_writing())
    parked.complete(b"large")
    await asyncio.sleep(0)
    assert peer.dispatcher.frames == [b"a"]


async def test_how_long_a_request_was_queued_is_known_when_it_starts() -> None:
    peer, parked = Peer(), promise(holds_back=True)
    queued_s = []

    def answer(frame: bytes, request: Request[Any]) -> None:
        queued_s.append(peer.connection.queued_s)
        if frame == b"a":
            peer.connection.hold(request, parked)

    peer.dispatcher.answer = answer
    peer.send(framed(b"a", b"b"))
    await asyncio.sleep(0.01)
    parked.complete(b"ok")
    await asyncio.sleep(0)
    peer.send(framed(b"c"))
    assert queued_s[::2] == [0.0, 0.0]
    assert 0.009 < queued_s[1] < 60


async def test_a_size_that_comes_in_pieces_is_not_completed_by_what_came_before() -> None:
    peer = Peer()
    peer.send(framed(b"a"))
    peer.send(framed(b"b"), piece_bytes=3)
    assert peer.replies() == [b"A", b"B"]


async def test_a_size_in_pieces_is_not_taken_for_a_whole_frame_by_the_bytes_behind_it() -> None:
    peer = Peer()
    second = b"x" * 252
    data = framed(b"\0", second)
    peer.send(data[:1])
    # Read alone, these four bytes are a size too: the number of those behind them.
    assert int.from_bytes(data[1:5], "big") == len(data[5:])
    peer.send(data[1:])
    assert peer.dispatcher.frames == [b"\0", second]


async def test_three_bytes_of_a_size_are_no_frame_whatever_was_read_before() -> None:
    peer = Peer()
    before = bytes(255)
    peer.send(framed(before))
    peer.send(b"\xff" * 3)  # With the byte that was read before they would be -1.
    assert peer.dispatcher.frames == [before]


async def test_bytes_are_counted_both_ways_however_they_are_written() -> None:
    peer = Peer()
    replies: list[Buffers] = [b"a", b"b" * 5_000, [b"c" * 5_000, b"d"], b"e"]
    left = iter(replies)
    peer.dispatcher.answer = lambda _frame, request: peer.connection.answer(request, next(left))
    sent = framed(b"1"), framed(b"2"), framed(b"3", b"4")
    for data in sent:
        peer.send(data)
    assert peer.replies() == [b"a", b"b" * 5_000, b"c" * 5_000 + b"d", b"e"]
    assert peer.server.bytes_in == sum(map(len, sent))
    assert peer.server.bytes_out == len(peer.transport.written)


async def test_a_peer_is_active_when_anything_comes_from_it() -> None:
    peer = Peer()
    begun_s = peer.connection.last_active_s
    await asyncio.sleep(0.01)
    peer.send(b"\0")
    assert peer.connection.last_active_s > begun_s


async def test_a_connection_that_has_nothing_to_say_ends_without_a_write() -> None:
    peer = Peer()
    peer.connection.close()
    assert peer.is_closed()
    assert peer.transport.writes == 0


async def test_reading_stops_as_soon_as_as_many_replies_wait_as_may() -> None:
    peer = Peer()
    peer.dispatcher.answer = lambda _frame, request: peer.connection.hold(
        request, promise(holds_back=False)
    )
    peer.send(framed(*[b"r"] * (CONNECTION_PENDING_REPLIES_COUNT_MAX - 1)))
    assert peer.is_reading()
    peer.send(framed(b"r"))
    assert not peer.is_reading()


async def test_a_reply_is_sent_while_a_later_request_still_waits() -> None:
    peer = Peer()
    parked = {name: promise(holds_back=False) for name in (b"a", b"b")}
    peer.dispatcher.answer = lambda frame, request: peer.connection.hold(request, parked[frame])
    peer.send(framed(*parked))
    parked[b"a"].complete(b"A")
    await asyncio.sleep(0)
    assert peer.replies() == [b"A"]
