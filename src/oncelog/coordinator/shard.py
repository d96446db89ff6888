"""What a coordinator shard is: events in, decisions out, records that change durable state.

The transaction and the group coordinator each implement `CoordinatorShard` (D2). One
`oncelog.coordinator.event_processor.EventProcessor` drives one shard for one partition of the
internal topic. Nothing here knows sockets, tasks, clocks or logs: an event comes with an
`EventContext`, and what has to happen outside leaves as a value of the `Decision`.

What happens to an event, in this order:

1. `id_of(event)` names the id whose transition may hold the event back. If one does, the processor
   calls `park(event, context)` once, queues what it returns, and decides that when the transition
   is over.
2. `decide(event, context)` reads state, changes nothing durable, and returns a `Decision`.
3. The processor has the decision's records appended. Until the high watermark passes them,
   `Decision.id` is *pending*: later events of that id wait in the order of arrival.
4. `replay(record, context)` for each record in order. Only this changes durable state. A load calls
   it with the same records.
5. The decision's replies and effects are released, together, after the last `replay`.
6. The events that waited for the id are decided, oldest first, until one makes the id pending again
   or has to wait.

If the append fails, `failed(event, error, context)` takes the place of steps 4 and 5.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Never, TypeAlias, TypeVar

from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId

Token: TypeAlias = Hashable
"""Names one waiting request.

A shard only keeps it and compares it. None means that no request waits.
"""

FreshProducerId: TypeAlias = Callable[[], ProducerId | None]
"""Takes the next producer id from a durable block (INV-11); None while no block is at hand."""

EventT = TypeVar("EventT")
ResultT = TypeVar("ResultT")
EffectT = TypeVar("EffectT")
EventT_co = TypeVar("EventT_co", covariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)
EffectT_co = TypeVar("EffectT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class EventContext:
    """What a decision may use besides the event and the state.

    `now_ms` is wall-clock time; `token` names the request that the event is, None for an event that
    no request waits for; `fresh_producer_id` is the only source of new producer ids.
    """

    now_ms: int
    token: Token | None
    fresh_producer_id: FreshProducerId


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record of the internal topic. A value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Reply(NamedTuple, Generic[ResultT_co]):
    """The answer to one waiting request. `value` is a result of the shard, never a wire class."""

    token: Token
    value: ResultT_co


@dataclass(frozen=True, slots=True)
class AppendProducer:
    """The producer whose transactional batch an append is: transactional offset commits.

    `permit` names the transaction that the append was verified for, in a form that only the broker
    understands; the append fails once that transaction has ended.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    permit: Hashable | None = None


class Decision(NamedTuple, Generic[EventT_co, ResultT_co, EffectT_co]):
    """What the shard wants done about one event.

    - `records` are appended as one batch; `replies` and `effects` are released when it is committed
      (at once if there are no records), never before.
    - `id` names the id whose transition is pending until the records are committed. Records without
      an id hold no event back: several such appends may be in flight, and are replayed in the order
      of the log.
    - `wait` parks the event until the transition of its id (`id`, or else `CoordinatorShard.id_of`)
      is over: it is then decided again, as `resume` if that is given. With records as well, they
      are appended first, and the event is the first to be decided after them. A waiting event is
      not answered: `replies` are for other tokens.
    """

    records: tuple[CoordinatorRecord, ...] = ()
    replies: tuple[Reply[ResultT_co], ...] = ()
    effects: tuple[EffectT_co, ...] = ()
    id: str | None = None
    producer: AppendProducer | None = None
    wait: bool = False
    resume: EventT_co | None = None


NOTHING: Decision[Never, Never, Never] = Decision()
"""The decision to do nothing: for timers that came too late, and events without a request."""


def answer(context: EventContext, result: ResultT) -> Decision[Never, ResultT, Never]:
    """Answer the event's own request at once. An event without a request gets no answer."""
    if context.token is None:
        return NOTHING
    return Decision(replies=(Reply(context.token, result),))


