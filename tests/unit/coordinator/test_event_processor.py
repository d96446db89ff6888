"""The processor's order of things, with a shard that does what its events say."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from oncelog.coordinator import (
    NOTHING,
    Append,
    AppendProducer,
    CoordinatorRecord,
    CoordinatorShard,
    Decision,
    EndTransactionMarker,
    EventContext,
    Output,
    RecordContext,
    Reply,
    Step,
    Token,
    UnknownKind,
    replies_to,
    reply_at_once,
)
from oncelog.core.errors import ErrorCode, InvariantViolation, ProtocolError
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId
from tests.unit.coordinator.support import AnyOutput, processor_of

E = ErrorCode
NO_OUTPUT: AnyOutput = Output([], [], [], [])


@dataclass(frozen=True)
class Do:
    """Append `writes`, answer `says`, release `effect`; wait while `door` is shut.

    `others` are the tokens of requests that get the same answer.
    """

    id: str | None
    says: str = ""
    writes: tuple[bytes, ...] = ()
    effect: str = ""
    door: str = ""
    ahead: bool = False
    producer: AppendProducer | None = None
    met: str = ""
    exclusive: bool = True
    others: tuple[int, ...] = ()


ToyDecision: TypeAlias = Decision[Do, object, str]


@dataclass
class Toy(CoordinatorShard[Do, object, str]):
    """Doors stand in for transitions: while its door is shut an event waits; records move doors."""

    applied: list[tuple[bytes, RecordContext]] = field(default_factory=list)
    shut: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    due: list[Do] = field(default_factory=list)
    deadline_ms: int | None = None
    activation: ToyDecision = NOTHING
    refusal: ToyDecision | None = None
    markers: list[object] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    def id_of(self, event: Do) -> str | None:
        return event.id

    def overtakes(self, event: Do) -> bool:
        return event.ahead

    def park(self, event: Do, context: EventContext) -> Do:
        self.calls.append(f"park {event.says}")
        return Do(**{**vars(event), "met": f"after {len(self.applied)}"})

    def decide(self, event: Do, context: EventContext) -> ToyDecision:
        self.calls.append(f"decide {event.says}")
        if event.door in self.shut:
            resume = None if event.met else Do(**{**vars(event), "met": "in decide"})
            return Decision(id=event.id if event.exclusive else None, wait=True, resume=resume)
        says = event.says + (f", met {event.met}" if event.met else "")
        return Decision(
            records=tuple(CoordinatorRecord(write, b"") for write in event.writes),
            replies=(
                *replies_to(context.token, says),
                *(Reply(other, says) for other in event.others),
            ),
            effects=(event.effect,) if event.effect else (),
            id=event.id if event.exclusive else None,
            producer=event.producer,
        )

    def replay(self, step: Step, context: RecordContext) -> None:
        if isinstance(step, EndTransactionMarker):
            self.markers.append(step)
            return
        if step.key == b"damaged":
            raise ProtocolError(E.corrupt_message, "what is this")
        if step.key == b"impossible":
            raise InvariantViolation("INV-4: no such move")
        if step.key == b"unknown":
            raise UnknownKind(b"\0\7")
        self.applied.append((step.key, context))
        verb, _, door = step.key.decode().partition(" ")
        if verb == "shut":
            self.shut.add(door)
        elif verb == "open":
            self.shut.discard(door)

    def failed(self, event: Do, error: ErrorCode, context: EventContext) -> ToyDecision:
        if self.refusal is not None:
            return self.refusal
        return reply_at_once(context, error)

    def timed_out(self, event: Do, context: EventContext) -> ToyDecision:
        return reply_at_once(context, "timed out")

    def dropped(self, event: Do, token: Token) -> None:
        assert isinstance(token, int)
        self.lost.append(token)

    def tick(self, now_ms: int) -> Sequence[Do]:
        due, self.due = self.due, []
        return due

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def on_loaded(self, context: EventContext) -> ToyDecision:
        return self.activation

    def on_unloaded(self, context: EventContext) -> ToyDecision:
        return Decision(replies=(Reply(99, "held"),), effects=("not any more",))


@dataclass
class Context:
    """A processor over the toy, active, at time 0."""

    toy: Toy = field(default_factory=Toy)
    now_ms: int = 0
    append_wait_ms_max: int | None = None

    def __post_init__(self) -> None:
        self.processor = processor_of(self.toy, self.append_wait_ms_max)
        self.processor.activate(0)
        self.offset = 0
        self.next_token = 1

    def send(self, event: Do) -> AnyOutput:
        token, self.next_token = self.next_token, self.next_token + 1
        return self.processor.submit(event, token, self.now_ms)

    def delayed(self, event: Do) -> AnyOutput:
        """An event whose append is written, but not committed."""
        output = self.send(event)
        (append,) = output.appends
        self.processor.delayed(append.append_id, self.now_ms)
        return output

    def commit(self, output: AnyOutput) -> AnyOutput:
        (append,) = output.appends
        base = Offset(self.offset)
        self.offset += len(append.records)
        return self.processor.committed(append.append_id, base, self.now_ms)


def said(output: AnyOutput) -> list[object]:
    return [reply.value for reply in output.replies]


def test_without_entries_everything_is_released_at_once() -> None:
    context = Context()
    output = context.send(Do("a", "hello", effect="wave"))
    assert output == Output([], [Reply(1, "hello")], ["wave"], [1])


def test_each_reply_that_no_append_shows_to_be_committed_is_named() -> None:
    output = Context().send(Do("a", "all", others=(7, 8)))
    assert output.unconfirmed == [1, 7, 8]


def test_entries_are_applied_and_then_replies_and_effects_leave() -> None:
    """INV-4's base: nothing leaves before its records are committed."""
    context = Context(now_ms=7)
    output = context.send(Do("a", "done", (b"x", b"y"), effect="wave"))
    records = (CoordinatorRecord(b"x", b""), CoordinatorRecord(b"y", b""))
    assert output == Output([Append(0, records, None, 7)], [], [], [])
    assert context.toy.applied == []
    assert context.processor.is_pending("a")
    context.now_ms = 9
    output = context.processor.committed(0, Offset(40), 9)
    assert output == Output([], [Reply(1, "done")], ["wave"], [])
    assert context.toy.applied == [
        (b"x", RecordContext(Offset(40), 7)),
        (b"y", RecordContext(Offset(41), 7)),
    ]
    assert not context.processor.is_pending("a")


