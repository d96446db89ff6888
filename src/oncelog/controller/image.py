"""Defines the metadata image: brokers and topics, as one immutable value per revision of the store.

A broker holds the image of what it knows and the one of what it has applied, and replaces each
whole (D9). `while_applying` makes the second one meanwhile. Topic ids are identity, names
are labels: a topic that was deleted and created again under its name appears in a delta as deleted
and created.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from oncelog.controller.features import SUPPORTED_LEVELS, all_levels
from oncelog.core.acl import Acl
from oncelog.core.ids import INTERNAL_TOPICS, TopicId, TopicPartition
from oncelog.core.listeners import Endpoint, RegisteredListener
from oncelog.core.quotas import ClientQuotas
from oncelog.core.sasl import ScramCredential
from oncelog.core.secret import Secret
from oncelog.core.values import value

__all__ = [
    "BrokerImage",
    "ImageDelta",
    "MetadataImage",
    "PartitionImage",
    "TopicDelta",
    "TopicImage",
    "flat_name",
    "flat_names",
    "partitions_of",
    "while_applying",
    "without_leader",
]


_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker: its addresses, and this life of it.

    `host` and `port` are those of its inter-broker listener.
    """

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    broker_epoch: int = 0
    """The number of this life; each registration of the broker has a larger one."""
    levels: Mapping[str, tuple[int, int]] = field(default_factory=lambda: SUPPORTED_LEVELS)
    """The lowest and the highest level that it supports, by feature; of this version if unnamed."""
    is_clean: bool = True
    """False while it may have lost records, and the controller has not decided on that yet.

    Such a broker leads nothing, whatever the states of partitions say.
    """
    is_shutting_down: bool = False
    incarnation: str = ""
    """An id of the process that registered; no other life has it."""
    listeners: Mapping[str, RegisteredListener] = field(default_factory=lambda: _NOTHING)
    """By name; none where an earlier version registered, whose one address is of any listener."""
    unknown_fields: str = ""
    """As of `PartitionImage`."""

    def endpoint_of(self, listener: str) -> Endpoint | None:
        """Return where it is reached by a listener; None if it has no such listener."""
        if not self.listeners:
            return Endpoint(self.host, self.port)
        found = self.listeners.get(listener)
        return None if found is None else found.endpoint


@value
class PartitionImage:
    """One partition's replicas; `leader` is -1 while it has no leader.

    The first replica is the preferred leader. Each change of the leader raises `leader_epoch`, each
    change of the state `partition_epoch`.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    """Brokers whose log directory with this partition is off line."""
    partition_epoch: int = 0
    eligible: tuple[int, ...] = ()
    """Brokers outside the ISR that have every committed record all the same (KIP-966)."""
    suspects: Mapping[int, tuple[int, int] | None] = field(default_factory=lambda: _NOTHING)
    """Brokers of the last ISR that came back and may have lost the end of their logs.

    Each with the last leader epoch in its log, and the log's end; None before it could say so.
    """
    adding: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment adds, until it is done (KIP-455)."""
    removing: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment removes once all others are in the ISR.

    One that an earlier reassignment has begun to add is in both.
    """
    removed: tuple[int, ...] = ()
    """Brokers without a replica that may still have a folder of the partition (D14)."""
    unknown_fields: str = ""
    """The fields of the stored value that this version does not know, as JSON: a newer one wrote
    them, and a rewrite keeps them."""

    @property
    def settled_count(self) -> int:
        """The count of replicas without those that are being added.

        `min.insync.replicas` is at most that: one that has nothing yet makes no ISR too small.
        """
        return len(self.replicas) - len(self.adding)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic.

    `config` has only the overrides of this topic, as text. The index in `partitions` is the
    partition number.
    """

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionImage, ...]
    config: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    unknown_fields: str = ""
    """As of `PartitionImage`."""

    @property
    def is_internal(self) -> bool:
        """Whether it is one of Kafka's two internal topics, which clients may only read."""
        return self.name in INTERNAL_TOPICS

    def label(self, number: int) -> TopicPartition:
        """Return the label of one of its partitions."""
        return TopicPartition(self.name, number)

    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """Its partitions by label, in order."""
        return tuple(map(self.label, range(len(self.partitions))))


