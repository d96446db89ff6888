"""`oncelog topics` against a broker in this process."""

import json
import uuid
from collections.abc import Callable

import pytest
from click.testing import Result

from oncelog.core.spelling import nearest

Oncelog = Callable[..., Result]


def error_line(result: Result) -> str:
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert result.exit_code != 0
    return line.removeprefix("Error: ")


def described(oncelog: Oncelog, name: str) -> dict[str, object]:
    result = oncelog("topics", "describe", name, "--json")
    assert result.exit_code == 0, result.stderr
    topic: dict[str, object] = json.loads(result.stdout)
    return topic


def test_a_created_topic_is_listed_and_described(oncelog: Oncelog) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    options = ("--partitions", "3", "--config", "retention.ms=60000")
    result = oncelog("topics", "create", name, *options)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    rows = [line.split("\t") for line in oncelog("topics", "list").stdout.splitlines()]
    (row,) = [row for row in rows if row[0] == name]
    assert row[1:3] == ["3", "1"]

    topic = described(oncelog, name)
    assert topic["configs"] == {"retention.ms": {"value": "60000", "source": "topic"}}
    assert topic["partitions"] == [
        {
            "partition": index,
            "leader": 1,
            "leader_epoch": 0,
            "replicas": [1],
            "isr": [1],
            "eligible": [],
            "last_eligible": [],
            "start_offset": 0,
            "last_stable_offset": 0,
            "end_offset": 0,
            "size_bytes": 0,
        }
        for index in range(3)
    ]


def test_json_is_one_object_per_topic(oncelog: Oncelog, topic: str) -> None:
    rows = [json.loads(line) for line in oncelog("topics", "list", "--json").stdout.splitlines()]
    (row,) = [row for row in rows if row["topic"] == topic]
    assert row.keys() == {"topic", "partitions", "replication_factor", "topic_id"}
    assert (row["partitions"], row["replication_factor"]) == (2, 1)


def test_piped_describe_prints_the_lines_of_kafka_topics(oncelog: Oncelog, topic: str) -> None:
    oncelog("produce", topic, "--partition", "1", stdin="a\nb\n")
    head, first, second = oncelog("topics", "describe", topic).stdout.splitlines()
    assert head.startswith(f"Topic: {topic}\tTopicId: ")
    assert head.endswith("\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: ")
    replicas = "Replicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
    rest = f"Leader: 1\t{replicas}\tStartOffset: 0\tEndOffset"
    assert first == f"\tTopic: {topic}\tPartition: 0\t{rest}: 0\tLastStableOffset: 0\tSize: 0"
    second, size = second.split("\tSize: ")
    assert second == f"\tTopic: {topic}\tPartition: 1\t{rest}: 2\tLastStableOffset: 2"
    assert 60 < int(size) < 200


def test_the_oldest_records_are_deleted_for_good(oncelog: Oncelog, topic: str) -> None:
    oncelog("produce", topic, "--partition", "1", stdin="a\nb\nc\n")
    arguments = ("topics", "delete-records", topic)
    result = oncelog(*arguments, "--partition", "1", "--before-offset", "2")
    assert result.stdout == f"{topic}\t1\t2\n"
    assert oncelog("consume", topic, "--from-beginning", "--until-end").stdout == "c\n"
    later = oncelog(*arguments, "--before-timestamp", "0", "--json")
    assert [json.loads(line)["start_offset"] for line in later.stdout.splitlines()] == [0, 2]
    everything = oncelog(*arguments, "--all")
    assert everything.stdout == f"{topic}\t0\t0\n{topic}\t1\t3\n"


def test_records_beyond_the_end_or_without_a_bound_are_not_deleted(
    oncelog: Oncelog, topic: str
) -> None:
    beyond = oncelog("topics", "delete-records", topic, "--before-offset", "1")
    assert error_line(beyond) == (
        f"{topic}-0 ends at offset 0, before offset 1: no record was deleted; "
        "choose other partitions with --partition"
    )
    for bounds in ((), ("--all", "--before-offset", "1")):
        misuse = oncelog("topics", "delete-records", topic, *bounds)
        assert misuse.exit_code == 2
        assert "give one of --before-offset" in error_line(misuse)
    unknown = oncelog("topics", "delete-records", topic, "--all", "--partition", "7")
    assert error_line(unknown) == f"{topic} has no partition 7: it has 0 to 1"


def test_internal_topics_show_only_on_demand(oncelog: Oncelog, topic: str) -> None:
    oncelog("produce", topic, "--transactional-id", "t", stdin="a\n")
    assert "__transaction_state" not in oncelog("topics", "list").stdout
    assert "__transaction_state" in oncelog("topics", "list", "--internal").stdout


