"""Frames that ask for much with little: each is answered or refused soon, in bounded memory.

All of them found something, or were the next thing to try. The bound is that of docs/limits.md.
"""

from __future__ import annotations

import contextlib
import gzip
import struct
import time
from collections.abc import Callable, Iterator

import cramjam
import pytest

from oncelog.core.limits import LOOKED_INTO_BYTES_MAX, MESSAGE_ELEMENTS_COUNT_MAX
from oncelog.protocol.api import ApiKey, is_flexible
from oncelog.protocol.codec import encode_request, parse_response, request_class
from oncelog.protocol.headers import request_header_bytes
from oncelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from oncelog.protocol.produce import encode_produce_request, parse_produce_response
from oncelog.protocol.wire import uvarint
from tests.fuzz.batches import around, with_crc
from tests.fuzz.serve import Served, healthy_peer

pytestmark = [pytest.mark.slow, pytest.mark.alone]

MIB = 1024 * 1024
MEMORY_CONSTANT_BYTES = 192 * MIB
"""docs/limits.md: what one request may cost beyond its own frame."""

ANSWER_S_MAX = 30.0
"""Far more than any takes (4 s), for a busy machine; what they found took minutes."""

N = MESSAGE_ELEMENTS_COUNT_MAX - 1000
HOME = "home"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("cost") / "data") as served:
        topics = tuple(
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=tuple(
                    CreatableTopicConfig(name=key, value=value) for key, value in configs.items()
                ),
            )
            for name, partitions, configs in (
                (HOME, 1, {}),
                ("wide", 50, {}),
                ("lies", 1, {}),
                ("packed", 1, {"compression.type": "zstd"}),
            )
        )
        timeout = 10_000
        with contextlib.closing(served.connect()) as wire:
            request = request_class(ApiKey.CREATE_TOPICS)(topics=topics, timeout_ms=timeout)
            frame = encode_request(ApiKey.CREATE_TOPICS, 7, 7, "bad", request)
            wire.give(struct.pack(">i", len(frame)) + frame)
            assert wire.answer()
        yield served


async def check_cost(served: Served, frame: bytes) -> bytes:
    """Send the frame; returns the answer, empty when the broker closed the connection."""
    with contextlib.closing(served.connect()) as wire:
        await healthy_peer(wire).check(HOME, b"before")
    served.forget_peak()
    before = served.resident_bytes()
    with contextlib.closing(served.connect()) as wire:
        begun = time.monotonic()
        wire.give(struct.pack(">i", len(frame)) + frame)
        answer = wire.answer(ANSWER_S_MAX)
        assert time.monotonic() - begun < ANSWER_S_MAX
    peak = served.peak_bytes()
    if before is not None and peak is not None:
        assert peak - before < len(frame) + MEMORY_CONSTANT_BYTES
    with contextlib.closing(served.connect()) as wire:
        await healthy_peer(wire).check(HOME, b"after")
    assert served.errors() == []
    return answer


def headed(api: ApiKey, version: int, body: bytes) -> bytes:
    return request_header_bytes(api, version, 7, "bad", is_flexible(api, version)) + body


def names(count: int, name: bytes = b"wide") -> bytes:
    return uvarint(count + 1) + (uvarint(len(name) + 1) + name) * count


def new_topics(count: int) -> bytes:
    return uvarint(count + 1) + b"".join(
        uvarint(len(name) + 1) + name + struct.pack(">ih", 1, 5) + b"\1\1\0"
        for name in (b"%x" % index for index in range(count))
    )


