"""Random values of kio's classes: nulls, empty and long ones, tags present and absent."""

import datetime
from collections.abc import Callable
from dataclasses import is_dataclass
from random import Random
from typing import Any
from uuid import UUID

from oncelog.core.errors import ErrorCode
from oncelog.protocol.conversion import FieldShape, defaults, shapes

ERRORS = tuple(ErrorCode)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)
LENGTHS = (0, 1, 2, 3, 8, 126, 127, 128, 300)
"""Around 127 a compact length takes a second byte."""

ALPHABET = "ab\x00\n~ßé€𝄞"


def sample(cls: type, random: Random) -> Any:
    """A value of the class with random fields."""
    return cls(**{shape.name: _field(cls, shape, random) for shape in shapes(cls)})


def _field(cls: type, shape: FieldShape, random: Random) -> Any:
    if shape.tag is not None and random.random() < 0.4:
        return defaults(cls)[shape.name]
    if shape.is_nullable and shape.tag is None and random.random() < 0.3:
        return None
    if shape.is_array:
        count = random.choice((0, 1, 1, 2, 3))
        if not is_dataclass(shape.inner):
            count = random.choice((0, 1, 2, 3, 127, 128))
        return tuple([_one(shape, random) for _ in range(count)])
    return _one(shape, random)


def _one(shape: FieldShape, random: Random) -> Any:
    if is_dataclass(shape.inner):
        return sample(shape.inner, random)
    assert shape.kafka_type is not None
    return _PRIMITIVES[shape.kafka_type](random)


def _number(bits: int, low: int) -> Callable[[Random], int]:
    high = low + 2**bits - 1

    def number(random: Random) -> int:
        return random.choice((low, high, 0, 1, random.randint(low, high)))

    return number


_int32, _int64 = _number(32, -(2**31)), _number(64, -(2**63))


def _text(random: Random) -> str:
    length = random.choice(LENGTHS)
    letters = "abc" if random.random() < 0.5 else ALPHABET
    return "".join(random.choices(letters, k=length))


def _bytes(random: Random) -> bytes:
    return random.randbytes(random.choice((*LENGTHS, 20_000)))


def _timedelta_i64(random: Random) -> datetime.timedelta:
    # kio goes through a float, which larger spans, and later times below, do not survive.
    return MILLISECOND * random.choice((-1, 0, 1, random.randint(-(2**45), 2**45)))


_PRIMITIVES: dict[str, Callable[[Random], Any]] = {
    "int8": _number(8, -(2**7)),
    "int16": _number(16, -(2**15)),
    "int32": _int32,
    "int64": _int64,
    "uint16": _number(16, 0),
    "float64": lambda random: random.choice((0.0, -1.5, random.random(), float("inf"))),
    "bool": lambda random: random.random() < 0.5,
    "error_code": lambda random: random.choice(ERRORS),
    "timedelta_i32": lambda random: MILLISECOND * _int32(random),
    "timedelta_i64": _timedelta_i64,
    "datetime_i64": lambda random: EPOCH + MILLISECOND * random.randint(0, 2**40),
    "uuid": lambda random: random.choice((None, UUID(int=random.getrandbits(128) or 1))),
    "string": _text,
    "bytes": _bytes,
    "records": _bytes,
}
