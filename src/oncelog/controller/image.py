"""Defines the metadata image: brokers and topics, as one immutable value per revision of the store.

A broker holds the image of what it knows and the one of what it has applied, and replaces each
whole (D9). `while_applying` makes the second one meanwhile. Topic ids are identity, names
are labels: a topic that was deleted and created again under its name appears in a delta as deleted
and created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from oncelog.controller.features import all_levels
from oncelog.core.ids import INTERNAL_TOPICS, TopicId, TopicPartition

__all__ = [
    "BrokerImage",
    "ImageDelta",
    "MetadataImage",
    "PartitionImage",
    "TopicImage",
    "while_applying",
]


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One live broker and its address for clients."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition's replicas; `leader` is -1 while it has no leader.

    The first replica is the preferred leader.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    """Brokers whose data folder with this partition is off line."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic.

    `config` has only the overrides of this topic, as text. The index in `partitions` is the
    partition number.
    """

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionImage, ...]
    config: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_internal(self) -> bool:
        """Whether it is one of Kafka's two internal topics, which clients may only read."""
        return self.name in INTERNAL_TOPICS

    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """Its partitions by label, in order."""
        return tuple(TopicPartition(self.name, index) for index in range(len(self.partitions)))


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """The changes from one image to the next: apply `deleted`, then `created`, then `changed`."""

    deleted: tuple[TopicImage, ...] = ()
    created: tuple[TopicImage, ...] = ()
    changed: tuple[TopicImage, ...] = ()


class MetadataImage:
    """All topics and brokers at one revision. Never changed in place."""

    __slots__ = (
        "brokers",
        "chosen_features",
        "cluster_config",
        "cluster_id",
        "controller_id",
        "deleted",
        "directories",
        "features",
        "group_configs",
        "revision",
        "topics",
        "topics_by_id",
    )

    def __init__(
        self,
        *,
        cluster_id: str,
        revision: int = 0,
        topics: Iterable[TopicImage] = (),
        brokers: Iterable[BrokerImage] = (),
        controller_id: int = -1,
        deleted: Mapping[str, Mapping[TopicId, tuple[int, ...]]] = MappingProxyType({}),
        features: Mapping[str, int] = MappingProxyType({}),
        group_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        directories: Mapping[int, frozenset[str]] = MappingProxyType({}),
        cluster_config: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.cluster_id = cluster_id
        self.revision = revision
        self.topics: Mapping[str, TopicImage] = {topic.name: topic for topic in topics}
        self.topics_by_id: Mapping[TopicId, TopicImage] = {
            topic.topic_id: topic for topic in self.topics.values()
        }
        self.brokers: Mapping[int, BrokerImage] = {b.broker_id: b for b in brokers}
        self.controller_id = controller_id
        self.deleted = dict(deleted)
        """By name the ids of deleted topics, each with the brokers that may still hold it."""
        self.chosen_features = dict(features)
        self.features: Mapping[str, int] = all_levels(features)
        """The finalized level of each feature, also where none was chosen."""
        self.group_configs = dict(group_configs)
        """The config overrides of each group, as text."""
        self.directories = dict(directories)
        """The ids of each broker's log directories, also of those that are away."""
        self.cluster_config = dict(cluster_config)
        """The configs that are the cluster's, as text."""

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name, if there is one."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: TopicId | None) -> TopicImage | None:
        """The topic of that id, if there is one. None is Kafka's zero UUID, which no topic has."""
        return None if topic_id is None else self.topics_by_id.get(topic_id)

    def partition(self, name: str, index: int) -> PartitionImage | None:
        """One partition, if the topic and the partition exist."""
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def copy(
        self,
        *,
        topics: Iterable[TopicImage] | None = None,
        brokers: Iterable[BrokerImage] | None = None,
    ) -> MetadataImage:
        """Return this image with other topics or brokers."""
        return MetadataImage(
            cluster_id=self.cluster_id,
            revision=self.revision,
            topics=self.topics.values() if topics is None else topics,
            brokers=self.brokers.values() if brokers is None else brokers,
            controller_id=self.controller_id,
            deleted=self.deleted,
            features=self.chosen_features,
            group_configs=self.group_configs,
            directories=self.directories,
            cluster_config=self.cluster_config,
        )

    def delta_from(self, before: MetadataImage) -> ImageDelta:
        """Return the changes of topics since `before`."""
        deleted, created, changed = [], [], []
        for topic_id, topic in before.topics_by_id.items():
            if topic_id not in self.topics_by_id:
                deleted.append(topic)
        for topic_id, topic in self.topics_by_id.items():
            old = before.topics_by_id.get(topic_id)
            if old is None:
                created.append(topic)
            elif old is not topic and old != topic:
                changed.append(topic)
        return ImageDelta(tuple(deleted), tuple(created), tuple(changed))


def while_applying(delta: ImageDelta, applied: MetadataImage) -> MetadataImage:
    """Return what may be answered while a broker that has `applied` applies `delta`.

    What it deletes is named no more from the beginning, what it brings not before the end.
    """
    if not delta.deleted:
        return applied
    gone = {topic.topic_id for topic in delta.deleted}
    return applied.copy(topics=[t for t in applied.topics.values() if t.topic_id not in gone])
