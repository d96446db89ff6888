"""What an outside suite is, what its tests may say, and the brokers that it runs on."""

import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from tests.support.broker import broker_processes
from tests.support.peer.cluster import BrokerCluster
from tests.support.peer.kafka import KafkaPeer, kafka_peers

Verdict = Literal["passed", "failed", "skipped", "unfinished"]
"""`unfinished`: its process, or its own limit, ended it."""
Verdicts = dict[str, Verdict]
Peer = Literal["oncelog", "kafka"]

SUITES: Final = ("librdkafka", "franz-go")
UNAVAILABLE: Final = 2
"""Exit code where a suite or Apache Kafka cannot be had."""
BROKERS_COUNT: Final = 3
START_S_MAX: Final = 300
"""Of Apache Kafka's three, on a machine that has other work."""
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SETTINGS: Final = {
    "default.replication.factor": "3",
    "group.share.min.record.lock.duration.ms": "1000",
    "min.insync.replicas": "1",
    "num.partitions": "4",
    "replica.selector.class": RACK_AWARE,
}
"""Of every broker, whoever made it: those that librdkafka's own cluster for tests has."""


class SuiteUnavailable(Exception):  # noqa: N818 - names a state of the machine
    """The suite cannot be run here; the message says why."""


@dataclass(frozen=True)
class Scenario:
    """Tests that run on one start of the brokers."""

    name: str
    tests: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


class Suite(ABC):
    """Somebody else's tests."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def version(self) -> str:
        """Which release of it."""

    @abstractmethod
    def scenarios(self, only: Sequence[str]) -> list[Scenario]:
        """What is to be run; of these tests alone if any is named."""

    @abstractmethod
    def run(
        self, scenario: Scenario, cluster: BrokerCluster[Any], folder: Path
    ) -> Iterator[Verdicts]:
        """Run them; what they say goes to files in the folder."""


def run_bounded(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], log: Path, timeout_s: float
) -> int | None:
    """Exit code of a command whose output goes to `log`; None if it was killed for its time."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


@contextmanager
def three_brokers(
    peer: Peer, folder: Path, settings: Mapping[str, str]
) -> Iterator[BrokerCluster[Any]]:
    """A cluster on folders below one, all internal topics with three replicas.

    Raises `PeerUnavailable`.
    """
    given = {**SETTINGS, **settings}
    brokers: list[Any]
    if peer == "kafka":
        brokers = [*kafka_peers(folder, BROKERS_COUNT, given)]
        for broker in brokers:
            broker.jvm = ("-Xmx512M", "-XX:TieredStopAtLevel=1")
    else:
        brokers = [*broker_processes(folder, BROKERS_COUNT, given)]
    for number, broker in enumerate(brokers, 1):
        broker.ready_timeout_s = START_S_MAX
        broker.settings = {**broker.settings, "broker.rack": f"RACK{number}"}
    if peer == "kafka":
        with ThreadPoolExecutor(len(brokers)) as pool:
            list(pool.map(KafkaPeer.prepare, brokers))
    cluster = BrokerCluster(brokers)
    try:
        cluster.start()
        yield cluster
    finally:
        # Stopped in order Apache Kafka's last one waits long for a quorum that goes.
        for broker in brokers:
            if broker.process is not None:
                broker.kill()
        shutil.rmtree(folder, ignore_errors=True)
