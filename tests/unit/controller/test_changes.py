"""More partitions and other settings for a topic that exists."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from oncelog.controller.changes import (
    ConfigChange,
    ConfigOperation,
    decide_config_changes,
    decide_config_replacement,
    decide_partitions,
)
from oncelog.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from oncelog.controller.topics import TopicOutcome
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import CONFIG_VALUE_LENGTH_MAX, TOPIC_PARTITIONS_COUNT_MAX

BROKERS = [BrokerImage(broker_id, "h", 1) for broker_id in (1, 2, 3)]
TOPIC = TopicImage("t", UUID(int=1), (PartitionImage(1, 4, (1, 2), (1, 2)),), {"retention.ms": "5"})
IMAGE = MetadataImage(cluster_id="c", topics=[TOPIC], brokers=BROKERS)

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


def grow(
    count: int, assignments: list[list[int]] | None = None, topic: TopicImage | None = TOPIC
) -> TopicOutcome:
    return decide_partitions(IMAGE, "t", topic, count, assignments)


def changed(*changes: tuple[str, ConfigOperation, str | None]) -> TopicOutcome:
    return decide_config_changes("t", TOPIC, [ConfigChange(*c) for c in changes], BrokerConfig())


def test_new_partitions_have_as_many_replicas_and_leave_the_old_ones_alone() -> None:
    grown = grow(4).topic
    assert grown is not None
    assert grown.partitions[0] is TOPIC.partitions[0]
    assert [p.replicas for p in grown.partitions[1:]] == [(2, 3), (3, 1), (1, 3)]
    assert all(p.leader == p.replicas[0] and p.leader_epoch == 0 for p in grown.partitions[1:])
    assert grown.config == TOPIC.config


def test_new_partitions_can_be_placed_by_hand() -> None:
    grown = grow(2, [[3, 1]]).topic
    assert grown is not None
    assert grown.partitions[1] == PartitionImage(3, 0, (3, 1), (3, 1))


@pytest.mark.parametrize(
    ("count", "assignments", "error"),
    [
        (1, None, ErrorCode.invalid_partitions),
        (0, None, ErrorCode.invalid_partitions),
        (3, [[3, 1], [9, 1]], ErrorCode.invalid_replica_assignment),
        (2 + TOPIC_PARTITIONS_COUNT_MAX, None, ErrorCode.policy_violation),
        (3, [[1, 2]], ErrorCode.invalid_replica_assignment),
        (2, [[]], ErrorCode.invalid_replica_assignment),
        (2, [[1, 1]], ErrorCode.invalid_replica_assignment),
        (2, [[1, 9]], ErrorCode.invalid_replica_assignment),
        (2, [[1]], ErrorCode.invalid_replica_assignment),
    ],
)
def test_a_count_or_a_placement_that_cannot_be_is_refused(
    count: int, assignments: list[list[int]] | None, error: ErrorCode
) -> None:
    outcome = grow(count, assignments)
    assert (outcome.error, outcome.topic) == (error, None)
    assert outcome.message


def test_too_few_brokers_an_unknown_topic_and_an_internal_one_are_refused() -> None:
    alone = MetadataImage(cluster_id="c", brokers=BROKERS[:1])
    refused = decide_partitions(alone, "t", TOPIC, 2)
    assert refused.error is ErrorCode.invalid_replication_factor
    assert grow(2, topic=None).error is ErrorCode.unknown_topic_or_partition
    internal = replace(TOPIC, name="__consumer_offsets")
    assert grow(2, topic=internal).error is ErrorCode.invalid_partitions


def test_settings_are_set_and_removed() -> None:
    outcome = changed(("segment.ms", SET, "7"), ("retention.ms", DELETE, None))
    assert outcome.topic is not None
    assert outcome.topic.config == {"segment.ms": "7"}
    assert outcome.topic.partitions == TOPIC.partitions


def test_a_list_grows_and_shrinks_from_what_is_in_effect() -> None:
    policy = "cleanup.policy"
    outcome = changed((policy, APPEND, "compact,delete"))
    assert outcome.topic is not None
    assert outcome.topic.config[policy] == "delete,compact"
    changes = [ConfigChange(policy, SUBTRACT, "delete")]
    outcome = decide_config_changes("t", outcome.topic, changes, BrokerConfig())
    assert outcome.topic is not None
    assert outcome.topic.config[policy] == "compact"
    outcome = changed((policy, SUBTRACT, "delete"))
    assert outcome.topic is not None
    assert outcome.topic.config[policy] == ""
    outcome = changed((policy, SUBTRACT, "compact, delete"))
    assert outcome.topic is not None
    assert outcome.topic.config[policy] == ""
    outcome = changed((policy, SUBTRACT, "compact"))
    assert outcome.topic is not None
    assert outcome.topic.config[policy] == "delete"


@pytest.mark.parametrize(
    "change",
    [
        ("retention.ms", APPEND, "1"),
        ("retention.ms", SUBTRACT, "1"),
        ("no.such", APPEND, "1"),
        ("no.such", SET, "1"),
        ("retention.ms", SET, "soon"),
        ("cleanup.policy", APPEND, "shred"),
        ("cleanup.policy", SET, "x" * (CONFIG_VALUE_LENGTH_MAX + 1)),
    ],
)
def test_a_change_that_cannot_be_leaves_everything_as_it_was(
    change: tuple[str, ConfigOperation, str],
) -> None:
    outcome = changed(("segment.ms", SET, "7"), change)
    assert (outcome.error, outcome.topic) == (ErrorCode.invalid_config, None)


def test_a_replacement_keeps_nothing_that_it_does_not_name() -> None:
    outcome = decide_config_replacement("t", TOPIC, {"segment.ms": "7"})
    assert outcome.topic is not None
    assert outcome.topic.config == {"segment.ms": "7"}


@pytest.mark.parametrize(
    ("name", "config", "error"),
    [
        ("", {}, ErrorCode.invalid_request),
        ("a b", {}, ErrorCode.invalid_topic_exception),
        ("gone", {}, ErrorCode.unknown_topic_or_partition),
        ("gone", {"no.such": "1"}, ErrorCode.invalid_config),
    ],
)
def test_the_name_is_checked_first_and_the_topics_being_last(
    name: str, config: dict[str, str], error: ErrorCode
) -> None:
    assert decide_config_replacement(name, None, config).error is error
