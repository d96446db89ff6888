"""What an event processor must do, as plainly as possible: one list of what waits, in its order.

The shard that it drives is a toy, whose events say themselves what becomes of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.coordinator import (
    AppendProducer,
    CoordinatorMetadata,
    CoordinatorRecord,
    CoordinatorShard,
    Decision,
    EndTransactionMarker,
    EventContext,
    RecordContext,
    Reply,
    Step,
    Token,
    replies_to,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId
from oncelog.core.limits import (
    PARKED_REQUEST_WAIT_MS_MAX,
    PARKED_REQUESTS_PER_ID_COUNT_MAX,
    REQUESTS_HELD_BY_LOAD_COUNT_MAX,
)

__all__ = ["ExpectedProcessor", "Said", "Toy", "ToyEvent"]

FREE: Final = "free"


class ToyEvent(NamedTuple):
    """`kind`: read, write, free (no transition), chain (writes, then reads), block, release."""

    kind: str
    id: str
    number: int
    seen: int = -1
    """How many records of its id it found when it was parked."""
    is_resumed: bool = False


Said = tuple[str, int, object]
"""What a reply says: how it came, the event's number, and particulars."""


class Toy(CoordinatorShard[ToyEvent, Said, int]):
    """Keeps the numbers of the records of each id. `blocked` is volatile."""

    def __init__(self) -> None:
        self.applied: dict[str, list[tuple[int, int, int, int, int]]] = {}
        self.blocked: set[str] = set()
        self.dues: list[tuple[int, ToyEvent]] = []
        self.dropped_tokens: list[Token] = []

    def id_of(self, event: ToyEvent) -> str | None:
        """Free records belong to no id."""
        return None if event.kind == FREE else event.id

    def overtakes(self, event: ToyEvent) -> bool:
        """A release is what blocked events wait for."""
        return event.kind == "release"

    def park(self, event: ToyEvent, context: EventContext) -> ToyEvent:
        """Remember what the event found."""
        return event._replace(seen=len(self.applied.get(event.id, ())))

    def decide(self, event: ToyEvent, context: EventContext) -> Decision[ToyEvent, Said, int]:
        """Do what the event says."""
        record = CoordinatorRecord(event.id.encode(), str(event.number).encode())
        held = tuple(each[0] for each in self.applied.get(event.id, ()))
        said = replies_to(context.token, ("done", event.number, (held, event.seen)))
        match event.kind:
            case "write" | "release":
                if event.kind == "release":
                    self.blocked.discard(event.id)
                return Decision((record,) * (1 + event.number % 2), said, (event.number,), event.id)
            case "free":
                producer = None
                if event.number % 3 == 0:
                    producer = AppendProducer(ProducerId(event.number), ProducerEpoch(7))
                return Decision((record,), said, (event.number,), producer=producer)
            case "chain" if not event.is_resumed:
                later = event._replace(is_resumed=True)
                return Decision((record,), (), (), event.id, wait=True, resume=later)
            case "block" if event.id in self.blocked or not event.is_resumed:
                self.blocked.add(event.id)
                return Decision(wait=True, resume=event._replace(is_resumed=True))
        return Decision((), said, (event.number,))

    def replay(self, step: Step, context: RecordContext) -> None:
        """Keep the number, and where it stood."""
        if isinstance(step, EndTransactionMarker):
            ids = int(step.producer_id), int(step.producer_epoch)
            self.applied.setdefault("markers", []).append((-1, step.offset, int(step.commit), *ids))
            return
        entry = (
            *(int(step.value or b"-1"), int(context.offset), context.timestamp_ms),
            *(int(context.producer_id), int(context.producer_epoch) * context.transactional),
        )
        self.applied.setdefault(step.key.decode(), []).append(entry)

    def failed(
        self, event: ToyEvent, error: ErrorCode, context: EventContext
    ) -> Decision[ToyEvent, Said, int]:
        """Say why."""
        return Decision(replies=replies_to(context.token, ("failed", event.number, error)))

    def timed_out(self, event: ToyEvent, context: EventContext) -> Decision[ToyEvent, Said, int]:
        """Say so."""
        return Decision(replies=replies_to(context.token, ("timed out", event.number, None)))

    def dropped(self, event: ToyEvent, token: Token) -> None:
        """Keep the token."""
        self.dropped_tokens.append(token)

    def tick(self, now_ms: int) -> list[ToyEvent]:
        """Return the planned events that are due."""
        due = [event for at_ms, event in self.dues if at_ms <= now_ms]
        self.dues = [each for each in self.dues if each[0] > now_ms]
        return due

    def next_deadline_ms(self) -> int | None:
        """Return when the next one is."""
        return min((at_ms for at_ms, _ in self.dues), default=None)

    def on_loaded(self, context: EventContext) -> Decision[ToyEvent, Said, int]:
        """Have one effect."""
        return Decision(effects=(-1,))

    def on_unloaded(self, context: EventContext) -> Decision[ToyEvent, Said, int]:
        """Answer once."""
        return Decision(replies=(Reply("unloaded", ("unloaded", -1, None)),))


