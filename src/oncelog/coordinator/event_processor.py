"""Runs the coordinator shard of one internal partition that this broker leads.

The processor enforces the order decide, append, replay, reply (D2, D7).

Pure: the shell (broker/coordination/context.py) owns the log and the sockets. Every call returns an
`Output`, and the shell executes it in this order: write the appends (in their order), send the
replies, execute the effects. Replies and effects of an output never depend on its own appends: what
they report is already committed; of which replies no append shows that, `Output.unconfirmed` says.
When the high watermark has passed an append the shell calls `committed`, in the order of the log;
it may do so at once in the same call stack.

Rules for queued requests (D7):

- At most one append per id is in flight. Later events of that id queue in the order of arrival,
  also behind a parked event; events for which `CoordinatorShard.overtakes` holds are decided before
  parked ones.
- A queued request gets CONCURRENT_TRANSACTIONS after `PARKED_REQUEST_WAIT_MS_MAX`, or at once if
  `PARKED_REQUESTS_PER_ID_COUNT_MAX` requests already wait for the id. Events without a token
  (timers) wait without a limit.
- A request whose append is written but not committed is answered after `append_wait_ms_max`, if
  that is given. The append stays in flight, and its id pending.
- A request that comes during the load is held and decided after it, in the order of arrival; after
  the same time, or if `REQUESTS_HELD_BY_LOAD_COUNT_MAX` are held, it gets
  COORDINATOR_LOAD_IN_PROGRESS. It has met no transition.
- `drop` removes a request whose connection closed. Its append is not cancelled: the record may be
  committed already.
- The shard remembers which transition a parked request waits for: `CoordinatorShard.park` and
  `Decision.resume`.

Invariants: no reply is sent before its records are committed and applied (the base of INV-4, INV-5
and INV-6); an id has at most one transition in flight; records are replayed exactly once, in the
order in which they were appended.
"""

from collections import deque
from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import Generic

from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.coordinator.output import Append, Output
from oncelog.coordinator.shard import (
    CoordinatorShard,
    Decision,
    EffectT,
    EventContext,
    EventT,
    RecordContext,
    ReplyT,
    Step,
    Token,
    UnknownKind,
)
from oncelog.coordinator.waiting import HeldByLoad, InFlight, Queued, WaitingEvents
from oncelog.core.errors import ErrorCode, InvariantViolation, OncelogError, require
from oncelog.core.ids import Offset, ProducerId
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX, PARKED_REQUESTS_PER_ID_COUNT_MAX
from oncelog.protocol.records.scan import DamagedRecord

_LOOK: Token = "look"
"""The token of a question that is answered within the call that asks it."""


class CoordinatorState(Enum):
    """The states of a processor: it replays, serves, and resigns, in this order only.

    A new leadership gets a new processor.
    """

    LOADING = auto()
    ACTIVE = auto()
    RESIGNED = auto()


