"""Ways to spoil a valid frame. Each takes a frame and gives the bytes of a worse one."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from oncelog.protocol.api import ApiKey
from tests.fuzz.corpus import Corpus, Frame

HUGE_ELEMENTS_COUNT = 20_000

Mutation = Callable[[random.Random, Corpus, Frame], bytes]

_INT16 = (-1, -2, -(2**15), 2**15 - 1, 0, 1, 255, 256)
_INT32 = (-1, -2, -(2**31), 2**31 - 1, 0, 1, 65_536, 1_000_000, 100_000_000)
_VARINTS = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\xff\x01",
    b"\xff\xff\x03",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x80\x00",
)


def valid(_r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """As it is."""
    return frame.data


def random_bytes(r: random.Random, _corpus: Corpus, _frame: Frame) -> bytes:
    """Nothing but noise."""
    return r.randbytes(r.choice((0, 1, 7, 8, 9, 10, 14, 40, 200)))


def random_body(r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """Noise behind a valid header."""
    return frame.data[: frame.body] + r.randbytes(r.randrange(120))


def sparse_body(r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """Noise of small numbers, which parses deeper than uniform noise does."""
    body = bytes(r.choices((0, 1, 2, 3, 255), (12, 4, 2, 1, 1), k=r.randrange(120)))
    return frame.data[: frame.body] + body


def truncated(r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """Cut anywhere."""
    return frame.data[: r.randrange(len(frame.data))]


def extended(r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """Bytes behind the end."""
    return frame.data + r.randbytes(r.randrange(1, 30))


def bit_flips(r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """A few wrong bits, in the body unless it is empty."""
    data = bytearray(frame.data)
    first = frame.body if frame.body < len(data) and r.random() < 0.9 else 0
    for _ in range(r.choice((1, 1, 2, 5))):
        data[r.randrange(first, len(data))] ^= 1 << r.randrange(8)
    return bytes(data)


def wrong_number(r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """A length, count, or any other number, replaced by an extreme one."""
    data = bytearray(frame.data)
    position = r.randrange(min(frame.body, len(data) - 1), len(data))
    kind = r.randrange(3)
    if kind == 0 and position + 2 <= len(data):
        struct.pack_into(">h", data, position, r.choice(_INT16))
    elif kind == 1 and position + 4 <= len(data):
        struct.pack_into(">i", data, position, r.choice(_INT32))
    else:
        data[position : position + 1] = r.choice(_VARINTS)
    return bytes(data)


def spliced(r: random.Random, corpus: Corpus, frame: Frame) -> bytes:
    """The beginning of one request and the end of another."""
    other = corpus.frame(frame.api)
    cut = r.randrange(frame.body, len(frame.data) + 1)
    return frame.data[:cut] + other.data[r.randrange(other.body, len(other.data) + 1) :]


def doubled_part(r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """A part of the body twice, or left out."""
    data = frame.data
    start = r.randrange(frame.body, len(data) + 1)
    end = min(len(data), start + r.randrange(1, 40))
    return data[:end] + data[start:] if r.random() < 0.5 else data[:start] + data[end:]


def wrong_version(r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """The body of one version under the number of another."""
    data = bytearray(frame.data)
    version = r.choice((frame.version + 1, frame.version - 1, r.randrange(-2, 20), 2**15 - 1))
    struct.pack_into(">h", data, 2, version)
    return bytes(data)


def wrong_api(r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """The body of one API under the number of another."""
    data = bytearray(frame.data)
    struct.pack_into(
        ">h", data, 0, r.choice((r.choice(list(ApiKey)), r.randrange(-3, 100), -(2**15)))
    )
    return bytes(data)


def unknown_tags(r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """Tagged fields that nobody knows, in place of the last (empty) set of tags or of any zero."""
    data = bytearray(frame.data)
    zeros = [place for place in range(8, len(data)) if data[place] == 0]
    place = r.choice(zeros) if zeros and r.random() < 0.7 else len(data) - 1
    count = r.choice((1, 1, 2, 100))
    size = r.choice((0, 1, 5))
    tags = b"".join(_varint(200 + n) + _varint(size) + bytes(size) for n in range(count))
    if r.random() < 0.2:
        tags = tags[:-1]
    data[place : place + 1] = _varint(r.choice((count, count, count + 1, 2**31))) + tags
    return bytes(data)


def many_elements(r: random.Random, _corpus: Corpus, frame: Frame) -> bytes:
    """A count that the bytes behind it honour: thousands of elements of nothing, or of the rest."""
    position = r.randrange(frame.body, len(frame.data) + 1)
    count = r.choice((300, 2_000, HUGE_ELEMENTS_COUNT if r.random() < 0.05 else 300))
    number = struct.pack(">i", count) if r.random() < 0.5 else _varint(count + 1)
    tail = frame.data[position : position + 12] or b"\0"
    body = tail * count if r.random() < 0.5 else bytes((r.choice((0, 1, 2)),)) * (count * 8)
    return frame.data[:position] + number + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


MUTATIONS: tuple[tuple[str, Mutation, int], ...] = (
    ("valid", valid, 34),
    ("random bytes", random_bytes, 3),
    ("random body", random_body, 3),
    ("sparse body", sparse_body, 6),
    ("truncated", truncated, 6),
    ("extended", extended, 3),
    ("bit flips", bit_flips, 14),
    ("wrong number", wrong_number, 16),
    ("spliced", spliced, 4),
    ("part doubled or left out", doubled_part, 5),
    ("wrong version", wrong_version, 2),
    ("wrong API", wrong_api, 2),
    ("unknown tags", unknown_tags, 3),
)
"""Name, function, weight in percent. `many_elements` is apart: it costs more."""

RARE: tuple[tuple[str, Mutation, float], ...] = (("many elements", many_elements, 0.0004),)
