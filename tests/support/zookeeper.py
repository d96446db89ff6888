"""Real ZooKeeper servers on loopback: one, or an ensemble of three, as child processes.

Their jars come from Maven Central, once per checkout. Where they cannot be had, `server_jars`
raises `PeerUnavailable` with the reason, and `fetched` skips the test with it.

Time is counted in short ticks, so that a session may be as short as 400 ms. Nothing is synced to
the disk: a killed process loses nothing of what it wrote, and no test takes a machine's power.
"""

from __future__ import annotations

import atexit
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.certificates import Authority
from tests.support.peer.child import BrokerChild, free_port
from tests.support.peer.kafka import ROOT, PeerUnavailable, fetch, java

POM = Path(__file__).parent / "peer" / "zookeeper.xml"
CACHE = ROOT / ".cache" / "zookeeper-peer"
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JVM = (
    "-Xmx128m",
    "-Xms16m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=256",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
TICK_MS = 200
SESSION_MS_MIN, SESSION_MS_MAX = 2 * TICK_MS, 60_000
SYNC_TICKS = 10
"""How long a server of an ensemble may be silent before the others go on without it."""
READY_TIMEOUT_S = 60
ENSEMBLE_COUNT = 3

S = TypeVar("S", "ZooKeeperServer", "SecureServer", "Ensemble")


def server_jars() -> str:
    """Class path of a ZooKeeper server, fetched once. Raises `PeerUnavailable`."""
    return fetch(POM, CACHE)


def fetched() -> None:
    """Skip the test, with the reason, where a ZooKeeper server cannot be had."""
    try:
        server_jars()
    except PeerUnavailable as reason:
        pytest.skip(f"no ZooKeeper: {reason}")


class ZooKeeperServer(BrokerChild):
    """One server: alone, or the one numbered `server_id` of an ensemble.

    `members` are the lines of the configuration that name all servers of the ensemble.
    """

    def __init__(self, folder: Path, server_id: int = 1, members: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        self.server_id = server_id
        self.members = members
        self.settings: dict[str, object] = {}
        """Beside those that all have."""

    def start(self) -> float:
        """Start it on the data of its folder; returns the seconds until it serves."""
        self.begin()
        return self.wait_serving()

    def begin(self) -> None:
        """Start the process. A server of an ensemble serves once there is a majority."""
        settings = {
            "dataDir": self.folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": TICK_MS,
            "initLimit": 100,
            "syncLimit": SYNC_TICKS,
            "minSessionTimeout": SESSION_MS_MIN,
            "maxSessionTimeout": SESSION_MS_MAX,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            **self.settings,
        }
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        lines = [*(f"{key}={value}" for key, value in settings.items()), *self.members, ""]
        (self.folder / "zoo.cfg").write_text("\n".join(lines))
        if self.members:
            (self.folder / "data" / "myid").write_text(f"{self.server_id}\n")
        command = [java(), *JVM, "-cp", server_jars(), MAIN, str(self.folder / "zoo.cfg")]
        with (self.folder / "server.log").open("ab") as output:
            self.begun_s = time.monotonic()
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def wait_serving(self) -> float:
        """Return once it serves: the seconds since its start. Raises on its death."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if self.child.poll() is not None:
                said = (self.folder / "server.log").read_text()[-2000:]
                raise RuntimeError(f"ZooKeeper ended with code {self.child.returncode}: {said}")
            if self.mode() is not None:
                return time.monotonic() - self.begun_s
            time.sleep(0.02)
        raise RuntimeError(f"ZooKeeper does not serve after {READY_TIMEOUT_S} s")

    def mode(self) -> str | None:
        """``standalone``, ``leader`` or ``follower``; None while it does not serve."""
        for line in self._srvr().splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return None

    def _srvr(self) -> str:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
                return answer.decode()
        except OSError:
            return ""

    def pause(self) -> None:
        """SIGSTOP: its connections remain, and nothing is answered."""
        self.child.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT, the opposite of `pause`."""
        self.child.send_signal(signal.SIGCONT)

    def restart(self) -> float:
        """SIGKILL, and a new start on the same data."""
        self.kill()
        return self.start()

    def lose_data(self) -> None:
        """Remove all it has stored; it must not run."""
        shutil.rmtree(self.folder / "data")

    def stop(self) -> int:
        """End it at once, also when it is paused: there is nothing to close."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.kill()
        return self.child.returncode


class SecureServer(ZooKeeperServer):
    """One server alone with a port for TLS besides, by certificates of an authority of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.secure_port = free_port()
        self.authority = Authority.make()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "authority.pem").write_text(self.authority.pem)
        own = self.authority.sign("zookeeper", "127.0.0.1").write(folder / "server.pem")
        self.settings = {
            "secureClientPort": self.secure_port,
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": own,
            "ssl.trustStore.location": folder / "authority.pem",
        }

    def client_settings(self) -> dict[str, str]:
        """Those of a broker that shows a certificate which the server knows."""
        keystore = self.authority.sign("broker").write(self.folder / "client.pem", "key-geheim")
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": keystore,
            "zookeeper.ssl.keystore.password": "key-geheim",
            "zookeeper.ssl.truststore.location": str(self.folder / "authority.pem"),
        }


