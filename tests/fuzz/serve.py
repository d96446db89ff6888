"""A real `oncelog serve` process, raw sockets to it, and what can be seen of it from outside."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from tests.fuzz.peer import Peer
from tests.fuzz.target import Kind, Outcome
from tests.support.broker import BrokerProcess

ANSWER_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 10.0
QUIET_S = 0.3
"""A peer that expects nothing more listens this long for it."""

SERVED_SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "100",
}


class Wire:
    """One TCP connection, used by hand."""

    def __init__(self, port: int, *, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.settimeout(CONNECT_TIMEOUT_S)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def give(self, data: bytes, piece_bytes: int = 1 << 20) -> None:
        """Send; a broker that has closed already is not an error."""
        try:
            for position in range(0, len(data), piece_bytes):
                self.socket.sendall(data[position : position + piece_bytes])
        except (BrokenPipeError, ConnectionResetError):
            pass

    def read(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
        """Up to `count` bytes; fewer when the broker closes. Raises `TimeoutError`."""
        self.socket.settimeout(timeout_s)
        data = bytearray()
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionResetError:
                break
            if not piece:
                break
            data += piece
        return bytes(data)

    def answer(self, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
        """One reply with its size; empty when the broker closed. Raises `TimeoutError`."""
        head = self.read(4, timeout_s)
        if len(head) < 4:
            return head
        return head + self.read(int.from_bytes(head, "big"), timeout_s)

    def is_closed(self, timeout_s: float = ANSWER_TIMEOUT_S) -> bool:
        """Whether the broker closes within the time, having sent nothing more."""
        try:
            return self.read(1, timeout_s) == b""
        except TimeoutError:
            return False

    def close(self) -> None:
        self.socket.close()


class Served:
    """One broker process for bad peers, and the questions that follow each of them."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.process = BrokerProcess(folder, SERVED_SETTINGS | (settings or {}))

    def __enter__(self) -> Served:
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_alive:
            self.process.stop()

    @property
    def port(self) -> int:
        return self.process.port

    @property
    def pid(self) -> int:
        assert self.process.process is not None
        return self.process.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.process is not None and self.process.process.poll() is None

    def connect(self, *, receive_buffer_bytes: int | None = None) -> Wire:
        return Wire(self.port, receive_buffer_bytes=receive_buffer_bytes)

    def errors(self) -> list[str]:
        """Lines of its log that no peer may cause."""
        wrong = (" ERROR ", " CRITICAL ", "Traceback (most recent call last)", "never awaited")
        lines = self.process.log_path.read_text(errors="replace").splitlines()
        return [line for line in lines if any(mark in line for mark in wrong)]

    def resident_bytes(self) -> int | None:
        """Memory in use now, None where the system does not tell."""
        return self._status("VmRSS:")

    def peak_bytes(self) -> int | None:
        """The most memory since the last `forget_peak`."""
        return self._status("VmHWM:")

    def forget_peak(self) -> None:
        """Begin to measure the peak anew."""
        clear = Path(f"/proc/{self.pid}/clear_refs")
        if clear.exists():
            clear.write_text("5")

    def _status(self, name: str) -> int | None:
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        except OSError:
            return None
        found = [line.split() for line in lines if line.startswith(name)]
        return int(found[0][1]) * 1024 if found else None

    def wait_for_memory(self, bytes_max: int, timeout_s: float = 10.0) -> int | None:
        """Memory in use once it is below `bytes_max`, or after the time."""
        end = time.monotonic() + timeout_s
        while True:
            now = self.resident_bytes()
            if now is None or now <= bytes_max or time.monotonic() > end:
                return now
            time.sleep(0.05)


async def settled(wire: Wire) -> Outcome:
    """What became of the request just sent (`Peer` asks through this)."""
    answer = wire.answer()
    return Outcome(Kind.ANSWERED if answer else Kind.CLOSED, answer)


def healthy_peer(wire: Wire) -> Peer:
    """The client without fault, over a socket."""
    return Peer(wire, settled)
