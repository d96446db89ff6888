"""`oncelog groups` against a broker in this process."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
from click.testing import Result

from oncelog import OffsetAndMetadata, Producer, TopicPartition
from oncelog.cli.groups import Lag
from oncelog.client import Admin

Oncelog = Callable[..., Result]


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def group(oncelog: Oncelog, topic: str) -> str:
    """A group that committed both partitions of `topic`, with three records in partition 1."""
    name = f"group-{uuid.uuid4().hex[:8]}"
    oncelog("produce", topic, "--partition", "1", stdin="a\nb\nc\n")
    result = oncelog("consume", topic, "--group", name, "--from-beginning", "--until-end")
    assert result.exit_code == 0, result.stderr
    return name


@contextmanager
def member(bootstrap_server: str, group: str, topic: str) -> Iterator[None]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_server,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        while not consumer.assignment():
            consumer.poll(0.1)
        yield
    finally:
        consumer.close()


def test_a_group_is_listed_and_shown(oncelog: Oncelog, group: str) -> None:
    (listed,) = [row for row in rows(oncelog("groups", "list", "--json")) if row["group"] == group]
    assert (listed["protocol"], listed["state"]) == ("classic", "Empty")
    (shown,) = rows(oncelog("groups", "show", group, "--json"))
    assert (shown["state"], shown["member_id"]) == ("Empty", None)


def test_lag_to_the_stable_offset_and_to_the_high_watermark_differ(
    oncelog: Oncelog, bootstrap_server: str, topic: str, group: str
) -> None:
    oncelog("produce", topic, "--partition", "1", stdin="d\n")

    async def with_an_open_transaction() -> Result:
        async with Producer(bootstrap_server, transactional_id=group) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for value in (b"e", b"f"):
                await producer.send(topic, value, partition=1)
            try:
                return await asyncio.to_thread(oncelog, "groups", "lag", group, "--json")
            finally:
                await producer.abort_transaction()

    (row,) = rows(asyncio.run(with_an_open_transaction()))
    assert row == {
        "group": group,
        "topic": topic,
        "partition": 1,
        "committed": 3,
        "last_stable_offset": 4,
        "high_watermark": 6,
        "lag_to_lso": 1,
        "lag_to_hw": 3,
        "client_id": None,
    }


def test_a_group_that_read_up_to_a_marker_lags_by_nothing(
    oncelog: Oncelog, bootstrap_server: str, topic: str
) -> None:
    async def commit(*values: bytes) -> None:
        async with Producer(bootstrap_server, transactional_id=topic) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for value in values:
                await producer.send(topic, value, partition=0)
            await producer.commit_transaction()

    for values in ((b"a", b"b"), (b"c",)):
        asyncio.run(commit(*values))
        read = oncelog("consume", topic, "--group", topic, "--until-end")
        assert (read.exit_code, read.stdout.encode().split()) == (0, list(values))
        found = rows(oncelog("groups", "lag", topic, "--json"))
        assert [row["lag_to_hw"] for row in found] == [0]


def test_partitions_without_a_committed_offset_have_a_row(
    oncelog: Oncelog, bootstrap_server: str, topic: str
) -> None:
    oncelog("produce", topic, "--partition", "1", stdin="a\nb\n")
    name = f"group-{topic}"
    with member(bootstrap_server, name, topic):
        found = rows(oncelog("groups", "lag", name, "--json"))
        told = oncelog("groups", "lag", name).stdout.splitlines()
    assert [(row["partition"], row["committed"], row["lag_to_hw"]) for row in found] == [
        (0, None, None),
        (1, None, None),
    ]
    assert [row["high_watermark"] for row in found] == [0, 2]
    assert {row["client_id"] for row in found} == {"reader"}
    assert told[1].split("\t") == [name, topic, "1", "-", "2", "2", "-", "-", "reader"]


def test_a_group_that_is_ahead_of_the_log_lags_by_nothing() -> None:
    assert Lag(9, 4, 5).row() == (9, 4, 5, 0, 0)
    assert Lag(9, None, None).row() == (9, None, None, None, None)


def test_offsets_of_a_topic_that_is_gone_are_shown(
    oncelog: Oncelog, topic: str, group: str
) -> None:
    oncelog("topics", "delete", topic)
    for row in rows(oncelog("groups", "lag", group, "--json")):
        assert row["high_watermark"] is None


def test_a_reset_shows_first_and_does_it_when_told(
    oncelog: Oncelog, topic: str, group: str
) -> None:
    arguments = ("groups", "reset", group, "--topic", topic, "--partition", "1", "--json")
    (planned,) = rows(oncelog(*arguments, "--shift-by", "-2"))
    assert (planned["old_offset"], planned["new_offset"]) == (3, 1)
    (unchanged,) = rows(oncelog(*arguments, "--to-earliest"))
    assert (unchanged["old_offset"], unchanged["new_offset"]) == (3, 0)
    (done,) = rows(oncelog(*arguments, "--to-offset", "99", "--execute"))
    assert (done["old_offset"], done["new_offset"]) == (3, 3)
    rows(oncelog(*arguments, "--shift-by", "-2", "--execute"))
    again = oncelog("consume", topic, "--group", group, "--until-end")
    assert again.stdout == "b\nc\n"


def test_a_group_that_is_new_may_be_given_offsets(oncelog: Oncelog, topic: str) -> None:
    name = f"new-{uuid.uuid4().hex[:8]}"
    oncelog("produce", topic, "--partition", "0", stdin="a\nb\n")
    rows(oncelog("groups", "reset", name, "--topic", topic, "--to-latest", "--execute", "--json"))
    lags = rows(oncelog("groups", "lag", name, "--json"))
    assert [(row["committed"], row["lag_to_hw"]) for row in lags] == [(2, 0), (0, 0)]


def test_a_group_with_members_keeps_its_offsets(
    oncelog: Oncelog, bootstrap_server: str, topic: str, group: str
) -> None:
    with member(bootstrap_server, group, topic):
        (shown,) = rows(oncelog("groups", "show", group, "--json"))
        assert shown["client_id"] == "reader"
        assert shown["partitions"] == f"{topic}-0, {topic}-1"
        reset = oncelog("groups", "reset", group, "--topic", topic, "--to-earliest", "--execute")
        delete = oncelog("groups", "delete", group)
        for refused in (reset, delete):
            assert refused.exit_code == 1
            (line,) = refused.stderr.splitlines()
            assert f"{group} has members (reader): stop them" in line
    (row,) = [r for r in rows(oncelog("groups", "lag", group, "--json")) if r["partition"] == 1]
    assert row["committed"] == 3


def test_a_group_is_deleted_whole_or_by_topic(
    oncelog: Oncelog, bootstrap_server: str, topic: str, group: str
) -> None:
    other = f"{topic}-other"
    oncelog("topics", "create", other)

    async def commit() -> None:
        async with Admin(bootstrap_server) as admin:
            offsets = {TopicPartition(other, 0): OffsetAndMetadata(0)}
            await admin.alter_group_offsets(group, offsets)

    asyncio.run(commit())
    assert oncelog("groups", "delete", group, "--topic", topic).exit_code == 0
    assert [r["topic"] for r in rows(oncelog("groups", "lag", group, "--json"))] == [other]
    assert oncelog("groups", "delete", group).exit_code == 0
    gone = oncelog("groups", "lag", group)
    assert gone.exit_code == 1
    assert gone.stderr.startswith(f"Error: unknown group {group}: ")


def test_a_reset_without_or_with_two_targets_is_misuse(oncelog: Oncelog, group: str) -> None:
    for targets in ((), ("--to-earliest", "--to-latest")):
        result = oncelog("groups", "reset", group, "--topic", "t", *targets)
        assert result.exit_code == 2
        assert "give one of --to-earliest, --to-latest, --to-offset" in result.stderr
