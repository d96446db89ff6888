"""Decides which leaderships go back to the preferred replicas: the first of each assignment.

A broker that was away leads nothing when it comes back, and all that its partitions cost stays with
the others. As in Kafka's controller (`auto.leader.rebalance.enable`) a broker gets its leaderships
back once others have more than a share of them.
"""

from __future__ import annotations

from oncelog.controller.image import MetadataImage
from oncelog.core.ids import TopicPartition

__all__ = ["leaderships_to_bring_back"]


def leaderships_to_bring_back(
    image: MetadataImage, percentage_max: int
) -> tuple[TopicPartition, ...]:
    """Return the partitions in which the preferred replica is to be elected, in order.

    It is registered, in the ISR, and others lead more than `percentage_max` percent of what it
    should lead.
    """
    preferred_counts: dict[int, int] = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for _, topic in sorted(image.topics.items()):
        for number, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            preferred_counts[preferred] = preferred_counts.get(preferred, 0) + 1
            if partition.leader != preferred:
                elsewhere.setdefault(preferred, []).append(topic.label(number))
    found = []
    for broker_id, labels in elsewhere.items():
        broker = image.brokers.get(broker_id)
        if broker is None or broker.is_shutting_down:
            continue
        if len(labels) * 100 <= preferred_counts[broker_id] * percentage_max:
            continue
        for label in labels:
            partition = image.topics[label.topic].partitions[label.partition]
            if broker_id in partition.isr and broker_id not in partition.offline_replicas:
                found.append(label)
    return tuple(sorted(found))
