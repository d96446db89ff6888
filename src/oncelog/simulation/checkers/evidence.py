"""Indexes the history and the final state of a run once, for all checkers.

A `Tracked` is one record that a client sent, with its acknowledgement, its polls and its places.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers.anomaly import Promise
from oncelog.simulation.checkers.topics import NEVER, TopicIncarnations
from oncelog.simulation.final import FinalPartition, FinalState, LoggedBatch
from oncelog.simulation.history import (
    Acked,
    Event,
    HeartbeatAsked,
    History,
    Joined,
    Polled,
    Positioned,
    ProducerInitialized,
    RecordsDeleted,
    Revoked,
    SendFailed,
    Sent,
    TopicChanged,
    TopicChanging,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    TransactionOffsets,
    TransactionUnknown,
    Value,
    Watermarks,
)
from oncelog.simulation.history_cluster import PartitionChanged

E = TypeVar("E", bound=Event)

__all__ = [
    "NEVER",
    "Evidence",
    "FinalLog",
    "PartitionReader",
    "ReaderPoll",
    "Stranger",
    "Tracked",
    "Txn",
]


@dataclass(slots=True, eq=False)
class Txn:
    """One transaction of a client, whose commit was first asked for at `ending_s`.

    `outcome` is "committed" or "aborted" when the client knows it, else "".
    """

    client: str
    number: int
    transactional_id: str = ""
    began_s: float = -NEVER
    ending_s: float = NEVER
    aborting_s: float = NEVER
    ended_s: float = NEVER
    outcome: str = ""
    records: list[Tracked] = field(default_factory=list)
    offsets: list[TransactionOffsets] = field(default_factory=list)

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"transaction {self.number} of {self.client}"


@dataclass(slots=True, eq=False)
class Tracked:
    """One record that a client sent. `incarnation` is its topic's, None if that is not known."""

    value: Value
    topic_partition: TopicPartition
    sent_s: float
    transaction: Txn | None
    incarnation: int | None = None
    acked_s: float = NEVER
    acked_offset: int = -1
    acks: int = 0
    refused: str = ""
    failed_s: float = NEVER
    """The time at which the producer gave it up."""
    polls: list[tuple[float, int, Polled]] = field(default_factory=list)
    """(time, offset, poll) of each poll that returned it."""
    places: list[int] = field(default_factory=list)
    """Its offsets in the final log."""
    shown: list[int] = field(default_factory=list)
    """Its offsets in the final committed view."""

    def known_times(self, offset: int) -> list[float]:
        """Return when a client knew that it was at this offset, earliest first."""
        times = [at_s for at_s, polled_offset, _ in self.polls if polled_offset == offset]
        if self.acked_offset == offset:
            times.append(self.acked_s)
        return sorted(times)

    def known_s(self, offset: int) -> float:
        """Return when a client first knew that it was at this offset."""
        return next(iter(self.known_times(offset)), NEVER)

    def was_read_at(self, offset: int) -> bool:
        """Return whether a reader saw it there, and not only a producer its acknowledgement."""
        return offset in self.places or any(polled == offset for _, polled, _ in self.polls)


@dataclass(frozen=True, slots=True)
class Stranger:
    """A record at a place to which no client sent it. `at_s` is infinite for the final log."""

    at_s: float
    who: str
    topic_partition: TopicPartition
    offset: int
    value: Value


@dataclass(slots=True, eq=False)
class ReaderPoll:
    """One poll of a reader. `start` is the position before it, -1 if that is not known.

    `fetched_from_s` is the earliest time at which it can have been fetched: a client may buffer
    fetched records for long, but it cannot return a record before it was sent. `before` is the
    previous poll, None after a `Positioned`.
    """

    poll: Polled
    start: int
    fetched_from_s: float
    records: list[Tracked | None]
    before: Polled | None = None


@dataclass(slots=True, eq=False)
class PartitionReader:
    """One reader of one partition. `position` is -1 when it is not known."""

    who: str
    topic_partition: TopicPartition
    position: int = -1
    fetched_from_s: float = 0.0
    is_assigned: bool = False
    last: Polled | None = None
    """The last poll, which the next one continues."""
    steps: list[ReaderPoll] = field(default_factory=list)
    jumps: list[tuple[int, int]] = field(default_factory=list)
    """Offsets [from, to) that a seek or a reset skipped."""
    starts: list[int] = field(default_factory=list)


