"""Builds parts of responses that several handlers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from oncelog.controller.image import BrokerImage, MetadataImage, PartitionImage
from oncelog.core.errors import ErrorCode
from oncelog.protocol.fetch import FetchTopicResponse
from oncelog.protocol.produce import NodeEndpoint, ProduceTopicResponse

__all__ = [
    "absent",
    "by_id",
    "each_once",
    "leader_endpoints",
    "offline_replicas",
    "registered_leader",
    "shown_eligible",
    "shown_isr",
]

T = TypeVar("T")

_NOT_LEADER: Final = ErrorCode.not_leader_or_follower


def each_once(items: Iterable[T], key: Callable[[T], object]) -> tuple[T, ...]:
    """Return the items in order, without those whose key occurred before.

    Without this, a frame of one megabyte that names one topic 100,000 times would get a reply of
    gigabytes.
    """
    first: dict[object, T] = {}
    for item in items:
        first.setdefault(key(item), item)
    return tuple(first.values())


def by_id(image: MetadataImage) -> list[BrokerImage]:
    """Return the registered brokers in the order of their ids: each of them answers the same."""
    return [image.brokers[broker_id] for broker_id in sorted(image.brokers)]


def registered_leader(image: MetadataImage, partition: PartitionImage) -> int:
    """Return the leader of a partition; -1 for none, and for one that is not registered."""
    return partition.leader if partition.leader in image.brokers else -1


def leader_endpoints(
    image: MetadataImage, topics: Iterable[ProduceTopicResponse | FetchTopicResponse]
) -> list[NodeEndpoint]:
    """Return the addresses of the leaders that a response of Produce or Fetch names (KIP-951)."""
    leaders = {
        partition.current_leader[0]
        for topic in topics
        for partition in topic.partitions
        if partition.current_leader is not None
    }
    return [
        NodeEndpoint(each, broker.host, broker.port, broker.rack)
        for each in sorted(leaders)
        if (broker := image.brokers.get(each)) is not None
    ]


def offline_replicas(image: MetadataImage, partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas whose broker is not registered, or whose log directory is off line."""
    return tuple(
        replica
        for replica in partition.replicas
        if replica not in image.brokers or replica in partition.offline_replicas
    )


def shown_isr(image: MetadataImage, partition: PartitionImage) -> tuple[int, ...]:
    """Return the members of the ISR whose broker is registered, as Kafka keeps an ISR (KIP-966).

    A state keeps those that are gone while there is no leader: tools that count would take such a
    partition for one with all its replicas in sync.
    """
    isr, live = partition.isr, image.brokers
    return isr if live.keys() >= set(isr) else tuple(each for each in isr if each in live)


def shown_eligible(image: MetadataImage, partition: PartitionImage) -> tuple[int, ...]:
    """Return who may lead without being in the shown ISR: the eligible brokers.

    While there is no leader, also the members of the ISR that are gone.
    """
    isr, live = partition.isr, image.brokers
    if partition.leader in live or live.keys() >= set(isr):
        return partition.eligible
    return partition.eligible + tuple(each for each in isr if each not in live)


def absent(image: MetadataImage, broker_id: int, topic: str, index: int) -> ErrorCode:
    """Return the error for a partition that this broker does not host."""
    held = image.partition(topic, index)
    if held is None:
        return ErrorCode.unknown_topic_or_partition
    # Its log directory here has been offline since the start. Another broker's says nothing of us.
    is_off_line = broker_id in held.offline_replicas
    return ErrorCode.kafka_storage_error if is_off_line else _NOT_LEADER
