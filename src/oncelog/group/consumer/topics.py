"""The topics of the cluster, as far as a group needs them."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID


class Topic(NamedTuple):
    """One topic that there is."""

    name: str
    topic_id: UUID
    partition_count: int


class Topics(Protocol):
    """All topics at one revision of the metadata. Never changes."""

    @property
    def revision(self) -> int:
        """Grows with each change of the metadata."""
        ...

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        ...

    def find(self, name: str) -> Topic | None:
        """The topic of that name, if there is one."""
        ...

    def find_id(self, topic_id: UUID) -> Topic | None:
        """The topic of that identity, if there is one."""
        ...


class NoTopics:
    """A cluster without topics."""

    revision = 0

    def names(self) -> Iterable[str]:
        """None."""
        return ()

    def find(self, name: str) -> Topic | None:
        """There is none."""
        return None

    def find_id(self, topic_id: UUID) -> Topic | None:
        """There is none."""
        return None


def found(topics: Topics, names: Iterable[str]) -> dict[UUID, Topic]:
    """Those of the named topics that exist, by identity."""
    all_of_them = (topics.find(name) for name in names)
    return {topic.topic_id: topic for topic in all_of_them if topic is not None}


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """A number that changes when one of these topics comes, goes or gets partitions.

    0 if none exists. It is kept in the group's record; Kafka's hash of the same is another one, so
    a group that moves between the two makes one rebalance.
    """
    lines = sorted(
        f"{topic.name} {topic.topic_id} {topic.partition_count}\n"
        for topic in found(topics, names).values()
    )
    if not lines:
        return 0
    digest = hashlib.blake2b("".join(lines).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
