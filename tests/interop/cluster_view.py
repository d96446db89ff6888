"""What clients and tools see of three brokers while one dies and comes back, as values to compare.

Nothing here knows whose brokers they are. What differs by its nature is left out or made one:
addresses, ids of topics and of the cluster, and which broker is named as the controller.
"""

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaAdminClient

from tests.support.interop.aio import Aiokafka
from tests.support.java_program import compiled
from tests.support.java_tools import run_tool
from tests.support.peer import KafkaPeer, jars, java, kafka_peers
from tests.support.peer.cluster import BrokerCluster
from tests.support.told import State, ask

View = dict[str, Any]
"""What was seen, by who saw it and of what."""

WAIT_S: Final = 30
START_S_MAX: Final = 180
"""Of Apache Kafka's three, on a machine that has other work."""
SETTINGS: Final = {
    "default.replication.factor": "3",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": "1",
}
"""Of every broker, whoever made it."""

ASSIGNMENTS: Final[Mapping[str, list[list[int]]]] = {
    "three": [[1, 2, 3], [2, 3, 1], [3, 1, 2]],
    "two": [[1, 2], [2, 3]],
    "one": [[1], [2]],
}
KCAT = shutil.which("kcat") or shutil.which("kafkacat")
TOPIC_TOOL: Final = "org.apache.kafka.tools.TopicCommand"
TOOL_QUESTIONS: Final = (
    "",
    "--under-replicated-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
    "--unavailable-partitions",
)
RECORD: Final = Path(__file__).with_suffix(".json")
JAVA_SOURCES: Final = Path(__file__).with_name("java")


def by_librdkafka(server: str) -> View:
    """Metadata as librdkafka keeps it, and its admin's."""
    admin = AdminClient({"bootstrap.servers": server})
    listed = admin.list_topics(timeout=WAIT_S)
    seen: View = {
        "brokers": sorted(listed.brokers),
        "controller": "a live one" if listed.controller_id in listed.brokers else "none",
    }
    for name in ASSIGNMENTS:
        topic = listed.topics.get(name)
        seen[name] = (
            "unknown"
            if topic is None
            else [
                (
                    each.id,
                    each.leader,
                    each.replicas,
                    sorted(each.isrs),
                    None if each.error is None else each.error.name(),
                )
                for each in topic.partitions.values()
            ]
        )
    cluster = admin.describe_cluster(request_timeout=WAIT_S).result(WAIT_S)
    seen["described"] = sorted((node.id, node.rack) for node in cluster.nodes)
    return seen


def by_kafka_python(server: str) -> View:
    """Of kafka-python's admin, field by field."""
    client = KafkaAdminClient(bootstrap_servers=server)
    try:
        cluster = client.describe_cluster()
        topics = client.describe_topics(list(ASSIGNMENTS))
    finally:
        client.close()
    brokers = {each["broker_id"]: each["rack"] for each in cluster["brokers"]}
    return {
        "brokers": brokers,
        "controller": "a live one" if cluster["controller_id"] in brokers else "none",
        **{topic["name"]: _partitions(topic["partitions"]) for topic in topics},
    }


def _partitions(found: Any) -> list[dict[str, Any]]:
    """Fields of partitions; an ISR is a set."""
    kept = []
    for each in sorted(found, key=lambda one: one["partition_index"]):
        fields = {key: value for key, value in each.items() if key != "leader_epoch"}
        fields["isr_nodes"] = sorted(fields["isr_nodes"])
        fields["offline_replicas"] = sorted(fields["offline_replicas"])
        kept.append(fields)
    return kept


def by_aiokafka(server: str) -> View:
    """Of aiokafka's admin."""
    client = Aiokafka(server)
    try:
        cluster = client.runner.run(client.admin.describe_cluster())
        topics = client.runner.run(client.admin.describe_topics(list(ASSIGNMENTS)))
    finally:
        client.close()
    brokers = {each["node_id"]: each["rack"] for each in cluster["brokers"]}
    return {
        "brokers": brokers,
        "controller": "a live one" if cluster["controller_id"] in brokers else "none",
        **{
            topic["topic"]: sorted(
                [{**each, "isr": sorted(each["isr"])} for each in topic["partitions"]],
                key=lambda each: each["partition"],
            )
            for topic in topics
        },
    }


def by_kcat(server: str) -> View:
    """Lines of ``kcat -L``, without addresses and in order."""
    assert KCAT is not None
    seen: View = {}
    for topic in ASSIGNMENTS:
        command = [KCAT, "-b", server, "-L", "-t", topic]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
        lines = re.sub(r" \(controller\)| at \S+", "", done.stdout).splitlines()[1:]
        seen[topic] = sorted(_with_isr_in_order(line.strip()) for line in lines)
    return seen


