"""Kafka Connect with exactly-once sources: lines of a file are in the topic once, though it dies.

For `make test-full`: Maven fetches the jars; where it cannot, the test is skipped with the reason.
"""

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from oncelog import NewTopic, TopicPartition, sync
from tests.support import frameworks
from tests.support.broker import BrokerProcess
from tests.support.interop import wait_until
from tests.support.java_program import JavaProgram
from tests.support.peer import PeerUnavailable, connect_jars
from tests.support.peer.child import free_port

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(400)]

MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
LINES_AT_ONCE = 20
LINES_BEFORE_A_KILL = 400
KILLS = 2
TIMEOUT_S = 90
SETTINGS = {
    # The dead are noticed in test time.
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
SOURCE = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "exactly.once.support": "required",
    # So that a kill meets an open transaction.
    "transaction.boundary": "interval",
    "transaction.boundary.interval.ms": "400",
}
SINK = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector"}


@pytest.fixture(scope="module")
def class_path() -> str:
    try:
        return connect_jars()
    except PeerUnavailable as reason:
        pytest.skip(f"Kafka Connect cannot be had: {reason}")


class Connect:
    """Workers of one Connect cluster, one after the other, and its REST interface."""

    def __init__(self, folder: Path, class_path: str, bootstrap_servers: str) -> None:
        self._folder, self._class_path = folder, class_path
        self._address = f"http://127.0.0.1:{free_port()}"
        self._number = 0
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "connect",
            "exactly.once.source.support": "enabled",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "listeners": self._address,
            "offset.flush.interval.ms": "500",
            "offset.storage.partitions": "1",
            "plugin.discovery": "service_load",
            "scheduled.rebalance.max.delay.ms": "0",
            "session.timeout.ms": "2000",
            "heartbeat.interval.ms": "300",
            "status.storage.partitions": "1",
            "consumer.isolation.level": "read_committed",
        }
        for name in ("offset", "config", "status"):
            settings[f"{name}.storage.topic"] = f"connect-{name}s"
            settings[f"{name}.storage.replication.factor"] = "1"
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        (folder / "worker.properties").write_text("".join(lines))

    def worker(self) -> JavaProgram:
        """Started."""
        self._number += 1
        log = self._folder / f"worker-{self._number}.log"
        return JavaProgram(self._class_path, MAIN, str(self._folder / "worker.properties"), log=log)

    def ask(self, path: str, config: dict[str, str] | None = None) -> dict[str, object] | None:
        """The answer to GET, or to PUT of a connector's config; None while there is none."""
        request = urllib.request.Request(self._address + path)
        if config is not None:
            request.data = json.dumps(config).encode()
            request.add_header("Content-Type", "application/json")
            request.method = "PUT"
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                found: dict[str, object] = json.load(answer)
                return found
        except (urllib.error.URLError, OSError):
            return None


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", SETTINGS) as running:
        yield running


class Lines:
    """A file that grows, and what of it has come to the topic."""

    def __init__(self, folder: Path, reader: sync.Consumer) -> None:
        self.path = folder / "source.txt"
        self.path.touch()
        self.written: list[str] = []
        self.seen: list[str] = []
        self._reader = reader

    def grow(self) -> None:
        """By some lines."""
        begin = len(self.written)
        new = [f"line {number}" for number in range(begin, begin + LINES_AT_ONCE)]
        with self.path.open("a") as file:
            file.write("".join(f"{line}\n" for line in new))
        self.written += new

    def read(self) -> None:
        """What is committed by now."""
        for record in self._reader.poll(timeout_ms=50):
            assert record.value is not None
            self.seen.append(record.value.decode())

    def carry(self, worker: JavaProgram, count: int) -> None:
        """Have it grow until so many more lines are in the topic."""
        wanted = len(self.seen) + count

        def enough() -> bool:
            worker.check()
            self.grow()
            self.read()
            return len(self.seen) >= wanted

        wait_until(enough, f"{wanted} lines", TIMEOUT_S)

    def finish(self, worker: JavaProgram) -> None:
        """Until all lines are in the topic."""

        def all_seen() -> bool:
            worker.check()
            self.read()
            return len(self.seen) >= len(self.written)

        wait_until(all_seen, f"{len(self.written)} lines", TIMEOUT_S)


def start_connector(
    connect: Connect, worker: JavaProgram, name: str, config: dict[str, str]
) -> None:
    """As soon as the worker takes it."""

    def taken() -> bool:
        worker.check(0.3)
        return connect.ask(f"/connectors/{name}/config", config) is not None

    wait_until(taken, f"connector {name}", TIMEOUT_S)


def records_of_all(bootstrap_servers: str, topic: str) -> int:
    """Those of aborted transactions included."""
    count = 0
    with sync.Consumer(bootstrap_servers, isolation_level="read_uncommitted") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while records := consumer.poll(timeout_ms=300):
            count += len(records)
    return count


def test_lines_of_a_file_are_in_the_topic_once_though_the_worker_is_killed(
    tmp_path: Path, class_path: str, broker: BrokerProcess
) -> None:
    frameworks.forget("kafka_connect")
    topic, target = f"lines-{uuid.uuid4().hex[:8]}", tmp_path / "target.txt"
    connect = Connect(tmp_path, class_path, broker.bootstrap_servers)
    with ExitStack() as stack:
        admin = stack.enter_context(sync.Admin(broker.bootstrap_servers))
        admin.create_topics([NewTopic(topic, 1)])
        reader = stack.enter_context(sync.Consumer(broker.bootstrap_servers))
        reader.assign([TopicPartition(topic, 0)])
        lines = Lines(tmp_path, reader)
        worker = stack.enter_context(connect.worker())
        start_connector(
            connect, worker, "source", SOURCE | {"file": str(lines.path), "topic": topic}
        )
        start_connector(connect, worker, "sink", SINK | {"file": str(target), "topics": topic})
        for _ in range(KILLS):
            lines.carry(worker, LINES_BEFORE_A_KILL)
            worker.kill()
            lines.grow()
            worker = stack.enter_context(connect.worker())
        lines.carry(worker, LINES_BEFORE_A_KILL)
        lines.finish(worker)
        assert lines.seen == lines.written

        def all_sunk() -> bool:
            worker.check(0.3)
            return set(target.read_text().splitlines()) == set(lines.written)

        wait_until(all_sunk, "the lines in the sink's file", TIMEOUT_S)
    # Otherwise no kill met an open transaction, and the run has shown nothing.
    assert records_of_all(broker.bootstrap_servers, topic) > len(lines.written)
    versions = frameworks.versions_of_jars(class_path, "connect-runtime", "connect-file")
    frameworks.record("kafka_connect", versions)
