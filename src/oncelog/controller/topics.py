"""Decides on new topics: names, counts, replica placement, configs.

The inputs are the image, the request and a fresh topic id; the result is the new topic, or the
error. The rules are Kafka's `ReplicationControlManager` and `Topic.validate`. Placement goes round
the live brokers, starting where the existing partitions left off, so that the same image always
gives the same placement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.controller.image import (
    MetadataImage,
    PartitionImage,
    TopicImage,
    flat_name,
    flat_names,
)
from oncelog.controller.placement import (
    known_brokers,
    new_partition,
    place_partitions,
    placeable_brokers,
)
from oncelog.core.config import BrokerConfig, check_topic_overrides
from oncelog.core.config_definition import ConfigError
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicId
from oncelog.core.limits import TOPIC_NAME_LENGTH_MAX, TOPIC_PARTITIONS_COUNT_MAX

__all__ = [
    "CreationDefaults",
    "TopicOutcome",
    "TopicToCreate",
    "decide_creation",
    "decide_creations",
    "few_replicas_warning",
    "name_problem",
    "new_internal_topic",
    "partition_count_problem",
]

_PARTITION_COUNT_KEYS: Final = {
    TRANSACTION_STATE_TOPIC: "transaction.state.log.num.partitions",
    CONSUMER_OFFSETS_TOPIC: "offsets.topic.num.partitions",
}

OFFSETS_MIN_ISR: Final = 2

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class TopicToCreate:
    """A topic to create.

    A count of -1 means the broker's default; an assignment (partition -> replicas) excludes both.
    """

    name: str
    partitions: int = _DEFAULT
    replication_factor: int = _DEFAULT
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    config: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreationDefaults:
    """`num.partitions` and `default.replication.factor`."""

    partitions: int = 1
    replication_factor: int = 1


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """The result for one topic of a request: the topic, or the error."""

    name: str
    error: ErrorCode = ErrorCode.none
    message: str | None = None
    topic: TopicImage | None = None


def new_internal_topic(name: str, config: BrokerConfig, brokers_count: int) -> TopicToCreate:
    """Return a new internal topic of Kafka's."""
    prefix = "offsets.topic" if name == CONSUMER_OFFSETS_TOPIC else "transaction.state.log"
    settings: dict[str, str | None] = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(max(config.get_int(f"{prefix}.segment.bytes"), 1024 * 1024)),
    }
    # D9: a lone broker has only one replica, and must start without further configs.
    factor = min(config.get_int(f"{prefix}.replication.factor"), brokers_count)
    if name == TRANSACTION_STATE_TOPIC:
        settings |= {
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(config.get_int(f"{prefix}.min.isr"), factor)),
            "unclean.leader.election.enable": "false",
        }
    elif factor > 1:
        # Kafka has no key for it, and takes the cluster's: an offset that only one broker has would
        # be lost with it.
        settings["min.insync.replicas"] = str(min(OFFSETS_MIN_ISR, factor))
    count = config.get_int(f"{prefix}.num.partitions")
    return TopicToCreate(name, count, factor, config=settings)


def few_replicas_warning(topic: TopicImage, config: BrokerConfig, brokers_count: int) -> str | None:
    """Return a sentence on an internal topic of a cluster with fewer replicas than configured."""
    prefix = "offsets.topic" if topic.name == CONSUMER_OFFSETS_TOPIC else "transaction.state.log"
    wanted = config.get_int(f"{prefix}.replication.factor")
    count = len(topic.partitions[0].replicas)
    if brokers_count == 1 or count >= wanted:
        return None
    return (
        f"{topic.name} has {count} replicas, not {wanted} ({prefix}.replication.factor): only "
        f"{brokers_count} brokers were known when it was first used"
    )


def partition_count_problem(image: MetadataImage, config: BrokerConfig) -> str | None:
    """Return why an internal topic contradicts the configs; None if none does.

    Its partition count is fixed: ids are mapped to partitions by that count (D9).
    """
    for name, key in _PARTITION_COUNT_KEYS.items():
        topic = image.topic(name)
        if topic is None or not config.is_given(key):
            continue
        found, wanted = len(topic.partitions), config.get_int(key)
        if found != wanted:
            return (
                f"{key}={wanted}, but {name} has {found} partitions, and by that number each id is "
                f"found in them: set {key}={found}, or leave it out"
            )
    return None


