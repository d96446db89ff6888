"""Compares a running broker with what the bytes on its disk imply (`oracle`, `agreement`).

It looks between two callbacks, when memory and files agree: after each start, at each reading of
the watermarks, and at the end of a run. Last stable offsets, which are wrong for moments only, are
compared more often. It reads the simulated disk without an operation of it, so nothing of a run
changes but what it records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from oncelog.broker.partitions.partition import Partition
from oncelog.core.ids import TRANSACTION_STATE_TOPIC, TopicId, TopicPartition
from oncelog.group.shard import GroupCoordinatorShard
from oncelog.simulation.agreement import coordinators, partitions
from oncelog.simulation.agreement.folders import folder
from oncelog.simulation.agreement.partitions import Shown
from oncelog.simulation.archive import Archive
from oncelog.simulation.disk import SimulatedDisk
from oncelog.simulation.observe import ObservedBroker, ObservedShard, ObservedTransactions
from oncelog.simulation.oracle.batches import RawBatch
from oncelog.simulation.oracle.group_log import OffsetsState
from oncelog.simulation.oracle.history import RawLog
from oncelog.simulation.oracle.transaction_log import TransactionsState
from oncelog.storage import PartitionLog
from oncelog.transaction.shard import TransactionCoordinatorShard

__all__ = ["Audit", "Disagreeing"]

RANGES_COUNT = 8
Disagreeing = tuple[TopicPartition, str, str]
"""Where, what, and the particulars."""
_End = tuple[int, int]
"""Where a log ends and its last epoch: one that was cut may have grown to the same offset again."""


@dataclass(slots=True)
class _Seen:
    """One log of one incarnation: its bytes as read last, and what was compared."""

    raw: RawLog = field(default_factory=RawLog)
    marks: tuple[int, ...] = ()
    looked: _End = (-1, -1)
    applied: tuple[_End, object] = ((-1, -1), None)
    """Where it ended when a coordinator was compared with it, and which: a load makes another."""
    turn: int = -1
    batches_count: int = 0
    """Of a coordinator's log: so many batches of this turn of `raw` are in the states below."""
    offsets: OffsetsState = field(default_factory=OffsetsState)
    transactions: TransactionsState = field(default_factory=TransactionsState)


