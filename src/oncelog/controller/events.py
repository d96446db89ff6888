"""The events that the controller decides on. `oncelog.controller.decisions` has the table of them.

The first ones are requests of clients, the others are reports of brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oncelog.controller.changes import ConfigChange
from oncelog.controller.decision import ChangeOutcome, ControllerEvent
from oncelog.controller.features import FeatureUpdate
from oncelog.controller.topics import TopicOutcome, TopicToCreate
from oncelog.core.ids import TopicId, TopicPartition

__all__ = [
    "AlterGroupConfigs",
    "AlterTopicConfigs",
    "BrokerRegistered",
    "CreatePartitions",
    "CreateTopics",
    "DeleteTopic",
    "DeletionsConfirmed",
    "DirectoryFailed",
    "UpdateFeatures",
]


@dataclass(frozen=True, slots=True)
class CreateTopics(ControllerEvent[tuple[TopicOutcome, ...]]):
    """Topics to create, each by itself."""

    topics: tuple[TopicToCreate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatePartitions(ControllerEvent[ChangeOutcome]):
    """A topic that is to have `count` partitions; `assignments` places the new ones."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterTopicConfigs(ControllerEvent[ChangeOutcome]):
    """Configs of a topic to change; with `replaces` they replace all that it overrides."""

    name: str
    changes: tuple[ConfigChange, ...]
    replaces: bool = False
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterGroupConfigs(ControllerEvent[ChangeOutcome]):
    """Configs of a group to change; with `replaces` they replace all that it overrides."""

    group_id: str
    changes: tuple[ConfigChange, ...]
    replaces: bool = False
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic(ControllerEvent[ChangeOutcome]):
    """A topic to delete, by its identity."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class UpdateFeatures(ControllerEvent[ChangeOutcome]):
    """Levels of features to finalize: all of them, or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class BrokerRegistered(ControllerEvent[ChangeOutcome]):
    """A broker has started: its logs are open, and it leads nothing yet."""

    broker_id: int
    directory_ids: frozenset[str]
    """The log directories with its partitions, also those that are away."""
    unsure: Mapping[TopicPartition, int]
    """The partitions whose log may have lost its end, with the newest leader epoch in it (-1
    without one). Empty after a clean stop."""
    levels: Mapping[str, int]
    """The levels of features that its configs demand."""
    cluster_config: Mapping[str, str]
    """Its values of the configs that are the cluster's: `CLUSTER_KEYS`."""


@dataclass(frozen=True, slots=True)
class DirectoryFailed(ControllerEvent[ChangeOutcome]):
    """A log directory of a broker has failed, with its replicas of these partitions."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DeletionsConfirmed(ControllerEvent[ChangeOutcome]):
    """A broker has no folder any more of these deleted topics, for good."""

    broker_id: int
    topic_ids: frozenset[TopicId]
