"""Fetches Apache Kafka's jars once per checkout and runs brokers of it as child processes."""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.support.peer.child import BrokerChild, free_port

ROOT = Path(__file__).resolve().parents[3]
POM = Path(__file__).with_name("pom.xml")
CACHE = ROOT / ".cache" / "kafka-peer"
CLIENT_POM = Path(__file__).with_name("client.xml")
STREAMS_POM = Path(__file__).with_name("streams.xml")
STREAMS_CACHE = ROOT / ".cache" / "streams-peer"
CONNECT_POM = Path(__file__).with_name("connect.xml")
CONNECT_CACHE = ROOT / ".cache" / "connect-peer"
FETCH_TIMEOUT_S = 240
READY_TIMEOUT_S = 60
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class PeerUnavailable(RuntimeError):  # noqa: N818 - a condition to skip on, not a failure
    """Apache Kafka cannot be had here; the text says why."""


def java() -> str:
    """Path of a Java 17+ launcher. Raises `PeerUnavailable`."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise PeerUnavailable("no java on PATH and no JAVA_HOME")
    return found


def jars() -> str:
    """Class path of Kafka's broker, clients and tools, fetched once. Raises `PeerUnavailable`."""
    return fetch(POM, CACHE)


def release(pom: Path = POM) -> str:
    """The version of Apache Kafka that a pom names."""
    (found,) = re.findall(r"<kafka\.version>(.*)</kafka\.version>", pom.read_text())
    return str(found)


def client_jars(version: str) -> str:
    """Class path of an older Java client alone (``3.9.2``). Raises `PeerUnavailable`."""
    folder = ROOT / ".cache" / f"kafka-client-{version}"
    return fetch(CLIENT_POM, folder, f"-Dclient.version={version}")


def streams_jars() -> str:
    """Class path of Kafka Streams. Raises `PeerUnavailable`."""
    return fetch(STREAMS_POM, STREAMS_CACHE)


def connect_jars() -> str:
    """Class path of Kafka Connect with its file connectors. Raises `PeerUnavailable`."""
    return fetch(CONNECT_POM, CONNECT_CACHE)


def fetch(pom: Path, folder: Path, *properties: str) -> str:
    """Copy what a pom names into a folder, once, with Maven. Raises `PeerUnavailable`.

    `properties` are those that the pom leaves open. Tests of another process that need the same
    jars wait.
    """
    java()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / ".complete"
        if not stamp.exists() or stamp.stat().st_mtime < pom.stat().st_mtime:
            _copy(pom, folder, properties)
            stamp.touch()
    return f"{folder}/*"


def _copy(pom: Path, folder: Path, properties: tuple[str, ...]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("mvn is not installed, so the jars cannot be fetched")
    shutil.rmtree(folder, ignore_errors=True)
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(
            [maven, "-q", "-B", "-f", str(pom), *properties, *goal],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"Maven did not answer within {FETCH_TIMEOUT_S} s") from None
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise PeerUnavailable(f"Maven failed: {errors[0][:300] if errors else done.stderr[:300]}")


def run_tool(
    main_class: str, *args: str, timeout_s: int = 60, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of Apache's tools (``kafka.tools.DumpLogSegments``) to its end.

    `text` is what it reads from its standard input.
    """
    # Tools are short, so the second compiler only costs.
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", jars(), main_class, *args]
    return subprocess.run(
        command,
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


class KafkaPeer(BrokerChild):
    """One Apache Kafka broker (KRaft, combined mode, 1 GB heap) on loopback; a context manager.

    `settings` are broker properties on top of Kafka's defaults. `voters` has the port of each
    controller of its cluster by node id; None is a broker that is alone. Internal topics get as
    many replicas as there are brokers for, up to Kafka's three.
    """

    jvm: tuple[str, ...] = ("-Xmx1G", "-Xms1G", "-XX:+UseG1GC")
    ready_timeout_s: float = READY_TIMEOUT_S
    format_options: tuple[str, ...] = ()
    """What the storage tool is told besides, as users of SCRAM."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        node_id: int = 1,
        voters: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(folder)
        self.settings = dict(settings or {})
        self.node_id = node_id
        self.voters = {node_id: free_port()} if voters is None else voters

    def prepare(self) -> None:
        """Write the configuration and format the log directory, as before a first start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        voters = [f"{node_id}@127.0.0.1:{port}" for node_id, port in self.voters.items()]
        own = f"CONTROLLER://127.0.0.1:{self.voters[self.node_id]}"
        factor, min_isr = str(min(3, len(voters))), str(min(2, len(voters)))
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},{own}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": min_isr,
            "share.coordinator.state.topic.replication.factor": factor,
            "share.coordinator.state.topic.min.isr": min_isr,
            **self.settings,
        }
        lines = [f"{key}={value}\n" for key, value in properties.items()]
        (self.folder / "server.properties").write_text("".join(lines))
        if not (self.folder / "data").exists():
            config = str(self.folder / "server.properties")
            command = ("format", "-t", CLUSTER_ID, "-c", config, *self.format_options)
            done = run_tool("kafka.tools.StorageTool", *command)
            if done.returncode != 0:
                raise PeerUnavailable(f"kafka-storage format failed: {done.stderr[-300:]}")

    def start(self) -> float:
        """Start the broker; returns the seconds from exec until it answers Metadata."""
        command = [java(), *self.jvm, "-cp", jars(), "kafka.Kafka"]
        command.append(str(self.folder / "server.properties"))
        return self.launch(command, self.folder / "broker.log", self.ready_timeout_s)

    def stop(self) -> int:
        """SIGTERM; a JVM that takes its time is killed, and that is no failure of a test."""
        with suppress(subprocess.TimeoutExpired):
            super().stop()
        return self.child.wait()

    def __enter__(self) -> Self:
        jars()
        self.prepare()
        self.start()
        return self


def kafka_peers(
    folder: Path,
    count: int,
    settings: Mapping[str, str] | None = None,
    kind: type[KafkaPeer] = KafkaPeer,
) -> list[KafkaPeer]:
    """The brokers of one cluster of Apache Kafka, with the ids 1, 2, 3 and a folder each."""
    voters = {node_id: free_port() for node_id in range(1, count + 1)}
    return [kind(folder / str(node_id), settings, node_id, voters) for node_id in voters]
