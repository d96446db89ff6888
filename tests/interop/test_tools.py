"""Apache's own command-line tools, as their users call them."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.interop import fresh
from tests.support.java_tools import run_tool

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.usefixtures("java_class_path"),
]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"


class Tools:
    """Runs tools against the shared broker and returns what they printed."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.server = ("--bootstrap-server", bootstrap_servers)

    def run(self, main_class: str, *args: str, text: str | None = None) -> str:
        done = run_tool(main_class, *self.server, *args, text=text)
        assert done.returncode == 0, f"{main_class} {args}: {done.stdout} {done.stderr}"
        return done.stdout

    def all(self, *calls: Sequence[str]) -> list[str]:
        """Several calls that do not depend on each other, two JVMs at a time."""
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda call: self.run(*call), calls))


@pytest.fixture
def tools(bootstrap_servers: str) -> Tools:
    return Tools(bootstrap_servers)


@pytest.mark.soak
def test_a_topic_from_its_creation_to_its_end(tools: Tools) -> None:
    """kafka-topics and kafka-configs."""
    name = fresh("tools")
    order = ("--create", "--topic", name, "--partitions", "2", "--replication-factor", "1")
    made = tools.run(TOPICS, *order, "--config", "retention.ms=3600000")
    assert f"Created topic {name}." in made
    entity = ("--entity-type", "topics", "--entity-name", name)
    changed, _ = tools.all(
        (CONFIGS, *entity, "--alter", "--add-config", "max.message.bytes=2000000"),
        (TOPICS, "--alter", "--topic", name, "--partitions", "3"),
    )
    assert f"Completed updating config for topic {name}." in changed
    configs, described = tools.all(
        (CONFIGS, *entity, "--describe"), (TOPICS, "--describe", "--topic", name)
    )
    assert "retention.ms=3600000 sensitive=false" in configs
    assert "max.message.bytes=2000000 sensitive=false" in configs
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert described.count("Isr: ") == 3
    tools.run(TOPICS, "--delete", "--topic", name)
    assert name not in tools.run(TOPICS, "--list").split()


def test_records_groups_and_offsets(tools: Tools, tmp_path: Path) -> None:
    """kafka-console-producer and -consumer, kafka-producer-perf-test, kafka-consumer-groups."""
    name, group = fresh("tools"), fresh("group")
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    lines = [f"key{number}:value {number}" for number in range(50)]
    tools.run(PRODUCER, "--topic", name, *keyed, text="\n".join(lines) + "\n")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    reading = ("--topic", name, "--from-beginning", "--timeout-ms", "15000")
    limit = ("--max-messages", str(len(lines)))
    assert tools.run(CONSUMER, *reading, *limit, *shown, "--group", group).splitlines() == lines
    size = ("--num-records", "5000", "--record-size", "100", "--throughput", "-1")
    load = ("--topic", name, *size)
    (described, loaded) = tools.all((GROUPS, "--describe", "--group", group), (PERFORMANCE, *load))
    assert "5000 records sent" in loaded
    (row,) = [line.split() for line in described.splitlines() if line.startswith(group)]
    # The end and the lag after them depend on how far the load is.
    assert row[1:4] == [name, "0", "50"]
    ends, listed = tools.all((OFFSETS, "--topic", name), (GROUPS, "--list"))
    assert ends.split() == [f"{name}:0:5050"]
    assert group in listed.split()


@pytest.mark.soak
def test_transactional_load_and_the_view_of_it(tools: Tools) -> None:
    """kafka-producer-perf-test with transactions, kafka-transactions, offsets reset by time."""
    name, group, identity = fresh("tools"), fresh("group"), fresh("id")
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    size = ("--num-records", "5000", "--record-size", "100", "--throughput", "5000")
    load = ("--topic", name, *size)
    transactional = ("--transactional-id", identity, "--transaction-duration-ms", "100")
    assert "5000 records sent" in tools.run(PERFORMANCE, *load, *transactional)
    described, producers = tools.all(
        (TRANSACTIONS, "describe", "--transactional-id", identity),
        (TRANSACTIONS, "describe-producers", "--topic", name, "--partition", "0"),
    )
    assert "CompleteCommit" in described
    assert len(producers.splitlines()) == 2
    committed = ("--topic", name, "--from-beginning", "--isolation-level", "read_committed")
    read = tools.run(CONSUMER, *committed, "--max-messages", "5000", "--group", group)
    assert len(read.splitlines()) == 5000
    reset = ("--reset-offsets", "--group", group, "--topic", name, "--to-earliest", "--execute")
    tools.run(GROUPS, *reset)
    (row,) = [
        line.split()
        for line in tools.run(GROUPS, "--describe", "--group", group).splitlines()
        if line.startswith(group)
    ]
    assert row[3] == "0"
    assert "Deletion of requested consumer groups" in tools.run(
        GROUPS, "--delete", "--group", group
    )


@pytest.mark.soak
def test_the_versions_and_the_directories_are_told(tools: Tools) -> None:
    """kafka-broker-api-versions, kafka-log-dirs and kafka-delete-records."""
    name = fresh("tools")
    tools.run(TOPICS, "--create", "--topic", name, "--partitions", "1")
    versions = tools.run(VERSIONS)
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "EndTxn(26): 0 to 5 [usable: 5]" in versions
    told = tools.run("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", name)
    found = json.loads(told.splitlines()[-1])
    (directory,) = found["brokers"][0]["logDirs"]
    assert [each["partition"] for each in directory["partitions"]] == [f"{name}-0"]
