"""Finds the topics that a group subscribes to, and tells whether they have changed."""

import hashlib
from collections.abc import Iterable
from uuid import UUID

from oncelog.coordinator.metadata import Topic, Topics


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
