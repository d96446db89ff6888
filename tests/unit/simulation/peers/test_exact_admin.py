"""An administrator whose every answer is compared with a naive model of its topics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from oncelog.simulation.peers import exact_admin
from oncelog.simulation.peers.exact_admin import ExactAdmin
from oncelog.simulation.peers.exact_asking import ExactAnswer, comparable
from oncelog.simulation.peers.exact_metadata import page_of
from oncelog.simulation.peers.exact_topics import KnownTopic, NewTopicWish, TopicsModel
from tests.unit.simulation.peers.world import play, stuck, world

NODE = 1


def wish(name: str, partitions: int = 1, factor: int = 1, **config: str) -> NewTopicWish:
    return NewTopicWish(name, partitions, factor, {}, dict(config))


def test_every_answer_about_topics_is_as_the_model_says(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            context = w.context("c1.0", strict=True, pace_ms=10)
            await w.run([exact_admin.run(context)], 5, lambda: w.network.cut_some(0.1))
            assert stuck(w.history.events) == []
            assert w.states() == ["settled"]
            asked = {
                api for (api, _version), meter in w.broker.dispatcher.meters.items() if meter.count
            }
            assert {
                ApiKey.CREATE_TOPICS,
                ApiKey.DELETE_TOPICS,
                ApiKey.CREATE_PARTITIONS,
                ApiKey.ALTER_CONFIGS,
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                ApiKey.UPDATE_FEATURES,
            } <= asked

    play(story())


def test_a_topic_that_another_client_changes_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            admin = ExactAdmin(w.context("c1.0", strict=True))
            assert await admin.is_ready()
            name = f"{admin.prefix}0"
            await w.create(name, 2)
            admin.model.topics[name] = KnownTopic(name, 2)
            await admin.look_at_topics()
            assert stuck(w.history.events) == []
            await w.delete(name)
            await admin.look_at_topics()
            assert stuck(w.history.events)
            admin.close()

    play(story())


@pytest.mark.parametrize(
    ("field", "value"), [("value", "2"), ("config_source", 4), ("read_only", True)]
)
def test_one_wrong_field_of_an_answer_is_told(tmp_path: Path, field: str, value: object) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            admin = ExactAdmin(w.context("c1.0", strict=True))
            right = DescribeConfigsResourceResult(name="a", value="1", config_source=5)
            wrong = replace(right, **{field: value})  # type: ignore[arg-type]
            for entry, count in ((right, 0), (wrong, 1)):
                result = DescribeConfigsResult(resource_name="t", configs=(entry,))
                told = DescribeConfigsResponse(results=(result,))
                wanted = DescribeConfigsResult(resource_name="t", configs=(right,))
                connection = await admin.wire.open()
                answer = ExactAnswer(ApiKey.DESCRIBE_CONFIGS, 4, None, told, connection)
                admin.compare(answer, DescribeConfigsResponse(results=(wanted,)))
                assert len(stuck(w.history.events)) == count
            admin.close()

    play(story())


def test_texts_of_errors_are_compared_for_being_there() -> None:
    one, other = (DescribeConfigsResult(error_message=text) for text in ("a", "b"))
    assert comparable(one) == comparable(other)
    assert comparable(one) != comparable(DescribeConfigsResult())


def test_topics_of_one_request_are_decided_in_order() -> None:
    model = TopicsModel(NODE)
    model.topics["old"] = KnownTopic("old", 1)
    wishes = [
        wish("new", 2),
        wish("old"),
        wish("twice"),
        wish("a.b"),
        wish("a_b"),
        wish("twice"),
        wish("large", 200_000),
        wish("none", 0),
        wish("copies", 1, 2),
        wish("bad", 1, 1, **{"retention.ms": "soon"}),
    ]
    assert [(each.name, error) for each, error, _ in model.creations(wishes)] == [
        ("new", ErrorCode.none),
        ("old", ErrorCode.topic_already_exists),
        ("twice", ErrorCode.invalid_request),
        ("a.b", ErrorCode.none),
        ("a_b", ErrorCode.invalid_topic_exception),
        ("large", ErrorCode.policy_violation),
        ("none", ErrorCode.invalid_partitions),
        ("copies", ErrorCode.invalid_replication_factor),
        ("bad", ErrorCode.invalid_config),
    ]


def test_a_change_without_an_answer_leaves_two_possibilities() -> None:
    model = TopicsModel(NODE)
    before = model.topics["t"] = KnownTopic("t", 1, {}, UUID(int=5))
    model.doubt("t", replace(before, partitions=2))
    assert model.names() == []
    assert model.is_doubtful("t")
    assert [t and t.partitions for t in model.doubtful["t"]] == [1, 2]


def test_a_page_ends_at_its_limit_and_missing_topics_take_no_space() -> None:
    rows = [("a", 0), ("a", 1), ("b", -1), ("c", 0)]
    assert page_of(rows, 2) == ([("a", 0), ("a", 1)], [("b", -1), ("c", 0)])
    assert page_of(rows[2:], 1) == ([("b", -1), ("c", 0)], [])