class FinalLog:
    """The final log of a partition, one entry per record that is not a marker."""

    def __init__(self, final: FinalPartition, is_whole: bool) -> None:
        self.final = final
        self.is_whole = is_whole
        self.offsets: list[int] = []
        self.records: list[Tracked | None] = []
        self.batches: list[LoggedBatch] = []
        self.shown: list[tuple[int, Tracked | None]] = []
        last = final.batches[-1].last_offset + 1 if final.batches else final.log_start_offset
        self.end = final.high_watermark if is_whole else last

    def batch_at(self, offset: int) -> LoggedBatch | None:
        """Return the data batch with this offset."""
        index = bisect_left(self.offsets, offset)
        is_there = index < len(self.offsets) and self.offsets[index] == offset
        return self.batches[index] if is_there else None

    def record_at(self, offset: int) -> Tracked | None:
        """Return the record at this offset."""
        index = bisect_left(self.offsets, offset)
        is_there = index < len(self.offsets) and self.offsets[index] == offset
        return self.records[index] if is_there else None

    def closing_marker(self, offset: int) -> LoggedBatch | None:
        """Return the marker that ended the transaction of the record at this offset."""
        batch = self.batch_at(offset)
        for marker in () if batch is None else self._markers.get(batch.producer_id, ()):
            if marker.first_offset > offset:
                return marker
        return None

    def open_since_s(self, offset: int) -> float:
        """Return when the first transaction began that the next marker ended with this record's.

        There are several if the coordinator's records were lost: it gave the epoch out again.
        """
        batch = self.batch_at(offset)
        since_s = NEVER
        for index in range(bisect_left(self.offsets, offset), -1, -1):
            if batch is None or index == len(self.offsets):
                break
            held, record = self.batches[index], self.records[index]
            if held.producer_id != batch.producer_id:
                continue
            if any(
                held.last_offset < marker.first_offset < offset
                for marker in self._markers.get(batch.producer_id, ())
            ):
                break
            if record is not None and record.transaction is not None:
                since_s = min(since_s, record.transaction.began_s)
        return since_s

    @cached_property
    def _markers(self) -> dict[int, list[LoggedBatch]]:
        markers: dict[int, list[LoggedBatch]] = defaultdict(list)
        for batch in self.final.batches:
            if batch.marker:
                markers[batch.producer_id].append(batch)
        return markers


