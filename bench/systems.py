"""The systems under measurement, behind one face: start, stop, and where their clients connect.

Oncelog is measured as a user gets it: the base install of a checkout in an environment of its own,
without the development tools (some of which libraries import when they find them). Apache Kafka
runs as its own start script runs it, on the same disk. librdkafka's mock cluster lives in this
process and answers from memory: no broker can be faster for that client.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Protocol

from confluent_kafka import Producer

import oncelog
from tests.support.peer.child import BrokerChild
from tests.support.peer.kafka import ROOT, KafkaPeer

ENVIRONMENTS = ROOT / ".cache" / "bench"
OUR_SOURCES = Path(oncelog.__file__).parents[1]
"""Where this interpreter finds the package."""
READY_TIMEOUT_S = 300
STOP_TIMEOUT_S = 300
"""Far beyond what a row takes; those with the most files need minutes with a cold disk."""

KAFKA_JVM = (
    "-server",
    "-Xms1G",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""What Apache's kafka-server-start.sh and kafka-run-class.sh give a broker."""

KAFKA_SETTINGS = {
    # As in the server.properties that Apache ships; the compiled-in default would add 3 s to the
    # first rebalance of a group, in both systems.
    "group.initial.rebalance.delay.ms": "0",
    # The system sizes the buffer, as it does for Oncelog's sockets; the default of 100 KB is small
    # for requests of 1 MB.
    "socket.receive.buffer.bytes": "-1",
    # Files of a deleted topic go at once in both systems, so that both brokers write into
    # memory that was just freed. The default keeps them for a minute.
    "log.segment.delete.delay.ms": "500",
}
ONCELOG_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "500",
}
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
ClientSettings = Mapping[str, str | int]
NO_CLIENT_SETTINGS: ClientSettings = MappingProxyType({})


class Endpoint(Protocol):
    """Something that a Kafka client can connect to."""

    @property
    def name(self) -> str: ...

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def client_settings(self) -> ClientSettings:
        """What librdkafka needs beside the address."""

    @property
    def folder(self) -> Path | None:
        """Where it keeps its files; None for one that keeps none."""


class System(Endpoint, Protocol):
    """A broker under measurement, in a process of its own."""

    @property
    def folder(self) -> Path: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> float:
        """Start it; returns the seconds from exec to its first answer to Metadata."""

    def stop(self) -> object: ...

    def kill(self) -> None:
        """SIGKILL."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Oncelog(BrokerChild):
    """`oncelog serve` from the base install of a checkout."""

    stop_timeout_s = STOP_TIMEOUT_S
    client_settings: ClientSettings = NO_CLIENT_SETTINGS

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] = NO_SETTINGS,
        name: str = "oncelog",
    ) -> None:
        super().__init__(folder)
        self.name = name
        self.settings = ONCELOG_SETTINGS | dict(settings)

    def command(self) -> list[str]:
        """What starts it, before its arguments."""
        return [str(ENVIRONMENTS / self.name / "bin" / "oncelog")]

    def environment(self) -> dict[str, str]:
        """The variables that it sees."""
        return clean_environment()

    def start(self) -> float:
        command = [*self.command(), "serve", "--data-dir", str(self.folder / "data")]
        if "listeners" not in self.settings:
            command += ["--listen", self.bootstrap_servers]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        log = self.folder / "broker.log"
        return self.launch(command, log, READY_TIMEOUT_S, self.environment())


class FromSources(Oncelog):
    """`oncelog serve` from a folder of sources."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] = NO_SETTINGS,
        name: str = "oncelog",
        sources: Path = OUR_SOURCES,
    ) -> None:
        super().__init__(folder, settings, name)
        self._sources = sources

    def command(self) -> list[str]:
        return [sys.executable, "-m", "oncelog"]

    def environment(self) -> dict[str, str]:
        return environment_of(self._sources)


class Kafka(KafkaPeer):
    """Apache Kafka; its folder is formatted before the clock starts."""

    name = "kafka"
    client_settings: ClientSettings = NO_CLIENT_SETTINGS
    jvm = KAFKA_JVM
    ready_timeout_s = READY_TIMEOUT_S
    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        node_id: int = 1,
        voters: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(folder, KAFKA_SETTINGS | dict(settings or {}), node_id, voters)
        self.prepare()


class Mock:
    """librdkafka's in-memory cluster of one broker, which lives as long as this object."""

    name = "client alone"
    client_settings = NO_CLIENT_SETTINGS
    folder = None

    def __init__(self) -> None:
        self._home = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._home.list_topics(timeout=READY_TIMEOUT_S).brokers.values()
        self.bootstrap_servers = f"{broker.host}:{broker.port}"


def clean_environment() -> dict[str, str]:
    """The environment of this process without what would lead a broker to another checkout."""
    return {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }


def environment_of(sources: Path) -> dict[str, str]:
    """The environment in which these sources run."""
    return clean_environment() | {"PYTHONPATH": str(sources)}


def install(checkout: Path, name: str) -> None:
    """The base install of a checkout, so that what is measured is its present code.

    The environment is kept while the dependencies stay the same; the package is always built anew,
    from a copy, because a `build` folder in the checkout could hold modules that are gone.
    """
    environment = ENVIRONMENTS / name
    python = str(environment / "bin" / "python")
    stamp = environment / "pyproject.toml"
    wanted = (checkout / "pyproject.toml").read_text()
    fresh = not stamp.exists() or stamp.read_text() != wanted
    if fresh:
        shutil.rmtree(environment, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as folder:
        copy = Path(folder) / "checkout"
        ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
        shutil.copytree(checkout / "src", copy / "src", ignore=ignored)
        for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
            if (checkout / file).exists():  # An older checkout may do without one.
                shutil.copy(checkout / file, copy / file)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if not fresh:
            pip += ["--no-deps", "--force-reinstall"]
        subprocess.run([*pip, str(copy)], check=True, env=clean_environment())
    stamp.write_text(wanted)
