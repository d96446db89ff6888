"""What happened in a run, as values: calls of clients, faults, starts and deaths of brokers.

`History` is the one list of it. Checkers judge it, the timeline draws it, and its bytes go into the
hash that shows that a seed decides everything. Times are seconds of virtual time since the run
began. Nothing here knows a socket, a loop or a broker.
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
    "Event",
    "Fault",
    "GroupDescribed",
    "HeartbeatAnswered",
    "HeartbeatAsked",
    "History",
    "Joined",
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
        """As the bytes of a record's value."""
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
    """A record was handed to the producer."""

    value: Value
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Acked(Event):
    """It was acknowledged. `offset` -1: a duplicate so old that its place is no longer known.

    `acks` is -1 (all), 1, or 0: only -1 is a promise.
    """

    value: Value
    topic_partition: TopicPartition
    offset: int
    acks: int = -1


@dataclass(frozen=True, slots=True)
class SendFailed(Event):
    """It was not acknowledged. `certain`: the broker refused it, so it may not be in the log."""

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
    """The producer was told that another one has taken over, or that its state is lost."""

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
    """It is known to have ended that way: EndTxn answered without an error.

    `commit` False is also recorded for a transaction whose client gave up *before* any EndTxn that
    could commit it: then it may never be seen.
    """

    transaction: int
    commit: bool


@dataclass(frozen=True, slots=True)
class TransactionUnknown(Event):
    """EndTxn(commit) was sent and its outcome is unknown to the client for good."""

    transaction: int
    error: str


# --- consumers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Positioned(Event):
    """A reader goes on at `offset`, by a seek, a reset, a committed offset or an assignment.

    What follows need not connect to what it read before. `reason` says which.
    """

    topic_partition: TopicPartition
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Polled(Event):
    """One poll's records of one partition, in the order they were handed out.

    `committed`: read_committed. `position` is where the reader goes on, and `leader_epoch` that of
    the batch before it, as the reader knows it; -1 for one that does not compare epochs (KIP-320).
    """

    topic_partition: TopicPartition
    committed: bool
    records: tuple[tuple[int, Value], ...]
    position: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class OffsetsCommitting(Event):
    """A member, or a consumer outside any group (generation -1), asks to commit."""

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

    `asked_s` is when it was asked; `stable`: with require_stable.
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
    """The leader hands in the generation's assignment with SyncGroup."""

    group_id: str
    generation: int
    assignment: Mapping[str, tuple[TopicPartition, ...]]


@dataclass(frozen=True, slots=True)
class Assigned(Event):
    """SyncGroup answered: the member owns these partitions from now on.

    Under "cooperative" it may have owned some of them without a break. Under KIP-848 they are those
    of a heartbeat's answer, and `generation` is the member's epoch.
    """

    group_id: str
    member_id: str
    generation: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Revoked(Event):
    """The member owns these no longer, from `at_s` on: it said so, left, died or was told."""

    group_id: str
    member_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class HeartbeatAsked(Event):
    """ConsumerGroupHeartbeat (KIP-848) is sent. `epoch` 0: the member joins; below 0: it leaves.

    `owned`: what it says that it owns; None if it does not say.
    """

    group_id: str
    member_id: str
    epoch: int
    owned: tuple[TopicPartition, ...] | None
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered(Event):
    """It was answered: the member is in this epoch, or `error` says why not.

    `assigned`: what the member is to own, where the answer says it. A partition of a topic that the
    member does not know is left out.
    """

    group_id: str
    member_id: str
    epoch: int
    error: str
    assigned: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class GroupDescribed(Event):
    """ConsumerGroupDescribe answered: what each member owns, as its coordinator sees it."""

    group_id: str
    state: str
    members: Mapping[str, tuple[TopicPartition, ...]]


# --- topics ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicChanging(Event):
    """An admin asked for "create", "delete" or "partitions". It may or may not take effect."""

    topic: str
    change: str


@dataclass(frozen=True, slots=True)
class TopicChanged(Event):
    """It was answered without an error. `detail` is the partition count."""

    topic: str
    change: str
    detail: int = 0


@dataclass(frozen=True, slots=True)
class RecordsDeleted(Event):
    """DeleteRecords was asked for: nothing below `offset` need be there any more."""

    topic_partition: TopicPartition
    offset: int


# --- the world ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault(Event):
    """A fault begins or strikes. `kind` is its name in `faults`, `target` what it meets."""

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
    """An observation of a broker's partition, from inside, between two of its steps."""

    incarnation: int
    topic_partition: TopicPartition
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    topic_id: str = ""


class History:
    """All events, in the order they happened. `observe` is called with each, for the hash."""

    def __init__(self, observe: Callable[[Event], None] | None = None) -> None:
        self.events: list[Event] = []
        self._observe = observe

    def record(self, event: Event) -> None:
        """Add one event. Its time is not before that of the last one."""
        self.events.append(event)
        if self._observe is not None:
            self._observe(event)

    def of(self, kind: type[E]) -> Iterator[E]:
        """The events of one class, in order."""
        return (event for event in self.events if isinstance(event, kind))

    def __len__(self) -> int:
        return len(self.events)
