"""Builds parts of responses that several handlers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from oncelog.controller.image import MetadataImage, PartitionImage
from oncelog.core.errors import ErrorCode
from oncelog.core.listeners import Endpoint
from oncelog.protocol.fetch import FetchTopicResponse
from oncelog.protocol.produce import NodeEndpoint, ProduceTopicResponse

__all__ = [
    "ShownCluster",
    "absent",
    "each_once",
    "leader_endpoints",
    "shown_by",
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


class ShownCluster(NamedTuple):
    """The metadata as clients of one listener see it."""

    image: MetadataImage
    brokers: Mapping[int, Endpoint]
    """Where they reach the brokers that have the listener, in the order of their ids."""

    @property
    def controller_id(self) -> int:
        """The controller; another broker, which forwards to it, where it has no such listener."""
        controller_id = self.image.controller_id
        if controller_id in self.brokers or controller_id not in self.image.brokers:
            return controller_id
        return next(iter(self.brokers), -1)

    def leader(self, partition: PartitionImage) -> tuple[int, ErrorCode]:
        """Return the leader of a partition; -1 where none is reached, with the reason."""
        leader = partition.leader
        if leader in self.brokers:
            return leader, ErrorCode.none
        if leader in self.image.brokers:
            return -1, ErrorCode.listener_not_found
        return -1, ErrorCode.leader_not_available

    def offline_replicas(self, partition: PartitionImage) -> tuple[int, ...]:
        """Return the replicas whose broker is not reached, or whose log directory is off line."""
        return tuple(
            replica
            for replica in partition.replicas
            if replica not in self.brokers or replica in partition.offline_replicas
        )


def shown_by(image: MetadataImage, listener: str) -> ShownCluster:
    """Return the metadata as clients of a listener see it: every broker answers them the same."""
    addresses = (
        (each, image.brokers[each].endpoint_of(listener)) for each in sorted(image.brokers)
    )
    return ShownCluster(image, {each: found for each, found in addresses if found is not None})


def leader_endpoints(
    image: MetadataImage,
    listener: str,
    topics: Iterable[ProduceTopicResponse | FetchTopicResponse],
) -> list[NodeEndpoint]:
    """Return the addresses of the leaders that a response of Produce or Fetch names (KIP-951)."""
    leaders = {
        partition.current_leader[0]
        for topic in topics
        for partition in topic.partitions
        if partition.current_leader is not None
    }
    return [
        NodeEndpoint(each, *endpoint, broker.rack)
        for each in sorted(leaders)
        if (broker := image.brokers.get(each)) is not None
        and (endpoint := broker.endpoint_of(listener)) is not None
    ]


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
