"""Where new partitions are placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.controller.changes import decide_partitions
from oncelog.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from oncelog.controller.placement import new_partitions, placeable_brokers
from oncelog.controller.topics import CreationDefaults, TopicOutcome, TopicToCreate, decide_creation
from oncelog.core.errors import ErrorCode
from tests.unit.controller.cluster import ID, broker

NO_RACKS = dict.fromkeys((1, 2, 3))


def replicas(*args: object) -> list[tuple[int, ...]]:
    return [partition.replicas for partition in new_partitions(*args)]  # type: ignore[arg-type]


def test_leaders_go_round_and_followers_begin_elsewhere_each_round() -> None:
    assert replicas(NO_RACKS, 0, range(6), 2) == [(1, 2), (2, 3), (3, 1), (1, 3), (2, 1), (3, 2)]
    assert replicas(NO_RACKS, 1, range(3), 3) == [(2, 3, 1), (3, 1, 2), (1, 2, 3)]


def test_what_a_dead_broker_led_is_spread_over_all_others() -> None:
    five = dict.fromkeys((1, 2, 3, 4, 5))
    placed = replicas(five, 0, range(20), 3)
    assert Counter(one[1] for one in placed if one[0] == 1) == {2: 1, 3: 1, 4: 1, 5: 1}


def test_a_lone_broker_has_one_replica_of_each() -> None:
    assert replicas({7: None}, 3, range(2), 1) == [(7,), (7,)]


RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}


def test_replicas_are_spread_over_racks() -> None:
    placed = replicas(RACKS, 0, range(25), 3)
    assert all({RACKS[one] for one in part} == {"a", "b", "c"} for part in placed)
    assert Counter(part[0] for part in placed) == dict.fromkeys(RACKS, 5)


def test_racks_count_only_where_every_broker_has_one() -> None:
    some: dict[int, str | None] = {1: "a", 2: None, 3: "b"}
    assert replicas(some, 0, range(3), 2) == replicas(NO_RACKS, 0, range(3), 2)


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
    st.integers(0, 20),
    st.integers(1, 12),
    st.data(),
)
def test_any_placement_is_even_and_over_as_many_racks_as_can_be(
    names: list[str], start: int, count: int, data: st.DataObject
) -> None:
    racks: dict[int, str | None] = dict(enumerate(names))
    factor = data.draw(st.integers(1, len(racks)))
    placed = replicas(racks, start, range(count), factor)
    for part in placed:
        assert len(set(part)) == factor
        assert len({racks[one] for one in part}) == min(factor, len(set(names)))
    leaders = Counter(part[0] for part in placed)
    assert max(leaders.values()) - min(leaders.get(one, 0) for one in racks) <= 1


# --- which brokers take replicas


def created(image: MetadataImage, new: TopicToCreate) -> TopicOutcome:
    return decide_creation(image, new, ID, CreationDefaults())


def image(
    *brokers: BrokerImage, topics: list[TopicImage] | None = None, away: Iterable[int] = ()
) -> MetadataImage:
    directories = dict.fromkeys(away, frozenset({"d"}))
    return MetadataImage(
        cluster_id="c", brokers=brokers, topics=topics or [], directories=directories
    )


STOPPING = broker(2, is_shutting_down=True)
DOUBTED = broker(4, is_clean=False)
ALONE = PartitionImage(1, 0, (1,), (1,))
ID2 = UUID(int=2)


def test_brokers_that_shut_down_or_are_doubted_take_no_replica() -> None:
    some = image(broker(3, rack="r"), STOPPING, broker(1), DOUBTED)
    assert placeable_brokers(some) == {1: None, 3: "r"}
    topic = created(some, TopicToCreate("t", 2, 2)).topic
    assert topic is not None
    assert [one.replicas for one in topic.partitions] == [(1, 3), (3, 1)]


def test_where_the_live_ones_are_too_few_others_are_replicas_out_of_sync() -> None:
    some = image(broker(1), STOPPING, DOUBTED, away=[9])
    topic = created(some, TopicToCreate("t", 3, 3)).topic
    assert topic is not None
    assert [one.replicas for one in topic.partitions] == [(1, 2, 4), (1, 4, 9), (1, 9, 2)]
    assert {(one.leader, one.isr) for one in topic.partitions} == {(1, (1,))}
    grown = decide_partitions(some, "t", topic, 4).topic
    assert grown is not None
    assert grown.partitions[3] == topic.partitions[0]
    refused = created(some, TopicToCreate("t", 1, 5))
    assert refused.error is ErrorCode.invalid_replication_factor
    assert "only 4 broker(s) are registered" in (refused.message or "")


def test_a_topic_that_grows_goes_on_with_the_broker_after_its_last_leader() -> None:
    brokers, other = [broker(1), broker(2), broker(3)], TopicImage("o", ID2, (ALONE,))
    new = created(image(*brokers, topics=[other]), TopicToCreate("t", 2, 2)).topic
    assert new is not None
    grown = decide_partitions(image(*brokers, topics=[other, new]), "t", new, 4).topic
    assert grown is not None
    assert [one.leader for one in grown.partitions] == [2, 3, 1, 2]


def test_no_topic_is_placed_where_no_broker_could_lead_it() -> None:
    some = image(STOPPING, DOUBTED)
    for refused in (
        created(some, TopicToCreate("t", 1, 1)),
        decide_partitions(some, "t", TopicImage("t", ID, (PartitionImage(2, 0, (2,), (2,)),)), 2),
    ):
        assert refused.error is ErrorCode.invalid_replication_factor
        assert refused.message == "All brokers are away or shutting down."


def test_a_manual_placement_may_name_brokers_that_are_away() -> None:
    some = image(broker(1), away=[2])
    topic = created(some, TopicToCreate("t", assignment={0: (2, 1)})).topic
    assert topic is not None
    assert topic.partitions == (PartitionImage(1, 0, (1,), (2, 1)),)
    assert decide_partitions(some, "t", topic, 2, [[2, 1]]).error is ErrorCode.none
    for unknown in (
        created(some, TopicToCreate("u", assignment={0: (1, 3)})),
        decide_partitions(some, "t", topic, 2, [[1, 3]]),
    ):
        assert unknown.error is ErrorCode.invalid_replica_assignment


def test_a_manual_placement_begins_with_the_live_ones_in_sync() -> None:
    some = image(broker(1), STOPPING)
    topic = created(some, TopicToCreate("t", assignment={0: (2, 1)})).topic
    assert topic is not None
    assert topic.partitions == (PartitionImage(1, 0, (1,), (2, 1)),)
    grown = decide_partitions(some, "t", topic, 2, [[2, 1]]).topic
    assert grown is not None
    assert grown.partitions[1] == topic.partitions[0]


@pytest.mark.parametrize("replicas", [(2,), (2, 4)])
def test_a_manual_placement_without_a_live_broker_is_refused(replicas: tuple[int, ...]) -> None:
    some = image(broker(1), STOPPING, DOUBTED)
    outcome = created(some, TopicToCreate("t", assignment={0: replicas}))
    assert outcome.error is ErrorCode.invalid_replica_assignment
    topic = TopicImage("t", ID, (PartitionImage(1, 0, replicas, replicas),))
    refused = decide_partitions(some, "t", topic, 2, [replicas])
    assert refused.error is ErrorCode.invalid_replica_assignment


def test_partitions_are_placed_where_those_before_left_off() -> None:
    three = [broker(number) for number in (1, 2, 3)]
    first = created(image(*three), TopicToCreate("t", 2, 1)).topic
    assert first is not None
    second = created(image(*three, topics=[first]), TopicToCreate("u", 1, 1)).topic
    assert second is not None
    assert [one.leader for one in (*first.partitions, *second.partitions)] == [1, 2, 3]
    grown = decide_partitions(image(*three, topics=[first]), "t", first, 4).topic
    assert grown is not None
    assert [one.leader for one in grown.partitions] == [1, 2, 3, 1]
