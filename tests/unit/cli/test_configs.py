"""`oncelog configs` and `oncelog brokers` against a broker in this process."""

from __future__ import annotations

import json
from collections.abc import Callable

from click.testing import Result

Oncelog = Callable[..., Result]


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def own(oncelog: Oncelog, topic: str) -> list[dict[str, object]]:
    """What was set for the topic itself; a cluster may have settings for all topics."""
    found = rows(oncelog("configs", "describe", "topic", topic, "--json"))
    return [row for row in found if row["source"] == "topic"]


def test_settings_of_a_topic_are_set_shown_and_given_back(oncelog: Oncelog, topic: str) -> None:
    arguments = ("configs", "alter", "topic", topic)
    assert oncelog(*arguments, "--config", "retention.ms=60000").exit_code == 0
    (row,) = own(oncelog, topic)
    assert row == {
        "type": "topic",
        "name": topic,
        "config": "retention.ms",
        "value": "60000",
        "source": "topic",
    }
    assert oncelog(*arguments, "--delete-config", "retention.ms").exit_code == 0
    assert own(oncelog, topic) == []


def test_all_settings_of_all_topics_show_on_demand(oncelog: Oncelog, topic: str) -> None:
    found = rows(oncelog("configs", "describe", "topic", "--all", "--json"))
    assert {"cleanup.policy", "retention.ms"} <= {r["config"] for r in found if r["name"] == topic}
    assert "__consumer_offsets" not in {r["name"] for r in found}


def test_a_brokers_own_settings_show(oncelog: Oncelog) -> None:
    found = {r["config"]: r for r in rows(oncelog("configs", "describe", "broker", "--json"))}
    assert found["log.dirs"]["source"] == "broker"
    assert found["auto.create.topics.enable"]["value"] == "false"


def test_what_cannot_be_changed_is_one_line(oncelog: Oncelog) -> None:
    fixed = oncelog("configs", "alter", "broker", "1", "--config", "log.dirs=/x")
    nobody = oncelog("configs", "describe", "broker", "77")
    typo = oncelog("configs", "describe", "topic", "no-such-topic")
    for result, text in (
        (fixed, "Cannot update these configs dynamically"),
        (nobody, "there is no broker 77"),
        (typo, "unknown topic no-such-topic"),
    ):
        assert result.exit_code == 1
        (line,) = result.stderr.splitlines()
        assert text in line


def test_brokers_are_listed_with_what_they_hold(oncelog: Oncelog, topic: str) -> None:
    oncelog("produce", topic, stdin="a\n")
    (broker,) = rows(oncelog("brokers", "list", "--json"))
    assert broker["broker"] == 1
    assert broker["role"] == "controller"
    assert int(str(broker["leaders"])) >= 2
    assert int(str(broker["size_bytes"])) > 0
    (folder,) = rows(oncelog("brokers", "describe", "--json"))
    assert folder["state"] == "on line"
    assert folder["size_bytes"] == broker["size_bytes"]
    unknown = oncelog("brokers", "describe", "8")
    assert unknown.stderr == "Error: there is no broker 8: the cluster has 1\n"