class EventProcessor(Generic[EventT, ReplyT, EffectT]):
    """Decides the events of one shard, in order. Not thread-safe: one task owns it."""

    def __init__(
        self,
        shard: CoordinatorShard[EventT, ReplyT, EffectT],
        metadata: CoordinatorMetadata,
        append_wait_ms_max: int | None = None,
    ) -> None:
        self.shard = shard
        self.state = CoordinatorState.LOADING
        self.metadata = metadata
        """What decisions read of the metadata; the shell replaces it."""
        self.replayed_count = 0
        """The records and markers that were applied."""
        self.unknown: dict[int, Offset] = {}
        """The types of records that the shard does not know, with the offset of one each."""
        self._append_wait_ms_max = append_wait_ms_max
        wait_ms_max = PARKED_REQUEST_WAIT_MS_MAX
        wait_ms_max = min(wait_ms_max, append_wait_ms_max or wait_ms_max)
        self._delayed: deque[tuple[int, int]] = deque()  # (deadline, append id)
        self._next_append_id = 0
        self._in_flight: dict[int, InFlight[EventT, ReplyT, EffectT]] = {}
        self._pending: dict[str, int] = {}
        self._waiting = WaitingEvents[EventT](wait_ms_max)
        self._held = HeldByLoad[EventT](wait_ms_max)

    # Replay: from the first record of the internal partition to the end, then activate.

    def replay(self, step: Step, context: RecordContext) -> None:
        """Apply one record or end marker of the log: the only way into the shard's state (D2).

        Called in a load, for each record of an append that is committed, and for each marker that
        others have had committed to the partition. Raises `DamagedRecord` for bytes that cannot be
        decoded, and in a load for what no coordinator writes; the processor has to be resigned
        then. Raises `InvariantViolation` where it serves.
        """
        if self.state is CoordinatorState.RESIGNED:
            raise InvariantViolation("a resigned processor takes no steps")
        try:
            self.shard.replay(step, context)
        except UnknownKind as unknown:
            self.unknown.setdefault(unknown.kind, context.offset)
        except InvariantViolation as violation:
            if self.state is CoordinatorState.ACTIVE:
                raise  # It decided this itself: a bug, which must not pass for a damaged log.
            raise DamagedRecord(context.offset, str(violation)) from violation
        except OncelogError as error:
            raise DamagedRecord(context.offset, str(error)) from error
        self.replayed_count += 1

    def activate(self, now_ms: int, first: EventT | None = None) -> Output[ReplyT, EffectT]:
        """Start to serve requests: `first`, an event without a request, then those that were held.

        The output resumes unfinished work, such as the markers of a `Prepare*` state.
        """
        require(self.state is CoordinatorState.LOADING, "a processor is activated once")
        self.state = CoordinatorState.ACTIVE
        output: Output[ReplyT, EffectT] = Output([], [], [], [])
        decision = self.shard.on_loaded(self._context(None, now_ms))
        require(
            not decision.records and not decision.wait, "activation appends and waits for nothing"
        )
        _release(output, decision)
        if first is not None:
            self._take(first, None, now_ms, output)
        for event, token in self._held.take():
            self._take(event, token, now_ms, output)
        return output

    # Serving.

    def submit(self, event: EventT, token: Token | None, now_ms: int) -> Output[ReplyT, EffectT]:
        """Accept one event: decide it now, or queue it behind the transition of its id.

        During the load a request is held, and an event without a request is lost.
        """
        output: Output[ReplyT, EffectT] = Output([], [], [], [])
        if self.state is CoordinatorState.ACTIVE:
            self._take(event, token, now_ms, output)
        elif token is not None and not (
            self.state is CoordinatorState.LOADING and self._held.add(event, token, now_ms)
        ):
            self._refuse(event, token, self._unavailable(), now_ms, output)
        return output

    def submit_all(self, events: Iterable[EventT], now_ms: int) -> Output[ReplyT, EffectT]:
        """Accept events without a request, in this order, as `submit` accepts one."""
        output: Output[ReplyT, EffectT] = Output([], [], [], [])
        if self.state is CoordinatorState.ACTIVE:
            for event in events:
                self._take(event, None, now_ms, output)
        return output

    def look(self, event: EventT, now_ms: int) -> ReplyT:
        """Answer a question that never waits for an id, and changes nothing."""
        require(self.state is CoordinatorState.ACTIVE, "only a loaded shard is looked at")
        decision = self.shard.decide(event, EventContext(now_ms, _LOOK, self.metadata))
        if decision.records or len(decision.replies) != 1:
            raise InvariantViolation(f"{type(event).__name__} is no question (D2)")
        (reply,) = decision.replies
        return reply.value

    def _unavailable(self) -> ErrorCode:
        is_loading = self.state is CoordinatorState.LOADING
        return ErrorCode.coordinator_load_in_progress if is_loading else ErrorCode.not_coordinator

    def committed(
        self, append_id: int, base_offset: Offset, now_ms: int
    ) -> Output[ReplyT, EffectT]:
        """Apply an append that the high watermark has passed, and release its replies.

        `base_offset` is the offset of its first record. After `resign` this does nothing: the next
        leader replays the record. Raises as `replay` does.
        """
        output: Output[ReplyT, EffectT] = Output([], [], [], [])
        if self.state is CoordinatorState.RESIGNED:
            return output
        flight = self._in_flight.get(append_id)
        if flight is None:
            raise InvariantViolation(f"append {append_id} is not in flight")
        producer = flight.decision.producer
        for position, record in enumerate(flight.decision.records):
            offset = Offset(base_offset + position)
            stamp = flight.append.timestamp_ms
            if producer is None:
                context = RecordContext(offset, stamp)
            else:
                ids = (producer.producer_id, producer.producer_epoch)
                context = RecordContext(offset, stamp, *ids, transactional=True)
            self.replay(record, context)
        del self._in_flight[append_id]
        if flight.decision.id is not None:
            del self._pending[flight.decision.id]
        output.replies.extend(flight.decision.replies)
        output.effects.extend(flight.decision.effects)
        if flight.is_answered:
            _drop_replies(output, (flight.token,))
        if flight.decision.id in self._waiting.queues:
            self._drain(flight.decision.id, now_ms, output)
        return output

    def producer_id_taken(
        self, append_id: int, producer_id: ProducerId, now_ms: int
    ) -> Output[ReplyT, EffectT]:
        """Decide an event again that needs a fresh producer id: an append without records."""
        output: Output[ReplyT, EffectT] = Output([], [], [], [])
        if self.state is CoordinatorState.RESIGNED:
            return output
        flight = self._remove_in_flight(append_id)
        queued = flight.parked
        if queued is None:
            raise InvariantViolation(f"append {append_id} has no event that waits (INV-11)")
        if not queued.over:
            event, token = queued.event, queued.token
            if self._decide(event, token, now_ms, output, queued, producer_id):
                return output
            self._waiting.finish(queued)
        self._drain(queued.id, now_ms, output)
        return output

    def delayed(self, append_id: int, now_ms: int) -> None:
        """An append is in the log, but not committed at once: its request waits from now on."""
        if self._append_wait_ms_max is not None:
            self._delayed.append((now_ms + self._append_wait_ms_max, append_id))

    def append_failed(
        self, append_id: int, error: ErrorCode, now_ms: int
    ) -> Output[ReplyT, EffectT]:
        """Drop the transition of an append that failed for good, and reply with the mapped error.

        An append that is in the log but not yet replicated has not failed: it stays pending until
        it is committed, or until leadership is lost (`resign`).
        """
        output: Output[ReplyT, EffectT] = Output([], [], [], [])
        if self.state is CoordinatorState.RESIGNED:
            return output
        flight = self._remove_in_flight(append_id)
        dropped = flight.parked is not None and flight.parked.over
        if flight.parked is not None:
            self._waiting.finish(flight.parked)
        if not dropped:
            self._refuse(flight.event, flight.token, error, now_ms, output)
        _drop_replies(output, (flight.token,) if flight.is_answered else ())
        if flight.decision.id in self._waiting.queues:
            self._drain(flight.decision.id, now_ms, output)
        return output

    def tick(self, now_ms: int) -> Output[ReplyT, EffectT]:
        """Answer the requests that waited too long, then submit the shard's due events."""
        output: Output[ReplyT, EffectT] = Output([], [], [], [])
        if self.state is not CoordinatorState.ACTIVE:
            for event, token in self._held.take(now_ms):
                self._refuse(event, token, self._unavailable(), now_ms, output)
            return output
        if self._waiting.by_token:
            self._refuse_overdue(now_ms, output)
        if self._delayed:
            self._time_out(now_ms, output)
        for event in self.shard.tick(now_ms):
            self._take(event, None, now_ms, output)
        return output

    def next_deadline_ms(self) -> int | None:
        """Return when `tick` should be called next; None if nothing is planned.

        Every other call may change it.
        """
        if self.state is not CoordinatorState.ACTIVE:
            return self._held.next_deadline_ms()
        while self._delayed and self._delayed[0][1] not in self._in_flight:
            self._delayed.popleft()
        earliest_ms = self.shard.next_deadline_ms()
        if self._waiting.by_token:
            earliest_ms = _earlier(earliest_ms, self._waiting.next_deadline_ms())
        if self._delayed:
            earliest_ms = _earlier(earliest_ms, self._delayed[0][0])
        return earliest_ms

    def drop(self, event: EventT, token: Token) -> EventT | None:
        """Remove a request whose connection closed: if it waits it is never decided (D7).

        Returns the event to submit because of that, if there is one.
        """
        if self.state is CoordinatorState.RESIGNED:
            return None
        self._held.drop(token)
        queued = self._waiting.by_token.get(token)
        if queued is not None:
            self._waiting.finish(queued)
        return self.shard.dropped(event, token)

    def resign(self, now_ms: int) -> Output[ReplyT, EffectT]:
        """Stop leading: answer every waiting request with NOT_COORDINATOR and drop all state.

        Appends in flight are not cancelled.
        """
        output: Output[ReplyT, EffectT] = Output([], [], [], [])
        if self.state is CoordinatorState.RESIGNED:
            return output
        self.state = CoordinatorState.RESIGNED
        waiting = [
            *((f.event, f.token) for f in self._in_flight.values() if f.parked is None),
            *((q.event, q.token) for queue in self._waiting.queues.values() for q in queue),
            *self._held.take(),
        ]
        for event, token in waiting:
            self._refuse(event, token, ErrorCode.not_coordinator, now_ms, output)
        _release(output, self.shard.on_unloaded(self._context(None, now_ms)))
        _drop_replies(output, {f.token for f in self._in_flight.values() if f.is_answered})
        self._in_flight.clear()  # `_delayed` is about what was in flight.
        self._pending.clear()
        self._waiting = WaitingEvents(0)
        return Output([], output.replies, [], [])

    @property
    def parked_count(self) -> int:
        """Count the requests with a token that wait for a transition."""
        return len(self._waiting.by_token)

    @property
    def in_flight_since_ms(self) -> int | None:
        """When the oldest append that is not committed was begun; None without one."""
        oldest = next(iter(self._in_flight.values()), None)
        return None if oldest is None else oldest.append.timestamp_ms

    def is_pending(self, id: str) -> bool:  # noqa: A002 - the word of the shard's interface
        """Whether an append of this id is in flight."""
        return id in self._pending

    # Internal.

    def _context(self, token: Token | None, now_ms: int) -> EventContext:
        return EventContext(now_ms, token, self.metadata)

    def _take(
        self, event: EventT, token: Token | None, now_ms: int, output: Output[ReplyT, EffectT]
    ) -> None:
        """Decide a new event, or queue it if its id is pending or others wait before it."""
        id_ = self.shard.id_of(event)
        if not (id_ in self._pending or id_ in self._waiting.queues):
            self._decide(event, token, now_ms, output, None)
            return
        ahead = self.shard.overtakes(event)
        if ahead and id_ not in self._pending:
            self._decide(event, token, now_ms, output, None)
            self._drain(id_, now_ms, output)
            return
        is_full = len(self._waiting.queues.get(id_, ())) >= PARKED_REQUESTS_PER_ID_COUNT_MAX
        if is_full and token is not None and not ahead:
            error = ErrorCode.concurrent_transactions
            self._refuse(event, token, error, now_ms, output)
            return
        parked = self.shard.park(event, self._context(token, now_ms))
        self._waiting.add(parked, token, id_, now_ms, first=ahead)

    def _decide(
        self,
        event: EventT,
        token: Token | None,
        now_ms: int,
        output: Output[ReplyT, EffectT],
        queued: Queued[EventT] | None,
        fresh_producer_id: ProducerId | None = None,
    ) -> bool:
        """Decide one event and start its append.

        Returns whether the event still waits (as `queued`, or as a new one).
        """
        context = EventContext(now_ms, token, self.metadata, fresh_producer_id)
        decision = self.shard.decide(event, context)
        parked = None
        if decision.wait:
            id_ = decision.id or self.shard.id_of(event)
            require(id_ is not None, "an event that waits has an id to wait for")
            assert id_ is not None
            resume = event if decision.resume is None else decision.resume
            if queued is None:
                # Nothing waits for the id yet, or this event overtakes what does.
                parked = self._waiting.add(resume, token, id_, now_ms, first=True)
            else:
                queued.event = resume
                parked = queued
        if decision.records or decision.needs_producer_id:
            self._append(decision, event, token, parked, now_ms, output)
        else:
            output.replies.extend(decision.replies)
            output.effects.extend(decision.effects)
            for reply in decision.replies:
                output.unconfirmed.append(reply.token)
        return decision.wait

    def _append(
        self,
        decision: Decision[EventT, ReplyT, EffectT],
        event: EventT,
        token: Token | None,
        parked: Queued[EventT] | None,
        now_ms: int,
        output: Output[ReplyT, EffectT],
    ) -> None:
        append_id = self._next_append_id
        self._next_append_id += 1
        if decision.id is not None:
            if decision.id in self._pending:
                raise InvariantViolation(f"{decision.id}: two transitions in flight (D2)")
            self._pending[decision.id] = append_id
        append = Append(append_id, decision.records, decision.producer, now_ms)
        self._in_flight[append_id] = InFlight(append, decision, event, token, parked)
        output.appends.append(append)

    def _remove_in_flight(self, append_id: int) -> InFlight[EventT, ReplyT, EffectT]:
        """Remove an append from those in flight: its id is no longer pending."""
        flight = self._in_flight.pop(append_id, None)
        if flight is None:
            raise InvariantViolation(f"append {append_id} is not in flight")
        if flight.decision.id is not None:
            del self._pending[flight.decision.id]
        return flight

    def _drain(self, id_: str, now_ms: int, output: Output[ReplyT, EffectT]) -> None:
        """Decide the events that waited for `id_`, oldest first, until one is pending or waits."""
        while id_ in self._waiting.queues and id_ not in self._pending:
            queued = self._waiting.queues[id_][0]
            if self._decide(queued.event, queued.token, now_ms, output, queued):
                return
            self._waiting.finish(queued)

    def _refuse_overdue(self, now_ms: int, output: Output[ReplyT, EffectT]) -> None:
        """Answer the parked requests past their deadline."""
        for overdue in self._waiting.overdue(now_ms):
            error = ErrorCode.concurrent_transactions
            self._refuse(overdue.event, overdue.token, error, now_ms, output)

    def _time_out(self, now_ms: int, output: Output[ReplyT, EffectT]) -> None:
        """Answer the requests whose appends were not committed in time."""
        while self._delayed and self._delayed[0][0] <= now_ms:
            _, append_id = self._delayed.popleft()
            flight = self._in_flight.get(append_id)
            if flight is None or flight.parked is not None:
                continue  # Committed, or bounded by the queue.
            self._in_flight[append_id] = flight._replace(is_answered=True)
            context = self._context(flight.token, now_ms)
            _release(output, self.shard.timed_out(flight.event, context))

    def _refuse(
        self,
        event: EventT,
        token: Token | None,
        error: ErrorCode,
        now_ms: int,
        output: Output[ReplyT, EffectT],
    ) -> None:
        decision = self.shard.failed(event, error, self._context(token, now_ms))
        require(
            not decision.records and not decision.wait,
            "a failed event appends and waits for nothing",
        )
        _release(output, decision)


def _drop_replies(output: Output[ReplyT, EffectT], answered: Collection[Token | None]) -> None:
    """Take out what is for requests that were answered when they timed out."""
    output.replies[:] = [reply for reply in output.replies if reply.token not in answered]


def _release(output: Output[ReplyT, EffectT], decision: Decision[EventT, ReplyT, EffectT]) -> None:
    """Emit a decision's replies and effects; its records are committed."""
    output.replies.extend(decision.replies)
    output.effects.extend(decision.effects)


def _earlier(first_ms: int | None, second_ms: int) -> int:
    return second_ms if first_ms is None or second_ms < first_ms else first_ms
