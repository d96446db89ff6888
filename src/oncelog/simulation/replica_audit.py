"""Compares the replicas of all partitions of a world with each other, by the bytes on their disks.

What any broker's high watermark has passed is committed. Every replica has to agree with that below
its own high watermark, and a broker that leads in an epoch of its own must have all of it. The
bytes are compared; the records where a log was cleaned. It looks between two callbacks, as
`audit` does, and says what is wrong; `checkers/replicas.py` decides what the faults excuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from oncelog.broker.partitions.partition import Partition
from oncelog.core.ids import TopicPartition
from oncelog.replication.replica import ReplicaState
from oncelog.simulation.history import Acked, Sent, Value
from oncelog.simulation.history_cluster import (
    DIVERGED,
    FORGOTTEN,
    LACKING,
    TRUNCATED,
    LogDiffers,
)
from oncelog.simulation.node import BrokerNode
from oncelog.simulation.oracle.batches import RawBatch, RawRecord

__all__ = ["ReplicaAudit"]

ReplicaOf = Callable[[TopicPartition, str, int], tuple[int, bool]]
"""How often a broker has lost its replica of a topic's partition by a move, and if it has one."""


def _never_moved(_: TopicPartition, __: str, ___: int) -> tuple[int, bool]:
    return 0, True


_Label = tuple[TopicPartition, str]
"""A partition, and the id of its topic."""


@dataclass(slots=True)
class _Committed:
    """What is committed of one partition, as far as it was seen."""

    batches: dict[int, RawBatch] = field(default_factory=dict)
    """By base offset, in order."""
    end: int = 0
    known: dict[int, float] = field(default_factory=dict)
    """Base offset -> a time before which it was not committed yet."""
    looked_s: float = 0.0
    newest_epoch: int = -1
    """The largest leader epoch that any broker has applied."""
    cut_offset: int = 0
    cut_epoch: int = -1
    """The leader of this epoch lacked what was committed from the offset on."""

    def extend(self, batches: list[RawBatch], high_watermark: int) -> None:
        """Add what a high watermark has passed."""
        for batch in batches:
            if self.end <= batch.base_offset and batch.last_offset < high_watermark:
                self.batches[batch.base_offset] = batch
                self.known[batch.base_offset] = self.looked_s
        self.end = max(self.end, high_watermark)

    def cut(self, offset: int, epoch: int) -> None:
        """Forget what the leader of an epoch does not have."""
        self.cut_offset, self.cut_epoch = offset, epoch
        for base in [base for base, batch in self.batches.items() if batch.last_offset >= offset]:
            del self.batches[base], self.known[base]
        self.end = min(self.end, offset)

    def bound(self, state: ReplicaState, batches: list[RawBatch]) -> float:
        """Return up to where a replica says what is committed.

        One that does not know of the cut holds, as committed, what is lost: it was found once.
        """
        if state.is_leader and state.leader_epoch >= self.cut_epoch:
            return math.inf
        above = (batch for batch in batches if batch.last_offset >= self.cut_offset)
        first = next(above, None)
        is_lost = first is not None and first.leader_epoch < self.cut_epoch
        return self.cut_offset if is_lost else math.inf

    def known_s(self, offset: int) -> float:
        """Return since when an offset may have been committed."""
        later = [self.known[base] for base, b in self.batches.items() if b.last_offset >= offset]
        return min(later, default=self.looked_s)


@dataclass(slots=True)
class _SeenReplica:
    """One broker's replica, as it was seen last."""

    marks: tuple[object, ...] = ()
    highest: int = 0
    """The highest high watermark since its disk has lost anything."""
    losses_count: int = 0
    removals_count: int = 0
    turn: int = -1
    compared_end: int = 0


