"""Fetches Apache Kafka's jars once per checkout and runs one broker of it as a child process."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
POM = Path(__file__).with_name("pom.xml")
CACHE = ROOT / ".cache" / "kafka-peer"
OLD_CLIENT_POM = Path(__file__).with_name("old-client.xml")
OLD_CLIENT_CACHE = ROOT / ".cache" / "kafka-client-3.9"
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


def old_client_jars() -> str:
    """Class path of the Java client of the 3.9 line alone, which ends transactions the older way.

    Raises `PeerUnavailable`.
    """
    return fetch(OLD_CLIENT_POM, OLD_CLIENT_CACHE)


def fetch(pom: Path, folder: Path) -> str:
    """Copy what a pom names into a folder, once, with Maven. Raises `PeerUnavailable`."""
    java()
    stamp = folder / ".complete"
    if stamp.exists() and stamp.stat().st_mtime >= pom.stat().st_mtime:
        return f"{folder}/*"
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("mvn is not installed, so Apache Kafka's jars cannot be fetched")
    shutil.rmtree(folder, ignore_errors=True)
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(
            [maven, "-q", "-B", "-f", str(pom), *goal],
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
    stamp.touch()
    return f"{folder}/*"


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


def free_port() -> int:
    """A TCP port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class KafkaPeer:
    """One Apache Kafka broker (KRaft, combined mode, 1 GB heap) on loopback; a context manager.

    `settings` are broker properties on top of Kafka's defaults.
    """

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self.settings = settings or {}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        if self.process is None:
            raise RuntimeError("the peer is not started")
        return self.process.pid

    def prepare(self) -> None:
        """Write the configuration and format the data folder, as before a first start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        controller_port = free_port()
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **self.settings,
        }
        lines = [f"{key}={value}\n" for key, value in properties.items()]
        (self.folder / "server.properties").write_text("".join(lines))
        if not (self.folder / "data").exists():
            config = str(self.folder / "server.properties")
            done = run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", config)
            if done.returncode != 0:
                raise PeerUnavailable(f"kafka-storage format failed: {done.stderr[-300:]}")

    def start(self) -> float:
        """Start the broker; returns the seconds from exec until it answers Metadata."""
        command = [java(), "-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-cp", jars(), "kafka.Kafka"]
        with (self.folder / "broker.log").open("ab") as log:
            begun = time.monotonic()
            self.process = subprocess.Popen(
                [*command, str(self.folder / "server.properties")], stdout=log, stderr=log
            )
        wait_ready(self.port, self.process, READY_TIMEOUT_S)
        return time.monotonic() - begun

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if it does not go."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self) -> "KafkaPeer":
        jars()
        self.prepare()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
