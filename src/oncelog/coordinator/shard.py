"""Defines the interface of a coordinator shard: events in, decisions out, records replayed.

The transaction and the group coordinator each implement `CoordinatorShard` (D2). One
`oncelog.coordinator.event_processor.EventProcessor` drives one shard for one partition of the
internal topic. This module knows no sockets, tasks, clocks or logs: time comes in the
`EventContext`, and I/O leaves as values of the `Decision`.

An event is processed in these steps:

1. `id_of(event)` returns the id whose pending transition the event waits for. If there is one, the
   processor calls `park(event, context)` once, queues the result, and decides that when the
   transition is over.
2. `decide(event, context)` reads state, changes nothing durable, and returns a `Decision`.
3. The processor appends the decision's records. Until the high watermark passes them, `Decision.id`
   is *pending*: later events of that id wait in the order of arrival.
4. `replay(step, context)` runs for each record in order, and for end markers of transactions. Only
   this changes durable state. A load calls it with the same records and markers.
5. The decision's replies and effects are released, together, after the last `replay`.
6. The events that waited for the id are decided, oldest first, until one makes the id pending again
   or has to wait.

If the append fails, `failed(event, error, context)` replaces steps 4 and 5.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import Generic, NamedTuple, Never, TypeAlias, TypeVar

from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId
from oncelog.core.limits import CLOCK_JUMP_MS_MIN
from oncelog.core.values import value

Token: TypeAlias = Hashable
"""Identifies one waiting request.

A shard only stores and compares it. None means that no request waits.
"""

EventT = TypeVar("EventT")
ReplyT = TypeVar("ReplyT")
EffectT = TypeVar("EffectT")
EventT_co = TypeVar("EventT_co", covariant=True)
ReplyT_co = TypeVar("ReplyT_co", covariant=True)
EffectT_co = TypeVar("EffectT_co", covariant=True)


@value
class EventContext:
    """The inputs of a decision besides the event and the state.

    `now_ms` is in ms since 1970 (UTC), by a clock that never jumps. `token` identifies the event's
    request, None for an event without one. `fresh_producer_id` is a producer id that no other
    decision gets (INV-11), for an event whose decision was that it needs one.
    """

    now_ms: int
    token: Token | None
    metadata: CoordinatorMetadata
    fresh_producer_id: ProducerId | None = None


@value
class CoordinatorRecord:
    """One record of the internal topic. A value of None is a tombstone.

    `decoded` is what the shard that made the record would read from its bytes, so that it need not
    decode them to apply them (D2); None for a record that was read from a log.
    """

    key: bytes
    value: bytes | None
    decoded: object = field(default=None, compare=False, repr=False)


class Reply(NamedTuple, Generic[ReplyT_co]):
    """The reply to one waiting request. `value` is a reply of the shard, never a wire class."""

    token: Token
    value: ReplyT_co


@value
class AppendProducer:
    """The producer of a transactional append: transactional offset commits.

    `permit` identifies the transaction that the append was verified for, in a form that only the
    broker understands; the append fails once that transaction has ended.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    permit: Hashable | None = None


class Decision(NamedTuple, Generic[EventT_co, ReplyT_co, EffectT_co]):
    """The result of deciding one event.

    - `records` are appended as one batch. `replies` and `effects` are released when it is committed
      (at once if there are no records), never before.
    - `id` is the id whose transition is pending until the records are committed. Records without an
      id hold no event back: several such appends may be in flight, and are replayed in log order.
    - `wait` parks the event until the transition of its id (`id`, or else `CoordinatorShard.id_of`)
      is over; then `resume`, or else the event, is decided. With records as well, they are appended
      first, and the event is the first to be decided after them. A waiting event gets no reply yet:
      `replies` are for other tokens.
    - `needs_producer_id`, with `wait` and an `id`, has the event decided again with a fresh
      producer id in its context. If there is none it fails with COORDINATOR_LOAD_IN_PROGRESS.
    """

    records: tuple[CoordinatorRecord, ...] = ()
    replies: tuple[Reply[ReplyT_co], ...] = ()
    effects: tuple[EffectT_co, ...] = ()
    id: str | None = None
    producer: AppendProducer | None = None
    wait: bool = False
    resume: EventT_co | None = None
    needs_producer_id: bool = False


NOTHING: Decision[Never, Never, Never] = Decision()
"""The decision to do nothing: for late timers, and events without a request."""


def reply_at_once(context: EventContext, value: ReplyT) -> Decision[Never, ReplyT, Never]:
    """Reply to the event's own request at once; without a request there is no reply."""
    if context.token is None:
        return NOTHING
    return Decision(replies=(Reply(context.token, value),))