class Audit:
    """Looks into the brokers of one node, one incarnation after the other."""

    def __init__(self, disk: SimulatedDisk, archive: Archive) -> None:
        self._disk = disk
        self._archive = archive
        self._seen: defaultdict[PartitionLog, _Seen] = defaultdict(_Seen)
        self._highest_starts: dict[tuple[TopicPartition, TopicId], int] = {}

    def began(self) -> None:
        """Forget what was read: a start may have cut off or rebuilt anything."""
        self._seen.clear()

    def look_at_stable_offsets(self, broker: ObservedBroker) -> Iterator[Disagreeing]:
        """Compare the last stable offsets of partitions whose watermarks have moved."""
        for partition in broker.partitions:
            seen = self._seen[partition.log]
            marks = _marks(partition)
            # No reader is served while a log is cut, whose end may be there already.
            is_settled = _is_sound(partition) and not partition.is_being_cut
            if seen.marks == marks or not is_settled:
                continue
            seen.marks = marks
            shown = self._read(partition, seen)
            for text in partitions.last_stable_offset(seen.raw.state, *marks[:3], shown):
                yield partition.topic_partition, "the last stable offset", text

    def look(
        self, broker: ObservedBroker, awake_since_ms: float | None = None
    ) -> Iterator[Disagreeing]:
        """Compare all partitions and coordinators that have changed since the last look.

        `awake_since_ms`: by the coordinators' clock, its process has run since; None: it is frozen.
        """
        for partition in broker.partitions:
            seen, end = self._seen[partition.log], _end(partition.log)
            if seen.looked != end and _is_sound(partition):
                seen.looked = end
                yield from self._look_at(partition, seen)
        yield from self._look_at_coordinators(broker)
        if awake_since_ms is not None:
            yield from self._look_at_duties(broker, awake_since_ms)

    def _look_at_duties(
        self, broker: ObservedBroker, awake_since_ms: float
    ) -> Iterator[Disagreeing]:
        now_ms = broker.transactions.clock.now_ms()
        for shard in broker.transactions.shards():
            if isinstance(shard, ObservedTransactions) and shard.partition is not None:
                is_sound = _is_sound(shard.partition)
                for what, text in shard.look(now_ms, awake_since_ms):
                    if is_sound:
                        yield shard.partition.topic_partition, what, text

    def look_at_files(self, broker: ObservedBroker) -> Iterator[Disagreeing]:
        """Compare the files of all partitions."""
        for partition in broker.partitions:
            if not _is_sound(partition):
                continue
            path = partition.log.directory
            shown = self._shown(partition, 0)
            for text in folder(
                self._disk.names(path),
                lambda name, path=path: self._bytes(path, name),  # type: ignore[misc]
                was_closed=False,
                is_thinned=shown.is_thinned,
                log_start=shown.epochs_from,
            ):
                yield partition.topic_partition, "a file", text

    def _look_at(self, partition: Partition, seen: _Seen) -> Iterator[Disagreeing]:
        log = partition.log
        shown = self._read(partition, seen)
        state = seen.raw.state
        found: dict[str, Iterable[str]] = {
            "the last stable offset": partitions.last_stable_offset(
                state, *_marks(partition)[:3], shown
            ),
            "a producer": partitions.producers(state, log, shown),
            "an aborted transaction": partitions.aborted_transactions(
                state, log, _ranges(log), shown
            ),
            "a leader epoch": partitions.leader_epochs(state, log, shown),
        }
        for what, texts in found.items():
            for text in texts:
                yield partition.topic_partition, what, text

    def _look_at_coordinators(self, broker: ObservedBroker) -> Iterator[Disagreeing]:
        for shard in (*broker.transactions.shards(), *broker.groups.shards()):
            if not isinstance(shard, ObservedShard) or not shard.is_active:
                continue
            partition = shard.partition
            if partition is None or not _is_sound(partition):
                continue
            seen, end = self._seen[partition.log], _end(partition.log)
            # What is not committed yet is not applied either.
            if partition.state.high_watermark == end[0] and seen.applied != (end, shard):
                seen.applied = end, shard
                self._read(partition, seen)
                _follow(seen, partition.topic_partition.topic)
                for text in _compare(shard.inner, seen):
                    yield partition.topic_partition, "a coordinator", text

    def batches_of(self, partition: Partition) -> tuple[list[RawBatch], int]:
        """Return a partition's batches, and how often all were read again."""
        seen = self._seen[partition.log]
        self._read(partition, seen)
        return seen.raw.batches(), seen.raw.turn

    def _read(self, partition: Partition, seen: _Seen) -> Shown:
        path = partition.log.directory
        seen.raw.read(self._disk.names(path), lambda name: self._bytes(path, name))
        return self._shown(partition, seen.raw.first_offset)

    def _shown(self, partition: Partition, first_offset: int) -> Shown:
        log = partition.log
        key = partition.topic_partition, partition.state.topic_id
        highest = max(self._highest_starts.get(key, 0), log.log_start_offset)
        self._highest_starts[key] = highest
        return Shown(
            first_offset=first_offset,
            # A follower gets what its leader has cleaned.
            is_thinned=log.directory.rpartition("/")[2] in self._archive.partitions()
            or (log.config.is_compacted and len(partition.state.replicas) > 1),
            epochs_from=highest,
        )

    def _bytes(self, path: str, name: str) -> bytes:
        return self._disk.peek(f"{path}/{name}") or b""


def _is_sound(partition: Partition) -> bool:
    """Whether the log is in use; a failed write may have left anything behind its end."""
    log = partition.log
    return log.failure is None and not log.is_deleted


def _end(log: PartitionLog) -> _End:
    return log.log_end_offset, log.latest_epoch


def _marks(partition: Partition) -> tuple[int, int, int, int]:
    """Return the last stable offset, the high watermark, and where the log begins and ends."""
    log = partition.log
    return (
        partition.last_stable_offset,
        partition.state.high_watermark,
        log.log_start_offset,
        log.log_end_offset,
    )


def _ranges(log: PartitionLog) -> Iterator[tuple[int, int]]:
    """Some of all readers' ranges [from, to), other ones as the log grows."""
    start, end = log.log_start_offset, log.log_end_offset
    span = end - start
    yield start, end
    for turn in range(min(span, RANGES_COUNT)):
        from_offset = start + (turn * 7 + end) % span
        yield from_offset, from_offset + 1 + (turn * 5 + end) % (end - from_offset)


def _follow(seen: _Seen, topic: str) -> None:
    """Apply the batches of a coordinator's log that are not applied yet."""
    if seen.turn != seen.raw.turn:
        seen.turn, seen.batches_count = seen.raw.turn, 0
        seen.offsets, seen.transactions = OffsetsState(), TransactionsState()
    batches = seen.raw.batches()
    for batch in batches[seen.batches_count :]:
        if topic == TRANSACTION_STATE_TOPIC:
            seen.transactions.add(batch)
        else:
            seen.offsets.add(batch)
    seen.batches_count = len(batches)


def _compare(shard: object, seen: _Seen) -> Iterator[str]:
    if isinstance(shard, TransactionCoordinatorShard):
        yield from coordinators.transactions(seen.transactions.transactions, shard.transactions)
    elif isinstance(shard, GroupCoordinatorShard):
        yield from coordinators.groups(seen.offsets, shard.store)