class ReplicaAudit:
    """Looks into all brokers of one world. `look` is to be called often."""

    def __init__(self, replica_of: ReplicaOf = _never_moved) -> None:
        self._replica_of = replica_of
        self._committed: dict[_Label, _Committed] = {}
        self._replicas: dict[tuple[str, _Label], _SeenReplica] = {}
        self._led: set[tuple[_Label, str, int, int]] = set()
        self._acked: dict[TopicPartition, dict[int, tuple[Value, float]]] = {}
        self._sent_s: dict[Value, float] = {}

    def sent(self, event: Sent) -> None:
        """Note when a record was sent: a frozen client gets its answer late."""
        self._sent_s.setdefault(event.value, event.at_s)

    def acknowledged(self, event: Acked) -> None:
        """Note a record that was acknowledged with acks=all."""
        if event.acks == -1 and event.offset >= 0:
            sent_s = self._sent_s.get(event.value, event.at_s)
            of_partition = self._acked.setdefault(event.topic_partition, {})
            of_partition[event.offset] = event.value, sent_s

    def look(self, nodes: list[BrokerNode], now_s: float) -> Iterator[LogDiffers]:
        """Yield how the logs of these brokers differ from what is committed."""
        looked: set[_Label] = set()
        for node in nodes:
            broker = node.observed
            if broker is None or not node.is_serving:
                continue
            for partition in broker.partitions:
                state, log = partition.state, partition.log
                if len(state.replicas) > 1 and log.failure is None and not log.is_deleted:
                    label = partition.topic_partition, str(state.topic_id)
                    looked.add(label)
                    yield from self._look_at(node, partition, label, now_s)
        for label in looked:
            self._committed[label].looked_s = now_s

    def _look_at(
        self, node: BrokerNode, partition: Partition, label: _Label, now_s: float
    ) -> Iterator[LogDiffers]:
        state, log = partition.state, partition.log
        committed = self._committed.setdefault(label, _Committed(looked_s=now_s))
        seen = self._replicas.setdefault((node.name, label), _SeenReplica())
        removals_count, has_replica = self._replica_of(*label, node.index)
        if (seen.losses_count, seen.removals_count) != (node.losses_count, removals_count):
            # Its log may end anywhere now, and grow again.
            seen.losses_count, seen.removals_count = node.losses_count, removals_count
            seen.highest, seen.turn = 0, -1
        end, high_watermark = log.log_end_offset, state.high_watermark
        marks = node.incarnation, end, high_watermark, state.is_leader, state.leader_epoch
        if marks == seen.marks:
            return
        seen.marks = marks
        batches, turn = node.audit.batches_of(partition)
        say = _Saying(node.name, label[0], now_s)
        if end < seen.highest and log.log_start_offset < seen.highest:
            yield say.that(TRUNCATED, end, f"{seen.highest} to {end}", committed.known_s(end))
            seen.highest, seen.turn = end, -1
        if turn != seen.turn:
            seen.turn, seen.compared_end = turn, 0
        key = label, node.name, node.incarnation, state.leader_epoch
        begins = state.is_leader and key not in self._led
        if begins:
            self._led.add(key)
            if end < committed.end:
                what = f"{end}, committed are {committed.end}"
                yield say.that(LACKING, end, what, committed.known_s(end))
                self._cut(label, end, state.leader_epoch)
        elif (bound := committed.bound(state, batches)) < end:
            end, high_watermark = int(bound), min(int(bound), high_watermark)
        committed.newest_epoch = max(committed.newest_epoch, state.leader_epoch)
        # A leader that was replaced and does not know it may have anything above what it commits.
        has_all = state.is_leader and state.leader_epoch == committed.newest_epoch
        limit = min(end if has_all else high_watermark, committed.end)
        from_offset = 0 if begins else seen.compared_end
        is_thinned = self._is_thinned(node, partition)
        for offset, text in _differences(
            committed, batches, from_offset, limit, log.log_start_offset, is_thinned=is_thinned
        ):
            what = LACKING if begins else DIVERGED
            yield say.that(what, offset, text, committed.known_s(offset))
            if begins:
                self._cut(label, offset, state.leader_epoch)
            break
        seen.compared_end = max(seen.compared_end, limit)
        if begins:
            yield from self._acknowledged(say, batches, log.log_start_offset, is_thinned)
        committed.extend(batches, high_watermark)
        if has_replica:
            seen.highest = max(seen.highest, min(high_watermark, end))

    def _cut(self, label: _Label, offset: int, epoch: int) -> None:
        """Go on without what a leader lacks: the other replicas give it up as well."""
        self._committed[label].cut(offset, epoch)
        for (_, of), seen in self._replicas.items():
            if of == label:
                seen.highest = min(seen.highest, offset)

    def _acknowledged(
        self, say: _Saying, batches: list[RawBatch], start: int, is_thinned: bool
    ) -> Iterator[LogDiffers]:
        """Look for each acknowledged record in the log of a broker that begins to lead."""
        acked = self._acked.get(say.topic_partition, {})
        was_made_again = sum(label[0] == say.topic_partition for label in self._committed) > 1
        if not acked or is_thinned or was_made_again:
            return
        values = {r.offset: r.value for batch in batches for r in batch.readable()}
        for offset, (value, sent_s) in list(acked.items()):
            if offset >= start and values.get(offset) != value.encode():
                text = f"{value} at {offset}, there is {values.get(offset)!r}"
                yield say.that(FORGOTTEN, offset, text, sent_s)
                # A later leader cannot have it either.
                del acked[offset]

    def _is_thinned(self, node: BrokerNode, partition: Partition) -> bool:
        is_cleaned = str(partition.topic_partition) in node.archive.partitions()
        return is_cleaned or partition.log.config.is_compacted


class _Saying:
    """Makes the findings about one replica."""

    def __init__(self, who: str, topic_partition: TopicPartition, now_s: float) -> None:
        self.topic_partition = topic_partition
        self._who = who
        self._now_s = now_s

    def that(self, what: str, offset: int, text: str, known_s: float) -> LogDiffers:
        """Return one finding."""
        return LogDiffers(self._now_s, self._who, self.topic_partition, offset, what, text, known_s)


def _differences(
    committed: _Committed,
    batches: list[RawBatch],
    from_offset: int,
    until_offset: int,
    start: int,
    *,
    is_thinned: bool,
) -> Iterator[tuple[int, str]]:
    """Yield where a log differs from what is committed in [from, until)."""
    ours = {batch.base_offset: batch for batch in batches}
    for base, theirs in committed.batches.items():
        if base < max(from_offset, start) or theirs.last_offset >= until_offset:
            continue
        batch = ours.get(base)
        if batch is None:
            if not is_thinned:
                yield base, f"there is no batch at {base}"
        elif is_thinned:
            kept = {record.offset: record for record in theirs.readable()}
            records = batch.readable()
            if batch.record_count and not records:
                yield base, f"the batch at {base} cannot be read"
            for record in records:
                if not _is_same(kept, record):
                    yield record.offset, f"another record is at {record.offset}"
        elif batch.data != theirs.data:
            yield base, f"other bytes are at {base}, of epoch {batch.leader_epoch}"


def _is_same(kept: Mapping[int, RawRecord], record: RawRecord) -> bool:
    """Whether a record is what was committed at its offset, as far as that is known."""
    other = kept.get(record.offset)
    return other is None or (other.key, other.value) == (record.key, record.value)
