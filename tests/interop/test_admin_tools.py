"""Apache's own tools as administrators use them; see `test_tools` for everybody's."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.confluent import (
    consumer,
    create_topic,
    fresh,
    producer,
    send,
    transactional,
    wait_until,
)
from tests.interop.conftest import is_oncelog
from tests.support.java_tools import run_tool

pytestmark = [pytest.mark.interop, pytest.mark.slow]

Tool = Callable[..., str]
TOOLS = "org.apache.kafka.tools"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"


@pytest.fixture
def tool(java_class_path: str, bootstrap_servers: str) -> Tool:
    """Runs a tool against the broker and returns what it printed, errors too."""
    assert java_class_path

    def run(main_class: str, *args: str) -> str:
        done = run_tool(main_class, "--bootstrap-server", bootstrap_servers, *args)
        return done.stdout + done.stderr

    return run


def row(table: str, *cells: str) -> list[str]:
    """The cells of the only line of a table that begins with these cells."""
    lines = [line.split() for line in table.splitlines()]
    (found,) = [line for line in lines if line[: len(cells)] == list(cells)]
    return found


def test_what_may_not_be_changed_is_told(tool: Tool, bootstrap_servers: str) -> None:
    topic, command = create_topic(bootstrap_servers, 2), f"{TOOLS}.ConfigCommand"
    entity = ("--entity-type", "topics", "--entity-name", topic)
    refused = tool(command, "--alter", *entity, "--add-config", "no.such=1")
    assert "Unknown topic config name: no.such" in refused
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    refused = tool(command, "--alter", *broker, "--add-config", "node.id=5")
    assert "InvalidRequestException" in refused
    assert "Cannot update these configs dynamically: [node.id]" in refused
    refused = tool(f"{TOOLS}.TopicCommand", "--alter", "--topic", topic, "--partitions", "1")
    assert "would not be an increase" in refused


def test_kafka_configs_sets_shows_and_deletes_settings_of_a_group(
    tool: Tool, pytestconfig: pytest.Config
) -> None:
    group, command = fresh("group"), f"{TOOLS}.ConfigCommand"
    key = "consumer.session.timeout.ms"
    entity = ("--entity-type", "groups", "--entity-name", group)
    assert "Completed updating" in tool(command, "--alter", *entity, "--add-config", f"{key}=50000")
    shown = tool(command, "--describe", *entity)
    assert f"{key}=50000" in shown
    assert "GROUP_CONFIG" in shown
    assert group in tool(command, "--describe", "--entity-type", "groups")
    refused = tool(command, "--alter", *entity, "--add-config", f"{key}=1")
    assert f"{key} must be in the range 45000 to 60000 inclusive." in refused
    told = tool(command, "--alter", *entity, "--add-config", "share.session.timeout.ms=45000")
    if is_oncelog(pytestconfig):
        assert "InvalidConfigurationException" in told
        assert "share groups" in told
    else:
        assert "Completed updating" in told
    assert "Completed updating" in tool(command, "--alter", *entity, "--delete-config", key)
    assert key not in tool(command, "--describe", *entity)


def test_kafka_configs_gives_users_credentials(tool: Tool) -> None:
    user, command = fresh("user"), f"{TOOLS}.ConfigCommand"
    entity = ("--entity-type", "users", "--entity-name", user)
    setting = "SCRAM-SHA-256=[iterations=8192,password=geheim]"
    assert "Completed updating" in tool(command, "--alter", *entity, "--add-config", setting)
    assert "SCRAM-SHA-256=iterations=8192" in tool(command, "--describe", *entity)
    weak = "SCRAM-SHA-512=[iterations=1,password=geheim]"
    told = tool(command, "--alter", *entity, "--add-config", weak)
    assert "Completed updating" not in told
    removed = tool(command, "--alter", *entity, "--delete-config", "SCRAM-SHA-256")
    assert "Completed updating" in removed
    assert "SCRAM-SHA-256" not in tool(command, "--describe", *entity)


def test_kafka_consumer_groups_shows_resets_and_deletes(tool: Tool, bootstrap_servers: str) -> None:
    topic, group = create_topic(bootstrap_servers), fresh("group")
    send(producer(bootstrap_servers), topic, [b"0", b"1", b"2"])
    reader = consumer(bootstrap_servers, group)
    reader.subscribe([topic])
    wait_until(
        lambda: (message := reader.poll(0.1)) is not None and not message.error(), "a record"
    )
    reader.commit(asynchronous=False)
    active = row(tool(GROUPS, "--describe", "--group", group), group, topic, "0")
    assert active[3:6] == ["1", "3", "2"]
    assert active[8] == "rdkafka"
    reader.close()
    named = ("--group", group)
    reset = ("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    assert row(tool(GROUPS, *reset, *named), group, topic, "0")[3] == "0"
    assert row(tool(GROUPS, "--list", "--state", "Empty"), group)[1] == "Empty"
    forgotten = tool(GROUPS, "--delete-offsets", "--topic", topic, *named)
    assert "Successful" in forgotten
    assert "was successful" in tool(GROUPS, "--delete", *named)


def test_kafka_transactions_finds_and_aborts_one(tool: Tool, bootstrap_servers: str) -> None:
    topic, id_ = create_topic(bootstrap_servers), fresh("tx")
    client = transactional(bootstrap_servers, id_)
    client.begin_transaction()
    send(client, topic, [b"1"])
    command = f"{TOOLS}.TransactionsCommand"
    listed = row(tool(command, "list", "--transactional-id-pattern", f"{id_}.*"), id_)
    assert listed[3] == "Ongoing"
    described = row(tool(command, "describe", "--transactional-id", id_), "1", id_)
    assert (described[4], described[8]) == ("Ongoing", f"{topic}-0")
    place = ("--topic", topic, "--partition", "0")
    producer_id = described[2]
    assert row(tool(command, "describe-producers", *place), producer_id)[5] == "0"
    tool(command, "abort", *place, "--start-offset", "0")
    assert row(tool(command, "describe-producers", *place), producer_id)[5] == "None"
    client.abort_transaction()


def test_records_are_deleted_and_offsets_shown(
    tool: Tool, bootstrap_servers: str, tmp_path: Path
) -> None:
    topic = create_topic(bootstrap_servers, 2)
    send(producer(bootstrap_servers), topic, [b"0", b"1", b"2"])
    asked = {"topic": topic, "partition": 0, "offset": 2}
    order = tmp_path / "order.json"
    order.write_text(json.dumps({"version": 1, "partitions": [asked]}))
    deleted = tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", os.fspath(order))
    assert f"partition: {topic}-0\tlow_watermark: 2" in deleted
    shell = f"{TOOLS}.GetOffsetShell"
    assert tool(shell, "--topic", topic, "--time", "-2").split() == [f"{topic}:0:2", f"{topic}:1:0"]
    assert tool(shell, "--topic", topic).split() == [f"{topic}:0:3", f"{topic}:1:0"]


def test_folders_leaders_and_features_are_shown(tool: Tool, bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers)
    shown = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    (line,) = [line for line in shown.splitlines() if line.startswith("{")]
    ((folder,),) = [broker["logDirs"] for broker in json.loads(line)["brokers"]]
    assert [p["partition"] for p in folder["partitions"]] == [f"{topic}-0"]
    election = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    elected = tool(f"{TOOLS}.LeaderElectionCommand", *election)
    assert f"Valid replica already elected for partitions {topic}-0" in elected
    features = tool(f"{TOOLS}.FeatureCommand", "describe")
    assert re.search(r"transaction\.version\s+.*FinalizedVersionLevel: 2", features)