def test_a_producers_append_is_applied_as_part_of_its_transaction() -> None:
    context = Context()
    producer = AppendProducer(ProducerId(5), ProducerEpoch(2))
    output = context.send(Do("g", "ok", (b"x",), producer=producer))
    assert output.appends[0].producer == producer
    context.commit(output)
    expected = RecordContext(Offset(0), 0, ProducerId(5), ProducerEpoch(2), transactional=True)
    assert context.toy.applied == [(b"x", expected)]


def test_events_of_a_pending_id_wait_in_order_and_others_do_not() -> None:
    context = Context()
    first = context.send(Do("a", "1", (b"x",)))
    assert context.send(Do("a", "2")) == NO_OUTPUT
    assert context.send(Do("a", "3", (b"y",))) == NO_OUTPUT
    assert context.send(Do("a", "4")) == NO_OUTPUT
    assert said(context.send(Do("b", "other"))) == ["other"]
    assert said(context.send(Do(None, "read"))) == ["read"]
    assert context.processor.parked_count == 3
    output = context.commit(first)
    assert output.replies == [Reply(1, "1"), Reply(2, "2, met after 0")]
    assert len(output.appends) == 1
    assert said(context.commit(output)) == ["3, met after 0", "4, met after 0"]
    assert context.processor.parked_count == 0


def test_appends_without_an_id_are_in_flight_together() -> None:
    context = Context()
    one = context.send(Do("g", "1", (b"x",), exclusive=False))
    two = context.send(Do("g", "2", (b"y",), exclusive=False))
    assert said(context.commit(one)) == ["1"]
    assert said(context.commit(two)) == ["2"]


def test_an_event_that_waits_is_decided_again_after_the_next_transition() -> None:
    context = Context()
    context.toy.shut.add("d")
    assert context.send(Do("a", "late", door="d")) == NO_OUTPUT
    assert context.send(Do("a", "behind")) == NO_OUTPUT
    opening = context.send(Do("a", "open", (b"open d",), ahead=True))
    assert said(context.commit(opening)) == ["open", "late, met in decide", "behind, met after 0"]


def test_an_event_may_wait_through_several_transitions() -> None:
    context = Context()
    context.toy.shut.add("d")
    context.send(Do("a", "late", door="d"))
    other = context.send(Do("a", "other", (b"x",), ahead=True))
    assert said(context.commit(other)) == ["other"]
    opening = context.send(Do("a", "open", (b"open d",), ahead=True))
    assert said(context.commit(opening)) == ["open", "late, met in decide"]


