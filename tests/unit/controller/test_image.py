"""What may be answered while a change is applied, and once it is."""

from uuid import UUID

from oncelog.controller.image import (
    ImageDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
    while_applying,
)


def topic(name: str, number: int, count: int = 1) -> TopicImage:
    return TopicImage(name, UUID(int=number), (PartitionImage(1, 0, (1,), (1,)),) * count)


def image(*topics: TopicImage) -> MetadataImage:
    return MetadataImage(cluster_id="c", topics=topics)


APPLIED = image(topic("grown", 1), topic("failed", 2), topic("deleted", 3))
TARGET = image(topic("grown", 1, 2), topic("failed", 2, 2), topic("new", 4), topic("lost", 5))


def test_a_delta_names_what_went_came_and_changed() -> None:
    assert TARGET.delta_from(APPLIED) == ImageDelta(
        deleted=(topic("deleted", 3),),
        created=(topic("new", 4), topic("lost", 5)),
        changed=(topic("grown", 1, 2), topic("failed", 2, 2)),
    )


def test_while_a_change_is_applied_nothing_is_named_that_it_deletes_or_brings() -> None:
    shown = while_applying(TARGET.delta_from(APPLIED), APPLIED)
    assert dict(shown.topics) == {"grown": topic("grown", 1), "failed": topic("failed", 2)}
