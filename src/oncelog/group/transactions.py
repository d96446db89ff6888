"""Holds the offsets of open transactions until their end markers (INV-6).

Durable: only the shard's `replay` changes it. It does not check
epochs: the log has refused batches of fenced producers (INV-5), and a marker ends the producer id's
open transaction.
"""

from collections.abc import Iterator

from oncelog.core.ids import TopicPartition
from oncelog.group.offset_values import CommittedOffset


class PendingOffsets:
    """Offsets by producer id, and which producers hold a partition of a group unstable."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}

    def put(
        self, producer_id: int, group_id: str, partition: TopicPartition, value: CommittedOffset
    ) -> None:
        """Store an offset until the producer's transaction ends."""
        groups = self._by_producer.setdefault(producer_id, {})
        groups.setdefault(group_id, {})[partition] = value
        self._open.setdefault(group_id, {}).setdefault(partition, set()).add(producer_id)

    def discard(self, group_id: str, partition: TopicPartition) -> None:
        """Remove a partition's offsets of all transactions: a tombstone follows them in the log."""
        for producer_id in tuple(self._open.get(group_id, {}).get(partition, ())):
            groups = self._by_producer[producer_id]
            del groups[group_id][partition]
            self._prune(groups, group_id)
            if not groups:
                del self._by_producer[producer_id]
            self._close(producer_id, group_id, partition)

    def end(self, producer_id: int) -> Iterator[tuple[str, TopicPartition, CommittedOffset]]:
        """Remove and return all offsets of the producer's transaction."""
        for group_id, offsets in self._by_producer.pop(producer_id, {}).items():
            for partition, value in offsets.items():
                self._close(producer_id, group_id, partition)
                yield group_id, partition, value

    def holds(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for the partition."""
        return partition in self._open.get(group_id, {})

    def partitions(self, group_id: str) -> tuple[TopicPartition, ...]:
        """Return the group's partitions with offsets in open transactions."""
        return tuple(self._open.get(group_id, ()))

    def group_ids(self) -> tuple[str, ...]:
        """Return the groups with offsets in open transactions."""
        return tuple(self._open)

    def values(self, group_id: str, partition: TopicPartition) -> Iterator[CommittedOffset]:
        """Return the offsets of one partition of a group in open transactions."""
        for producer_id in self._open.get(group_id, {}).get(partition, ()):
            yield self._by_producer[producer_id][group_id][partition]

    def snapshot(self) -> dict[int, dict[str, dict[TopicPartition, CommittedOffset]]]:
        """Return a copy of everything, for comparison."""
        return {
            producer_id: {group_id: dict(offsets) for group_id, offsets in groups.items()}
            for producer_id, groups in self._by_producer.items()
        }

    def _close(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        partitions = self._open[group_id]
        partitions[partition].discard(producer_id)
        if not partitions[partition]:
            del partitions[partition]
        if not partitions:
            del self._open[group_id]

    @staticmethod
    def _prune(groups: dict[str, dict[TopicPartition, CommittedOffset]], group_id: str) -> None:
        if not groups[group_id]:
            del groups[group_id]
