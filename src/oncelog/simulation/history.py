"""Defines the events of a run: calls of clients, faults, starts and deaths of brokers.

`History` is the list of all events. Checkers read it, the timeline draws it, and its bytes go into
the hash that shows that a seed determines a run. Times are seconds of virtual time since the run
began. This module knows no socket, loop or broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from oncelog.core.ids import TopicPartition

__all__ = [
    "Acked",
    "Assigned",
    "AssignmentMade",
    "BrokerDied",
    "BrokerStarted",
    "ClassicHeartbeat",
    "ComponentFailed",
    "Event",
    "Fault",
    "GroupDescribed",
    "HeartbeatAnswered",
    "HeartbeatAsked",
    "History",
    "Joined",
    "LateRequest",
    "Logged",
    "OffsetsCommitRefused",
    "OffsetsCommitted",
    "OffsetsCommitting",
    "OffsetsFetched",
    "Polled",
    "Positioned",
    "ProducerFenced",
    "ProducerInitialized",
    "Progress",
    "RecordsDeleted",
    "Revoked",
    "SendFailed",
    "Sent",
    "TopicChanged",
    "TopicChanging",
    "TransactionBegan",
    "TransactionEnded",
    "TransactionEnding",
    "TransactionOffsets",
    "TransactionUnknown",
    "Value",
    "Watermarks",
]

E = TypeVar("E")


@dataclass(frozen=True, slots=True, order=True)
class Value:
    """The value of a record, unique in its run.

    `client` sent it as its `number`-th record, in its `transaction`-th transaction (-1: in none).
    `source` is the record that it is a copy of, as "topic-partition@offset", or "".
    """

    client: str
    number: int
    transaction: int = -1
    source: str = ""

    def encode(self) -> bytes:
        """Encode it as a record's value."""
        return f"{self.client}/{self.number}/{self.transaction}/{self.source}".encode()

    @staticmethod
    def decode(data: bytes) -> Value:
        """Raises `ValueError` for bytes that `encode` did not make."""
        client, number, transaction, source = data.decode().split("/", 3)
        return Value(client, int(number), int(transaction), source)


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. `who` is a client, a broker or "" for the world."""

    at_s: float
    who: str


# --- records and transactions, as producers saw them ------------------------------------


@dataclass(frozen=True, slots=True)
class Sent(Event):
    """A record was passed to the producer."""

    value: Value
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Acked(Event):
    """The record was acknowledged.

    `offset` -1: a duplicate whose offset the broker no longer knows.

    `acks` is -1 (all), 1, or 0: only -1 promises that it is kept.
    """

    value: Value
    topic_partition: TopicPartition
    offset: int
    acks: int = -1


@dataclass(frozen=True, slots=True)
class SendFailed(Event):
    """The record was not acknowledged.

    `certain`: the broker refused it, so it must not be in the log.
    """

    value: Value
    error: str
    certain: bool = False


@dataclass(frozen=True, slots=True)
class ProducerInitialized(Event):
    """InitProducerId answered. `transactional_id` is "" for an idempotent producer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerFenced(Event):
    """The producer got an error: another producer has its id, or its state is lost."""

    transactional_id: str
    error: str


@dataclass(frozen=True, slots=True)
class TransactionBegan(Event):
    """The client began its `transaction`-th transaction (as in `Value`)."""

    transaction: int
    transactional_id: str


@dataclass(frozen=True, slots=True)
class TransactionOffsets(Event):
    """Offsets of `group_id` were accepted into the transaction (TxnOffsetCommit answered)."""

    transaction: int
    group_id: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TransactionEnding(Event):
    """The client called EndTxn."""

    transaction: int
    commit: bool


@dataclass(frozen=True, slots=True)
class TransactionEnded(Event):
    """The transaction is known to have ended: EndTxn returned no error.

    `commit` False is also recorded for a transaction that its client abandoned *before* any EndTxn
    that could commit it: then its records must never be visible.
    """

    transaction: int
    commit: bool


@dataclass(frozen=True, slots=True)
class TransactionUnknown(Event):
    """EndTxn(commit) was sent and the client never learned its outcome."""

    transaction: int
    error: str


@dataclass(frozen=True, slots=True)
class LateRequest(Event):
    """A request may arrive from now on whose answer its client no longer waits for.

    `who` is the client, or its process where the network delivered the bytes of a closed
    connection.
    """


# --- consumers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Positioned(Event):
    """A reader continues at `offset`, after a seek, a reset, a committed offset or an assignment.

    The next records need not follow the previous ones. `reason` says which it is.
    """

    topic_partition: TopicPartition
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Polled(Event):
    """One poll's records of one partition, in the order in which they were returned.

    `committed`: read_committed. `position` is the next offset to read, and `leader_epoch` that of
    the batch before it, if the reader knows it; -1 for a reader that does not compare epochs
    (KIP-320).
    """

    topic_partition: TopicPartition
    committed: bool
    records: tuple[tuple[int, Value], ...]
    position: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class OffsetsCommitting(Event):
    """A member, or a consumer outside any group (generation -1), sends a commit."""

    group_id: str
    member_id: str
    generation: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetsCommitted(Event):
    """That commit was accepted."""

    group_id: str
    member_id: str
    generation: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetsCommitRefused(Event):
    """That commit was refused."""

    group_id: str
    member_id: str
    generation: int
    error: str


