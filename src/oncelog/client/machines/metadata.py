"""Caches the cluster's metadata: brokers, topics, leaders. Older metadata never replaces newer.

Leader epochs order the answers of different brokers (KIP-320): a partition's leader with a lower
epoch than the known one is ignored, unless the topic's id changed. This module sends nothing;
`oncelog.client.cluster` updates it.
"""

from collections.abc import Callable, Iterable

from oncelog.client.machines.positions import NO_EPOCH, Leadership
from oncelog.client.values import Node, PartitionDescription, TopicDescription
from oncelog.core.ids import TopicId, TopicPartition

__all__ = ["MetadataCache"]


class MetadataCache:
    """The requested topics, and every broker of the last reply.

    `controller_id` is -1 while unknown.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicDescription] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.missing: set[str] = set()
        """Topics that the last answer about them did not know."""
        self._stale: set[str] = set()

    def update_cluster(
        self, nodes: Iterable[Node], cluster_id: str | None, controller_id: int
    ) -> None:
        """Replace the list of brokers."""
        self.nodes = {node.node_id: node for node in nodes}
        self.cluster_id = cluster_id
        self.controller_id = controller_id

    def update_topic(self, topic: TopicDescription) -> bool:
        """Apply a topic's description, except leaders older than the known ones.

        Return whether it was fresh, or is another one than before.
        """
        known = self.topics.get(topic.name)
        was_fresh = self.is_fresh(topic.name)
        self._stale.discard(topic.name)
        self.missing.discard(topic.name)
        if known is not None and known.topic_id == topic.topic_id:
            newer = {p.index: p for p in known.partitions}
            kept = tuple(_newer(p, newer.get(p.index)) for p in topic.partitions)
            topic = TopicDescription(topic.name, topic.topic_id, kept, topic.is_internal)
        self.topics[topic.name] = topic
        return was_fresh or topic != known

    def forget_topic(self, name: str) -> None:
        """Drop a topic that does not exist."""
        self.topics.pop(name, None)
        self._stale.discard(name)

    def mark_missing(self, name: str) -> None:
        """Drop a topic that was asked for and that the broker does not know."""
        self.forget_topic(name)
        self.missing.add(name)

    def mark_stale(self, name: str) -> None:
        """Mark a topic whose metadata a response contradicted (by NOT_LEADER_OR_FOLLOWER).

        It is requested again before the next use.
        """
        self._stale.add(name)

    def is_fresh(self, name: str) -> bool:
        """Whether the topic is known, every partition has a leader, and none contradicts it."""
        topic = self.topics.get(name)
        if topic is None or name in self._stale:
            return False
        return all(p.leader >= 0 for p in topic.partitions)

    def leader(self, topic_partition: TopicPartition) -> int | None:
        """Return the broker id of the partition's leader; None if unknown or without a leader."""
        partition = self.partition(topic_partition)
        if partition is None or partition.leader not in self.nodes:
            return None
        return partition.leader

    def usable_leader(self, topic_partition: TopicPartition) -> int | None:
        """Like `leader`, but None while the topic is marked stale."""
        if topic_partition.topic in self._stale:
            return None
        return self.leader(topic_partition)

    def another(
        self, peer: str, turn: int, failure_count: Callable[[tuple[str, int]], int]
    ) -> int | None:
        """Return the id of another broker than `peer`, in turn, of those that were reached last."""
        others = [
            node.node_id
            for _, node in sorted(self.nodes.items())
            if f"{node.host}:{node.port}" != peer and not failure_count((node.host, node.port))
        ]
        return others[turn % len(others)] if others else None

    def partition(self, topic_partition: TopicPartition) -> PartitionDescription | None:
        """Return the partition's metadata."""
        topic = self.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def leadership(self, topic_partition: TopicPartition) -> Leadership:
        """Return the partition's leader epoch and topic id, as far as known."""
        partition = self.partition(topic_partition)
        epoch = NO_EPOCH if partition is None else partition.leader_epoch
        return Leadership(self.topic_id(topic_partition.topic), epoch)

    def partition_count(self, name: str) -> int | None:
        """Number of the topic's partitions, None when the topic is unknown."""
        topic = self.topics.get(name)
        return None if topic is None else len(topic.partitions)

    def topic_id(self, name: str) -> TopicId | None:
        """The topic's identity, None when unknown."""
        topic = self.topics.get(name)
        return None if topic is None else topic.topic_id


def _newer(told: PartitionDescription, known: PartitionDescription | None) -> PartitionDescription:
    if known is None or told.leader_epoch < 0 or told.leader_epoch >= known.leader_epoch:
        return told
    return known
