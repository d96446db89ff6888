"""Random messages: nulls, empty and long values, tags present and absent."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode as KioErrorCode

from oncelog.core.errors import ErrorCode
from oncelog.protocol.error_versions import KNOWN
from oncelog.protocol.fields import OWN_TAGS, FieldShape, shapes

REPLACED = {
    code for known in KNOWN.values() for code, row in known.items() if row.below is not None
}
NEWER_THAN_KIO = {code for code in ErrorCode if code.value not in set(KioErrorCode)}
ERRORS = tuple(code for code in ErrorCode if code not in REPLACED | NEWER_THAN_KIO)
"""Those that a response carries in every version (`oncelog.protocol.error_versions`)."""

LENGTHS = (0, 1, 2, 3, 8, 126, 127, 128, 300)
"""Around 127 a compact length takes a second byte."""

ALPHABET = "ab\x00\n~ßé€𝄞"


def sample(cls: type, version: int, random: Random) -> Any:
    """A message with random values in the fields that the version carries."""
    return cls(**{shape.name: _field(shape, version, random) for shape in shapes(cls, version)})


def _field(shape: FieldShape, version: int, random: Random) -> Any:
    if shape.tag is not None and (shape.tag >= OWN_TAGS or random.random() < 0.4):
        return shape.default  # Of ours no other library knows anything.
    if shape.is_nullable and shape.tag is None and random.random() < 0.3:
        return None
    if shape.is_array:
        count = random.choice((0, 1, 1, 2, 3))
        if shape.inner is None:
            count = random.choice((0, 1, 2, 3, 127, 128))
        if shape.is_single:
            count = 1
        return tuple([_one(shape, version, random) for _ in range(count)])
    return _one(shape, version, random)


def _one(shape: FieldShape, version: int, random: Random) -> Any:
    if shape.inner is not None:
        return sample(shape.inner, version, random)
    if shape.name in _SMALL:
        # kio goes through a float, which larger spans and moments do not survive.
        return random.choice((0, 1, random.randint(0, 2**40)))
    return _PRIMITIVES[shape.kind](random)


_SMALL = ("session_lifetime_ms", "retention_time_ms", "transaction_start_time_ms")


def _number(bits: int, low: int) -> Callable[[Random], int]:
    high = low + 2**bits - 1

    def number(random: Random) -> int:
        return random.choice((low, high, 0, 1, random.randint(low, high)))

    return number


def _text(random: Random) -> str:
    length = random.choice(LENGTHS)
    letters = "abc" if random.random() < 0.5 else ALPHABET
    return "".join(random.choices(letters, k=length))


def _bytes(random: Random) -> bytes:
    return random.randbytes(random.choice((*LENGTHS, 20_000)))


_PRIMITIVES: dict[str, Callable[[Random], Any]] = {
    "int8": _number(8, -(2**7)),
    "int16": _number(16, -(2**15)),
    "int32": _number(32, -(2**31)),
    "int64": _number(64, -(2**63)),
    "float64": lambda random: random.choice((0.0, -1.5, random.random(), float("inf"))),
    "bool": lambda random: random.random() < 0.5,
    "error_code": lambda random: random.choice(ERRORS),
    "uuid": lambda random: random.choice((None, UUID(int=random.getrandbits(128) or 1))),
    "string": _text,
    "bytes": _bytes,
}


def errors_in(message: Any, version: int) -> Iterator[ErrorCode]:
    """Every error code of a message but NONE, and but those in tagged fields."""
    cls: type = type(message)
    for shape in shapes(cls, version):
        value = getattr(message, shape.name)
        if shape.tag is not None or value is None:
            continue
        if shape.kind == "error_code" and value is not ErrorCode.none:
            yield value
        elif shape.inner is not None:
            for nested in value if shape.is_array or shape.is_single else (value,):
                yield from errors_in(nested, version)
