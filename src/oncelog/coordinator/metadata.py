"""Defines what the decisions of coordinators read of the cluster's metadata: values, no functions.

The shell makes a new value for each image that it has applied, and gives it to its processors.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple, Protocol
from uuid import UUID

from oncelog.core.values import value

__all__ = ["CoordinatorMetadata", "NoTopics", "Topic", "Topics"]


class Topic(NamedTuple):
    """One existing topic."""

    name: str
    topic_id: UUID
    partition_count: int


class Topics(Protocol):
    """All topics at one revision of the metadata. Immutable."""

    @property
    def revision(self) -> int:
        """The revision of the metadata, which grows with each change."""
        ...

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        ...

    def find(self, name: str) -> Topic | None:
        """Return the topic of that name, if it exists."""
        ...

    def find_id(self, topic_id: UUID) -> Topic | None:
        """Return the topic of that id, if it exists."""
        ...


class NoTopics:
    """A cluster without topics."""

    revision = 0

    def names(self) -> Iterable[str]:
        """Return no names."""
        return ()

    def find(self, name: str) -> Topic | None:
        """Return None."""
        return None

    def find_id(self, topic_id: UUID) -> Topic | None:
        """Return None."""
        return None


@value
class CoordinatorMetadata:
    """The metadata that a broker has applied, as far as coordinators decide by it."""

    topics: Topics = field(default_factory=NoTopics)
    transaction_version: int = 2
    """The finalized level of `transaction.version`.

    It determines how the coordinator's own aborts bump, and the version of its records; a request's
    version determines its own, as in Kafka.
    """
    group_intervals_ms: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By group: its own configs, within the broker's limits."""
