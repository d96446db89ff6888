"""Names, counts, placement and what the store keeps of a topic."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.controller.image import (
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from oncelog.controller.topics import (
    CreationDefaults,
    TopicOutcome,
    TopicToCreate,
    decide_creation,
    decide_creations,
    name_problem,
)
from oncelog.core.errors import ErrorCode
from tests.support.calls import calls_of

ID_A, ID_B = UUID(int=1), UUID(int=2)
DEFAULTS = CreationDefaults(partitions=3, replication_factor=2)


def image(*topics: TopicImage, brokers: int = 3) -> MetadataImage:
    return MetadataImage(
        cluster_id="c",
        topics=topics,
        brokers=[BrokerImage(number, "host", 9092) for number in range(1, brokers + 1)],
    )


def topic(name: str, topic_id: UUID = ID_A, partitions: int = 1, leader: int = 1) -> TopicImage:
    one = PartitionImage(leader, 0, (1,), (1,))
    return TopicImage(name, topic_id, (one,) * partitions)


def decide(new: TopicToCreate, before: MetadataImage | None = None) -> TopicOutcome:
    return decide_creation(before or image(), new, ID_B, DEFAULTS)


def test_counts_of_minus_one_take_the_defaults() -> None:
    made = decide(TopicToCreate("t")).topic
    assert made is not None
    assert [partition.replicas for partition in made.partitions] == [(1, 2), (2, 3), (3, 1)]
    assert all(partition.leader == partition.replicas[0] for partition in made.partitions)
    assert all(partition.isr == partition.replicas for partition in made.partitions)


def test_topics_of_one_request_are_decided_on_as_if_those_before_existed() -> None:
    wanted = [
        TopicToCreate("a.b", 1, 1),
        TopicToCreate("a_b", 1, 1),
        TopicToCreate("a.b", 1, 1),
        TopicToCreate("c", 1, 1),
    ]
    outcomes = decide_creations(image(), wanted, [ID_A, ID_B, ID_A, ID_B], DEFAULTS)
    assert [outcome.error for outcome in outcomes] == [
        ErrorCode.none,
        ErrorCode.invalid_topic_exception,
        ErrorCode.topic_already_exists,
        ErrorCode.none,
    ]
    made = [outcome.topic for outcome in outcomes if outcome.topic is not None]
    assert [one.partitions[0].replicas for one in made] == [(1,), (2,)]


def calls_of_a_creation(topics_count: int) -> int:
    """How many functions start for one topic more."""
    before = image(*(topic(f"t_{number}", UUID(int=number)) for number in range(topics_count)))
    return calls_of(lambda: decide(TopicToCreate("another.one"), before))


def test_a_topic_costs_the_same_however_many_there_are() -> None:
    assert calls_of_a_creation(300) == calls_of_a_creation(3)


def test_placement_goes_on_where_the_existing_partitions_end() -> None:
    made = decide(TopicToCreate("t", 1, 1), image(topic("a", partitions=4))).topic
    assert made is not None
    assert made.partitions[0].replicas == (2,)


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (TopicToCreate(""), ErrorCode.invalid_topic_exception),
        (TopicToCreate("a/b"), ErrorCode.invalid_topic_exception),
        (TopicToCreate("there.x"), ErrorCode.topic_already_exists),
        (TopicToCreate("there_x"), ErrorCode.invalid_topic_exception),
        (TopicToCreate("t", 0), ErrorCode.invalid_partitions),
        (TopicToCreate("t", 0, 0), ErrorCode.invalid_replication_factor),
        (TopicToCreate("t", -2), ErrorCode.invalid_partitions),
        (TopicToCreate("t", 10_001), ErrorCode.policy_violation),
        (TopicToCreate("t", 1, 0), ErrorCode.invalid_replication_factor),
        (TopicToCreate("t", 1, 4), ErrorCode.invalid_replication_factor),
        (TopicToCreate("t", config={"x": "1"}), ErrorCode.invalid_config),
        (TopicToCreate("t", config={"retention.ms": None}), ErrorCode.invalid_config),
        (TopicToCreate("t", 5, -1, {0: (1,)}), ErrorCode.invalid_request),
        (TopicToCreate("t", -1, 1, {0: (1,)}), ErrorCode.invalid_request),
        (TopicToCreate("t", assignment={1: (1,)}), ErrorCode.invalid_replica_assignment),
        (TopicToCreate("t", assignment={0: ()}), ErrorCode.invalid_replica_assignment),
        (TopicToCreate("t", assignment={0: (1, 1)}), ErrorCode.invalid_replica_assignment),
        (TopicToCreate("t", assignment={0: (9,)}), ErrorCode.invalid_replica_assignment),
        (TopicToCreate("t", assignment={0: (1,), 1: (1, 2)}), ErrorCode.invalid_replica_assignment),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_error(new: TopicToCreate, error: ErrorCode) -> None:
    outcome = decide(new, image(topic("there.x")))
    assert outcome.error is error
    assert outcome.topic is None
    assert outcome.message


def test_an_assignment_by_hand_is_taken_as_it_is() -> None:
    made = decide(TopicToCreate("t", assignment={1: (3, 1), 0: (2, 3)})).topic
    assert made is not None
    assert [partition.replicas for partition in made.partitions] == [(2, 3), (3, 1)]


@pytest.mark.parametrize("name", [".", "..", "ä", "a b", "a" * 250, "a\n"])
def test_bad_names_have_a_reason(name: str) -> None:
    assert name_problem(name)


@pytest.mark.parametrize("name", ["a", "a.b_c-D9", "...", "a" * 249])
def test_good_names_have_none(name: str) -> None:
    assert name_problem(name) is None
