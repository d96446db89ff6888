"""Numbers every moment at which a broker touches a disk or a socket, and ends it at one of them.

A moment lies just before, or just after, one change of the disk or one write to a connection.
`counted_disk` and `counted_network` stand between a broker and those that it is given, simulated or
real ones; how its process ends is the business of who arms the `Moments`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from oncelog.runtime.disk import Disk, DiskFile
from oncelog.runtime.network import Listener, Network, ProtocolFactory

__all__ = ["Moments", "counted_disk", "counted_network"]

Buffer = bytes | bytearray | memoryview

_CHANGES = frozenset(
    {
        "mkdir",
        "rename",
        "remove",
        "remove_tree",
        "sync_dir",
        "write_atomic",
        "set_modified_ms",
    }
)


class Moments:
    """Counts the moments of one process. At the `end_at`-th from now on `end` is called."""

    def __init__(self, end: Callable[[str], None], end_at: int = 0) -> None:
        self.count = 0
        self.end_at = end_at
        self._end = end

    def pass_by(self, what: str) -> None:
        """One more moment has come."""
        self.count += 1
        if self.count == self.end_at:
            self._end(what)

    def around(self, what: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Do something, with a moment before and one after it."""
        self.pass_by(f"before {what}")
        result = act(*args, **options)
        self.pass_by(f"after {what}")
        return result


class _File:
    def __init__(self, inner: DiskFile, moments: Moments) -> None:
        self._inner = inner
        self._moments = moments
        self.path = inner.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def pwrite(self, data: Buffer, position: int) -> None:
        self._moments.around(f"write to {self.path}", self._inner.pwrite, data, position)

    def truncate(self, size: int) -> None:
        self._moments.around(f"truncation of {self.path}", self._inner.truncate, size)

    def fsync(self) -> None:
        self._moments.around(f"fsync of {self.path}", self._inner.fsync)


class _Disk:
    def __init__(self, inner: Disk, moments: Moments) -> None:
        self._inner = inner
        self._moments = moments

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in _CHANGES:
            return partial(self._change, name, found)
        return found

    def _change(self, name: str, act: Callable[..., Any], path: str, *args: Any, **o: Any) -> Any:
        return self._moments.around(f"{name} of {path}", act, path, *args, **o)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return cast(DiskFile, _File(self._inner.open(path, create=create), self._moments))


class _Transport:
    def __init__(self, inner: asyncio.Transport, moments: Moments) -> None:
        self._inner = inner
        self._moments = moments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, data: Buffer) -> None:
        self._moments.around("reply", self._inner.write, data)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self._moments.around("reply", self._inner.writelines, list_of_data)


class _Protocol(asyncio.BufferedProtocol):
    """A connection of the broker whose writes are counted."""

    def __init__(self, inner: asyncio.BufferedProtocol, moments: Moments) -> None:
        self._inner = inner
        self._moments = moments

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        counted = _Transport(cast(asyncio.Transport, transport), self._moments)
        self._inner.connection_made(cast(asyncio.Transport, counted))

    def get_buffer(self, sizehint: int) -> bytes | bytearray | memoryview:
        # The type's two spellings differ by what a memoryview is of.
        return cast(bytearray, self._inner.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _Network:
    def __init__(self, inner: Network, moments: Moments) -> None:
        self._inner = inner
        self._moments = moments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, *, accepts: bool = True
    ) -> Listener:
        def counted() -> asyncio.BaseProtocol:
            inner = cast(asyncio.BufferedProtocol, protocol_factory())
            return _Protocol(inner, self._moments)

        return await self._inner.listen(host, port, counted, accepts=accepts)


def counted_disk(inner: Disk, moments: Moments) -> Disk:
    """The same disk, with the moments around its changes counted."""
    return cast(Disk, _Disk(inner, moments))


def counted_network(inner: Network, moments: Moments) -> Network:
    """The same network, with the moments around what is written to accepted connections."""
    return cast(Network, _Network(inner, moments))