class Evidence:
    """An indexed history and final state. Checkers only read it."""

    def __init__(self, history: History, final: FinalState, promise: Promise) -> None:
        self.history = history
        self.final = final
        self.promise = promise
        self.end_s = history.events[-1].at_s if history.events else 0.0
        self.topics = TopicIncarnations()
        self.tracked: dict[tuple[str, int], Tracked] = {}
        self.transactions: dict[tuple[str, int], Txn] = {}
        self.readers: dict[tuple[str, TopicPartition], PartitionReader] = {}
        self.strangers: list[Stranger] = []
        self.initialized: list[ProducerInitialized] = []
        self.deleted: dict[TopicPartition, list[RecordsDeleted]] = defaultdict(list)
        self.watermarks: dict[TopicPartition, list[Watermarks]] = defaultdict(list)
        self.logs: dict[TopicPartition, FinalLog] = {}
        self.replicated = {change.topic_partition for change in history.of(PartitionChanged)}
        self._events: dict[type[Event], list[Event]] = defaultdict(list)
        self._index_events()
        for record in self.tracked.values():
            record.incarnation = self.topics.incarnation(
                record.topic_partition.topic,
                record.sent_s,
                # A send without a response may arrive at any time, but not after the end.
                record.acked_s if record.acked_s < NEVER else self.end_s,
            )
        for partition in final.partitions.values():
            self._index_log(partition)

    def is_current(self, record: Tracked) -> bool:
        """Return whether the record was sent to the topic that exists at the end."""
        last = self.topics.last(record.topic_partition.topic)
        return last is not None and record.incarnation == last and self.has_stayed(record)

    def has_stayed(self, record: Tracked) -> bool:
        """Return whether its topic has had one id since the record, as far as observed.

        A deletion without a response may take effect at any time, also on the next topic of that
        name.
        """
        if not self.topics.was_deleted(record.topic_partition.topic):
            return True
        looks = self.watermarks.get(record.topic_partition, [])
        from_s = min(record.acked_s, self.end_s)
        first = bisect_right(looks, from_s, key=lambda look: look.at_s)
        return len({look.topic_id for look in looks[max(0, first - 1) :]}) <= 1

    def may_start_at(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Return whether a request or the configuration allows the log to start at this offset."""
        if offset <= 0 or topic_partition.topic in self.promise.retention:
            return True
        # -1 asks for everything up to the high watermark of that moment.
        return any(
            e.offset >= offset or e.offset < 0 for e in self.deleted.get(topic_partition, ())
        )

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of a class without another index, in order."""
        return [event for event in self._events[kind] if isinstance(event, kind)]

    @cached_property
    def idempotent_clients(self) -> set[str]:
        """Return the clients that have a producer id."""
        return {event.who for event in self.initialized}

    @cached_property
    def instances(self) -> dict[str, tuple[str, str]]:
        """Member id -> (group, instance id) of the static members."""
        return {
            joined.member_id: (joined.group_id, joined.instance_id)
            for joined in self.of(Joined)
            if joined.instance_id
        }

    @cached_property
    def consumer_groups(self) -> frozenset[str]:
        """Return the groups that had a member under KIP-848; its rules hold for their epochs."""
        return frozenset(asked.group_id for asked in self.of(HeartbeatAsked))

    @cached_property
    def copies(self) -> list[tuple[Tracked, TopicPartition, int]]:
        """Return each record that is a copy, with the place of its source."""
        found = []
        for record in self.tracked.values():
            if record.value.source:
                place, _, offset = record.value.source.rpartition("@")
                topic, _, partition = place.rpartition("-")
                found.append((record, TopicPartition(topic, int(partition)), int(offset)))
        return found

    # --- the history --------------------------------------------------------------------

    def _index_events(self) -> None:
        add: dict[type[Event], Callable[[Any], None]] = {
            Sent: self._sent,
            Acked: self._acked,
            SendFailed: self._failed,
            Polled: self._polled,
            Positioned: self._positioned,
            Revoked: self._revoked,
            TransactionBegan: self._began,
            TransactionEnding: self._ending,
            TransactionEnded: self._ended,
            TransactionOffsets: lambda e: self._txn(e.who, e.transaction).offsets.append(e),
            TransactionUnknown: lambda e: None,
            ProducerInitialized: self.initialized.append,
            RecordsDeleted: lambda e: self.deleted[e.topic_partition].append(e),
            Watermarks: lambda e: self.watermarks[e.topic_partition].append(e),
            TopicChanging: self.topics.add,
            TopicChanged: self.topics.add,
        }
        for event in self.history.events:
            kind = type(event)
            handler = add.get(kind)
            if handler is None:
                self._events[kind].append(event)
            else:
                handler(event)

    def _txn(self, client: str, number: int) -> Txn:
        key = (client, number)
        txn = self.transactions.get(key)
        if txn is None:
            txn = self.transactions[key] = Txn(client, number)
        return txn

    def _sent(self, event: Sent) -> None:
        value = event.value
        key = (value.client, value.number)
        if key in self.tracked:
            return
        txn = self._txn(value.client, value.transaction) if value.transaction >= 0 else None
        record = Tracked(value, event.topic_partition, event.at_s, txn)
        self.tracked[key] = record
        if txn is not None:
            txn.records.append(record)

    def _acked(self, event: Acked) -> None:
        record = self.tracked.get((event.value.client, event.value.number))
        # An acknowledgement by a leader alone says nothing about what the next one has.
        is_kept = event.acks == -1 or event.topic_partition not in self.replicated
        if record is not None and record.acked_s == NEVER and event.acks != 0 and is_kept:
            record.acked_s, record.acked_offset = event.at_s, event.offset
            record.acks = event.acks
            if record.topic_partition.partition < 0:
                # The producer chose it.
                record.topic_partition = event.topic_partition

    def _failed(self, event: SendFailed) -> None:
        record = self.tracked.get((event.value.client, event.value.number))
        if record is None:
            return
        record.failed_s = min(record.failed_s, event.at_s)
        if event.certain:
            record.refused = event.error

    def _began(self, event: TransactionBegan) -> None:
        txn = self._txn(event.who, event.transaction)
        txn.began_s, txn.transactional_id = event.at_s, event.transactional_id

    def _ending(self, event: TransactionEnding) -> None:
        if event.commit:
            txn = self._txn(event.who, event.transaction)
            txn.ending_s = min(txn.ending_s, event.at_s)
        else:
            txn = self._txn(event.who, event.transaction)
            txn.aborting_s = min(txn.aborting_s, event.at_s)

    def _ended(self, event: TransactionEnded) -> None:
        txn = self._txn(event.who, event.transaction)
        if not txn.outcome:
            txn.outcome = "committed" if event.commit else "aborted"
            txn.ended_s = event.at_s

    def _reader(self, who: str, topic_partition: TopicPartition) -> PartitionReader:
        key = (who, topic_partition)
        reader = self.readers.get(key)
        if reader is None:
            reader = self.readers[key] = PartitionReader(who, topic_partition)
        return reader

    def _positioned(self, event: Positioned) -> None:
        reader = self._reader(event.who, event.topic_partition)
        # A partition's next owner continues at the group's offset; only a seek or a reset skips
        # records.
        if "commit" not in event.reason and event.offset > max(reader.position, 0):
            reader.jumps.append((max(reader.position, 0), event.offset))
        reader.position, reader.fetched_from_s = event.offset, event.at_s
        reader.is_assigned, reader.last = True, None
        reader.starts.append(event.offset)

    def _polled(self, event: Polled) -> None:
        reader = self._reader(event.who, event.topic_partition)
        records = [
            self._identify(event.at_s, event.who, event.topic_partition, offset, value)
            for offset, value in event.records
        ]
        for (offset, _), record in zip(event.records, records, strict=True):
            if record is not None:
                record.polls.append((event.at_s, offset, event))
        sent_s = [record.sent_s for record in records if record is not None]
        reader.fetched_from_s = max(reader.fetched_from_s, *sent_s, 0.0)
        step = ReaderPoll(event, reader.position, reader.fetched_from_s, records, reader.last)
        reader.steps.append(step)
        if not reader.starts and event.records:
            reader.starts.append(event.records[0][0])
        reader.position, reader.last = event.position, event
        reader.is_assigned = True

    def _revoked(self, event: Revoked) -> None:
        self._events[Revoked].append(event)
        for topic_partition in event.partitions:
            reader = self.readers.get((event.who, topic_partition))
            if reader is not None:
                reader.position, reader.is_assigned, reader.last = -1, False, None

    def _identify(
        self, at_s: float, who: str, topic_partition: TopicPartition, offset: int, value: Value
    ) -> Tracked | None:
        record = self.tracked.get((value.client, value.number))
        if (
            record is not None
            and record.value == value
            and _is_place_of(record, topic_partition)
            and record.sent_s <= at_s
        ):
            return record
        self.strangers.append(Stranger(at_s, who, topic_partition, offset, value))
        return None

    # --- the final state ----------------------------------------------------------------

    def _index_log(self, final: FinalPartition) -> None:
        place = final.topic_partition
        log = self.logs[place] = FinalLog(final, place not in self.final.unread)
        for batch in final.batches:
            if batch.marker:
                continue
            for entry in batch.records:
                record = None
                if entry.value is not None:
                    record = self._identify(NEVER, "", place, entry.offset, entry.value)
                    if record is not None:
                        record.places.append(entry.offset)
                log.offsets.append(entry.offset)
                log.records.append(record)
                log.batches.append(batch)
        for entry in final.committed:
            record = None
            if entry.value is not None:
                record = self.tracked.get((entry.value.client, entry.value.number))
                if record is not None:
                    record.shown.append(entry.offset)
            log.shown.append((entry.offset, record))
        for offset in sorted(final.compacted):
            # It was shown until compaction removed it.
            tracked, holder = log.record_at(offset), log.batch_at(offset)
            marker = log.closing_marker(offset)
            if tracked is None or holder is None:
                continue
            if not holder.transactional or (marker is not None and marker.marker == "commit"):
                tracked.shown.append(offset)


def _is_place_of(record: Tracked, topic_partition: TopicPartition) -> bool:
    """Return whether the record was sent there; an unknown partition may be any."""
    sent_to = record.topic_partition
    return sent_to == topic_partition or (
        sent_to.partition < 0 and sent_to.topic == topic_partition.topic
    )
