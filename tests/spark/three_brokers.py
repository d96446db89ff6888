"""Three brokers of one cluster, of which the one that has a role is killed under a query.

A fault names the role (`Victim.LEADER`, `COORDINATOR`, `CONTROLLER`); who has it is asked when the
fault strikes. The broker stays away until the query has committed a micro-batch without it, or for
`AWAY_S_MAX`, and no fault strikes before all replicas are in sync again: two brokers away at once
would be one too many for `min.insync.replicas`.
"""

import asyncio
import fcntl
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncelog.cli.demo.brokers import all_in_sync, holder_of
from oncelog.cli.demo.plan import KillTarget
from oncelog.core.ids import TopicPartition
from oncelog.spark.progress import read_progress
from tests.support.broker import broker_processes
from tests.support.peer import kafka_peers
from tests.support.peer.cluster import BrokerCluster

BROKERS_COUNT = 3
SYNC_TIMEOUT_S = 120
AWAY_S_MAX = 10.0
"""A fault of the next batch may wait for the broker, and hold that batch up."""
LOOK_S = 0.05
KAFKA_SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""Three replicas as ours have, and a death that is noticed as soon as ours is."""

DESCRIBE_QUORUM = b"".join(
    [
        bytes.fromhex("0037 0000 00000007 ffff 00".replace(" ", "")),
        bytes.fromhex("02 13".replace(" ", "")) + b"__cluster_metadata",
        bytes.fromhex("02 00000000 00 00 00".replace(" ", "")),
    ]
)
"""DescribeQuorum v0 for the only partition of Apache Kafka's metadata, with its header."""
QUORUM_LEADER_AT = 34
"""Of its answer, behind correlation id, error, name of the topic, partition and its error."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Kills the broker that has a role. Picklable."""

    bootstrap_servers: str
    output: TopicPartition
    """The partition whose leader may be killed."""
    transactional_id: str
    pids: str
    """A file with the process of each broker by its id."""
    is_kafka: bool = False
    """Apache Kafka's metadata name any broker as the controller."""

    def kill(self, target: KillTarget, send: Callable[[int, int], None] = os.kill) -> None:
        """Wait until all replicas are in sync, and send SIGKILL to the one that is the target.

        In a thread, as a loop may run in the caller's. It returns when the signal is sent.
        """
        sent = Future[None]()
        threading.Thread(target=self._kill, args=(target, send, sent), daemon=True).start()
        sent.result()

    def _kill(
        self, target: KillTarget, send: Callable[[int, int], None], sent: Future[None]
    ) -> None:
        with Path(self.pids).with_suffix(".lock").open("w") as lock:
            # The fault between two batches strikes beside the query, and that of the next batch
            # may have come by then.
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                self.wait_whole()
                send(self._holder(target), signal.SIGKILL)
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                sent.set_exception(error)
                return
            sent.set_result(None)
            # The others learn of the death by and by; until then all looks whole.
            self.wait_whole(is_whole=False)

    def _holder(self, target: KillTarget) -> int:
        """The process of the broker that has the role now."""
        if self.is_kafka and target is KillTarget.CONTROLLER:
            broker_id = quorum_leader(self.bootstrap_servers)
        else:
            servers = self.bootstrap_servers
            asked = holder_of(servers, target, self.output, self.transactional_id)
            broker_id = asyncio.run(asked)
        return int(json.loads(Path(self.pids).read_text())[str(broker_id)])

    def wait_whole(self, *, is_whole: bool = True) -> None:
        """Return once all replicas of all partitions are in sync, or no longer are.

        Raises `TimeoutError`.
        """
        deadline_s = time.monotonic() + SYNC_TIMEOUT_S
        while asyncio.run(all_in_sync(self.bootstrap_servers)) != is_whole:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not all replicas are in sync after {SYNC_TIMEOUT_S} s")
            time.sleep(LOOK_S)


def quorum_leader(bootstrap_servers: str) -> int:
    """Return the node that is Apache Kafka's active controller now. Raises `TimeoutError`."""
    deadline_s = time.monotonic() + SYNC_TIMEOUT_S
    while time.monotonic() < deadline_s:
        for server in bootstrap_servers.split(","):
            with suppress(OSError):
                leader = _quorum_leader_by(server)
                if leader >= 0:
                    return leader
    raise TimeoutError(f"no node is the active controller after {SYNC_TIMEOUT_S} s")


def _quorum_leader_by(server: str) -> int:
    host, port = server.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(len(DESCRIBE_QUORUM).to_bytes(4, "big") + DESCRIBE_QUORUM)
        stream = connection.makefile("rb")
        answer = stream.read(int.from_bytes(stream.read(4), "big"))
    return int.from_bytes(answer[QUORUM_LEADER_AT : QUORUM_LEADER_AT + 4], "big", signed=True)


class ClusterKeeper:
    """Starts a broker again that a fault has killed, once a batch was committed without it.

    Or after `AWAY_S_MAX`.
    """

    def __init__(self, cluster: BrokerCluster[Any], folder: Path) -> None:
        self.cluster = cluster
        self.pid_file = folder / "brokers.json"
        self.killed: list[int] = []
        """Brokers that were started again, in order."""
        self._progress: Path | None = None
        self._down: dict[int, tuple[int, float]] = {}
        """How many batches were committed when it died, and the monotonic time of that."""
        self._is_over = threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def follow(self, progress: Path) -> None:
        """The file in which the query notes its steps."""
        self._progress = progress

    def roles(self, output: TopicPartition, transactional_id: str, *, is_kafka: bool) -> Roles:
        servers = self.cluster.bootstrap_servers
        return Roles(servers, output, transactional_id, str(self.pid_file), is_kafka)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _write(self) -> None:
        pids = {broker_id: broker.pid for broker_id, broker in self.cluster.brokers.items()}
        fresh = self.pid_file.with_suffix(".new")
        fresh.write_text(json.dumps(pids))
        fresh.replace(self.pid_file)

    def _keep(self) -> None:
        while not self._is_over.wait(LOOK_S):
            for broker_id, broker in self.cluster.brokers.items():
                if broker.child.poll() is None:
                    continue
                now = (self._committed_count(), time.monotonic())
                count, at_s = self._down.setdefault(broker_id, now)
                if now[0] > count or now[1] - at_s > AWAY_S_MAX:
                    broker.start()
                    self.killed.append(broker_id)
                    del self._down[broker_id]
                    self._write()

    def _committed_count(self) -> int:
        if self._progress is None:
            return 0
        return sum(one["step"] == "txn_ended" for one in read_progress(str(self._progress)))


@contextmanager
def three_kept(folder: Path, *, is_kafka: bool = False) -> Iterator[ClusterKeeper]:
    """Three fresh brokers. Raises `PeerUnavailable` where Apache Kafka cannot be had."""
    if is_kafka:
        brokers: list[Any] = [*kafka_peers(folder, BROKERS_COUNT, KAFKA_SETTINGS)]
        for broker in brokers:
            broker.prepare()
    else:
        brokers = [*broker_processes(folder, BROKERS_COUNT)]
    with BrokerCluster(brokers) as cluster:
        keeper = ClusterKeeper(cluster, folder)
        try:
            yield keeper
        finally:
            keeper.close()
