"""Peers that misbehave, over real sockets against a real `oncelog serve`, with a healthy client
beside them: never a traceback, a hang, or memory beyond what docs/limits.md promises.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from oncelog.core.limits import CONNECTION_WRITE_BUFFER_BYTES_HIGH, UNREAD_REPLIES_BYTES_HIGH
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import encode_request, request_class
from oncelog.protocol.headers import request_header_bytes
from oncelog.protocol.messages.create_topics import CreatableTopic
from oncelog.protocol.produce import encode_produce_request
from oncelog.protocol.record import Record, build_batch
from oncelog.protocol.wire import uvarint
from tests.fuzz.serve import QUIET_S, Served, Wire, healthy_peer

pytestmark = [pytest.mark.slow, pytest.mark.alone]

MIB = 1024 * 1024
FRAME_BYTES_MAX = 4 * MIB
MEMORY_CONSTANT_BYTES = 192 * MIB
"""docs/limits.md: what one request may cost beyond its own frame."""

CONNECTION_BYTES_MAX = 2 * (CONNECTION_WRITE_BUFFER_BYTES_HIGH + MIB)
"""docs/limits.md: what a peer that does not read may hold then, with batches of up to 1 MiB."""

IDLE_CONNECTION_BYTES = 16 * 1024
"""docs/limits.md: what an idle connection costs at most."""

CONNECTION_COUNT = 2000
SLOW_READER_COUNT = 200
BULK_BATCHES_COUNT = 60
"""Of 900 KB each: more than a fetch may ask for."""

HOME = "home"

VERSIONS_FRAME = request_header_bytes(ApiKey.API_VERSIONS, 2, 7, "bad", False)
"""The shortest request that is answered at length."""


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def request(api: ApiKey, version: int, **fields: object) -> bytes:
    return sized(encode_request(api, version, 7, "bad", request_class(api)(**fields)))


@pytest.fixture(scope="module")
def files() -> None:
    """Both ends of every connection are files of this machine; this process has half of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTION_COUNT + 500
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"this machine allows {hard} open files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, files: None) -> Iterator[Served]:
    """One broker for the tests that leave it as they found it."""
    folder = tmp_path_factory.mktemp("bad-peers") / "data"
    settings = {"socket.request.max.bytes": str(FRAME_BYTES_MAX)}
    with Served(folder, settings) as served:
        make_topics(served)
        yield served


def make_topics(served: Served) -> None:
    with contextlib.closing(served.connect()) as wire:
        names = (HOME, "bulk")
        topics = tuple(
            CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names
        )
        wire.give(request(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout_ms=10_000))
        assert wire.answer()


async def check_health(served: Served) -> None:
    """A client without fault is served, and the log is clean."""
    with contextlib.closing(served.connect()) as wire:
        await healthy_peer(wire).check(HOME, b"healthy")
    assert served.is_alive
    assert served.errors() == []


def growth_bytes(served: Served, before: int | None) -> int:
    peak = served.peak_bytes()
    return 0 if peak is None or before is None else peak - before


async def test_two_thousand_idle_connections_cost_little_and_delay_no_other(served: Served) -> None:
    await check_health(served)
    before = served.resident_bytes()
    served.forget_peak()
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTION_COUNT):
            stack.enter_context(contextlib.closing(served.connect()))
        begun = time.monotonic()
        await check_health(served)
        assert time.monotonic() - begun < 5
        assert growth_bytes(served, before) < CONNECTION_COUNT * IDLE_CONNECTION_BYTES
    await check_health(served)


async def test_slow_readers_are_held_back(served: Served) -> None:
    """Each asks a hundred times for 50 MB and reads nothing: they get less, then nothing more."""
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, None, bytes(900_000))]))
    with contextlib.closing(served.connect()) as wire:
        parts = encode_produce_request(
            9,
            7,
            "bad",
            transactional_id=None,
            acks=1,
            timeout_ms=1000,
            topics=[("bulk", None, [(0, batch)])],
        )
        for _ in range(BULK_BATCHES_COUNT):
            wire.give(sized(b"".join(parts)))
            assert len(wire.answer()) > 20
    fetch = sized(fetch_frame("bulk", 50 * MIB))
    before = served.resident_bytes()
    served.forget_peak()
    with contextlib.ExitStack() as stack:
        for _ in range(SLOW_READER_COUNT):
            wire = served.connect(receive_buffer_bytes=4096)
            stack.enter_context(contextlib.closing(wire))
            give_what_fits(wire, fetch * 100)
        await check_health(served)
        # The first few get what they ask for; then each holds a write buffer and one batch.
        bound = UNREAD_REPLIES_BYTES_HIGH + SLOW_READER_COUNT * CONNECTION_BYTES_MAX
        assert growth_bytes(served, before) < bound + MEMORY_CONSTANT_BYTES
    await check_health(served)


