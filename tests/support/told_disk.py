"""A disk that tells of each write to a file, before and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from oncelog.runtime.disk import Disk, DiskFile

__all__ = ["told_disk"]

Buffer = bytes | bytearray | memoryview
Tell = Callable[[str, bytes, bool], None]
"""Gets path, data, and whether the write is still to come."""


class _File:
    def __init__(self, inner: DiskFile, tell: Tell) -> None:
        self._inner = inner
        self._tell = tell
        self.path = inner.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def pwrite(self, data: Buffer, position: int) -> None:
        self._tell(self.path, bytes(data), True)
        self._inner.pwrite(data, position)
        self._tell(self.path, bytes(data), False)


class _Disk:
    def __init__(self, inner: Disk, tell: Tell) -> None:
        self._inner = inner
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return cast(DiskFile, _File(self._inner.open(path, create=create), self._tell))


def told_disk(inner: Disk, tell: Tell) -> Disk:
    """The same disk, whose writes are told."""
    return cast(Disk, _Disk(inner, tell))