MANY: dict[str, Callable[[], bytes]] = {
    "one topic named again and again": lambda: headed(
        ApiKey.METADATA, 1, struct.pack(">i", N) + b"\0\4wide" * N
    ),
    "one topic described again and again": lambda: headed(
        ApiKey.DESCRIBE_CONFIGS, 4, uvarint(N + 1) + b"\2\5wide\0\0" * N + b"\1\1\0"
    ),
    "one group described again and again": lambda: headed(
        ApiKey.DESCRIBE_GROUPS, 5, names(N, b"g") + b"\1\0"
    ),
    "one offset fetched again and again": lambda: headed(
        ApiKey.OFFSET_FETCH,
        7,
        b"\2g" + uvarint(2) + b"\5wide" + uvarint(N + 1) + struct.pack(">i", 1) * N + b"\0\0\0",
    ),
    "one partition's producers again and again": lambda: headed(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        uvarint(2) + b"\5wide" + uvarint(N + 1) + struct.pack(">i", 1) * N + b"\0\0",
    ),
    "offsets": lambda: headed(
        ApiKey.OFFSET_COMMIT,
        8,
        b"\2g"
        + struct.pack(">i", -1)
        + b"\1\0"
        + uvarint(2)
        + b"\5wide"
        + uvarint(N + 1)
        + (struct.pack(">iqi", 1, 5, -1) + b"\0\0") * N
        + b"\0\0",
    ),
    "topics that cannot be made": lambda: headed(
        ApiKey.CREATE_TOPICS, 7, new_topics(N) + struct.pack(">i", 1) + b"\0\0"
    ),
    "more elements than any message may have": lambda: headed(
        ApiKey.FIND_COORDINATOR, 4, b"\0" + names(10 * N, b"x") + b"\0"
    ),
    "a count of two thousand million": lambda: headed(
        ApiKey.METADATA, 1, struct.pack(">i", 2**31 - 1) + b"\0\4wide"
    ),
    "tags in the header": lambda: (
        request_header_bytes(ApiKey.METADATA, 12, 7, "bad", True)[:-1]
        + uvarint(8 * MIB)
        + b"\5\0" * (8 * MIB)
    ),
    "tags at the end": lambda: headed(
        ApiKey.METADATA, 12, b"\1\0\0" + uvarint(8 * MIB) + b"\5\0" * (8 * MIB)
    ),
    "a long name": lambda: headed(
        ApiKey.HEARTBEAT,
        4,
        uvarint(24 * MIB + 1) + b"g" * (24 * MIB) + struct.pack(">i", 1) + b"\2x\0\0",
    ),
    "metadata of a member": lambda: headed(
        ApiKey.JOIN_GROUP,
        5,
        b"\0\1g"
        + struct.pack(">ii", 10_000, 10_000)
        + b"\0\0\xff\xff\0\1c"
        + struct.pack(">i", 1)
        + b"\0\1x"
        + struct.pack(">i", 31 * MIB)
        + bytes(31 * MIB),
    ),
    "a large frame of noise": lambda: headed(ApiKey.METADATA, 1, b"x" * (60 * MIB)),
    "a pattern that Python's re never finishes": lambda: headed(
        ApiKey.LIST_TRANSACTIONS,
        2,
        b"\1\1" + struct.pack(">q", -1) + uvarint(18) + b"(.|h|e)*(.*)*(x)+\0",
    ),
    "a pattern that is too deep": lambda: headed(
        ApiKey.LIST_TRANSACTIONS,
        2,
        b"\1\1" + struct.pack(">q", -1) + uvarint(30_001) + b"(" * 30_000 + b"\0",
    ),
}


@pytest.mark.parametrize("what", MANY)
async def test_little_cannot_ask_for_much(served: Served, what: str) -> None:
    await check_cost(served, MANY[what]())


SMALLEST_RECORD = b"\x0c\0\0\0\1\1\0"


def bomb(codec_id: int, size_bytes: int) -> bytes:
    """A batch of as many records as fit into so many bytes, packed."""
    count = size_bytes // len(SMALLEST_RECORD)
    data = SMALLEST_RECORD * count
    packed = {1: lambda: gzip.compress(data, 1), 4: lambda: bytes(cramjam.zstd.compress(data))}
    return around(packed[codec_id](), codec_id, count)


async def test_batches_that_lie_about_their_time_are_not_opened_one_after_the_other(
    served: Served,
) -> None:
    """The search ends at the first, whose header promises what its records do not hold."""
    batch = bytearray(bomb(4, 5 * MIB))
    now_ms = time.time_ns() // 1_000_000
    struct.pack_into(">q", batch, 35, now_ms + 1_800_000)
    liar = bytes(with_crc(batch))
    produced = []
    for _ in range(3):
        answer = await check_cost(served, produce("lies", liar))
        outcome = parse_produce_response(answer[4:], 9, 5).topics[0].partitions[0]
        assert outcome.error == 0
        produced.append(outcome.base_offset)
    lookup = struct.pack(">iiq", 0, -1, now_ms + 900_000) + b"\0"
    body = struct.pack(">ib", -1, 0) + uvarint(2) + b"\5lies" + uvarint(2) + lookup + b"\0\0"
    answer = await check_cost(served, headed(ApiKey.LIST_OFFSETS, 7, body))
    response = parse_response(ApiKey.LIST_OFFSETS, 7, answer[4:], 5)
    assert response.topics[0].partitions[0].offset == produced[0] == 0


def produce(topic: str, batch: bytes) -> bytes:
    parts = encode_produce_request(
        9,
        7,
        "bad",
        transactional_id=None,
        acks=1,
        timeout_ms=1000,
        topics=[(topic, None, [(0, batch)])],
    )
    return b"".join(parts)


@pytest.mark.parametrize(
    ("codec_id", "size_bytes"),
    [(4, 5 * MIB), (1, LOOKED_INTO_BYTES_MAX - MIB), (4, 2 * LOOKED_INTO_BYTES_MAX)],
)
async def test_a_bomb_is_not_held_unpacked(served: Served, codec_id: int, size_bytes: int) -> None:
    """In a topic whose batches the broker packs anew, and in one where a lookup opens them."""
    batch = bomb(codec_id, size_bytes)
    await check_cost(served, produce("packed", batch))
    await check_cost(served, produce("wide", batch))
    for timestamp in (-3, 1_000, 2**62):
        lookup = struct.pack(">iiq", 0, -1, timestamp) + b"\0"
        body = struct.pack(">ib", -1, 0) + uvarint(2) + b"\5wide" + uvarint(2) + lookup + b"\0\0"
        answer = await check_cost(served, headed(ApiKey.LIST_OFFSETS, 7, body))
        assert answer, "a batch in the log closes the connections of those who look for it"
