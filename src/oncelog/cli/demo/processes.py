"""The processes that the demo starts, kills with SIGKILL and starts again.

Each has a log file of its own, whose end is what a person gets to see when something fails.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from oncelog.cli.demo.options import JobOptions

READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
LOG_LINES_SHOWN_MAX = 25


class DemoFailed(RuntimeError):  # noqa: N818 - reads as what happened
    """The demo cannot go on; the text is for the person who started it."""


def log_tail(path: Path) -> str:
    """The last lines of a log."""
    if not path.exists():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN_MAX:])


class ChildProcess:
    """A child that can be started again and again; all its lives write to one log."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command = command
        self.log = log
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in a process group of its own, so that a kill takes what it started too."""
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                self.command, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self.child is None else self.child.poll()

    def kill(self) -> None:
        """SIGKILL to the whole group. Nothing gets to clean up."""
        if self.child is not None and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if it does not go."""
        if self.child is None or self.child.poll() is not None:
            return
        self.child.terminate()
        try:
            self.child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()


class DemoBroker(ChildProcess):
    """`oncelog serve` on a port of its own; its folder and its log are named alike."""

    def __init__(self, folder: Path, settings: Mapping[str, object] = MappingProxyType({})) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self.address = ("127.0.0.1", int(port))
        command = [sys.executable, "-m", "oncelog", "serve"]
        command += ["--data-dir", str(folder), "--listen", self.bootstrap_servers]
        command += [f"--set={key}={value}" for key, value in settings.items()]
        super().__init__(command, folder.with_name(f"{folder.name}.log"))

    def wait_ready(self) -> None:
        """Return once it listens. Raises `DemoFailed`."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.exit_code is not None:
                break
            try:
                socket.create_connection(self.address, timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise DemoFailed(f"the broker did not start:\n{log_tail(self.log)}")


class SparkJob(ChildProcess):
    """The Spark program of `job.py`."""

    def __init__(self, options: JobOptions, folder: Path) -> None:
        command = [sys.executable, "-m", "oncelog.cli.demo.job", options.encode()]
        super().__init__(command, folder / "spark.log")
