"""How long and how many events wait for the transition of an id (D7)."""

from oncelog.coordinator import Reply
from oncelog.core.errors import ErrorCode as E
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX, PARKED_REQUESTS_PER_ID_COUNT_MAX
from tests.unit.coordinator.test_event_processor import NO_OUTPUT, Context, Do, Fencing, said


def test_a_wait_is_bounded() -> None:
    context = Context()
    first = context.send(Do("a", "1", (b"x",)))
    context.now_ms = 10
    context.send(Do("a", "2"))
    context.now_ms = 20
    context.send(Do("a", "3"))
    assert context.processor.next_deadline_ms() == 10 + PARKED_REQUEST_WAIT_MS_MAX
    output = context.processor.tick(10 + PARKED_REQUEST_WAIT_MS_MAX)
    assert output.replies == [Reply(2, E.concurrent_transactions)]
    assert context.processor.next_deadline_ms() == 20 + PARKED_REQUEST_WAIT_MS_MAX
    assert said(context.commit(first)) == ["1", "3, met after 0"]
    assert context.processor.next_deadline_ms() is None
    assert context.processor.tick(10**6) == NO_OUTPUT


def test_all_that_waited_too_long_are_answered_in_one_turn_the_oldest_first() -> None:
    context = Context()
    first = context.send(Do("a", "1", (b"x",)))
    for now_ms in (10, 20, 30, 40):
        context.now_ms = now_ms
        context.send(Do("a", str(now_ms)))
    context.processor.drop(Do("a"), 2)
    assert context.processor.next_deadline_ms() == 20 + PARKED_REQUEST_WAIT_MS_MAX
    output = context.processor.tick(30 + PARKED_REQUEST_WAIT_MS_MAX)
    assert output.replies == [Reply(token, E.concurrent_transactions) for token in (3, 4)]
    assert said(context.commit(first)) == ["1", "40, met after 0"]


def test_a_request_that_expires_while_its_append_is_in_flight_is_not_answered_again() -> None:
    context = Context(Fencing())
    abort = context.send(Do("a", "fence"))
    late = context.processor.tick(PARKED_REQUEST_WAIT_MS_MAX)
    assert said(late) == [E.concurrent_transactions]
    assert context.commit(abort) == NO_OUTPUT
    assert "d" in context.toy.shut


def test_deadlines_of_the_machine_and_of_requests_are_merged() -> None:
    context = Context()
    assert context.processor.next_deadline_ms() is None
    context.toy.deadline_ms = 30
    assert context.processor.next_deadline_ms() == 30
    context.send(Do("a", "1", (b"x",)))
    context.send(Do("a", "2"))
    assert context.processor.next_deadline_ms() == 30
    context.toy.deadline_ms = 10**6
    assert context.processor.next_deadline_ms() == PARKED_REQUEST_WAIT_MS_MAX


def test_only_so_many_wait_for_one_id() -> None:
    context = Context()
    context.send(Do("a", "1", (b"x",)))
    for _ in range(PARKED_REQUESTS_PER_ID_COUNT_MAX):
        assert context.send(Do("a", "n")) == NO_OUTPUT
    assert said(context.send(Do("a", "too many"))) == [E.concurrent_transactions]
    assert context.send(Do("a", "ahead", ahead=True)) == NO_OUTPUT
    assert context.processor.parked_count == PARKED_REQUESTS_PER_ID_COUNT_MAX + 1


def test_timers_queue_without_a_bound_in_time_and_without_an_answer() -> None:
    context = Context()
    first = context.send(Do("a", "1", (b"x",)))
    context.toy.due = [Do("a", "timer", effect="rang"), Do("a", "other", effect="too")]
    assert context.processor.tick(1) == NO_OUTPUT
    assert context.processor.tick(10**6) == NO_OUTPUT
    assert context.commit(first).effects == ["rang", "too"]


def test_timers_queue_also_where_too_many_requests_wait() -> None:
    context = Context()
    first = context.send(Do("a", "1", (b"x",)))
    for _ in range(PARKED_REQUESTS_PER_ID_COUNT_MAX):
        context.send(Do("a", "n"))
    context.toy.due = [Do("a", "timer", effect="rang")]
    assert context.processor.tick(1) == NO_OUTPUT
    assert context.commit(first).effects == ["rang"]