def name_problem(name: str) -> str | None:
    """Return the fault of a topic's name, None for a valid one (Kafka's `Topic.validate`)."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return (
            f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
        )
    if _LEGAL_NAME.fullmatch(name) is None:
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


class Decided:
    """The topics of one request that are to be created, and are not in the image yet."""

    __slots__ = ("flat_names", "names", "partitions_count")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.flat_names: dict[str, str] = {}
        self.partitions_count = 0

    def add(self, topic: TopicImage) -> None:
        """Count one more."""
        self.names.add(topic.name)
        self.flat_names |= flat_names([topic.name])
        self.partitions_count += len(topic.partitions)


def decide_creation(
    image: MetadataImage,
    new: TopicToCreate,
    topic_id: TopicId,
    defaults: CreationDefaults,
    decided: Decided | None = None,
) -> TopicOutcome:
    """Return the topic to create, or Kafka's error; `decided` are those of the same request."""
    decided = decided or Decided()
    problem = name_problem(new.name)
    if problem is not None:
        return TopicOutcome(
            new.name, ErrorCode.invalid_topic_exception, f"Topic name is invalid: {problem}"
        )
    if image.topic(new.name) is not None or new.name in decided.names:
        message = f"Topic '{new.name}' already exists."
        return TopicOutcome(new.name, ErrorCode.topic_already_exists, message)
    collision = image.colliding(new.name) or decided.flat_names.get(flat_name(new.name))
    if collision is not None:
        message = f"Topic '{new.name}' collides with existing topic: {collision}"
        return TopicOutcome(new.name, ErrorCode.invalid_topic_exception, message)
    try:
        check_topic_overrides(new.config)
    except ConfigError as error:
        return TopicOutcome(new.name, ErrorCode.invalid_config, str(error))
    if new.assignment:
        placed = _assigned(image, new)
    else:
        start = image.partitions_count + decided.partitions_count
        placed = _placed(image, new, defaults, start)
    if isinstance(placed, TopicOutcome):
        return placed
    config = {name: value for name, value in new.config.items() if value is not None}
    return TopicOutcome(new.name, topic=TopicImage(new.name, topic_id, placed, config))


def decide_creations(
    image: MetadataImage,
    topics: Sequence[TopicToCreate],
    fresh_ids: Sequence[TopicId],
    defaults: CreationDefaults,
) -> list[TopicOutcome]:
    """Decide on the topics of one request in order, each as if those before it existed."""
    outcomes = []
    decided = Decided()
    for new, topic_id in zip(topics, fresh_ids, strict=True):
        outcome = decide_creation(image, new, topic_id, defaults, decided)
        if outcome.topic is not None:
            decided.add(outcome.topic)
        outcomes.append(outcome)
    return outcomes


def _placed(
    image: MetadataImage, new: TopicToCreate, defaults: CreationDefaults, start: int
) -> tuple[PartitionImage, ...] | TopicOutcome:
    count = defaults.partitions if new.partitions == _DEFAULT else new.partitions
    factor = new.replication_factor
    if factor == _DEFAULT:
        factor = defaults.replication_factor
    if factor <= 0:
        return TopicOutcome(
            new.name,
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count <= 0:
        return TopicOutcome(
            new.name,
            ErrorCode.invalid_partitions,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if count > TOPIC_PARTITIONS_COUNT_MAX:
        return TopicOutcome(
            new.name,
            ErrorCode.policy_violation,
            f"Excessively many partitions: {count}, at most {TOPIC_PARTITIONS_COUNT_MAX}",
        )
    placed = place_partitions(image, start, range(count), factor)
    if isinstance(placed, str):
        return TopicOutcome(new.name, ErrorCode.invalid_replication_factor, placed)
    return placed


def _assigned(
    image: MetadataImage, new: TopicToCreate
) -> tuple[PartitionImage, ...] | TopicOutcome:
    def refused(message: str) -> TopicOutcome:
        return TopicOutcome(new.name, ErrorCode.invalid_replica_assignment, message)

    if new.replication_factor != _DEFAULT or new.partitions not in (_DEFAULT, len(new.assignment)):
        return TopicOutcome(
            new.name,
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but partition count or replication "
            "factor was not set to -1.",
        )
    if sorted(new.assignment) != list(range(len(new.assignment))):
        return refused("partitions should be a consecutive 0-based integer sequence")
    placed = tuple(tuple(new.assignment[index]) for index in range(len(new.assignment)))
    for index, replicas in enumerate(placed):
        if not replicas:
            return refused(f"The manual partition assignment of partition {index} is empty.")
        if len(set(replicas)) != len(replicas):
            return refused(f"Partition {index} names a broker more than once.")
        if len(replicas) != len(placed[0]):
            return refused("Partitions have inconsistent numbers of replicas.")
        unknown = [broker for broker in replicas if broker not in known_brokers(image)]
        if unknown:
            return refused(f"Broker {unknown[0]} of partition {index} is not registered.")
    able = placeable_brokers(image)
    partitions = [new_partition(replicas, able) for replicas in placed]
    for index, partition in enumerate(partitions):
        if partition is None:
            return refused(f"All brokers of partition {index} are away or shutting down.")
    return tuple(filter(None, partitions))
