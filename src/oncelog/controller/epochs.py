"""Raises leader epochs, elects another leader, and marks partitions without one.

A new epoch begins when a partition's leader may have lost the end of its log: the lost offsets are
assigned again. The new epoch lets a client that read the lost records detect it (KIP-320), and the
checkers distinguish the two. Pure; nothing here writes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Set
from dataclasses import replace

from oncelog.controller.image import PartitionImage, TopicImage
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import INT32_MAX

__all__ = ["raise_epochs", "without_leader", "without_replica"]


def raise_epochs(topic: TopicImage, latest_epochs: Mapping[TopicPartition, int]) -> TopicImage:
    """Return the topic with a new leader epoch for each partition in `latest_epochs`.

    The new epoch is above the one in the metadata and above the newest one in the log, which
    `latest_epochs` has; -1 for a log without epochs. A damaged batch may have the largest epoch
    there is: it stays.
    """
    partitions = tuple(
        replace(partition, leader_epoch=_above(partition.leader_epoch, latest_epochs[label]))
        if label in latest_epochs
        else partition
        for label, partition in zip(topic.topic_partitions(), topic.partitions, strict=True)
    )
    return topic if partitions == topic.partitions else replace(topic, partitions=partitions)


def _above(stored: int, latest: int) -> int:
    return min(max(stored, latest) + 1, INT32_MAX)


def without_replica(
    partition: PartitionImage, broker_id: int, live: Container[int]
) -> PartitionImage:
    """Return the partition without a broker in its ISR; another live member leads if it led.

    The first member in the order of the replicas does. Without one the partition stays as it is.
    """
    isr = tuple(member for member in partition.isr if member != broker_id)
    able = [replica for replica in partition.replicas if replica in isr and replica in live]
    if not able or isr == partition.isr:
        return partition
    leader = able[0] if partition.leader == broker_id else partition.leader
    epoch = min(partition.leader_epoch + (leader != partition.leader), INT32_MAX)
    return replace(partition, leader=leader, leader_epoch=epoch, isr=isr)


def without_leader(topic: TopicImage, off_line: Set[int], broker_id: int) -> TopicImage:
    """Return the topic with no leader for partitions whose only replicas are off line.

    As in Kafka the last in-sync replica stays in the ISR. Unlike in Kafka no new epoch begins: it
    would not be stored, and after a restart clients would know a later epoch than the broker.
    """
    partitions = list(topic.partitions)
    for number in off_line:
        if number < len(partitions):
            shown = replace(partitions[number], leader=-1, offline_replicas=(broker_id,))
            partitions[number] = shown
    return replace(topic, partitions=tuple(partitions))
