"""`python -m bench.floors`: CPU that a broker cannot go below, whatever it is written in.

Each row does with sockets on loopback and a file in the page cache what a broker must do at least,
and nothing else, in pieces of 1 MB and of 16 KB; the rows alternate, and CPU time of this process
is told as medians, in seconds per GB. The last two rows are one small request and its response, in
microseconds: with blocking calls, and through uvloop as the broker is called.
"""

import asyncio
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import uvloop
from rich.console import Console
from rich.table import Table

from oncelog.core.crc import crc32c

FILE_SIZE = 256 << 20
PIECE_SIZES = (1 << 20, 16 << 10)
REQUEST_SIZE = 200
"""About a Produce of one record of 100 bytes."""
REQUESTS_COUNT = 5000
TURNS_COUNT = 15
ADDRESS = ("127.0.0.1", 0)
Peer = Callable[[tuple[str, int]], None]


def drain(address: tuple[str, int]) -> None:
    """Receive until the other side closes."""
    with socket.create_connection(address) as connection:
        buffer = bytearray(1 << 20)
        while connection.recv_into(buffer):
            pass


def feed(address: tuple[str, int]) -> None:
    """Send until the other side closes."""
    with socket.create_connection(address) as connection:
        data = bytes(1 << 20)
        try:
            while True:
                connection.sendall(data)
        except OSError:
            return


def ask(address: tuple[str, int]) -> None:
    """Send small requests, each after the response to the last, until the other side closes."""
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = bytes(REQUEST_SIZE)
        try:
            connection.sendall(request)
            while connection.recv(REQUEST_SIZE):
                connection.sendall(request)
        except OSError:
            return


@contextmanager
def connected(peer: Peer) -> Iterator[socket.socket]:
    """A connection to a process that does `peer`."""
    with socket.create_server(ADDRESS) as listener:
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=peer, args=(listener.getsockname(),), daemon=True)
        process.start()
        connection, _ = listener.accept()
    with connection:
        yield connection
    process.join()


@dataclass
class Floors:
    """The file, the connections, and how long each way takes."""

    file: int
    taken: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def turn(self, name: str, size: int, work: Callable[[int], None], unit: float) -> None:
        """Do it for the whole file, or for `REQUESTS_COUNT` requests if `size` is theirs."""
        begun = time.process_time_ns()
        work(size)
        spent = time.process_time_ns() - begun
        self.taken.setdefault((name, size), []).append(spent / unit)

    def run(self) -> None:
        """All rows, alternating."""
        memory = memoryview(os.pread(self.file, FILE_SIZE, 0))
        buffer = memoryview(bytearray(max(PIECE_SIZES)))
        with connected(drain) as reader, connected(feed) as writer, connected(ask) as asker:

            def receive(size: int) -> None:
                for _ in range(FILE_SIZE // size):
                    fill(writer, buffer[:size])

            def store(size: int) -> None:
                for at in range(0, FILE_SIZE, size):
                    fill(writer, buffer[:size])
                    crc32c(buffer[:size])
                    os.pwrite(self.file, buffer[:size], at)

            def send(size: int) -> None:
                for at in range(0, FILE_SIZE, size):
                    reader.sendall(memory[at : at + size])

            def read_and_send(size: int) -> None:
                for at in range(0, FILE_SIZE, size):
                    reader.sendall(os.pread(self.file, size, at))

            def send_the_file(size: int) -> None:
                for at in range(0, FILE_SIZE, size):
                    sent = 0
                    while sent < size:
                        sent += os.sendfile(reader.fileno(), self.file, at + sent, size - sent)

            def answer(_: int) -> None:
                for _ in range(REQUESTS_COUNT):
                    asker.sendall(asker.recv(REQUEST_SIZE))

            rows = {
                "receive": receive,
                "receive, CRC-32C, write": store,
                "send": send,
                "read, send": read_and_send,
                "sendfile": send_the_file,
            }
            for _ in range(TURNS_COUNT):
                for name, work in rows.items():
                    for size in PIECE_SIZES:
                        self.turn(name, size, work, FILE_SIZE)
                self.turn("answer", REQUEST_SIZE, answer, REQUESTS_COUNT * 1000)
        for _ in range(TURNS_COUNT):
            with connected(ask) as asker:
                self.turn(
                    "answer, by uvloop", REQUEST_SIZE, by_uvloop(asker), REQUESTS_COUNT * 1000
                )


def fill(connection: socket.socket, buffer: memoryview) -> None:
    """Receive until it is full."""
    received = 0
    while received < len(buffer):
        received += connection.recv_into(buffer[received:])


class Echo(asyncio.Protocol):
    """Answers each request, so many times."""

    def __init__(self, done: "asyncio.Future[None]") -> None:
        self.done = done
        self.left = REQUESTS_COUNT

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)
        self.left -= 1
        if self.left == 0:
            self.done.set_result(None)


def by_uvloop(connection: socket.socket) -> Callable[[int], None]:
    """What answers `REQUESTS_COUNT` requests through a protocol of uvloop's."""

    async def answer() -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        transport, _ = await loop.connect_accepted_socket(lambda: Echo(done), connection)
        await done
        transport.close()

    return lambda _: uvloop.run(answer())


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryFile() as file:
        for _ in range(FILE_SIZE >> 20):
            file.write(os.urandom(1 << 20))
        file.flush()
        floors = Floors(file.fileno())
        floors.run()
    table = Table(title="CPU without a broker")
    for heading in ("work", "of bytes", "median", "least"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    for (name, size), taken in floors.taken.items():
        unit = "us" if size == REQUEST_SIZE else "s/GB"
        digits = 1 if unit == "us" else 3
        median, least = (f"{f(taken):.{digits}f} {unit}" for f in (statistics.median, min))
        table.add_row(name, f"{size:,}", median, least)
    Console().print(table)


if __name__ == "__main__":
    main()
