"""What a coordinator's shard is.

Events in, decisions out, and records that alone change durable state (D2).

The transaction and the group coordinator each implement `CoordinatorShard`;
`oncelog.coordinator.event_processor.EventProcessor` drives one shard for one partition of the
internal topic. Nothing here knows of sockets, tasks, clocks or logs: time comes in as an argument,
and what should happen outside leaves as a value.

The life of an event, in this order:

1. `id_of(event)`: whether a transition that is under way holds the event back. If so the processor
   calls `park(event)` once, keeps what it returns, and comes back to it when the transition is
   over.
2. `decide(event, token, now_ms)`: reads state, changes nothing durable, returns a `Decision`.
3. The processor has the decision's entries appended. Until the high watermark passes them,
   `Decision.id` is *pending*: later events of that id wait in the order of arrival.
4. `apply(entry, context)` for each entry in order. Only this changes durable state. Replay calls it
   with the same entries.
5. The decision's replies and effects are released, together, after the last `apply`.
6. The events that waited for the id are decided, oldest first, until one makes the id pending again
   or has to wait.

If the append fails, steps 4 to 6 are replaced by: `failed(event, token, error, now_ms)`, then step
6.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId

Token = Hashable
"""Names one waiting request: whatever promise its answer completes.

A shard only keeps it and compares it; `None` stands for nobody waits.
"""


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record of the internal topic. A value of None is a tombstone."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one waiting request.

    `value` is a frozen result of the shard, never a wire class.
    """

    token: Token
    value: object


@dataclass(frozen=True, slots=True)
class AppendProducer:
    """Whose transaction an append belongs to.

    Transactional offset commits are written as that producer's batch. `permit` names, for the
    shell, the transaction that they are verified for; the append fails once that has ended.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    permit: object | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What the shard wants done about one event.

    - `entries` are appended as one batch; `replies` and `effects` are released when it is committed
      (at once if there are no entries), never before.
    - `id` names the id whose transition is pending until the entries are committed. Entries without
      an id do not hold anybody back: several such appends may be in flight, and are applied in the
      order of the log.
    - `wait` parks the event until the transition of its id (`id`, or else `CoordinatorShard.id_of`)
      is over: it is then decided again, as `resume` if that is given. With entries as well, they
      are appended first, and the event is the first to be decided after them. A waiting event is
      not answered: `replies` are for other tokens.
    """

    entries: tuple[CoordinatorRecord, ...] = ()
    replies: tuple[Reply, ...] = ()
    effects: tuple[object, ...] = ()
    id: str | None = None
    producer: AppendProducer | None = None
    wait: bool = False
    resume: object | None = None


NOTHING = Decision()
"""The decision to do nothing.

For timers that came too late, and other events that nobody waits for.
"""


@dataclass(frozen=True, slots=True)
class RecordContext:
    """Where an applied entry stands in the log, and as part of which batch.

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


class CoordinatorShard(ABC):
    """One coordinator's logic for one partition of its internal topic.

    Pure; see the module for the order of calls.
    """

    @abstractmethod
    def decide(self, event: object, token: Token | None, now_ms: int) -> Decision:
        """Say what to do about `event`.

        Durable state must not change here; named volatile state may.
        """

    @abstractmethod
    def apply(self, entry: CoordinatorRecord, context: RecordContext) -> None:
        """Take over one committed record: after an append of ours, or in replay.

        The only writer of durable state. Raises `UnknownKind`, and `ProtocolError` for bytes that
        make no sense; both in replay only.
        """

    @abstractmethod
    def failed(self, event: object, token: Token | None, error: ErrorCode, now_ms: int) -> Decision:
        """Answer an event that could not be carried out.

        The decision holds no entries and does not wait.

        `error` is what the append said (map it), or one of the processor's own:
        COORDINATOR_LOAD_IN_PROGRESS (before `activate`), NOT_COORDINATOR (after `resign`),
        CONCURRENT_TRANSACTIONS (the event waited for too long, or too many wait already).
        """

    def id_of(self, event: object) -> str | None:
        """Name the id whose pending transition holds this event back.

        None if the event never waits for one.
        """
        return None

    def overtakes(self, event: object) -> bool:
        """Say whether `event` goes ahead of parked requests: it is what they wait for.

        It is still held back, first in the queue, by an append of its id that is in flight.
        """
        return False

    def park(self, event: object, token: Token | None) -> object:
        """See an event that has to queue before it was ever decided.

        Return what to decide in its place later.

        Called once, and not for events that were parked by `Decision.wait` (those say it with
        `resume`). This is where a request remembers which transaction it met (D7).
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

        Only groups, which keep offsets in them, act.
        """
        return

    def dropped(self, token: Token) -> None:
        """Forget a request whose connection is gone.

        It will not be decided again, and needs no reply.
        """
        return

    def tick(self, now_ms: int) -> Sequence[object]:
        """Return the events that are due by now; the processor submits each, with no token.

        Must not return one for ever.
        """
        return ()

    def next_deadline_ms(self) -> int | None:
        """Say when `tick` has something to return, at the earliest; None if nothing is planned."""
        return None

    def on_loaded(self, now_ms: int) -> Decision:
        """After replay, before the first event: what has to be taken up again.

        Effects and replies only, no entries.
        """
        return NOTHING

    def on_unloaded(self) -> Decision:
        """Leadership is lost: answer the requests held in volatile state (with NOT_COORDINATOR).

        Nothing comes after.
        """
        return NOTHING