@dataclass(frozen=True, slots=True)
class TopicDelta:
    """A topic as it is now, and what of it has changed."""

    topic: TopicImage
    partitions: Sequence[int]
    """The numbers of the partitions that are new or have changed; all of them where a config has.

    Several changes of one appear as one: a new leader epoch says that there was another role.
    """


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """The changes from one image to the next: apply `deleted`, then `created`, then `changed`."""

    deleted: tuple[TopicImage, ...] = ()
    created: tuple[TopicImage, ...] = ()
    changed: tuple[TopicDelta, ...] = ()

    def assigned(self) -> Iterator[TopicDelta]:
        """Iterate over what there is to serve: all of what was created, then what has changed."""
        for topic in self.created:
            yield TopicDelta(topic, range(len(topic.partitions)))
        yield from self.changed


class MetadataImage:
    """All topics and brokers at one revision. Never changed in place."""

    __slots__ = (
        "_flat_names",
        "_names",
        "acls",
        "broker_epochs",
        "brokers",
        "chosen_features",
        "client_quotas",
        "cluster_config",
        "cluster_id",
        "controller_epoch",
        "controller_id",
        "deleted",
        "directories",
        "features",
        "group_configs",
        "leftovers",
        "partitions_count",
        "revision",
        "scram_credentials",
        "scram_secret",
        "topics",
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
        broker_epochs: Mapping[int, int] = MappingProxyType({}),
        controller_epoch: int = 0,
        leftovers: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
        scram_credentials: Mapping[str, Mapping[str, ScramCredential]] = MappingProxyType({}),
        scram_secret: Secret | None = None,
        acls: Mapping[str, Acl] = MappingProxyType({}),
        client_quotas: ClientQuotas = MappingProxyType({}),
    ) -> None:
        self.cluster_id = cluster_id
        self.revision = revision
        self.topics: Mapping[str, TopicImage] = {topic.name: topic for topic in topics}
        self._names: Mapping[TopicId, str] = {
            topic.topic_id: topic.name for topic in self.topics.values()
        }
        self._flat_names = flat_names(self.topics)
        self.partitions_count = partitions_of(self.topics.values())
        """The count of partitions of all topics."""
        self.brokers: Mapping[int, BrokerImage] = {b.broker_id: b for b in brokers}
        """The brokers with a live registration."""
        self.broker_epochs = dict(broker_epochs)
        """The last known epoch of each broker, also of those that are gone."""
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
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
        self.leftovers = dict(leftovers)
        """The partitions that have a state, and that no topic of that name has."""
        self.scram_credentials = dict(scram_credentials)
        """Of each user by mechanism. Nothing may show its keys."""
        self.scram_secret = scram_secret
        """What the salts of users that do not exist follow from; None before the first user."""
        self.client_quotas = dict(client_quotas)
        """By entity the values of keys. The same object until one changes."""
        self.acls = dict(acls)
        """By id, which names only the place in the store. The same object until one changes."""

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name, if there is one."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: TopicId | None) -> TopicImage | None:
        """The topic of that id, if there is one. None is Kafka's zero UUID, which no topic has."""
        name = None if topic_id is None else self._names.get(topic_id)
        return None if name is None else self.topics[name]

    def colliding(self, name: str) -> str | None:
        """Return the topic whose name differs from this one in dots and underscores only."""
        return self._flat_names.get(flat_name(name))

    def partition(self, name: str, index: int) -> PartitionImage | None:
        """One partition, if the topic and the partition exist."""
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def is_alone(self, broker_id: int) -> bool:
        """Whether no other broker is registered."""
        return self.brokers.keys() <= {broker_id}

    def after(self, delta: ImageDelta, **fields: Any) -> MetadataImage:
        """Return this image after some changes of topics, and with other values of `fields`.

        It shares with this one what stays. A change of a partition costs its topic's tuple of
        partitions, and a copy of the tables of topics, which looks at none of them.
        """
        image = object.__new__(MetadataImage)
        for name in MetadataImage.__slots__:
            setattr(image, name, fields.get(name, getattr(self, name)))
        if "chosen_features" in fields:
            image.features = all_levels(image.chosen_features)
        if delta.deleted or delta.created or delta.changed:
            image.topics = topics = dict(self.topics)
            come = [*delta.created, *(change.topic for change in delta.changed)]
            left = [topics.pop(topic.name, None) for topic in delta.deleted]
            left += [topics.get(topic.name) for topic in come]
            image.partitions_count += partitions_of(come) - partitions_of(filter(None, left))
            topics.update((topic.name, topic) for topic in come)
        if delta.deleted or delta.created:
            image._names = names = dict(self._names)
            for topic in delta.deleted:
                names.pop(topic.topic_id, None)
            names.update((topic.topic_id, topic.name) for topic in delta.created)
            image._flat_names = flat = dict(self._flat_names)
            for topic in delta.deleted:
                flat.pop(flat_name(topic.name), None)
            flat.update(flat_names(topic.name for topic in delta.created))
        return image

    def delta_from_nothing(self) -> ImageDelta:
        """Return the changes that bring all of this image's topics."""
        return ImageDelta(created=tuple(self.topics.values()))


