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


def test_an_image_counts_partitions_and_knows_names_that_collide_as_one_made_anew_does() -> None:
    dotted = [topic("a.b", 1, 2), topic("c_d", 2, 3), topic("e", 3)]
    before = MetadataImage(cluster_id="c", topics=dotted)
    delta = ImageDelta(
        deleted=(dotted[0], dotted[2]),
        created=(topic("a_b", 4, 5), topic("f.g", 5)),
        changed=(TopicDelta(topic("c_d", 2, 7), [3]),),
    )
    after = before.after(delta)
    anew = MetadataImage(cluster_id="c", topics=after.topics.values())
    for image, count, names in (
        (before, 6, ["a.b", "c_d", None]),
        (after, 13, ["a_b", "c_d", "f.g"]),
        (anew, 13, ["a_b", "c_d", "f.g"]),
        # What is shown while it is applied has nothing of what it brings.
        (while_applying(delta, before, 1), 3, [None, "c_d", None]),
    ):
        assert image.partitions_count == count
        assert [image.colliding(name) for name in ("a.b", "c.d", "f_g")] == names
        assert image.colliding("e") is None


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
