"""Derives the role that a broker takes in a partition from the metadata."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.controller.cluster_config import min_insync_replicas
from oncelog.controller.image import PartitionImage, TopicImage
from oncelog.replication.replica import Assignment

__all__ = ["assignment_of"]


def assignment_of(
    topic: TopicImage, image: PartitionImage, cluster_config: Mapping[str, str]
) -> Assignment:
    """Return what the metadata gives each replica of a partition of this topic."""
    return Assignment(
        image.leader,
        image.leader_epoch,
        frozenset(image.isr),
        image.replicas,
        min(min_insync_replicas(topic.config, cluster_config), image.settled_count),
        image.partition_epoch,
        frozenset(image.eligible),
    )
