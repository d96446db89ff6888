"""How a row is run: until when a broker is driven, and in which order rounds go."""

from collections.abc import Callable, Iterator

import pytest

from bench.results import WarmUp
from bench.rows import ROWS
from bench.run import drive_until_warm, in_turns, taken_together
from bench.stats import WARM_S_MAX


class Broker:
    """Does windows of a fixed length at given rates, the last one for ever, on its own clock."""

    def __init__(self, rates: list[float], window_s: float) -> None:
        self._rates = self._following(rates)
        self._window_s = window_s
        self._now_s = 100.0

    def window(self) -> float:
        self._now_s += self._window_s
        return next(self._rates)

    def now_s(self) -> float:
        return self._now_s

    @staticmethod
    def _following(rates: list[float]) -> Iterator[float]:
        yield from rates
        while True:
            yield rates[-1]


@pytest.fixture
def drive() -> Callable[..., WarmUp]:
    def driven(rates: list[float], window_s: float, s_max: float = WARM_S_MAX) -> WarmUp:
        broker = Broker(rates, window_s)
        return drive_until_warm(broker.window, broker.now_s, s_max)

    return driven


def test_a_broker_that_gets_faster_is_driven_until_it_does_not(
    drive: Callable[..., WarmUp],
) -> None:
    assert drive([50, 80, 120, 150, 170, 180, 185], 2.0) == WarmUp(14.0, 50, 185, steady=True)


def test_a_broker_that_is_steady_at_once_is_driven_for_the_shortest_time(
    drive: Callable[..., WarmUp],
) -> None:
    assert drive([100], 2.0) == WarmUp(8.0, 100, 100, steady=True)


def test_a_broker_that_never_is_steady_is_measured_after_the_longest_time(
    drive: Callable[..., WarmUp],
) -> None:
    found = drive([100, 50] * 100, 2.0)
    assert (found.seconds, found.steady) == (WARM_S_MAX, False)


def test_one_window_is_driven_even_if_there_is_no_time(drive: Callable[..., WarmUp]) -> None:
    assert drive([100], 6.0, 1.0) == WarmUp(6.0, 100, 100, steady=False)


def test_the_order_alternates() -> None:
    assert [list(in_turns(["a", "b"], number)) for number in range(3)] == [
        ["a", "b"],
        ["b", "a"],
        ["a", "b"],
    ]


def test_rows_that_are_compared_within_one_system_are_measured_together() -> None:
    by_key = {row.key: row for row in ROWS}
    pending = [by_key[key] for key in ("consume", "idempotent", "txn-1s", "sustained")]
    groups = []
    while pending:
        groups.append([row.key for row in taken_together(pending)])
    assert groups == [["consume"], ["idempotent", "txn-1s"], ["sustained"]]
