"""Requests that come while a shard is loaded wait for it, bounded in time and number (D7)."""

from oncelog.coordinator import Decision, Reply
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX, REQUESTS_HELD_BY_LOAD_COUNT_MAX
from tests.unit.coordinator.support import processor_of
from tests.unit.coordinator.test_event_processor import NO_OUTPUT, Do, Toy, said

E = ErrorCode


def test_requests_are_held_by_the_load_and_decided_after_it_in_order() -> None:
    toy = Toy(activation=Decision(effects=("again",)))
    processor = processor_of(toy)
    for token in (1, 2, 3):
        assert processor.submit(Do("a", str(token), (b"x",)), token, 0) == NO_OUTPUT
    assert processor.submit(Do(None, "list"), 4, 0) == NO_OUTPUT
    assert toy.calls == []
    processor.drop(Do("a"), 2)
    output = processor.activate(9, Do("t", "topics", (b"y",)))
    # What an id did first is in flight, the others wait behind it.
    assert [append.records[0].key for append in output.appends] == [b"y", b"x"]
    assert output.replies == [Reply(4, "list")]
    assert toy.calls == ["decide topics", "decide 1", "park 3", "decide list"]
    assert said(processor.committed(1, Offset(0), 9)) == ["1"]


def test_the_wait_for_a_load_ends_with_its_deadline() -> None:
    processor = processor_of(Toy())
    processor.submit(Do("a", "old"), 1, 0)
    processor.submit(Do("b", "young"), 2, 7)
    assert processor.next_deadline_ms() == PARKED_REQUEST_WAIT_MS_MAX
    assert processor.tick(PARKED_REQUEST_WAIT_MS_MAX - 1) == NO_OUTPUT
    output = processor.tick(PARKED_REQUEST_WAIT_MS_MAX)
    assert output.replies == [Reply(1, E.coordinator_load_in_progress)]
    assert processor.next_deadline_ms() == PARKED_REQUEST_WAIT_MS_MAX + 7
    assert said(processor.activate(PARKED_REQUEST_WAIT_MS_MAX)) == ["young"]


def test_all_that_have_waited_too_long_are_answered_in_one_turn() -> None:
    processor = processor_of(Toy())
    for token in (1, 2):
        processor.submit(Do("a", str(token)), token, 0)
    processor.submit(Do("b", "young"), 3, 7)
    refused = ErrorCode.coordinator_load_in_progress
    output = processor.tick(PARKED_REQUEST_WAIT_MS_MAX)
    assert output.replies == [Reply(1, refused), Reply(2, refused)]
    assert processor.tick(PARKED_REQUEST_WAIT_MS_MAX) == NO_OUTPUT
    assert said(processor.activate(PARKED_REQUEST_WAIT_MS_MAX)) == ["young"]


def test_a_load_holds_a_bounded_count_of_requests() -> None:
    processor = processor_of(Toy())
    for token in range(REQUESTS_HELD_BY_LOAD_COUNT_MAX):
        assert processor.submit(Do("a"), token, 0) == NO_OUTPUT
    beyond = processor.submit(Do("a"), REQUESTS_HELD_BY_LOAD_COUNT_MAX, 0)
    assert said(beyond) == [E.coordinator_load_in_progress]


def test_a_resignation_answers_what_the_load_held() -> None:
    processor = processor_of(Toy())
    processor.submit(Do("a"), 1, 0)
    assert Reply(1, E.not_coordinator) in processor.resign(0).replies
    assert processor.next_deadline_ms() is None