def partitions_of(topics: Iterable[TopicImage]) -> int:
    """Return how many partitions these have in all."""
    return sum([len(topic.partitions) for topic in topics])


def flat_names(names: Iterable[str]) -> dict[str, str]:
    """Return the names that could collide, by their `flat_name`."""
    return {flat_name(name): name for name in names if "." in name or "_" in name}


def flat_name(name: str) -> str:
    """Return a name as Kafka's metrics write it, "." as "_": two that are alike so collide."""
    return name.replace(".", "_")


def while_applying(delta: ImageDelta, applied: MetadataImage, broker_id: int) -> MetadataImage:
    """Return what may be answered while a broker that has `applied` applies `delta`.

    What it deletes and what the broker no longer leads is named no more from the beginning, what it
    brings not before the end.
    """
    given_up = tuple(filter(None, (_given_up(one, applied, broker_id) for one in delta.changed)))
    return applied.after(ImageDelta(deleted=delta.deleted, changed=given_up))


def _given_up(change: TopicDelta, applied: MetadataImage, broker_id: int) -> TopicDelta | None:
    """Return a topic as it was applied, but for what the broker no longer leads."""
    before = applied.topic_by_id(change.topic.topic_id)
    if before is None:
        return None
    lost = [
        number
        for number in change.partitions
        if number < len(before.partitions)
        and before.partitions[number].leader == broker_id
        and change.topic.partitions[number].leader != broker_id
    ]
    if not lost:
        return None
    partitions = list(before.partitions)
    for number in lost:
        partitions[number] = change.topic.partitions[number]
    return TopicDelta(replace(before, partitions=tuple(partitions)), lost)


def without_leader(topic: TopicImage, off_line: Set[int], broker_id: int) -> TopicImage:
    """Return the topic without a broker's leadership of partitions that it has off line.

    No new epoch begins: it would not be stored, and after a restart clients would know a later
    epoch than the broker.
    """
    partitions = list(topic.partitions)
    for number in off_line:
        if number < len(partitions):
            shown = partitions[number]
            offline = tuple(sorted({*shown.offline_replicas, broker_id}))
            leader = -1 if shown.leader == broker_id else shown.leader
            partitions[number] = replace(shown, leader=leader, offline_replicas=offline)
    return replace(topic, partitions=tuple(partitions))
