"""Kafka Streams under EOS v2: what is counted is right, whoever is killed in the middle.

The application is `java/Counting.java`, on one broker and on three. For `make test-full`: Maven
fetches the jars, and where it cannot the tests are skipped with the reason.
"""

import random
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from oncelog import NewTopic, TopicPartition, sync
from oncelog.client.batch_reads import IsolationLevel
from tests.support import frameworks
from tests.support.broker import BrokerProcess, broker_processes
from tests.support.interop import wait_until
from tests.support.java_program import JavaProgram
from tests.support.peer import PeerUnavailable, streams_jars
from tests.support.peer.cluster import BrokerCluster

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("java") / "Counting.java"
PARTITIONS = 3
WORDS = tuple(f"word-{number}" for number in range(25))
PHASE_COUNT = 2000
TIMEOUT_S = 90
SETTINGS = {
    # The dead are noticed in test time.
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
APPLICATION = (
    "session.timeout.ms=2000",
    "heartbeat.interval.ms=300",
    "max.poll.interval.ms=60000",
    # Long enough for a kill to meet an open transaction.
    "commit.interval.ms=400",
)
SHORT, LONG = (f"producer.transaction.timeout.ms={ms}" for ms in (6000, 60_000))
"""Short where a successor elsewhere has to wait for it. Long where the broker is away: to a commit
after the timeout the answer is INVALID_TXN_STATE, Apache Kafka's too, and Streams ends.
"""


@pytest.fixture(scope="module")
def class_path() -> str:
    try:
        return streams_jars()
    except PeerUnavailable as reason:
        pytest.skip(f"Kafka Streams cannot be had: {reason}")


class Scene:
    """Brokers, a topic of words, a topic of counts, and the application."""

    def __init__(
        self, folder: Path, class_path: str, cluster: BrokerCluster[BrokerProcess]
    ) -> None:
        self.cluster = cluster
        self.source, self.target = (
            f"{name}-{uuid.uuid4().hex[:8]}" for name in ("words", "counts")
        )
        self.sent: Counter[str] = Counter()
        self._folder, self._class_path = folder, class_path
        self._random = random.Random(11)
        self._number = 0
        with sync.Admin(cluster.bootstrap_servers) as admin:
            # As many replicas as the brokers' default says.
            admin.create_topics(
                [NewTopic(self.source, PARTITIONS), NewTopic(self.target, PARTITIONS)]
            )

    def application(self, state: str, *settings: str) -> JavaProgram:
        """Started; `state` names its folder."""
        self._number += 1
        application = (self.cluster.bootstrap_servers, f"app-{self.target}")
        arguments = (*application, str(self._folder / state), self.source, self.target)
        log = self._folder / f"application-{self._number}.log"
        replicas = f"replication.factor={len(self.cluster.brokers)}"
        return JavaProgram(
            self._class_path, str(PROGRAM), *arguments, *APPLICATION, replicas, *settings, log=log
        )

    def feed(self) -> None:
        """Write the words of a phase."""
        with sync.Producer(self.cluster.bootstrap_servers, linger_ms=5) as producer:
            for _ in range(PHASE_COUNT):
                word = self._random.choice(WORDS)
                producer.send(self.source, word.encode())
                self.sent[word] += 1

    def reader(self, isolation_level: IsolationLevel) -> sync.Consumer:
        """Reads the topic of counts from its beginning."""
        consumer = sync.Consumer(
            self.cluster.bootstrap_servers, isolation_level=isolation_level, fetch_max_wait_ms=100
        )
        consumer.assign([TopicPartition(self.target, n) for n in range(PARTITIONS)])
        return consumer


@pytest.fixture(params=[1])
def scene(request: pytest.FixtureRequest, tmp_path: Path, class_path: str) -> Iterator[Scene]:
    """On so many brokers as the parameter says."""
    with BrokerCluster(broker_processes(tmp_path / "brokers", request.param, SETTINGS)) as cluster:
        yield Scene(tmp_path, class_path, cluster)


def kill_in_turn(cluster: BrokerCluster[BrokerProcess]) -> Iterator[BrokerProcess]:
    """Kill each broker and start it again; while it is away the caller has its turn."""
    for broker in cluster.brokers.values():
        broker.kill()
        yield broker
        broker.start()


def wait_for_outputs(reader: sync.Consumer, program: JavaProgram, count: int) -> int:
    """Until so many more were read; returns how many."""
    seen = 0

    def enough() -> bool:
        nonlocal seen
        program.check()
        seen += len(reader.poll(timeout_ms=200))
        return seen >= count

    wait_until(enough, f"{count} counts", TIMEOUT_S)
    return seen


def test_every_count_is_written_once_though_application_and_broker_are_killed(
    scene: Scene, class_path: str
) -> None:
    frameworks.forget("kafka_streams")
    seen = 0
    with ExitStack() as stack:
        dirty = stack.enter_context(scene.reader("read_uncommitted"))
        program = stack.enter_context(scene.application("one", SHORT))
        # Same folder: the same transactional ids, so the successor fences its predecessor. Another
        # one: the transactions that were left open have to expire.
        for state, timeout in (("one", SHORT), ("two", LONG)):
            scene.feed()
            seen += wait_for_outputs(dirty, program, PHASE_COUNT // 3)
            program.kill()
            program = stack.enter_context(scene.application(state, timeout))
        scene.feed()
        seen += wait_for_outputs(dirty, program, PHASE_COUNT // 3)
        (broker,) = scene.cluster.brokers.values()
        broker.kill()
        broker.start()
        scene.feed()
        counts = committed(scene, program)
        while found := dirty.poll(timeout_ms=300):
            seen += len(found)
    assert counts == {word: list(range(1, n + 1)) for word, n in scene.sent.items()}
    # Otherwise no kill met an open transaction, and the run has shown nothing.
    assert seen > sum(scene.sent.values())
    versions = frameworks.versions_of_jars(class_path, "kafka-streams", "rocksdbjni")
    frameworks.record("kafka_streams", versions)


@pytest.mark.parametrize("scene", [3], indirect=True)
def test_every_count_is_written_once_though_each_of_three_brokers_is_killed(scene: Scene) -> None:
    with ExitStack() as stack:
        dirty = stack.enter_context(scene.reader("read_uncommitted"))
        program = stack.enter_context(scene.application("one", LONG))
        scene.feed()
        wait_for_outputs(dirty, program, PHASE_COUNT // 3)
        for _ in kill_in_turn(scene.cluster):
            # The application comes on without it.
            scene.feed()
            wait_for_outputs(dirty, program, PHASE_COUNT // 3)
        scene.cluster.wait_complete()
        counts = committed(scene, program)
    assert counts == {word: list(range(1, n + 1)) for word, n in scene.sent.items()}


def committed(scene: Scene, program: JavaProgram) -> dict[str, list[int]]:
    """Word -> its counts in their order, once there are as many as words were sent."""
    counts: dict[str, list[int]] = {}
    wanted = sum(scene.sent.values())
    with scene.reader("read_committed") as reader:

        def all_are_there() -> bool:
            program.check()
            for record in reader.poll(timeout_ms=200):
                assert record.key is not None
                assert record.value is not None
                counts.setdefault(record.key.decode(), []).append(int(record.value))
            return sum(map(len, counts.values())) >= wanted

        wait_until(all_are_there, f"{wanted} committed counts", TIMEOUT_S)
    return counts


def test_the_streams_protocol_of_groups_is_refused_in_one_sentence(scene: Scene) -> None:
    with scene.application("one", "group.protocol=streams") as program:
        program.wait(TIMEOUT_S)
        assert "does not support the STREAMS group protocol" in program.said()
