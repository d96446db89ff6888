"""A connection that is muted, because its client is over a quota (KIP-219)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from oncelog.broker.net.request import Request
from tests.unit.broker.net.test_connection import Peer, framed, promise


class SetLoop:
    """A loop whose time the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> None:
        self.due.append((when_s, callback))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_at(self.now_s, callback)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        while ready := [each for each in self.due if each[0] <= self.now_s]:
            self.due.remove(ready[0])
            ready[0][1]()


def muting_peer(muted_by: bytes, duration_ms: float) -> tuple[Peer, SetLoop]:
    """A peer that is muted by its frame `muted_by`; its frames are answered with themselves."""
    peer, loop = Peer(), SetLoop()
    peer.connection._loop = cast(Any, loop)

    def answer(frame: bytes, request: Request[Any]) -> None:
        if frame == muted_by:
            peer.connection.mute(duration_ms)
        peer.connection.answer(request, frame)

    peer.dispatcher.answer = answer
    return peer, loop


async def test_a_muted_client_is_answered_at_once_and_then_not_read() -> None:
    peer, loop = muting_peer(b"a", 1_000)
    peer.send(framed(b"a", b"b", b"c"))
    assert peer.replies() == [b"a"]
    assert not peer.is_reading()
    loop.pass_s(0.999)
    assert peer.replies() == [b"a"]
    loop.pass_s(0.001)
    assert peer.replies() == [b"a", b"b", b"c"]
    assert peer.is_reading()


async def test_what_was_started_before_the_muting_is_answered() -> None:
    peer, loop = muting_peer(b"", 0)
    pending = promise(holds_back=False)
    peer.hold(b"held", pending)
    peer.send(framed(b"held"))
    peer.connection.mute(1_000)
    assert not peer.is_idle()
    pending.complete(b"late")
    loop.pass_s(0)
    assert peer.replies() == [b"late"]
    assert peer.is_idle()
    peer.send(framed(b"next"))
    assert peer.replies() == [b"late"]
    assert peer.is_idle()


async def test_a_second_muting_prolongs_the_first() -> None:
    peer, loop = muting_peer(b"", 0)
    peer.connection.mute(1_000)
    peer.connection.mute(3_000)
    peer.connection.mute(2_000)
    peer.send(framed(b"next"))
    loop.pass_s(2.9)
    assert peer.replies() == []
    assert not peer.is_reading()
    loop.pass_s(0.1)
    assert peer.replies() == [b"next"]


async def test_a_muted_connection_that_is_lost_starts_nothing() -> None:
    peer, loop = muting_peer(b"a", 1_000)
    peer.send(framed(b"a", b"b"))
    peer.connection.connection_lost(None)
    loop.pass_s(2)
    assert peer.dispatcher.frames == [b"a"]
