"""Reads the primitive types of Kafka's messages, one after the other, from bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

__all__ = ["BytesCursor"]

T = TypeVar("T")


class BytesCursor:
    """A position in some bytes. `flexible`: lengths are compact, and structures have tags."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.flexible = False

    def number(self, code: str) -> int:
        """Read a big-endian number by its code of `struct`: b, h, i or q."""
        value: int = struct.unpack_from(f">{code}", self.data, self.at)[0]
        self.at += struct.calcsize(code)
        return value

    def uvarint(self) -> int:
        """Read an unsigned varint."""
        shift = value = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def take(self, size: int) -> bytes:
        """Read so many bytes."""
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self) -> str | None:
        """Read a string, or None."""
        size = self.uvarint() - 1 if self.flexible else self.number("h")
        return None if size < 0 else self.take(size).decode()

    def blob(self) -> bytes | None:
        """Read bytes, or None."""
        size = self.uvarint() - 1 if self.flexible else self.number("i")
        return None if size < 0 else self.take(size)

    def uuid(self) -> UUID:
        """Read 16 bytes."""
        return UUID(bytes=self.take(16))

    def list_of(self, element: Callable[[], T]) -> list[T]:
        """Read an array; a null one is empty."""
        count = self.uvarint() - 1 if self.flexible else self.number("i")
        return [element() for _ in range(max(0, count))]

    def tags(self) -> dict[int, BytesCursor]:
        """Read the tagged fields of a structure; none where it is not flexible."""
        found: dict[int, BytesCursor] = {}
        for _ in range(self.uvarint() if self.flexible else 0):
            number = self.uvarint()
            found[number] = BytesCursor(self.take(self.uvarint()))
            found[number].flexible = True
        return found
