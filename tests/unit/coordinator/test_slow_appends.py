"""Requests whose appends are written, but not committed in time."""

from oncelog.coordinator import Reply
from oncelog.core.errors import ErrorCode as E
from tests.unit.coordinator.test_event_processor import NO_OUTPUT, Context, Do, Fencing, said


def test_a_request_whose_append_is_not_committed_in_time_is_answered_and_its_id_stays_pending() -> (
    None
):
    context = Context(append_wait_ms_max=100)
    context.now_ms = 7
    slow = context.delayed(Do("a", "1", (b"x",), effect="wave"))
    assert context.processor.next_deadline_ms() == 107
    assert context.processor.tick(106) == NO_OUTPUT
    assert said(context.processor.tick(107)) == ["timed out"]
    assert context.processor.tick(10**6) == NO_OUTPUT
    assert context.processor.is_pending("a")
    output = context.commit(slow)
    assert (output.replies, output.effects) == ([], ["wave"])
    assert [key for key, _ in context.toy.applied] == [b"x"]


def test_an_append_that_is_committed_in_time_is_answered_once() -> None:
    context = Context(append_wait_ms_max=100)
    one, two = (context.delayed(Do(None, name, (b"x",))) for name in ("1", "2"))
    assert said(context.commit(one)) == ["1"]
    context.now_ms = 100
    assert said(context.processor.tick(100)) == ["timed out"]
    assert context.commit(two) == NO_OUTPUT
    assert context.processor.next_deadline_ms() is None


def test_the_deadline_of_an_append_that_was_committed_is_nobodys() -> None:
    context = Context(append_wait_ms_max=100)
    one = context.delayed(Do(None, "1", (b"x",)))
    context.now_ms = 30
    two = context.delayed(Do(None, "2", (b"x",)))
    context.commit(one)
    assert context.processor.next_deadline_ms() == 130
    context.commit(two)
    assert context.processor.next_deadline_ms() is None


def test_appends_time_out_one_after_another_in_their_order() -> None:
    context = Context(append_wait_ms_max=100)
    for now_ms in (0, 30, 30):
        context.now_ms = now_ms
        context.delayed(Do(None, str(now_ms), (b"x",)))
    assert context.processor.next_deadline_ms() == 100
    assert context.processor.tick(100).replies == [Reply(1, "timed out")]
    assert context.processor.next_deadline_ms() == 130
    assert context.processor.tick(130).replies == [Reply(2, "timed out"), Reply(3, "timed out")]


def test_an_append_that_fails_after_its_request_timed_out_is_not_answered_again() -> None:
    context = Context(append_wait_ms_max=100)
    slow = context.delayed(Do("a", "1", (b"x",)))
    context.processor.tick(100)
    context.send(Do("a", "2"))
    output = context.processor.append_failed(slow.appends[0].append_id, E.kafka_storage_error, 100)
    assert said(output) == ["2, met after 0"]


def test_resigning_does_not_answer_a_request_that_timed_out() -> None:
    context = Context(append_wait_ms_max=100)
    context.next_token = 99  # The toy answers this request when it is unloaded, too.
    context.delayed(Do("a", "1", (b"x",)))
    context.processor.tick(100)
    assert context.processor.resign(100).replies == []


def test_requests_behind_a_slow_append_wait_no_longer_than_it() -> None:
    context = Context(append_wait_ms_max=100)
    context.delayed(Do("a", "1", (b"x",)))
    context.send(Do("a", "2"))
    assert said(context.processor.tick(100)) == [E.concurrent_transactions, "timed out"]


def test_a_request_that_waits_for_its_own_slow_append_is_answered_once() -> None:
    context = Context(Fencing(), append_wait_ms_max=100)
    context.delayed(Do("a", "fence"))
    assert said(context.processor.tick(100)) == [E.concurrent_transactions]


def test_appends_wait_for_ever_where_nothing_bounds_them() -> None:
    context = Context()
    context.delayed(Do("a", "1", (b"x",)))
    assert context.processor.next_deadline_ms() is None
    assert context.processor.tick(10**6) == NO_OUTPUT


def test_an_append_without_a_request_that_is_slow_is_not_answered() -> None:
    context = Context(append_wait_ms_max=100)
    output = context.processor.submit(Do("a", "timer", (b"x",)), None, 0)
    context.processor.delayed(output.appends[0].append_id, 0)
    assert context.processor.tick(100) == NO_OUTPUT