def replies_to(token: Token | None, result: ResultT) -> tuple[Reply[ResultT], ...]:
    """Make the reply to a request; no reply if there is none."""
    return () if token is None else (Reply(token, result),)


@dataclass(frozen=True, slots=True)
class RecordContext:
    """Where a replayed record stands in the log, and as part of which batch.

    `timestamp_ms` is the record's own.
    """

    offset: Offset
    timestamp_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    transactional: bool = False


class UnknownKind(OncelogError):  # noqa: N818 - names what was found
    """A record of the log whose key is of a kind that the shard does not know.

    Kafka passes over such records: a newer version may have left them. `kind` is what all keys of
    both internal topics begin with.
    """

    def __init__(self, key: bytes) -> None:
        self.kind = int.from_bytes(key[:2], signed=True)
        super().__init__(f"records of type {self.kind} are not known")


class CoordinatorShard(ABC, Generic[EventT, ResultT, EffectT]):
    """The logic of one coordinator for one partition of its internal topic.

    `EventT`, `ResultT` and `EffectT` are the unions of what it decides, answers and wants done.
    Pure; the module tells the order of calls.
    """

    @abstractmethod
    def decide(self, event: EventT, context: EventContext) -> Decision[EventT, ResultT, EffectT]:
        """Say what to do about `event`.

        Durable state must not change here; named volatile state may.
        """

    @abstractmethod
    def replay(self, record: CoordinatorRecord, context: RecordContext) -> None:
        """Take over one committed record: after an append of ours, or in a load.

        The only writer of durable state. Raises `UnknownKind`, and `ProtocolError` for bytes that
        make no sense; both in a load only.
        """

    @abstractmethod
    def failed(
        self, event: EventT, error: ErrorCode, context: EventContext
    ) -> Decision[EventT, ResultT, EffectT]:
        """Answer an event that could not be carried out.

        The decision has no records and does not wait.

        `error` is what the append returned (map it), or one of the processor's own:
        COORDINATOR_LOAD_IN_PROGRESS (before `activate`), NOT_COORDINATOR (after `resign`),
        CONCURRENT_TRANSACTIONS (the event waited for too long, or too many wait already).
        """

    def id_of(self, event: EventT) -> str | None:
        """Name the id whose pending transition holds this event back.

        None if the event never waits for one.
        """
        return None

    def overtakes(self, event: EventT) -> bool:
        """Whether `event` goes ahead of parked requests, because they wait for it.

        An append of its id that is in flight still holds it back, as the first of the queue.
        """
        return False

    def park(self, event: EventT, context: EventContext) -> EventT:
        """Return what to decide later in place of an event that has to queue undecided.

        Called once, and not for events that were parked by `Decision.wait` (those say it with
        `resume`). Here a request notes which transaction it found (D7).
        """
        return event

    def replay_end_transaction_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        commit: bool,
        offset: Offset,
    ) -> None:
        """Take over a transaction's end marker in the internal topic.

        Only the group coordinator keeps transactional records there.
        """
        return

    def dropped(self, token: Token) -> None:
        """Forget a request whose connection is closed: it is not decided again, nor answered."""
        return

    def tick(self, now_ms: int) -> Sequence[EventT]:
        """Return the events that are due by now; the processor submits each, without a token.

        Must not return one for ever.
        """
        return ()

    def next_deadline_ms(self) -> int | None:
        """Say when `tick` has something to return, at the earliest; None if nothing is planned."""
        return None

    def on_loaded(self, context: EventContext) -> Decision[EventT, ResultT, EffectT]:
        """Say what has to be taken up again after a load, before the first event.

        Effects and replies only, no records.
        """
        return NOTHING

    def on_unloaded(self, context: EventContext) -> Decision[EventT, ResultT, EffectT]:
        """Answer the requests held in volatile state with NOT_COORDINATOR: leadership is lost.

        No event comes afterwards.
        """
        return NOTHING