def test_what_overtakes_still_waits_for_an_append_in_flight_but_goes_first() -> None:
    context = Context()
    first = context.send(Do("a", "1", (b"x",)))
    context.send(Do("a", "2"))
    context.send(Do("a", "ahead", ahead=True))
    assert said(context.commit(first)) == ["1", "ahead, met after 0", "2, met after 0"]


def test_what_overtakes_without_a_record_lets_the_waiting_try_again() -> None:
    context = Context()
    context.toy.shut.add("d")
    context.send(Do("a", "late", door="d"))
    context.toy.shut.clear()
    assert said(context.send(Do("a", "nudge", ahead=True))) == ["nudge", "late, met in decide"]


class Fencing(Toy):
    """Its first decision appends and waits at once, as a takeover of an open transaction does."""

    def decide(self, event: Do, context: EventContext) -> ToyDecision:
        if event.says != "fence" or event.met:
            return super().decide(event, context)
        resume = Do("a", "fenced", met="its own abort", door="d")
        record = CoordinatorRecord(b"shut d", b"")
        return Decision((record,), id="a", wait=True, resume=resume)


def test_an_event_may_append_and_wait() -> None:
    context = Context(Fencing())
    abort = context.send(Do("a", "fence"))
    assert len(abort.appends) == 1
    context.send(Do("a", "behind"))
    assert context.commit(abort) == NO_OUTPUT
    opening = context.send(Do("a", "open", (b"open d",), ahead=True))
    assert said(context.commit(opening)) == [
        "open",
        "fenced, met its own abort",
        "behind, met after 0",
    ]


def test_a_queued_event_may_append_and_wait_too() -> None:
    context = Context(Fencing())
    first = context.send(Do("a", "1", (b"x",)))
    toy = context.toy
    toy.park = lambda event, context: event  # type: ignore[method-assign]
    context.send(Do("a", "fence"))
    abort = context.commit(first)
    assert said(abort) == ["1"]
    context.commit(abort)
    opening = context.send(Do("a", "open", (b"open d",), ahead=True))
    assert said(context.commit(opening)) == ["open", "fenced, met its own abort"]


def test_a_failed_append_that_waits_is_answered_once_and_frees_the_id() -> None:
    context = Context(Fencing())
    abort = context.send(Do("a", "fence"))
    context.send(Do("a", "behind"))
    output = context.processor.append_failed(abort.appends[0].append_id, E.not_enough_replicas, 0)
    assert said(output) == [E.not_enough_replicas, "behind, met after 0"]
    assert context.processor.parked_count == 0


def test_a_failed_append_whose_request_was_dropped_is_not_answered() -> None:
    context = Context(Fencing())
    abort = context.send(Do("a", "fence"))
    context.processor.drop(Do("a"), 1)
    output = context.processor.append_failed(abort.appends[0].append_id, E.not_enough_replicas, 0)
    assert output == NO_OUTPUT
    assert context.toy.lost == [1]


def test_a_failed_append_applies_nothing_and_goes_on_with_the_queue() -> None:
    context = Context()
    first = context.send(Do("a", "1", (b"x",), effect="wave"))
    context.send(Do("a", "2"))
    output = context.processor.append_failed(first.appends[0].append_id, E.kafka_storage_error, 0)
    assert said(output) == [E.kafka_storage_error, "2, met after 0"]
    assert output.effects == []
    assert context.toy.applied == []


def test_a_failed_append_without_an_id_is_answered() -> None:
    context = Context()
    one = context.send(Do(None, "1", (b"x",)))
    output = context.processor.append_failed(one.appends[0].append_id, E.request_timed_out, 0)
    assert said(output) == [E.request_timed_out]


def test_a_dropped_request_is_never_decided() -> None:
    context = Context()
    first = context.send(Do("a", "1", (b"x",)))
    context.send(Do("a", "2"))
    context.send(Do("a", "3"))
    context.processor.drop(Do("a"), 2)
    context.processor.drop(Do("a"), 77)
    assert context.processor.parked_count == 1
    assert said(context.commit(first)) == ["1", "3, met after 0"]
    assert "decide 2" not in context.toy.calls


