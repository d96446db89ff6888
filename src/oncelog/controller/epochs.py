"""Leader epochs, and partitions without a leader.

When a partition's leader may have lost the end of its log, a new epoch begins.

Offsets behind what was lost are given out again. Under a new epoch a client that read the lost
records finds out (KIP-320), and the checkers tell the two apart. Pure; nothing here writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from oncelog.controller.image import TopicImage
from oncelog.core.ids import TopicPartition

__all__ = ["raise_epochs", "without_leader"]


def raise_epochs(topic: TopicImage, latest_epochs: Mapping[TopicPartition, int]) -> TopicImage:
    """The topic with a new leader epoch for each partition in `latest_epochs`.

    It is above the one of the metadata and above the newest in the log, which `latest_epochs` says:
    -1 where there is none.
    """
    partitions = tuple(
        replace(partition, leader_epoch=max(partition.leader_epoch, latest_epochs[label]) + 1)
        if label in latest_epochs
        else partition
        for label, partition in zip(topic.topic_partitions(), topic.partitions, strict=True)
    )
    return topic if partitions == topic.partitions else replace(topic, partitions=partitions)


def without_leader(topic: TopicImage, off_line: Set[TopicPartition], broker_id: int) -> TopicImage:
    """The topic while the only replicas of some partitions are off line: they have no leader.

    As in Kafka the last in-sync replica stays in sync. Unlike there no new epoch begins: it would
    not be kept, and after a restart clients would know of a later one than the broker.
    """
    partitions = tuple(
        replace(partition, leader=-1, offline_replicas=(broker_id,))
        if label in off_line
        else partition
        for label, partition in zip(topic.topic_partitions(), topic.partitions, strict=True)
    )
    return topic if partitions == topic.partitions else replace(topic, partitions=partitions)
