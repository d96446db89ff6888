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
from tests.support.outside.secured import Ways, add_user, secure
from tests.support.peer.cluster import BrokerCluster
from tests.support.peer.kafka import KafkaPeer, kafka_peers

Verdict = Literal["passed", "failed", "skipped", "unfinished"]
"""`unfinished`: its process, or its own limit, ended it."""
Verdicts = dict[str, Verdict]
Peer = Literal["oncelog", "kafka"]
Security = Literal["none", "needed", "all"]
"""Which tests run on brokers with an authorizer, TLS and SASL: those that need it, or all of them.

With "none" there is no such broker, and those that need one fail or skip themselves."""

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
    is_secured: bool = False
    """Whether its brokers have an authorizer, and listeners with TLS and SASL."""
    prefix: str = ""
    """Of its tests' names, where another scenario has tests of the same names."""


@dataclass(frozen=True)
class Running:
    """Three brokers that run."""

    cluster: BrokerCluster[Any]
    ways: Ways | None
    """Into brokers that are secured."""


class Suite(ABC):
    """Somebody else's tests."""

    name: ClassVar[str]

    def __init__(self, security: Security) -> None:
        self.security = security

    @property
    @abstractmethod
    def version(self) -> str:
        """Which release of it."""

    @abstractmethod
    def scenarios(self, only: Sequence[str]) -> list[Scenario]:
        """What is to be run; of these tests alone if any is named."""

    @abstractmethod
    def run(self, scenario: Scenario, running: Running, folder: Path) -> Iterator[Verdicts]:
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
def three_brokers(peer: Peer, folder: Path, scenario: Scenario) -> Iterator[Running]:
    """A cluster on folders below one, all internal topics with three replicas.

    Raises `PeerUnavailable`.
    """
    given = {**SETTINGS, **scenario.settings}
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
    ways = None
    if scenario.is_secured:
        ways = secure(brokers, folder / "certificates")
        for broker, own in zip(brokers, ways.settings, strict=True):
            broker.settings |= own
    if peer == "kafka":
        with ThreadPoolExecutor(len(brokers)) as pool:
            list(pool.map(KafkaPeer.prepare, brokers))
    cluster = BrokerCluster(brokers)
    try:
        cluster.start()
        if ways is not None:
            add_user(ways)
        yield Running(cluster, ways)
    finally:
        # Stopped in order Apache Kafka's last one waits long for a quorum that goes.
        for broker in brokers:
            if broker.process is not None:
                broker.kill()
        shutil.rmtree(folder, ignore_errors=True)