async def test_ten_thousand_requests_without_reading_are_answered_in_order(served: Served) -> None:
    count = 10_000
    before = served.resident_bytes()
    served.forget_peak()
    with contextlib.closing(served.connect()) as wire:
        sent = 0
        requests = b"".join(sized(versions_frame(number)) for number in range(count))
        view = memoryview(requests)
        # What does not fit waits until the broker reads again: it does once it is read from.
        sent = give_what_fits(wire, requests)
        await check_health(served)
        answered = 0
        while answered < count:
            if sent < len(requests):
                sent += give_what_fits(wire, view[sent:])
            answer = wire.answer()
            assert int.from_bytes(answer[4:8], "big") == answered
            answered += 1
    assert growth_bytes(served, before) < 64 * MIB
    await check_health(served)


async def test_a_claimed_size_beyond_the_limit_closes_the_connection(served: Served) -> None:
    for size in (2**31 - 1, FRAME_BYTES_MAX + 1, -1, -(2**31)):
        with contextlib.closing(served.connect()) as wire:
            wire.give(struct.pack(">i", size) + b"\0\3\0\1")
            assert wire.is_closed()
    await check_health(served)


async def test_claiming_a_size_commits_no_memory(served: Served) -> None:
    before = served.resident_bytes()
    served.forget_peak()
    with contextlib.ExitStack() as stack:
        for _ in range(SLOW_READER_COUNT):
            wire = served.connect()
            stack.enter_context(contextlib.closing(wire))
            wire.give(struct.pack(">i", FRAME_BYTES_MAX) + VERSIONS_FRAME)
        await check_health(served)
        assert growth_bytes(served, before) < SLOW_READER_COUNT * 128 * 1024
    await check_health(served)


async def test_a_frame_may_come_in_single_bytes_and_may_stop_anywhere(served: Served) -> None:
    with contextlib.ExitStack() as stack:
        frame = sized(VERSIONS_FRAME)
        for stop in range(1, len(frame)):
            wire = served.connect()
            stack.enter_context(contextlib.closing(wire))
            wire.give(frame[:stop])
        slow = stack.enter_context(contextlib.closing(served.connect()))
        slow.give(frame * 3, piece_bytes=1)
        assert [len(slow.answer()) > 8 for _ in range(3)] == [True] * 3
        await check_health(served)
    await check_health(served)


async def test_a_peer_that_stops_sending_is_let_go(served: Served) -> None:
    with contextlib.closing(served.connect()) as wire:
        wire.give(sized(VERSIONS_FRAME)[:9])
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.is_closed()
    with contextlib.closing(served.connect()) as wire:
        # A reset, in the middle of a waiting request.
        wire.give(sized(fetch_frame(HOME, MIB, min_bytes=MIB, max_wait_ms=30_000)))
        linger = struct.pack("ii", 1, 0)
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    await check_health(served)


async def test_bytes_of_another_protocol_close_the_connection(served: Served) -> None:
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"):
        with contextlib.closing(served.connect()) as wire:
            wire.give(data)
            wire.socket.shutdown(socket.SHUT_WR)
            assert wire.is_closed()
    await check_health(served)


def versions_frame(number: int) -> bytes:
    return request_header_bytes(ApiKey.API_VERSIONS, 2, number, "bad", False)


def fetch_frame(topic: str, max_bytes: int, *, min_bytes: int = 0, max_wait_ms: int = 0) -> bytes:
    body = struct.pack(">iiiibii", -1, max_wait_ms, min_bytes, max_bytes, 0, 0, -1)
    name = topic.encode()
    asked = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, max_bytes) + b"\0"
    topics = uvarint(2) + uvarint(len(name) + 1) + name + uvarint(2) + asked + b"\0"
    return request_header_bytes(ApiKey.FETCH, 12, 7, "bad", True) + body + topics + b"\1\1\0"


def give_what_fits(wire: Wire, data: bytes | memoryview) -> int:
    """Send until the broker takes no more for a moment; returns the bytes that left."""
    wire.socket.settimeout(QUIET_S if len(data) > 100_000 else 0.02)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < len(data):
            sent += wire.socket.send(data[sent : sent + 65_536])
    return sent
