"""What an image is after a change, and what may be answered while the change is applied."""

from dataclasses import replace
from uuid import UUID

from oncelog.controller.image import (
    BrokerImage,
    ImageDelta,
    MetadataImage,
    PartitionImage,
    TopicDelta,
    TopicImage,
    while_applying,
)


def topic(name: str, number: int, count: int = 1) -> TopicImage:
    return TopicImage(name, UUID(int=number), (PartitionImage(1, 0, (1,), (1,)),) * count)


BEFORE = MetadataImage(
    cluster_id="c", topics=(topic("grown", 1), topic("deleted", 3), topic("gone", 6))
)
DELTA = ImageDelta(
    deleted=(topic("deleted", 3), topic("gone", 6)),
    created=(topic("new", 4), topic("deleted", 5)),
    changed=(TopicDelta(topic("grown", 1, 2), [1]),),
)


def test_an_image_after_a_change_shares_what_stays() -> None:
    after = BEFORE.after(DELTA, revision=7)
    assert dict(after.topics) == {
        "grown": topic("grown", 1, 2),
        "new": topic("new", 4),
        "deleted": topic("deleted", 5),
    }
    assert after.topic_by_id(UUID(int=3)) is after.topic_by_id(UUID(int=6)) is None
    assert after.topic_by_id(UUID(int=5)) == topic("deleted", 5)
    assert (after.revision, BEFORE.revision) == (7, 0)
    assert list(BEFORE.topics) == ["grown", "deleted", "gone"]
    moved = after.after(ImageDelta(), brokers={1: BrokerImage(1, "h", 9092)})
    assert moved.topics is after.topics
    assert (list(moved.brokers), list(after.brokers)) == ([1], [])


def test_all_of_what_is_created_is_to_be_served_and_what_has_changed_of_the_rest() -> None:
    found = [(change.topic.name, list(change.partitions)) for change in DELTA.assigned()]
    assert found == [("new", [0]), ("deleted", [0]), ("grown", [1])]


def test_while_a_change_is_applied_nothing_is_named_that_it_deletes_or_brings() -> None:
    assert dict(while_applying(DELTA, BEFORE, 1).topics) == {"grown": topic("grown", 1)}


def test_while_a_change_is_applied_a_broker_names_others_where_it_led() -> None:
    mine, others = PartitionImage(1, 0, (1,), (1, 2)), PartitionImage(2, 1, (2,), (1, 2))
    shrunk = replace(mine, isr=(1, 2), partition_epoch=1)
    before = TopicImage("t", UUID(int=1), (mine, others, mine, mine, mine), {"a": "b"})
    after = TopicImage("t", UUID(int=1), (others, mine, mine, shrunk, others))
    delta = ImageDelta(changed=(TopicDelta(after, [0, 1, 3, 4]),))
    shown = while_applying(delta, MetadataImage(cluster_id="c", topics=(before,)), 1)
    assert shown.topics["t"] == TopicImage(
        "t", UUID(int=1), (others, others, mine, mine, others), {"a": "b"}
    )


def test_an_image_from_nothing_brings_every_topic() -> None:
    assert BEFORE.delta_from_nothing() == ImageDelta(created=tuple(BEFORE.topics.values()))