def test_a_topic_that_exists_is_refused_or_passed_over(oncelog: Oncelog, topic: str) -> None:
    line = error_line(oncelog("topics", "create", topic))
    assert line.startswith(f"topic {topic} exists already: ")
    assert oncelog("topics", "create", topic, "--if-not-exists").exit_code == 0


def test_an_unknown_topic_is_answered_with_the_nearest_name(oncelog: Oncelog) -> None:
    oncelog("topics", "create", "departures", "--if-not-exists")
    for arguments in (("describe",), ("delete",), ("alter", "--partitions", "9")):
        command, *options = arguments
        result = oncelog("topics", command, "depatures", *options)
        assert error_line(result) == "unknown topic depatures: did you mean departures?"
        assert oncelog("topics", command, "depatures", *options, "--if-exists").exit_code == 0


def test_a_deleted_topic_is_gone(oncelog: Oncelog, topic: str) -> None:
    assert oncelog("topics", "delete", topic).exit_code == 0
    assert topic not in oncelog("topics", "list").stdout


def test_partitions_are_added_and_never_removed(oncelog: Oncelog, topic: str) -> None:
    assert oncelog("topics", "alter", topic, "--partitions", "5").exit_code == 0
    partitions = described(oncelog, topic)["partitions"]
    assert isinstance(partitions, list)
    assert len(partitions) == 5
    line = error_line(oncelog("topics", "alter", topic, "--partitions", "4"))
    assert "has 5 partitions: partitions cannot be removed" in line


def test_settings_are_set_and_given_back(oncelog: Oncelog, topic: str) -> None:
    changed = oncelog(
        "topics", "alter", topic, "--config", "retention.ms=5000", "--config", "segment.ms=9000"
    )
    assert changed.exit_code == 0, changed.stderr
    assert described(oncelog, topic)["configs"] == {
        "retention.ms": {"value": "5000", "source": "topic"},
        "segment.ms": {"value": "9000", "source": "topic"},
    }
    assert oncelog("topics", "alter", topic, "--delete-config", "segment.ms").exit_code == 0
    assert described(oncelog, topic)["configs"] == {
        "retention.ms": {"value": "5000", "source": "topic"}
    }


def test_settings_at_their_defaults_show_on_demand(oncelog: Oncelog, topic: str) -> None:
    result = oncelog("topics", "describe", topic, "--all-configs", "--json")
    entry = json.loads(result.stdout)["configs"]["retention.bytes"]
    assert entry == {"value": "-1", "source": "default"}


@pytest.mark.parametrize(
    ("arguments", "text", "code"),
    [
        (("topics", "lsit"), "no such command lsit: did you mean list?", 2),
        (("topcis",), "no such command topcis: did you mean topics?", 2),
        (("topics", "create"), "Missing argument 'TOPIC...'", 2),
        (("topics", "create", "x", "--partitions", "0"), "Invalid value for '--partitions'", 2),
        (("topics", "create", "x", "--config", "a"), "'a' is not KEY=VALUE", 2),
        (("topics", "create", "x", "--config", "foo=1"), "Unknown topic config name: foo", 1),
        (("topics", "create", "a b"), "Topic name is invalid", 1),
        (("topics", "create", "x", "--replication-factor", "3"), "INVALID_REPLICATION_FACTOR", 1),
        (("topics", "list", "--foo"), "no such option", 2),
        (("topics", "list", "--bootstrap-server", ":x"), "':x' is not host:port", 2),
        (("topics", "alter", "x"), "nothing to change: give --partitions", 2),
        (
            ("topics", "alter", "x", "--config", "a=1", "--delete-config", "a"),
            "a is both set and deleted",
            2,
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(
    oncelog: Oncelog, arguments: tuple[str, ...], text: str, code: int
) -> None:
    result = oncelog(*arguments)
    assert text in error_line(result)
    assert result.exit_code == code


def test_without_a_broker_it_says_how_to_get_one(oncelog: Oncelog) -> None:
    result = oncelog("topics", "list", "--bootstrap-server", "127.0.0.1:1")
    line = error_line(result)
    assert line.startswith("no broker answers at 127.0.0.1:1 (")
    assert "`oncelog serve`" in line


def test_near_names_are_found_whatever_their_case() -> None:
    assert nearest("ORDERS", ["orders", "order-lines", "flights"])[0] == "orders"
    assert nearest("zzz", ["orders"]) == []
