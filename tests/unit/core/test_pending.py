"""The promise of an answer: kept once, converted when it is taken up, dropped by the connection."""

import gc
import weakref
from functools import partial

import pytest

from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.core.pending import Pending, gather, unchanged


def promise() -> Pending[object]:
    return Pending(unchanged, holds_back=True)


def test_a_result_is_converted_when_it_is_taken_up() -> None:
    pending = Pending(lambda result: f"response of {result}", holds_back=False)
    pending.complete("result")
    assert pending.done
    assert pending.response() == "response of result"


def test_a_waiter_is_told_within_the_call_that_keeps_the_promise() -> None:
    pending, told = promise(), []
    pending.wait(lambda: told.append("kept"))
    assert told == []
    pending.complete(1)
    assert told == ["kept"]


def test_who_waits_for_a_kept_promise_is_told_at_once() -> None:
    pending, told = promise(), []
    pending.complete(1)
    pending.wait(lambda: told.append("kept"))
    assert told == ["kept"]


def test_a_promise_is_not_kept_twice() -> None:
    pending = promise()
    pending.complete(1)
    with pytest.raises(InvariantViolation, match="D13"):
        pending.complete(2)


def test_a_dropped_promise_tells_the_other_side_once_and_ignores_the_result() -> None:
    pending, told = promise(), []
    pending.on_drop = lambda: told.append("dropped")
    pending.wait(lambda: told.append("kept"))
    pending.drop()
    pending.drop()
    pending.complete(1)
    pending.complete(2)
    assert told == ["dropped"]
    assert not pending.done


def test_a_kept_promise_is_not_dropped() -> None:
    pending, told = promise(), []
    pending.on_drop = lambda: told.append("dropped")
    pending.complete(1)
    pending.drop()
    assert told == []
    assert not pending.dropped


def test_there_is_no_response_before_the_result() -> None:
    with pytest.raises(InvariantViolation):
        promise().response()


def test_several_promises_are_one_in_the_order_of_the_parts() -> None:
    def doubled(result: int) -> object:
        return result * 2

    first, second = promise(), Pending(doubled, holds_back=True)
    whole = gather([first, "plain", second], listed, holds_back=False)
    kept: list[str] = []
    whole.wait(lambda: kept.append("whole"))
    second.complete(21)
    assert kept == []
    first.complete("first")
    assert kept == ["whole"]
    assert whole.response() == ["first", "plain", 42]


def listed(responses: list[object]) -> list[object]:
    return responses


def total(responses: list[int]) -> int:
    return sum(responses)


def test_parts_that_are_all_there_make_a_kept_promise() -> None:
    kept: Pending[int] = Pending(unchanged, holds_back=True)
    kept.complete(1)
    parts: list[int | Pending[int]] = [kept, 2]
    assert gather(parts, total, holds_back=True).response() == 3
    assert gather([], len, holds_back=True).response() == 0


def test_a_part_may_not_lead_to_another_promise() -> None:
    part: Pending[object] = Pending(lambda _: promise(), holds_back=True)
    part.complete(1)
    whole = gather([part], listed, holds_back=True)
    with pytest.raises(InvariantViolation, match="another one"):
        whole.response()


def test_dropping_the_whole_drops_the_parts_that_are_missing() -> None:
    kept, missing = promise(), promise()
    kept.complete(1)
    gather([kept, missing], listed, holds_back=True).drop()
    assert missing.dropped
    assert not kept.dropped


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_promise_that_is_over_is_freed_without_the_collector(is_dropped: bool) -> None:
    """`oncelog serve` has the collector run rarely."""

    class Held:
        def told(self, _: object) -> None:
            pass

    gc.disable()
    try:
        held, pending = Held(), promise()
        is_there = weakref.ref(held)
        if is_dropped:
            pending.convert = partial(held.told, pending)
        pending.wait(partial(held.told, pending))
        pending.on_drop = partial(held.told, pending)
        if is_dropped:
            pending.drop()
        else:
            pending.complete(1)
        del held, pending
        assert is_there() is None
    finally:
        gc.enable()


def test_a_dropped_promise_ignores_an_error_too() -> None:
    pending = Pending(unchanged, holds_back=True, refuse=unchanged)
    pending.drop()
    pending.fail(ErrorCode.not_coordinator)
    assert not pending.done