class Ensemble:
    """Three servers; what a majority of them has is stored."""

    def __init__(self, folder: Path) -> None:
        ports = [(free_port(), free_port()) for _ in range(ENSEMBLE_COUNT)]
        members = tuple(
            f"server.{number}=127.0.0.1:{peer}:{election}"
            for number, (peer, election) in enumerate(ports, 1)
        )
        self.servers = [
            ZooKeeperServer(folder / f"server-{number}", number, members)
            for number in range(1, ENSEMBLE_COUNT + 1)
        ]

    @property
    def hosts(self) -> str:
        """``host:port`` of all, separated by commas."""
        return ",".join(server.bootstrap_servers for server in self.servers)

    def start(self) -> float:
        """Start all; returns the seconds until all serve."""
        for server in self.servers:
            server.begin()
        return max(server.wait_serving() for server in self.servers)

    def leader(self) -> ZooKeeperServer:
        """The server that leads. Waits until there is one."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            for server in self.servers:
                if server.child.poll() is None and server.mode() == "leader":
                    return server
            time.sleep(0.02)
        raise RuntimeError("the ensemble has no leader")

    def followers(self) -> list[ZooKeeperServer]:
        """The servers that do not lead."""
        leader = self.leader()
        return [server for server in self.servers if server is not leader]

    def move_leader(self) -> ZooKeeperServer:
        """Kill the leader, wait for another, and start the old one again as its follower."""
        old = self.leader()
        old.kill()
        leader = self.leader()
        old.start()
        return leader

    def stop(self) -> None:
        """End all that run."""
        for server in self.servers:
            server.stop()


def one_server() -> AbstractContextManager[ZooKeeperServer]:
    """A server alone, for a test that takes its data; all others have the `shared_server`."""
    return _running(ZooKeeperServer)


def secure_server() -> AbstractContextManager[SecureServer]:
    """A server that is reached by TLS as well."""
    return _running(SecureServer)


def ensemble() -> AbstractContextManager[Ensemble]:
    """Three servers."""
    return _running(Ensemble)


@contextmanager
def _running(make: Callable[[Path], S]) -> Iterator[S]:
    """What runs in a folder that is removed after it."""
    fetched()
    with tempfile.TemporaryDirectory(prefix="oncelog-zookeeper-") as folder:
        servers = make(Path(folder))
        try:
            servers.start()
            yield servers
        finally:
            servers.stop()


_shared = ExitStack()
_numbers = count(1)


@cache
def shared_server() -> ZooKeeperServer:
    """The one server of all tests of this process that take none of its data.

    They may restart it, or stop it for a while.
    """
    atexit.register(_shared.close)
    return _shared.enter_context(one_server())


def chroot() -> str:
    """A ``host:port/chroot`` of the shared server that no other test has."""
    return f"{shared_server().bootstrap_servers}/oncelog/{next(_numbers)}"
