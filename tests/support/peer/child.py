"""A broker as a child process on loopback: its port, its start, its end."""

import fcntl
import os
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from itertools import chain
from pathlib import Path
from types import TracebackType

STOP_TIMEOUT_S = 20
PORTS = range(15_000, 30_000)
"""Below those that Linux chooses itself (`ip_local_port_range`)."""


def free_port() -> int:
    """A free TCP port of loopback that no other caller on this machine gets for a long time.

    The caller binds it later: what the kernel would choose could be another test's by then, whose
    broker would answer in place of the caller's. The kernel takes none of these for connections.
    """
    turn = Path(tempfile.gettempdir()) / f"oncelog-next-port-{os.getuid()}"
    with turn.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        last = int(file.read() or PORTS.start)
        for port in chain(PORTS[last + 1 - PORTS.start :], PORTS):
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            file.truncate(0)
            file.write(str(port))
            return port
    raise RuntimeError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free")


class BrokerChild(ABC):
    """One broker on a port that survives its restarts. A subclass says how to start it."""

    stop_timeout_s: float = STOP_TIMEOUT_S

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def child(self) -> "subprocess.Popen[bytes]":
        """The process of its present life."""
        if self.process is None:
            raise RuntimeError("the broker is not started")
        return self.process

    @property
    def pid(self) -> int:
        """Process id."""
        return self.child.pid

    @abstractmethod
    def start(self) -> object:
        """Begin a life; returns once it answers Metadata."""

    def launch(
        self, command: list[str], log: Path, timeout_s: float, env: dict[str, str] | None = None
    ) -> float:
        """Start it; returns the seconds from exec until it answers Metadata."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            begun = time.monotonic()
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=env)
        wait_ready(self.port, self.process, timeout_s)
        return time.monotonic() - begun

    def kill(self) -> None:
        """Send SIGKILL: bytes that were not written yet are lost."""
        self.child.kill()
        self.child.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code.

        One that does not go is killed, and raises `subprocess.TimeoutExpired`.
        """
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            return self.child.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()


# Metadata v1 for all topics: api key 3, correlation id 7, null client id, null topic array.
METADATA_REQUEST = bytes.fromhex("0000000e 0003 0001 00000007 ffff ffffffff".replace(" ", ""))


def wait_ready(port: int, process: "subprocess.Popen[bytes]", timeout_s: float) -> None:
    """Return once the broker answers Metadata with a broker in it; raises on its death."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended with code {process.returncode} while starting")
        if answers_metadata(port):
            return
        time.sleep(0.005)
    raise RuntimeError(f"no answer on port {port} within {timeout_s} s")


def answers_metadata(port: int, brokers_count_min: int = 1) -> bool:
    """Whether a Metadata request is answered with a list of so many brokers."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(METADATA_REQUEST)
            answer = b""
            while len(answer) < 12:
                chunk = connection.recv(4096)
                if not chunk:
                    return False
                answer += chunk
            return int.from_bytes(answer[8:12], "big") >= brokers_count_min
    except OSError:
        return False
