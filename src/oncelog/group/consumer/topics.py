"""Defines the view of the cluster's topics that a group needs."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID


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


def found(topics: Topics, names: Iterable[str]) -> dict[UUID, Topic]:
    """Return the topics with these names that exist, by id."""
    all_of_them = (topics.find(name) for name in names)
    return {topic.topic_id: topic for topic in all_of_them if topic is not None}


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """Return a hash that changes when one of these topics is created, deleted or extended.

    0 if none exists. The group's record stores it; Kafka's hash differs, so a group that moves
    between the two rebalances once.
    """
    lines = sorted(
        f"{topic.name} {topic.topic_id} {topic.partition_count}\n"
        for topic in found(topics, names).values()
    )
    if not lines:
        return 0
    digest = hashlib.blake2b("".join(lines).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
