"""A log in memory, with one copy and no faults, that writes down the history of its clients.

What it records is right by construction. Tests tamper with it: with `logs` before the final state
is taken, with the history's events after.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers import Anomaly, Promise, judge
from oncelog.simulation.final import (
    FinalPartition,
    FinalState,
    LoggedBatch,
    LoggedRecord,
    TransactionEntry,
)
from oncelog.simulation.history import (
    Acked,
    Event,
    History,
    OffsetsCommitRefused,
    OffsetsCommitted,
    OffsetsCommitting,
    OffsetsFetched,
    Polled,
    Positioned,
    ProducerInitialized,
    Progress,
    RecordsDeleted,
    SendFailed,
    Sent,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    TransactionOffsets,
    TransactionUnknown,
    Value,
    Watermarks,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OUT = TopicPartition("out", 0)


class Model:
    """The cluster. Every event takes 10 ms."""

    def __init__(self) -> None:
        self.history = History()
        self.now_s = 0.0
        self.logs: dict[TopicPartition, list[LoggedBatch]] = {T0: [], T1: [], OUT: []}
        self.starts: dict[TopicPartition, int] = defaultdict(int)
        self.entries: list[TransactionEntry] = []
        self.offsets: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        self.unread: dict[TopicPartition, str] = {}
        self.leader_epoch = 0
        self.producer_ids = itertools.count(1000)
        self.owners: dict[str, Producer] = {}
        self.pending: dict[str, list[tuple[str, TopicPartition, int, int]]] = defaultdict(list)
        self.appended: dict[tuple[str, TopicPartition], int] = {}
        self.appends = itertools.count()

    def record(self, kind: Callable[..., Event], who: str, *values: object) -> None:
        self.now_s += 0.01
        self.history.record(kind(round(self.now_s, 3), who, *values))

    def append(
        self,
        partition: TopicPartition,
        values: Iterable[Value],
        ids: tuple[int, int] = (-1, -1),
        sequence: int = -1,
        marker: str = "",
        transactional: bool = False,
    ) -> int:
        first = self.end(partition)
        records = tuple(LoggedRecord(first + i, value) for i, value in enumerate(values))
        last = first if marker else first + len(records) - 1
        last_sequence = sequence + last - first if sequence >= 0 else -1
        self.logs[partition].append(
            LoggedBatch(
                first,
                last,
                self.leader_epoch,
                *ids,
                sequence,
                last_sequence,
                transactional,
                marker,
                records,
            )
        )
        return first

    def end(self, partition: TopicPartition) -> int:
        log = self.logs[partition]
        return log[-1].last_offset + 1 if log else 0

    def stable(self, partition: TopicPartition) -> int:
        return self.scan(partition)[1]

    def scan(self, partition: TopicPartition) -> tuple[list[LoggedRecord], int]:
        open_: dict[int, int] = {}
        outcomes: dict[int, str] = {}
        for batch in reversed(self.logs[partition]):
            if batch.marker:
                outcomes[batch.producer_id] = batch.marker
            elif batch.transactional:
                open_[batch.first_offset] = 1 if batch.producer_id not in outcomes else 0
        stable = min((o for o, is_open in open_.items() if is_open), default=self.end(partition))
        stable = max(stable, self.starts[partition])
        outcomes.clear()
        visible: list[LoggedRecord] = []
        for batch in reversed(self.logs[partition]):
            if batch.marker:
                outcomes[batch.producer_id] = batch.marker
            elif not batch.transactional or outcomes.get(batch.producer_id) == "commit":
                visible.extend(reversed(batch.records))
        visible.reverse()
        start = self.starts[partition]
        return [r for r in visible if start <= r.offset < stable], stable

    def producer(self, who: str, transactional_id: str = "", version: int = 1) -> Producer:
        return Producer(self, who, transactional_id, version)

    def reader(self, who: str, committed: bool = True) -> Reader:
        return Reader(self, who, committed)

    def delete_records(self, partition: TopicPartition, offset: int) -> None:
        self.record(RecordsDeleted, "admin", partition, offset)
        self.starts[partition] = offset

    def look(self) -> None:
        for partition in self.logs:
            self.record(
                Watermarks,
                "broker-0",
                0,
                partition,
                self.leader_epoch,
                self.starts[partition],
                self.stable(partition),
                self.end(partition),
                self.end(partition),
            )

    def cut(self, partition: TopicPartition, offset: int) -> None:
        """Lose the tail, as power does; a new leader epoch begins."""
        self.logs[partition] = [b for b in self.logs[partition] if b.last_offset < offset]
        self.leader_epoch += 1

    # --- offsets ------------------------------------------------------------------------

    def put_offset(self, group: str, partition: TopicPartition, offset: int, place: int) -> None:
        if place > self.appended.get((group, partition), -1):
            self.appended[group, partition] = place
            self.offsets[group][partition] = offset

    def commit_offset(
        self, who: str, group: str, partition: TopicPartition, offset: int, outcome: str = "ok"
    ) -> None:
        """`outcome`: "ok", "refused", "lost" (in doubt, not written) or "written" (in doubt)."""
        self.record(OffsetsCommitting, who, group, who, 1, {partition: offset})
        if outcome in ("ok", "written"):
            self.put_offset(group, partition, offset, next(self.appends))
        if outcome == "ok":
            self.record(OffsetsCommitted, who, group, who, 1, {partition: offset})
        if outcome == "refused":
            self.record(OffsetsCommitRefused, who, group, who, 1, "ILLEGAL_GENERATION")

    def fetch_offsets(self, who: str, group: str) -> None:
        asked_s = round(self.now_s, 3)
        self.record(OffsetsFetched, who, group, dict(self.offsets[group]), asked_s, True)

    # --- the verdict --------------------------------------------------------------------

    def final(self) -> FinalState:
        partitions = {}
        for partition, batches in self.logs.items():
            visible, stable = self.scan(partition)
            start = self.starts[partition]
            kept = tuple(b for b in batches if b.last_offset >= start)
            partitions[partition] = FinalPartition(
                partition, "id", start, stable, self.end(partition), kept, tuple(visible)
            )
        offsets = {group: dict(those) for group, those in self.offsets.items()}
        return FinalState(partitions, tuple(self.entries), offsets, dict(self.unread))

    def judge(self, final: FinalState | None = None, /, **promise: object) -> list[Anomaly]:
        stated = {"flush_every_message": True, "settle_bound_s": 60.0} | promise
        return judge(self.history, final or self.final(), Promise(**stated))  # type: ignore[arg-type]

    def signatures(self, final: FinalState | None = None, /, **promise: object) -> set[str]:
        """What is found and not allowed."""
        return {a.signature for a in self.judge(final, **promise) if not a.allowed}

    def kinds(self, final: FinalState | None = None, /, **promise: object) -> set[str]:
        return {a.kind for a in self.judge(final, **promise) if not a.allowed}

    def allowed(self, final: FinalState | None = None, /, **promise: object) -> set[str]:
        return {a.kind for a in self.judge(final, **promise) if a.allowed}

    def edit(self, kind: type[Event], index: int, **changes: object) -> None:
        """Change a field of the `index`-th event of a kind."""
        places = [i for i, event in enumerate(self.history.events) if type(event) is kind]
        place = places[index]
        self.history.events[place] = replace(self.history.events[place], **changes)  # type: ignore[arg-type]


class Producer:
    """A producer with a producer id; transactional if it has a transactional id."""

    def __init__(self, model: Model, who: str, transactional_id: str, version: int) -> None:
        self.model, self.who, self.id, self.version = model, who, transactional_id, version
        self.numbers = itertools.count()
        self.transaction = -1
        self.in_transaction = False
        self.dirty: set[TopicPartition] = set()
        self.sequences: dict[TopicPartition, int] = defaultdict(int)
        self.initialize()

    def initialize(self) -> None:
        """Take the id over, as InitProducerId does: the other's transaction is aborted."""
        model = self.model
        other = model.owners.get(self.id) if self.id else None
        if other is None:
            self.ids = (next(model.producer_ids), 0)
        else:
            self.ids = other.ids
            if other.in_transaction and (other.dirty or model.pending.get(self.id)):
                self.ids = (self.ids[0], self.ids[1] + 1)
                other.ids = self.ids
                other.write_end(False, bumped=True)
            self.ids = (self.ids[0], self.ids[1] + 1)
            other.in_transaction = False
            if other is not self:
                other.ids = (-1, -1)
        self.in_transaction = False
        self.dirty = set()
        self.sequences.clear()
        if self.id:
            model.owners[self.id] = self
            self.entry("Empty")
        model.record(ProducerInitialized, self.who, self.id, *self.ids)

    def entry(self, state: str) -> None:
        partitions = tuple(sorted(self.dirty)) if not state.startswith(("C", "Em")) else ()
        self.model.entries.append(TransactionEntry(self.id, *self.ids, state, partitions))

    def begin(self) -> None:
        self.transaction += 1
        self.in_transaction = True
        self.dirty = set()
        self.model.record(TransactionBegan, self.who, self.transaction, self.id)

    def hand_over(self, partition: TopicPartition, source: str = "") -> Value:
        number = self.transaction if self.in_transaction else -1
        value = Value(self.who, next(self.numbers), number, source)
        self.model.record(Sent, self.who, value, partition)
        return value

    def land(self, partition: TopicPartition, *values: Value) -> int:
        if self.in_transaction and partition not in self.dirty:
            self.dirty.add(partition)
            self.entry("Ongoing")
        sequence = self.sequences[partition]
        self.sequences[partition] += len(values)
        return self.model.append(
            partition, values, self.ids, sequence, transactional=self.in_transaction
        )

    def ack(self, partition: TopicPartition, offset: int, *values: Value) -> None:
        for i, value in enumerate(values):
            self.model.record(Acked, self.who, value, partition, offset + i)

    def send(self, partition: TopicPartition, source: str = "") -> Value:
        value = self.hand_over(partition, source)
        self.ack(partition, self.land(partition, value), value)
        return value

    def fail(self, value: Value, certain: bool = False) -> None:
        self.model.record(SendFailed, self.who, value, "TIMED_OUT", certain)

    def offsets(self, group: str, partition: TopicPartition, offset: int) -> None:
        place = next(self.model.appends)
        self.model.pending[self.id].append((group, partition, offset, place))
        self.model.record(
            TransactionOffsets, self.who, self.transaction, group, {partition: offset}
        )

    def write_end(self, commit: bool, bumped: bool = False) -> None:
        model = self.model
        if self.version == 2 and not bumped:
            self.ids = (self.ids[0], self.ids[1] + 1)
            self.sequences.clear()
        pending = model.pending.pop(self.id, [])
        if self.dirty or pending:
            if not self.dirty:
                self.entry("Ongoing")
            word = "Commit" if commit else "Abort"
            self.entry(f"Prepare{word}")
            for partition in sorted(self.dirty):
                model.append(partition, (), self.ids, marker=word.lower())
            self.entry(f"Complete{word}")
        for group, partition, offset, place in pending if commit else ():
            model.put_offset(group, partition, offset, place)
        self.in_transaction = False
        self.dirty = set()

    def commit(self, answered: bool = True, arrives: bool = True) -> None:
        """End with a commit. Not `answered`: in doubt for good, and done only if it `arrives`."""
        self.model.record(TransactionEnding, self.who, self.transaction, True)
        if arrives:
            self.write_end(True)
        if answered:
            self.model.record(TransactionEnded, self.who, self.transaction, True)
        else:
            self.model.record(TransactionUnknown, self.who, self.transaction, "TIMED_OUT")

    def abort(self) -> None:
        self.model.record(TransactionEnding, self.who, self.transaction, False)
        self.write_end(False)
        self.model.record(TransactionEnded, self.who, self.transaction, False)


