"""A proxy in front of a server on loopback, which loses answers and connections on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

CHUNK_BYTES = 65_536


def _never(request: bytes) -> bool:
    return False


class TcpProxy:
    """Passes bytes on between its clients and a server, in the event loop of the test."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.port = 0
        self.connections_count = 0
        """Of all times."""
        self.has_lost = False
        """Whether an answer was dropped."""
        self.mute_count = 0
        """So many of the next connections come about, and nothing is passed on."""
        self._is_fatal: Callable[[bytes], bool] = _never
        self._loses_answers = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._accepts = asyncio.Event()
        self._accepts.set()
        self._passes = asyncio.Event()
        self._passes.set()

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Close all connections, and accept none until `mend`."""
        self._accepts.clear()
        self.drop()

    def lose_answer_to(self, is_fatal: Callable[[bytes], bool]) -> None:
        """Drop the answer to the next request that `is_fatal`, and close all connections.

        No connection is accepted from then on.
        """
        self._is_fatal = is_fatal

    def mend(self) -> None:
        """Accept connections again, and lose nothing."""
        self._is_fatal = _never
        self._loses_answers = False
        self.has_lost = False
        self._accepts.set()

    def hold(self) -> None:
        """Pass nothing on until `pass_on`: connections stay, new ones come about, all are mute."""
        self._passes.clear()

    def pass_on(self) -> None:
        """Pass everything on, also what came meanwhile."""
        self._passes.set()

    def drop(self) -> None:
        """Close all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until either side has closed."""
        self._writers.add(writer)
        try:
            if self.mute_count:
                self.mute_count -= 1
                while await reader.read(CHUNK_BYTES):
                    pass
            elif self._accepts.is_set():
                self.connections_count += 1
                await self._serve(reader, writer)
        except OSError:
            pass  # One side has closed the connection: the other's is closed below.
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.server_port)
        self._writers.add(back)
        try:
            passing = [
                asyncio.create_task(self._pass(reader, back, is_answer=False)),
                asyncio.create_task(self._pass(there, writer, is_answer=True)),
            ]
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
            for task in passing:
                task.cancel()
            await asyncio.gather(*passing, return_exceptions=True)
        finally:
            self._writers.discard(back)
            back.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._passes.wait()
            if is_answer and self._loses_answers:
                self.has_lost = True
                self.cut()
                return
            if not is_answer and self._is_fatal(data):
                self._loses_answers = True
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def tcp_proxy(server_port: int) -> AsyncIterator[TcpProxy]:
    """A proxy that runs while the block does."""
    proxy = TcpProxy(server_port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.drop()
        await asyncio.sleep(0)
