"""Draws the partitions, keys and sizes of a client's records.

The parameter `growing` names the topics whose partition count may change, so that a key's partition
is unknown before the send.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.client import TopicPartition
from oncelog.protocol.hashing import partition_for_key
from oncelog.simulation.workloads.journal import Journal, StuckError

__all__ = ["Places", "topics_of"]

DEFAULT_TOPICS: Mapping[str, int] = {"t": 2}
SIZES = (0, 0, 0, 20, 200, 2_000)


def topics_of(
    journal: Journal, name: str = "topics", default: Mapping[str, int] = DEFAULT_TOPICS
) -> dict[str, int]:
    """Return a parameter with topics and their partition counts."""
    given = journal.context.parameters.get(name, default)
    if not isinstance(given, Mapping):
        raise StuckError(f"parameter {name} is no mapping: {given!r}")
    return {str(topic): int(count) for topic, count in given.items()}


class Places:
    """Draws from the partitions of the parameter `topics`."""

    def __init__(self, journal: Journal, name: str = "topics") -> None:
        self._rng = journal.rng
        topics = topics_of(journal, name)
        growing = journal.context.parameters.get("growing", ())
        self._steady = [(topic, count) for topic, count in topics.items() if topic not in growing]
        self.partitions = [
            TopicPartition(topic, index)
            for topic, count in topics.items()
            for index in range(count)
        ]

    def any(self) -> TopicPartition:
        """Return one partition."""
        return self._rng.choice(self.partitions)

    def some(self, count: int) -> list[TopicPartition]:
        """Return `count` different partitions, or all."""
        return self._rng.sample(self.partitions, min(count, len(self.partitions)))

    def by_key(self) -> tuple[TopicPartition, bytes] | None:
        """Return one of a few keys and its partition; None if all topics grow."""
        if not self._steady:
            return None
        topic, count = self._rng.choice(self._steady)
        key = b"key-%d" % self._rng.randrange(8)
        return TopicPartition(topic, partition_for_key(key, count)), key

    def size(self) -> int:
        """Return the padding of a record in bytes, mostly 0."""
        return self._rng.choice(SIZES)