class Reader:
    """A reader that goes on from where it is."""

    def __init__(self, model: Model, who: str, committed: bool) -> None:
        self.model, self.who, self.committed = model, who, committed
        self.positions: dict[TopicPartition, int] = {}

    def seek(self, partition: TopicPartition, offset: int, reason: str = "seek") -> None:
        self.positions[partition] = offset
        self.model.record(Positioned, self.who, partition, offset, reason)

    def poll(self, partition: TopicPartition, limit: int = 1000) -> None:
        model = self.model
        if partition not in self.positions:
            self.seek(partition, model.starts[partition], "reset")
        if self.positions[partition] < model.starts[partition]:
            self.seek(partition, model.starts[partition], "reset")
        at = self.positions[partition]
        if self.committed:
            records, end = model.scan(partition)
        else:
            records = [r for b in model.logs[partition] for r in b.records]
            end = model.end(partition)
        given = [(r.offset, r.value) for r in records if r.offset >= at and r.value][:limit]
        position = given[-1][0] + 1 if len(given) == limit else end
        if given or position > at:
            self.positions[partition] = max(position, at)
            model.record(
                Polled, self.who, partition, self.committed, tuple(given), self.positions[partition]
            )

    def settle(self) -> None:
        for partition in list(self.positions):
            self.poll(partition)
        self.model.record(Progress, self.who, "settled")
