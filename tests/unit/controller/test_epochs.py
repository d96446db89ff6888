"""New leader epochs after what may have been a loss."""

from uuid import UUID

from oncelog.controller.epochs import raise_epochs
from oncelog.controller.image import PartitionImage, TopicImage
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import INT32_MAX


def topic(*epochs: int) -> TopicImage:
    return TopicImage("t", UUID(int=1), tuple(PartitionImage(1, e, (1,), (1,)) for e in epochs))


def epochs(changed: TopicImage) -> list[int]:
    return [partition.leader_epoch for partition in changed.partitions]


def test_a_new_epoch_is_above_the_metadatas_and_the_logs() -> None:
    latest = {TopicPartition("t", 0): 3, TopicPartition("t", 1): 7, TopicPartition("t", 2): -1}
    assert epochs(raise_epochs(topic(5, 5, 5), latest)) == [6, 8, 6]


def test_the_largest_epoch_stays() -> None:
    latest = {TopicPartition("t", 0): INT32_MAX, TopicPartition("t", 1): INT32_MAX - 1}
    assert epochs(raise_epochs(topic(5, 5), latest)) == [INT32_MAX, INT32_MAX]


def test_partitions_that_lost_nothing_keep_their_epoch() -> None:
    before = topic(5, 5)
    assert epochs(raise_epochs(before, {TopicPartition("t", 1): 0})) == [5, 6]
    assert raise_epochs(before, {TopicPartition("u", 0): 9}) is before