def test_resigning_answers_all_that_wait_once_and_then_nothing_happens() -> None:
    context = Context(now_ms=5)
    first = context.send(Do("a", "1", (b"x",)))
    context.send(Do("a", "2"))
    processor = context.processor
    assert (processor.is_pending("a"), processor.in_flight_since_ms) == (True, 5)
    output = processor.resign(0)
    assert (processor.is_pending("a"), processor.in_flight_since_ms) == (False, None)
    assert context.processor.parked_count == 0
    assert output.appends == []
    assert output.effects == []
    assert output.replies == [
        Reply(1, E.not_coordinator),
        Reply(2, E.not_coordinator),
        Reply(99, "held"),
    ]
    assert context.processor.resign(0) == NO_OUTPUT
    assert context.commit(first) == NO_OUTPUT
    assert context.processor.append_failed(0, E.not_leader_or_follower, 0) == NO_OUTPUT
    assert context.toy.applied == []
    assert said(context.send(Do("a", "late"))) == [E.not_coordinator]
    context.processor.drop(Do("a"), 1)
    assert context.toy.lost == []
    assert context.processor.tick(10**6) == NO_OUTPUT
    assert context.processor.next_deadline_ms() is None


def test_events_without_a_request_are_decided_in_their_order_and_lost_during_the_load() -> None:
    events = [Do("a", "1", effect="first"), Do("b", "2", effect="second")]
    loading = Toy()
    assert processor_of(loading).submit_all(events, 0) == NO_OUTPUT
    assert loading.calls == []
    assert Context().processor.submit_all(events, 0).effects == ["first", "second"]


def test_a_question_is_answered_at_once_also_behind_a_transition() -> None:
    context = Context()
    context.send(Do("a", "1", (b"x",)))
    assert context.processor.look(Do("a", "what"), 0) == "what"


@pytest.mark.parametrize(
    "event",
    [Do("a", "1", (b"x",)), Do("a", "1", door="d"), Do("a", "1", others=(7,))],
    ids=["appends", "waits", "answers others"],
)
def test_what_is_more_than_a_question_is_refused_as_a_bug(event: Do) -> None:
    context = Context()
    context.toy.shut.add("d")
    with pytest.raises(InvariantViolation, match="no question"):
        context.processor.look(event, 0)


def test_a_shard_goes_one_way() -> None:
    context = Context()
    with pytest.raises(InvariantViolation, match="activated once"):
        context.processor.activate(0)
    context.processor.resign(0)
    with pytest.raises(InvariantViolation, match="takes no steps"):
        context.processor.replay(CoordinatorRecord(b"x", b""), RecordContext(Offset(0), 0))


def test_an_append_is_committed_once() -> None:
    context = Context()
    first = context.send(Do("a", "1", (b"x",)))
    context.commit(first)
    with pytest.raises(InvariantViolation, match="not in flight"):
        context.commit(first)


def test_bugs_of_a_machine_are_named() -> None:
    waits: ToyDecision = Decision(wait=True)
    with pytest.raises(InvariantViolation, match="activation"):
        processor_of(Toy(activation=waits)).activate(0)
    context = Context(Toy(refusal=Decision(records=(CoordinatorRecord(b"x", b""),))))
    first = context.send(Do("a", "1", (b"x",)))
    with pytest.raises(InvariantViolation, match="failed event"):
        context.processor.append_failed(first.appends[0].append_id, E.request_timed_out, 0)
    context = Context()
    context.toy.shut.add("d")
    with pytest.raises(InvariantViolation, match="has an id"):
        context.send(Do(None, "1", door="d"))


class Unaware(Toy):
    """Forgets to say whose transition an event belongs to."""

    def id_of(self, event: Do) -> str | None:
        return None


@pytest.mark.parametrize(("toy", "exclusive"), [(Unaware(), True), (Toy(), False)])
def test_an_event_waits_for_the_id_of_its_decision_or_else_for_its_own(
    toy: Toy, exclusive: bool
) -> None:
    context = Context(toy)
    toy.shut.add("d")
    assert context.send(Do("a", "late", door="d", exclusive=exclusive)) == NO_OUTPUT
    opening = context.send(Do("a", "open", (b"open d",), ahead=True))
    assert said(context.commit(opening)) == ["open", "late, met in decide"]


def test_two_transitions_of_one_id_in_flight_are_a_bug() -> None:
    context = Context(Unaware())
    context.send(Do("a", "1", (b"x",)))
    with pytest.raises(InvariantViolation, match="two transitions"):
        context.send(Do("a", "2", (b"y",)))
