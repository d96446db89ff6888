"""Leader epochs: when a partition's leader may have lost the end of its log, a new one begins.

Offsets behind what was lost are given out again. Under a new epoch a client that read the lost
records finds out (KIP-320), and the checkers tell the two apart. Pure; nothing here writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oncelog.controller.image import TopicImage
from oncelog.core.ids import TopicPartition

__all__ = ["raise_epochs"]


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