def _with_isr_in_order(line: str) -> str:
    """The ISR has no order of its own."""
    return re.sub(
        r"(isrs?: )([\d,]+)",
        lambda found: found[1] + ",".join(sorted(found[2].split(","))),
        line,
        flags=re.IGNORECASE,
    )


def by_topic_tool(server: str) -> View:
    """Of ``kafka-topics --describe``, with each of its questions."""
    seen: View = {}
    for question in TOOL_QUESTIONS:
        args = ["--bootstrap-server", server, "--describe", "--topic", "one|two|three"]
        done = run_tool(TOPIC_TOOL, *args, *question.split())
        assert done.returncode == 0, done.stderr
        told = re.sub(r"\s*TopicId: \S+|\tConfigs:.*", "", done.stdout).splitlines()
        lines = sorted(_with_isr_in_order(line.strip()) for line in told)
        seen[question or "--describe"] = [line.replace("\t", " ") for line in lines if line]
    return seen


def by_java(server: str) -> View:
    """Of Java's AdminClient."""
    classes = compiled("ClusterView", JAVA_SOURCES)
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}:{classes}", "ClusterView"]
    done = subprocess.run(
        [*command, server, "1,2,3", *ASSIGNMENTS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: View = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    seen["cluster controller"] = "some" if seen["cluster controller"].isdecimal() else "none"
    return seen


PYTHON_VIEWS: Final[Mapping[str, Callable[[str], View]]] = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}
JAVA_VIEWS: Final[Mapping[str, Callable[[str], View]]] = {
    "kafka-topics": by_topic_tool,
    "Java": by_java,
}


def look(server: str, views: Mapping[str, Callable[[str], View]]) -> View:
    """All that is seen through one broker, by view and thing."""
    return {
        f"{name}: {thing}": value
        for name, view in views.items()
        for thing, value in view(server).items()
    }


def outcome(work: Callable[[], object]) -> object:
    """What it returns, or the name of the error."""
    try:
        return work()
    except KafkaException as error:
        return error.args[0].name()


def send(servers: str, topic: str, acks: str = "all", timeout_ms: int = 1000 * WAIT_S) -> object:
    """Produce one record to partition 0; its offset or the error's name."""
    told: list[object] = []
    made = Producer(
        {
            "bootstrap.servers": servers,
            "acks": acks,
            "retries": 0,
            "message.timeout.ms": timeout_ms,
            "request.timeout.ms": timeout_ms,
        }
    )
    made.produce(
        topic,
        b"x",
        partition=0,
        on_delivery=lambda error, message: told.append(
            message.offset() if error is None else error.name()
        ),
    )
    made.flush(2 * WAIT_S)
    return told[0]


def assigned(name: str, replicas: list[list[int]], **config: str) -> NewTopic:
    """A topic whose replicas are named, a list for each partition."""
    return NewTopic(name, len(replicas), replica_assignment=replicas, config=config)


def create(servers: str, topic: NewTopic, **options: Any) -> object:
    """Create a topic; the error's name or None."""
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([topic], operation_timeout=WAIT_S, **options)
    return outcome(lambda: made[topic.topic].result(WAIT_S))


class Story:
    """One life of a cluster of three. `seen` has what was looked at after each step."""

    def __init__(
        self, cluster: BrokerCluster[Any], views: Mapping[str, Callable[[str], View]]
    ) -> None:
        self._cluster = cluster
        self._views = views
        self.seen: View = {}

    def tell(self) -> View:
        """Live it to its end."""
        self._create()
        self._look("all there", 1)
        self._with_one_away()
        self._come_back()
        return self.seen

    def server(self, broker_id: int) -> str:
        """The address of one broker."""
        return str(self._cluster.brokers[broker_id].bootstrap_servers)

    def _look(self, step: str, broker_id: int) -> None:
        for name, value in look(self.server(broker_id), self._views).items():
            self.seen[f"{step}: {name}"] = value

    def _create(self) -> None:
        servers = self._cluster.bootstrap_servers
        for name, assignment in ASSIGNMENTS.items():
            config = {"min.insync.replicas": "1" if name == "one" else "2"}
            topic = assigned(name, assignment, **config)
            self.seen[f"create {name}"] = create(servers, topic)
        asked = {
            "more replicas than brokers": NewTopic("refused", 1, 4),
            "no replica": NewTopic("refused", 1, 0),
            "the default of replicas": NewTopic("default", 2, -1),
            "a replica on a broker that is not there": assigned("refused", [[1, 9]]),
            "two replicas on one broker": assigned("refused", [[1, 1]]),
            "partitions with more and fewer replicas": assigned("refused", [[1, 2], [3]]),
        }
        for what, topic in asked.items():
            self.seen[f"create {what}"] = create(servers, topic)
        self._wait_for_isr("three", [[1, 2, 3]] * 3)
        self._until(lambda broker_id: len(self.isr("default", broker_id)) == 2)
        self.seen["replicas of the default"] = [len(each) for each in self.isr("default", 1)]
        for name in ASSIGNMENTS:
            self.seen[f"send to {name}"] = send(servers, name)

    def _with_one_away(self) -> None:
        self._cluster.brokers[1].kill()
        leaders = {"three": [2, 2, 3], "two": [2, 2], "one": [-1, 2]}
        self._until(lambda broker_id: self._leaders(broker_id) == leaders, brokers=(2, 3))
        self._look("one away", 2)
        servers = self.server(2)
        for name in "three", "two":
            self.seen[f"one away: send to {name}"] = send(servers, name)
        self.seen["one away: send to one"] = send(servers, "one", timeout_ms=2000)
        self.seen["one away: send to two with acks=1"] = send(servers, "two", "1")
        asked = {
            "as many replicas as are alive": NewTopic("late", 1, 2),
            "more replicas than are alive": NewTopic("later", 1, 3),
            "an assignment with the one that is away": assigned("latest", [[1, 2, 3]]),
            "an assignment to the one that is away": assigned("never", [[1]]),
        }
        for what, topic in asked.items():
            self.seen[f"one away: create {what}"] = create(servers, topic)
        admin = AdminClient({"bootstrap.servers": servers})
        grown = admin.create_partitions([NewPartitions("default", 4)])
        self.seen["one away: grow"] = outcome(lambda: grown["default"].result(WAIT_S))
        deleted = admin.delete_topics(["default"])
        self.seen["one away: delete"] = outcome(lambda: deleted["default"].result(WAIT_S))

    def _come_back(self) -> None:
        self._cluster.brokers[1].start()
        self._cluster.wait_complete()
        self._wait_for_isr("three", [[1, 2, 3]] * 3)
        self._wait_for_isr("two", [[1, 2], [2, 3]])
        self._look("back", 1)
        for topic in ASSIGNMENTS:
            self.seen[f"back: send to {topic}"] = send(self._cluster.bootstrap_servers, topic)

    def _told(self, topic: str, broker_id: int) -> tuple[State, ...]:
        """What this very broker answers: librdkafka asks any of those that it has heard of."""
        told = ask(self._cluster.brokers[broker_id].port, topic)
        return () if told is None else told.states

    def isr(self, topic: str, broker_id: int) -> list[list[int]]:
        """The ISR of each partition as one broker tells it; empty where it does not know them."""
        return [list(each.in_sync) for each in self._told(topic, broker_id)]

    def _leaders(self, broker_id: int) -> dict[str, list[int]]:
        return {name: [each.leader for each in self._told(name, broker_id)] for name in ASSIGNMENTS}

    def _wait_for_isr(self, topic: str, isr: list[list[int]]) -> None:
        self._until(lambda broker_id: self.isr(topic, broker_id) == isr)

    def _until(self, condition: Callable[[int], bool], brokers: Sequence[int] = (1, 2, 3)) -> None:
        """Wait until each of these brokers says so: some clients ask any of them."""
        deadline = time.monotonic() + WAIT_S
        while not all(map(condition, brokers)):
            assert time.monotonic() < deadline, f"not so within {WAIT_S} s"
            time.sleep(0.05)


def with_racks(brokers: list[Any]) -> list[Any]:
    """Give each broker a rack of its own."""
    for number, broker in enumerate(brokers, 1):
        broker.settings["broker.rack"] = f"rack-{number}"
    return brokers


def seen_of(cluster: BrokerCluster[Any], views: Mapping[str, Callable[[str], View]]) -> View:
    """Tell the story, as values that JSON has."""
    if KCAT is not None:
        views = {**views, "kcat": by_kcat}
    seen: View = json.loads(json.dumps(Story(cluster, views).tell()))
    return seen


def seen_of_kafka(folder: Path) -> View:
    """All that is seen of Apache Kafka. Raises `PeerUnavailable`."""
    times = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    brokers = with_racks(kafka_peers(folder, 3, {**SETTINGS, **times}))
    for broker in brokers:
        broker.jvm, broker.ready_timeout_s = ("-Xmx384M", "-XX:TieredStopAtLevel=1"), START_S_MAX
    with ThreadPoolExecutor(len(brokers)) as pool:
        list(pool.map(KafkaPeer.prepare, brokers))
    cluster = BrokerCluster(brokers)
    try:
        cluster.start()
        return seen_of(cluster, {**PYTHON_VIEWS, **JAVA_VIEWS})
    finally:
        # In order they would take half a minute: each waits for a quorum that goes.
        for broker in brokers:
            broker.kill()


def main() -> None:
    """Write the record anew."""
    with tempfile.TemporaryDirectory() as folder:
        seen = seen_of_kafka(Path(folder))
    RECORD.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