@dataclass(frozen=True, slots=True)
class OffsetsFetched(Event):
    """OffsetFetch answered. Partitions without an offset are left out.

    `asked_s` is when the request was sent; `stable`: with require_stable.
    """

    group_id: str
    offsets: Mapping[TopicPartition, int]
    asked_s: float
    stable: bool


@dataclass(frozen=True, slots=True)
class Joined(Event):
    """JoinGroup answered: the member is in this generation."""

    group_id: str
    member_id: str
    generation: int
    protocol: str
    is_leader: bool
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class AssignmentMade(Event):
    """The leader sends the generation's assignment with SyncGroup."""

    group_id: str
    generation: int
    assignment: Mapping[str, tuple[TopicPartition, ...]]


@dataclass(frozen=True, slots=True)
class Assigned(Event):
    """SyncGroup answered: the member owns these partitions from now on.

    Under "cooperative" it may have owned some of them all the time. Under KIP-848 they are those of
    a heartbeat's response, and `generation` is the member's epoch.
    """

    group_id: str
    member_id: str
    generation: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Revoked(Event):
    """The member no longer owns these from `at_s` on: it revoked them, left, died or was fenced."""

    group_id: str
    member_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class HeartbeatAsked(Event):
    """ConsumerGroupHeartbeat (KIP-848) is sent. `epoch` 0: the member joins; below 0: it leaves.

    `owned`: the partitions that the request names as owned; None if it has no such field.
    """

    group_id: str
    member_id: str
    epoch: int
    owned: tuple[TopicPartition, ...] | None
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered(Event):
    """The heartbeat was answered: the member has this epoch, or `error` says why not.

    `assigned`: the assignment in the response, if there is one. Partitions of topics that the
    member does not know are omitted.
    """

    group_id: str
    member_id: str
    epoch: int
    error: str
    assigned: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class ClassicHeartbeat(Event):
    """A heartbeat of the classic protocol was answered. It was sent at `asked_s`.

    `kept_s`: so long a member may be silent, and stay away from a rebalance.
    """

    group_id: str
    member_id: str
    generation: int
    error: str
    asked_s: float
    kept_s: float


@dataclass(frozen=True, slots=True)
class GroupDescribed(Event):
    """ConsumerGroupDescribe answered: the assignment of each member."""

    group_id: str
    state: str
    members: Mapping[str, tuple[TopicPartition, ...]]


# --- topics ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicChanging(Event):
    """An admin requested "create", "delete" or "partitions", which may or may not take effect."""

    topic: str
    change: str


@dataclass(frozen=True, slots=True)
class TopicChanged(Event):
    """The request returned no error. `detail` is the partition count."""

    topic: str
    change: str
    detail: int = 0


@dataclass(frozen=True, slots=True)
class RecordsDeleted(Event):
    """DeleteRecords was requested: records below `offset` may be missing from now on."""

    topic_partition: TopicPartition
    offset: int


# --- the world ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault(Event):
    """A fault begins or strikes.

    `kind` is its name in `faults`, `target` is its process, machine or path.
    """

    kind: str
    target: str
    detail: str = ""
    until_s: float = -1.0


@dataclass(frozen=True, slots=True)
class BrokerStarted(Event):
    """A broker process serves. `incarnation` counts its starts from 0; `clean`: no recovery."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class BrokerDied(Event):
    """A broker process ended. `cause`: "kill", "power", "stop", or what it stopped because of."""

    incarnation: int
    cause: str


@dataclass(frozen=True, slots=True)
class Logged(Event):
    """A WARNING or worse in a broker's log."""

    level: str
    message: str


@dataclass(frozen=True, slots=True)
class Progress(Event):
    """A client reached a named state ("settled", "done", "stuck: ...")."""

    state: str


@dataclass(frozen=True, slots=True)
class Watermarks(Event):
    """A partition's watermarks, as the world saw them in a broker between two of its callbacks."""

    incarnation: int
    topic_partition: TopicPartition
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    topic_id: str = ""
    is_leader: bool = True


@dataclass(frozen=True, slots=True)
class Disagreement(Event):
    """What a broker says differs from what the bytes on its disk imply."""

    topic_partition: TopicPartition
    what: str
    particulars: str


@dataclass(frozen=True, slots=True)
class ComponentFailed(Event):
    """A component that was simulated by itself did not do what it must."""

    component: str
    particulars: str


class History:
    """All events, in the order in which they happened.

    `observe` is called with each, for the hash.
    """

    def __init__(self, observe: Callable[[Event], None] | None = None) -> None:
        self.events: list[Event] = []
        self._observe = observe

    def record(self, event: Event) -> None:
        """Add an event. Its time must not be before that of the last one."""
        self.events.append(event)
        if self._observe is not None:
            self._observe(event)

    def of(self, kind: type[E]) -> Iterator[E]:
        """The events of one class, in order."""
        return (event for event in self.events if isinstance(event, kind))

    def __len__(self) -> int:
        return len(self.events)
