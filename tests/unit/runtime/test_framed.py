"""Frames over a stream: how they are cut, what a peer's claim costs, and what a close means."""

import asyncio
import struct
import tracemalloc
from dataclasses import dataclass, field

import pytest

from oncelog.runtime.framed import DisconnectedError, FramedConnection, grow
from tests.unit.runtime.memory_network import MemoryNetwork, MemoryTransport

FRAME_BYTES_MAX = 256 * 1024 * 1024


@dataclass
class Ends:
    """Both ends of one connection: what arrived at each, and why it closed."""

    network: MemoryNetwork = field(init=False)
    connection: FramedConnection = field(init=False)
    frames: list[bytes] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    close_after_frame: bool = False

    def __post_init__(self) -> None:
        self.network = MemoryNetwork(lambda transport, frame: self.sent.append(frame))
        self.connection = FramedConnection(
            "peer",
            1,
            frame_bytes_max=FRAME_BYTES_MAX,
            on_frame=self.on_frame,
            on_closed=self.closed.append,
        )

    def on_frame(self, frame: bytearray) -> None:
        self.frames.append(bytes(frame))
        if self.close_after_frame:
            self.connection.close("enough")

    @property
    def transport(self) -> MemoryTransport:
        return self.network.transports[0]


@pytest.fixture
async def ends() -> Ends:
    ends = Ends()
    await ends.connection.connect(ends.network)
    return ends


@pytest.mark.parametrize("piece_size", [1, 3, 4, 5, 64, 1 << 20])
async def test_frames_are_cut_wherever_the_stream_is(ends: Ends, piece_size: int) -> None:
    frames = [b"a", b"bc" * 40, b"def"]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    for start in range(0, len(stream), piece_size):
        ends.transport.feed_raw(stream[start : start + piece_size])
    assert ends.frames == frames


async def test_a_large_frame_arrives_whole(ends: Ends) -> None:
    frame = bytes(range(256)) * 4096
    ends.transport.feed(frame, piece_size=10_007)
    ends.transport.feed(b"next")
    assert ends.frames == [frame, b"next"]


async def test_a_peer_that_only_claims_a_size_commits_no_memory(ends: Ends) -> None:
    tracemalloc.start()
    try:
        ends.transport.feed_raw(struct.pack(">i", FRAME_BYTES_MAX) + b"a few bytes")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not ends.connection.is_closed
    assert peak < 1024 * 1024


def test_a_frame_doubles_up_to_its_size() -> None:
    frame = bytearray(b"ab")
    sizes = []
    while len(frame) < 9:
        grow(frame, 9)
        sizes.append(len(frame))
    assert sizes == [4, 8, 9]
    assert frame == b"ab" + bytes(7)


def test_a_frame_with_a_view_does_not_grow() -> None:
    frame = bytearray(b"ab")
    with memoryview(frame), pytest.raises(BufferError):
        grow(frame, 9)


@pytest.mark.parametrize("size", [-1, 0, FRAME_BYTES_MAX + 1])
async def test_an_impossible_size_closes_the_connection(ends: Ends, size: int) -> None:
    ends.transport.feed_raw(struct.pack(">i", size) + b"rest")
    assert ends.closed == [f"peer announced a frame of {size} bytes"]
    assert ends.transport.closed
    assert ends.frames == []


async def test_a_peer_of_another_protocol_is_named_by_its_greeting(ends: Ends) -> None:
    ends.transport.feed_raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert ends.closed == ["it does not speak Kafka's protocol: it began with 'HTTP'"]


async def test_nothing_is_cut_behind_the_frame_at_which_the_owner_closes(ends: Ends) -> None:
    ends.close_after_frame = True
    ends.transport.feed_raw(b"\0\0\0\1a\0\0\0\1b")
    assert ends.frames == [b"a"]


async def test_a_frame_is_sent_behind_its_size(ends: Ends) -> None:
    ends.connection.send([b"one", bytearray(b" "), memoryview(b"frame")])
    await asyncio.sleep(0)
    assert ends.sent == [b"one frame"]


async def test_the_first_reason_to_close_stays(ends: Ends) -> None:
    ends.connection.close("one")
    ends.connection.close("two")
    await ends.connection.wait_closed()
    assert ends.closed == ["one"]
    with pytest.raises(DisconnectedError, match="peer:1: one"):
        ends.connection.send([b"too late"])
    with pytest.raises(DisconnectedError, match="peer:1: one"):
        await ends.connection.writable()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(None, "closed by the peer"), (OSError("reset"), r"connection lost (reset)")],
)
async def test_a_cut_by_the_peer_is_a_close(
    ends: Ends, error: Exception | None, reason: str
) -> None:
    ends.transport.cut(error)
    await ends.connection.wait_closed()
    assert ends.closed == [reason]


async def test_writers_wait_while_the_transport_is_full(ends: Ends) -> None:
    ends.connection.pause_writing()
    waiting = asyncio.create_task(ends.connection.writable())
    await asyncio.sleep(0)
    assert not waiting.done()
    ends.connection.resume_writing()
    await waiting


async def test_writers_that_wait_are_told_of_a_close(ends: Ends) -> None:
    ends.connection.pause_writing()
    waiting = asyncio.create_task(ends.connection.writable())
    await asyncio.sleep(0)
    ends.connection.close("gone")
    with pytest.raises(DisconnectedError, match="gone"):
        await waiting


async def test_no_listener_at_the_address_is_a_disconnect() -> None:
    ends = Ends()
    ends.network.refused = True
    with pytest.raises(DisconnectedError, match="peer:1"):
        await ends.connection.connect(ends.network)
    with pytest.raises(DisconnectedError, match="not connected"):
        ends.connection.send([b"to nobody"])


async def test_a_connection_closed_before_it_is_made_stays_closed() -> None:
    ends = Ends()
    ends.connection.close("too slow")
    await ends.connection.connect(ends.network)
    assert ends.transport.closed
    assert ends.closed == ["too slow"]
