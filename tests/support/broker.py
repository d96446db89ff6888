"""A real `oncelog serve` process that tests start, kill with SIGKILL and start again."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from bench.peer.kafka import free_port, wait_ready

READY_TIMEOUT_S = 30
STOP_TIMEOUT_S = 20


class BrokerProcess:
    """One broker on loopback, on a port and a folder that survive its restarts."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self.settings = settings or {}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        return self.folder.with_name(self.folder.name + ".log")

    def start(self) -> None:
        command = [sys.executable, "-m", "oncelog", "serve"]
        command += ["--data-dir", str(self.folder), "--listen", self.bootstrap_servers]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            wait_ready(self.port, self.process, READY_TIMEOUT_S)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; its log ends:\n{self.log_tail()}") from None

    def log_tail(self) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-30:])

    def kill(self) -> None:
        """SIGKILL: what was not yet written is gone."""
        if self.process is None:
            raise RuntimeError("the broker is not started")
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        if self.process is None:
            raise RuntimeError("the broker is not started")
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def __enter__(self) -> "BrokerProcess":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
