"""A broker as a child process on loopback: its port, its start, its end."""

import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

STOP_TIMEOUT_S = 20


def free_port() -> int:
    """A TCP port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class BrokerChild:
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


def answers_metadata(port: int) -> bool:
    """Whether a Metadata request is answered with a non-empty broker list."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(METADATA_REQUEST)
            answer = b""
            while len(answer) < 12:
                chunk = connection.recv(4096)
                if not chunk:
                    return False
                answer += chunk
            return int.from_bytes(answer[8:12], "big") > 0
    except OSError:
        return False
