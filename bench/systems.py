"""The two systems under measurement, behind one face: start, stop, memory, CPU.

Oncelog is measured as a user gets it: the base install of this checkout in an environment of its
own,
without the development tools (some of which libraries import when they find them).
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from bench.peer.child import BrokerChild
from bench.peer.kafka import ROOT, KafkaPeer

BASE_ENVIRONMENT = ROOT / ".cache" / "base-install"
READY_TIMEOUT_S = 60


class System(Protocol):
    """A broker under measurement. `settings` are broker properties beyond the defaults."""

    name: str

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> float:
        """Start it; returns the seconds from exec to its first answer to Metadata."""

    def stop(self) -> object: ...


class Oncelog(BrokerChild):
    """`oncelog serve` from the base install."""

    name = "oncelog"

    def start(self) -> float:
        command = [str(BASE_ENVIRONMENT / "bin" / "oncelog"), "serve"]
        command += ["--data-dir", str(self.folder / "data"), "--listen", self.bootstrap_servers]
        return self.launch(command, self.folder / "broker.log", READY_TIMEOUT_S)


class Kafka(KafkaPeer):
    """Apache Kafka as `peer` runs it; its folder is formatted before the clock starts."""

    name = "kafka"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.prepare()


def install_base() -> None:
    """The base install of this checkout, made anew so that it is the tested build."""
    shutil.rmtree(BASE_ENVIRONMENT, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(BASE_ENVIRONMENT)], check=True)
    pip = [str(BASE_ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", str(ROOT)], check=True)


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB (10^6 bytes), as `ps` tells it."""
    done = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    return int(done.stdout) * 1024 / 1e6


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds that a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / 100
