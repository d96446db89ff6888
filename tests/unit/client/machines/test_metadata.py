"""Old news never replaces newer."""

from uuid import UUID

from oncelog.client.machines.metadata import MetadataCache
from oncelog.client.values import Node, PartitionDescription, TopicDescription
from oncelog.core.ids import TopicPartition

TP = TopicPartition("t", 0)
FIRST, SECOND = UUID(int=1), UUID(int=2)


def topic(leader: int, epoch: int, topic_id: UUID = FIRST) -> TopicDescription:
    return TopicDescription("t", topic_id, (PartitionDescription(0, leader, epoch, (1, 2), (1,)),))


def cache(*topics: TopicDescription) -> MetadataCache:
    made = MetadataCache()
    made.update_cluster([Node(1, "a", 1), Node(2, "b", 2)], "c", 1)
    for described in topics:
        made.update_topic(described)
    return made


def test_a_leader_of_an_older_epoch_is_kept_out() -> None:
    assert cache(topic(2, 5), topic(1, 4)).leader(TP) == 2


def test_a_newer_epoch_wins() -> None:
    assert cache(topic(2, 5), topic(1, 6)).leader(TP) == 1


def test_a_topic_created_again_starts_at_zero() -> None:
    assert cache(topic(2, 5), topic(1, 0, SECOND)).leader(TP) == 1


def test_a_contradicted_topic_is_not_used_until_it_was_told_again() -> None:
    known = cache(topic(1, 0))
    known.mark_stale("t")
    assert not known.is_fresh("t")
    assert known.usable_leader(TP) is None
    known.update_topic(topic(1, 0))
    assert known.is_fresh("t")
    assert known.usable_leader(TP) == 1


def test_a_partition_without_a_leader_has_none() -> None:
    known = cache(topic(-1, 3))
    assert known.leader(TP) is None
    assert not known.is_fresh("t")


def test_a_forgotten_topic_is_unknown() -> None:
    known = cache(topic(1, 0))
    known.forget_topic("t")
    assert known.partition_count("t") is None
    assert known.topic_id("t") is None
    assert known.partition(TP) is None
