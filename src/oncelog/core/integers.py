"""`integers`: a `struct.Struct` that is typed to hold only integers.

The methods of `Struct` return `Any`. Nearly all of Kafka's layouts have only integers, so codecs
and indexes create their structs here, and the values that they read are typed.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Protocol

__all__ = ["Integers", "integers"]

_Readable = bytes | bytearray | memoryview


class Integers(Protocol):
    """The methods of a `Struct` all of whose fields are integers (or booleans)."""

    @property
    def format(self) -> str:
        """The layout that was passed to `integers`."""

    @property
    def size(self) -> int:
        """Bytes."""

    def pack(self, *values: int) -> bytes:
        """The values as bytes."""

    def pack_into(self, buffer: bytearray | memoryview, offset: int, *values: int) -> None:
        """Write the values at `offset`."""

    def unpack(self, buffer: _Readable, /) -> tuple[int, ...]:
        """The values of a buffer of exactly `size` bytes."""

    def unpack_from(self, buffer: _Readable, offset: int = 0) -> tuple[int, ...]:
        """The values at `offset`. Raises `struct.error` where the buffer ends before them."""

    def iter_unpack(self, buffer: _Readable, /) -> Iterator[tuple[int, ...]]:
        """Yield the values of each entry in turn."""


def integers(layout: str) -> Integers:
    """A struct by its layout, which must not name bytes, characters or floating-point numbers."""
    return Struct(layout)
