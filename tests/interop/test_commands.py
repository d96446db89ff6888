"""The commands speak Kafka's own APIs: the same story against Oncelog and against Apache Kafka."""

import json
import uuid
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from oncelog.cli.main import main

pytestmark = [pytest.mark.interop, pytest.mark.slow]

Rows = list[dict[str, object]]
Call = Callable[..., Rows]


@pytest.fixture
def call(bootstrap_servers: str) -> Call:
    """Carries a command out, which has to succeed; returns the objects that it printed."""

    def invoke(*arguments: str, stdin: str = "") -> Rows:
        environment = {"ONCELOG_BOOTSTRAP_SERVER": bootstrap_servers}
        result = CliRunner().invoke(main, list(arguments), input=stdin, env=environment)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]

    return invoke


def test_a_topic_its_settings_its_group_and_its_end(call: Call) -> None:
    topic = f"commands-{uuid.uuid4().hex[:8]}"
    call("topics", "create", topic, "--partitions", "2", "--config", "retention.ms=60000")
    call("configs", "alter", "topic", topic, "--config", "segment.ms=90000")
    settings = {
        row["config"]: row["value"]
        for row in call("configs", "describe", "topic", topic, "--json")
        if row["source"] == "topic"
    }
    assert settings == {"retention.ms": "60000", "segment.ms": "90000"}
    call("produce", topic, "--partition", "1", stdin="a\nb\nc\n")
    call("consume", topic, "--group", topic, "--until-end", "--json")
    call("groups", "reset", topic, "--topic", topic, "--shift-by", "-1", "--partition", "1",
         "--execute", "--json")  # fmt: skip
    lag = {row["partition"]: row for row in call("groups", "lag", topic, "--json")}
    assert (lag[1]["committed"], lag[1]["lag_to_lso"], lag[1]["lag_to_hw"]) == (2, 1, 1)
    (left,) = call("topics", "delete-records", topic, "--before-offset", "2", "--partition", "1",
                   "--json")  # fmt: skip
    assert left["start_offset"] == 2
    (described,) = call("topics", "describe", topic, "--json")
    partitions = described["partitions"]
    assert isinstance(partitions, list)
    assert [(p["start_offset"], p["last_stable_offset"]) for p in partitions] == [(0, 0), (2, 3)]
    assert all(isinstance(p["size_bytes"], int) for p in partitions)
    call("groups", "delete", topic)
    assert topic not in {row["group"] for row in call("groups", "list", "--json")}
    call("topics", "delete", topic)


def test_brokers_are_listed_and_a_record_gets_through(call: Call) -> None:
    (broker,) = call("brokers", "list", "--json")
    assert {row["broker"] for row in call("brokers", "describe", "--json")} == {broker["broker"]}
    found = {row["check"]: row["state"] for row in call("doctor", "--json")}
    assert found["read it committed"] == "ok"


def test_perf_measures_all_three(call: Call) -> None:
    topic = f"perf-{uuid.uuid4().hex[:8]}"
    call("topics", "create", topic)
    (sent,) = call("perf", "produce", topic, "--num-records", "100", "--json")
    (read,) = call("perf", "consume", topic, "--num-records", "100", "--json")
    (committed,) = call("perf", "transactions", topic, "--num-transactions", "3", "--json")
    assert (sent["records"], read["records"], committed["transactions"]) == (100, 100, 3)
    call("topics", "delete", topic)