def replies_to(token: Token | None, value: ReplyT) -> tuple[Reply[ReplyT], ...]:
    """Return the reply to a request; empty if there is no request."""
    return () if token is None else (Reply(token, value),)


class EndTransactionMarker(NamedTuple):
    """An end marker in the internal topic: how a producer's transaction ended."""

    offset: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commit: bool


Step: TypeAlias = CoordinatorRecord | EndTransactionMarker
"""What is replayed."""


@value
class RecordContext:
    """A replayed record's position in the log, and its batch.

    `timestamp_ms` is the record's own.
    """

    offset: Offset
    timestamp_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    transactional: bool = False


def marker_context(marker: EndTransactionMarker) -> RecordContext:
    """Return where a marker stands. It has no time that a shard reads."""
    ids = marker.producer_id, marker.producer_epoch
    return RecordContext(Offset(marker.offset), 0, *ids, transactional=True)


def clock_shift_ms(value_ms: int, written_ms: int) -> int:
    """Return by how much the wall clock had been set when a record with this time was written."""
    shift_ms = written_ms - value_ms
    return shift_ms if abs(shift_ms) >= CLOCK_JUMP_MS_MIN else 0


class UnknownKind(OncelogError):  # noqa: N818 - names what was found
    """A record of the log has a key of a type that the shard does not know.

    As in Kafka such records are skipped: a newer version may have written them. `kind` is the
    number that all keys of both internal topics begin with.
    """

    def __init__(self, key: bytes) -> None:
        self.kind = int.from_bytes(key[:2], signed=True)
        super().__init__(f"records of type {self.kind} are not known")


class CoordinatorShard(ABC, Generic[EventT, ReplyT, EffectT]):
    """The logic of one coordinator for one partition of its internal topic.

    `EventT`, `ReplyT` and `EffectT` are the unions of its events, replies and effects. Pure; the
    module describes the order of calls.
    """

    @abstractmethod
    def decide(self, event: EventT, context: EventContext) -> Decision[EventT, ReplyT, EffectT]:
        """Decide `event`.

        Durable state must not change here; volatile state that the shard documents may.
        """

    @abstractmethod
    def replay(self, step: Step, context: RecordContext) -> None:
        """Apply one record of the log, or one end marker.

        The only writer of durable state. Raises `UnknownKind`, or `ProtocolError` for bytes that
        cannot be decoded. Only the group coordinator has transactional records, and so markers.
        """

    @abstractmethod
    def failed(
        self, event: EventT, error: ErrorCode, context: EventContext
    ) -> Decision[EventT, ReplyT, EffectT]:
        """Decide the reply to an event that failed. The decision has no records and does not wait.

        `error` is the append's error, or one of the processor's own: COORDINATOR_LOAD_IN_PROGRESS
        (before `activate`), NOT_COORDINATOR (after `resign`), CONCURRENT_TRANSACTIONS (the event
        waited too long, or too many events wait already).
        """

    def timed_out(self, event: EventT, context: EventContext) -> Decision[EventT, ReplyT, EffectT]:
        """Answer an event whose append is in the log, but was not committed in time.

        It stays pending and may be committed yet, so nothing may change here. Only called where the
        processor bounds that wait.
        """
        return NOTHING

    def id_of(self, event: EventT) -> str | None:
        """Return the id whose pending transition holds this event back.

        None if the event never waits for one.
        """
        return None

    def overtakes(self, event: EventT) -> bool:
        """Whether `event` is decided before parked requests, because they wait for it.

        An append of its id that is in flight still holds it back, as the first of the queue.
        """
        return False

    def park(self, event: EventT, context: EventContext) -> EventT:
        """Return the event to decide later in place of one that has to queue undecided.

        Called once, and not for events that were parked by `Decision.wait` (those use `resume`).
        Here a request remembers which transaction it found (D7).
        """
        return event

    def dropped(self, event: EventT, token: Token) -> EventT | None:
        """Forget a request whose connection is closed: it is neither decided nor answered.

        Returns the event to submit because of that, without a request.
        """
        return None

    def tick(self, now_ms: int) -> Sequence[EventT]:
        """Return the events that are due; the processor submits each, without a token.

        Must not return the same event forever.
        """
        return ()

    def next_deadline_ms(self) -> int | None:
        """Return the earliest time at which `tick` has events; None if nothing is planned."""
        return None

    def on_loaded(self, context: EventContext) -> Decision[EventT, ReplyT, EffectT]:
        """Return the replies and effects that resume unfinished work after a load.

        Called before the first event; there are no records.
        """
        return NOTHING

    def on_unloaded(self, context: EventContext) -> Decision[EventT, ReplyT, EffectT]:
        """Answer the requests held in volatile state with NOT_COORDINATOR: leadership is lost.

        No event follows.
        """
        return NOTHING
