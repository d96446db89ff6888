"""Holds the committed offsets of all groups of one partition of `__consumer_offsets`.

Durable: only the shard's `replay` calls `put`, `remove` and `end_transaction`. Volatile: the
commits in flight, which make an offset unstable for readers, and which a deletion of the group must
cover.

Invariants: INV-6, an offset of a transaction becomes visible when its marker commits, and never
otherwise. Of a plain and a transactional commit for one partition the later one in the log wins,
whatever the order of markers.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from oncelog.core.ids import TopicPartition
from oncelog.group.decision import GroupEvent
from oncelog.group.offset_values import CommittedOffset
from oncelog.group.transactions import PendingOffsets


class OffsetStore:
    """Committed offsets, offsets of open transactions, and commits in flight."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._in_flight: dict[str, dict[TopicPartition, deque[GroupEvent]]] = {}
        self.pending = PendingOffsets()

    # Durable.

    def put(self, group_id: str, partition: TopicPartition, value: CommittedOffset) -> None:
        """Apply a committed offset."""
        self._committed.setdefault(group_id, {})[partition] = value

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Apply a tombstone: it also removes the partition's offsets in open transactions."""
        offsets = self._committed.get(group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._committed[group_id]
        self.pending.discard(group_id, partition)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Apply a marker: make the producer's offsets visible together, or drop them (INV-6)."""
        for group_id, partition, value in self.pending.end(producer_id):
            existing = self.get(group_id, partition)
            newer = existing is None or value.record_offset > existing.record_offset
            if commit and newer:
                self.put(group_id, partition, value)

    # Reading.

    def __len__(self) -> int:
        """The count of committed offsets of all groups."""
        return sum(map(len, self._committed.values()))

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """Return the committed offset, or None."""
        return self._committed.get(group_id, {}).get(partition)

    def of_group(self, group_id: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """Return every committed offset of a group."""
        yield from self._committed.get(group_id, {}).items()

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction or a commit in flight may change the offset."""
        return self.is_in_flight(group_id, partition) or self.pending.holds(group_id, partition)

    def is_in_flight(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether a commit for the partition is in flight."""
        return partition in self._in_flight.get(group_id, ())

    def is_known(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether a tombstone would remove anything."""
        return self.get(group_id, partition) is not None or self.is_unstable(group_id, partition)

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the group's partitions with offsets, also in open transactions or in flight."""
        seen = dict.fromkeys(self._committed.get(group_id, ()))
        seen |= dict.fromkeys(self.pending.partitions(group_id))
        return list(seen | dict.fromkeys(self._in_flight.get(group_id, ())))

    def group_ids(self) -> list[str]:
        """Return the groups with offsets, also in open transactions or in flight."""
        seen = dict.fromkeys(self._committed) | dict.fromkeys(self.pending.group_ids())
        return list(seen | dict.fromkeys(self._in_flight))

    def snapshot(self) -> tuple[object, object]:
        """Return a copy of the durable state, for comparison."""
        committed = {group_id: dict(offsets) for group_id, offsets in self._committed.items()}
        return committed, self.pending.snapshot()

    # Volatile.

    def add_in_flight(
        self, group_id: str, partitions: Iterable[TopicPartition], commit: GroupEvent
    ) -> None:
        """Record that `commit`, an event, appended offsets of these partitions."""
        flying = self._in_flight.setdefault(group_id, {})
        for partition in partitions:
            flying.setdefault(partition, deque()).append(commit)

    def complete_in_flight(self, group_id: str, partition: TopicPartition) -> None:
        """Remove the partition's oldest commit in flight, which was applied; none in a load."""
        commits = self._in_flight.get(group_id, {}).get(partition)
        if commits:
            commits.popleft()
            self._prune(group_id, partition)

    def fail_in_flight(self, group_id: str, commit: GroupEvent) -> None:
        """Remove `commit` after its append failed. One that was never in flight changes nothing."""
        for partition, commits in tuple(self._in_flight.get(group_id, {}).items()):
            kept = deque(other for other in commits if other is not commit)
            self._in_flight[group_id][partition] = kept
            self._prune(group_id, partition)

    def _prune(self, group_id: str, partition: TopicPartition) -> None:
        flying = self._in_flight[group_id]
        if not flying[partition]:
            del flying[partition]
        if not flying:
            del self._in_flight[group_id]