@dataclass(slots=True)
class _Waiting:
    event: ToyEvent
    token: Token | None
    until_ms: int
    order: int = 0


@dataclass(slots=True)
class _Flying:
    number: int
    event: ToyEvent
    token: Token | None
    decision: Decision[ToyEvent, Said, int]
    waits: _Waiting | None
    at_ms: int
    late_ms: int | None = None
    is_answered: bool = False


Told = tuple[list[tuple[int, tuple[CoordinatorRecord, ...]]], list[Reply[Said]], list[int]]
"""Appends, replies and effects."""


@dataclass
class ExpectedProcessor:
    """A processor over a toy of its own. `append_wait_ms` is None where that wait has no bound."""

    append_wait_ms: int | None
    toy: Toy = field(default_factory=Toy)
    state: str = "loading"
    flying: list[_Flying] = field(default_factory=list)
    waiting: dict[str, list[_Waiting]] = field(default_factory=dict)
    held: list[_Waiting] = field(default_factory=list)
    count: int = 0
    waited: int = 0
    told: Told = field(default_factory=lambda: ([], [], []))

    @property
    def wait_ms(self) -> int:
        """How long a request may wait for its id, or for the load."""
        return min(PARKED_REQUEST_WAIT_MS_MAX, self.append_wait_ms or PARKED_REQUEST_WAIT_MS_MAX)

    def take_told(self) -> Told:
        """Return what there is to do since the last call."""
        told, self.told = self.told, ([], [], [])
        return told

    def pending(self, id_: str | None) -> bool:
        """Whether a transition of the id is in flight."""
        return id_ is not None and any(each.decision.id == id_ for each in self.flying)

    @property
    def parked(self) -> list[_Waiting]:
        """All requests that wait for an id."""
        return [each for queue in self.waiting.values() for each in queue if each.token is not None]

    # --- what it is told

    def activate(self, now_ms: int, first: ToyEvent | None) -> None:
        """Serve."""
        self.state = "active"
        self.told[2].append(-1)
        if first is not None:
            self._take(first, None, now_ms)
        held, self.held = self.held, []
        for each in held:
            self._take(each.event, each.token, now_ms)

    def submit(self, event: ToyEvent, token: Token | None, now_ms: int) -> None:
        """An event comes."""
        if self.state == "active":
            self._take(event, token, now_ms)
        elif token is None:
            return
        elif self.state == "loading" and len(self.held) < REQUESTS_HELD_BY_LOAD_COUNT_MAX:
            self.held.append(_Waiting(event, token, now_ms + self.wait_ms))
        else:
            loading = ErrorCode.coordinator_load_in_progress
            code = loading if self.state == "loading" else ErrorCode.not_coordinator
            self._fail(event, token, code)

    def committed(self, number: int, offset: int, now_ms: int) -> None:
        """An append is behind the high watermark."""
        flight = self._land(number)
        producer = flight.decision.producer
        for index, record in enumerate(flight.decision.records):
            at = Offset(offset + index)
            context = RecordContext(at, flight.at_ms)
            if producer is not None:
                ids = (producer.producer_id, producer.producer_epoch)
                context = RecordContext(at, flight.at_ms, *ids, transactional=True)
            self.toy.replay(record, context)
        if not flight.is_answered:
            self.told[1].extend(flight.decision.replies)
        self.told[2].extend(flight.decision.effects)
        self._go_on(flight.decision.id, now_ms)

    def append_failed(self, number: int, code: ErrorCode, now_ms: int) -> None:
        """An append is not in the log, and never will be."""
        flight = self._land(number)
        waits = flight.waits
        is_gone = waits is not None and not self._is_waiting(waits)
        if waits is not None and not is_gone:
            self._leave(waits)
        if not is_gone and not flight.is_answered:
            self._fail(flight.event, flight.token, code)
        self._go_on(flight.decision.id, now_ms)

    def delayed(self, number: int, now_ms: int) -> None:
        """An append is in the log, and not committed at once."""
        for each in self.flying:
            if each.number == number and self.append_wait_ms is not None:
                each.late_ms = now_ms + self.append_wait_ms

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        if self.state != "active":
            late = [each for each in self.held if each.until_ms <= now_ms]
            self.held = [each for each in self.held if each.until_ms > now_ms]
            for each in late:
                self._fail(each.event, each.token, ErrorCode.coordinator_load_in_progress)
            return
        overdue = [each for each in self.parked if each.until_ms <= now_ms]
        for each in sorted(overdue, key=lambda each: each.order):
            self._leave(each)
            self._fail(each.event, each.token, ErrorCode.concurrent_transactions)
        for flight in self.flying:
            if flight.late_ms is not None and flight.late_ms <= now_ms:
                flight.late_ms = None
                if flight.token is not None and flight.waits is None:
                    flight.is_answered = True
                    said = ("timed out", flight.event.number, None)
                    self.told[1].append(Reply(flight.token, said))
        for event in self.toy.tick(now_ms):
            self._take(event, None, now_ms)

    def next_deadline_ms(self) -> int | None:
        """When something is due next."""
        dues = [each.until_ms for each in (*self.parked, *self.held)]
        if self.state == "active":
            dues += [each.late_ms for each in self.flying if each.late_ms is not None]
            dues += [at_ms for at_ms, _ in self.toy.dues]
        return min(dues, default=None)

    def drop(self, event: ToyEvent, token: Token) -> None:
        """A connection has closed."""
        if self.state == "resigned":
            return
        self.held = [each for each in self.held if each.token != token]
        for each in self.parked:
            if each.token == token:
                self._leave(each)
        self.toy.dropped(event, token)

    def resign(self) -> None:
        """Leadership is lost."""
        if self.state == "resigned":
            return
        code = ErrorCode.not_coordinator
        for flight in self.flying:
            if flight.waits is None and not flight.is_answered:
                self._fail(flight.event, flight.token, code)
        for each in (each for queue in self.waiting.values() for each in queue):
            self._fail(each.event, each.token, code)
        for each in self.held:
            self._fail(each.event, each.token, code)
        self.told[1].append(Reply("unloaded", ("unloaded", -1, None)))
        self.state = "resigned"
        self.flying, self.waiting, self.held = [], {}, []

    # --- what it does

    def _fail(self, event: ToyEvent, token: Token | None, code: ErrorCode) -> None:
        if token is not None:
            self.told[1].append(Reply(token, ("failed", event.number, code)))

    def _is_waiting(self, waits: _Waiting) -> bool:
        return any(each is waits for each in self.waiting.get(waits.event.id, ()))

    def _leave(self, waits: _Waiting) -> None:
        id_ = waits.event.id
        queue = [each for each in self.waiting.get(id_, []) if each is not waits]
        if queue:
            self.waiting[id_] = queue
        else:
            self.waiting.pop(id_, None)

    def _land(self, number: int) -> _Flying:
        (flight,) = (each for each in self.flying if each.number == number)
        self.flying.remove(flight)
        return flight

    def _take(self, event: ToyEvent, token: Token | None, now_ms: int) -> None:
        id_ = self.toy.id_of(event)
        queue = self.waiting.get(id_ or "", [])
        is_free = id_ is None or not (self.pending(id_) or queue)
        ahead = self.toy.overtakes(event)
        if is_free or (ahead and not self.pending(id_)):
            self._decide(event, token, now_ms, None)
            if not is_free:
                self._go_on(id_, now_ms)
        elif len(queue) >= PARKED_REQUESTS_PER_ID_COUNT_MAX and token is not None and not ahead:
            self._fail(event, token, ErrorCode.concurrent_transactions)
        else:
            context = EventContext(now_ms, token, CoordinatorMetadata())
            self._wait(self.toy.park(event, context), token, now_ms, first=ahead)

    def _wait(self, event: ToyEvent, token: Token | None, now_ms: int, *, first: bool) -> _Waiting:
        self.waited += 1
        waits = _Waiting(event, token, now_ms + self.wait_ms, self.waited)
        queue = self.waiting.setdefault(event.id, [])
        queue.insert(0 if first else len(queue), waits)
        return waits

    def _decide(
        self, event: ToyEvent, token: Token | None, now_ms: int, waits: _Waiting | None
    ) -> bool:
        decision = self.toy.decide(event, EventContext(now_ms, token, CoordinatorMetadata()))
        stays = None
        if decision.wait:
            later = decision.resume or event
            if waits is None:
                stays = self._wait(later, token, now_ms, first=bool(decision.records))
            else:
                waits.event, stays = later, waits
        if decision.records:
            self.flying.append(_Flying(self.count, event, token, decision, stays, now_ms))
            self.told[0].append((self.count, decision.records))
            self.count += 1
        else:
            self.told[1].extend(decision.replies)
            self.told[2].extend(decision.effects)
        return decision.wait

    def _go_on(self, id_: str | None, now_ms: int) -> None:
        """Decide what waited for an id, oldest first, while nothing of it is in flight."""
        while id_ is not None and self.waiting.get(id_) and not self.pending(id_):
            waits = self.waiting[id_][0]
            if self._decide(waits.event, waits.token, now_ms, waits):
                return
            self._leave(waits)
