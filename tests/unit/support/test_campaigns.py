"""Campaigns run in several processes and can be ended at any time."""

import os
import signal
from collections.abc import Iterator

import pytest
from rich.console import Console

from tests.support.campaigns import INTERRUPTED, Shown, carry_out, in_processes, interruptible

SHOWN = Shown(Console(quiet=True), "numbers", 100)


class Tally:
    """Counts numbers; those below 0 are wrong."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self.kept: list[int] = []

    @property
    def count(self) -> int:
        return len(self._numbers)

    @property
    def failed_count(self) -> int:
        return sum(number < 0 for number in self._numbers)

    def add(self, part: list[int]) -> None:
        self._numbers += part

    def keep(self) -> None:
        self.kept.append(self.count)


def say_nothing(part: list[int], console: Console) -> None:
    """For parts that nobody wants to see."""


def parts(count: int, *, then: BaseException | None = None) -> Iterator[list[int]]:
    for number in range(count):
        yield [number, number]
    if then is not None:
        raise then


def double(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def test_results_come_in_the_order_of_the_requests_from_other_processes() -> None:
    found = list(in_processes(double, range(5), 2))
    assert [number for number, _ in found] == [0, 2, 4, 6, 8]
    assert os.getpid() not in {process for _, process in found}


def test_a_campaign_that_is_left_early_ends_its_processes() -> None:
    results = in_processes(double, range(1_000), 1)
    assert next(results)[0] == 0
    results.close()
    assert list(results) == []


def test_sigterm_ends_a_campaign_as_sigint_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_there_is_is_kept_now_and_then_and_at_the_end() -> None:
    tally = Tally()
    assert carry_out(parts(5), tally, SHOWN, say_nothing, tally.keep, keep_every=4) == 0
    assert tally.kept == [4, 8, 10]


@pytest.mark.parametrize("keep_every", [1, 100])
def test_an_interrupted_campaign_keeps_what_it_has(keep_every: int) -> None:
    tally, going = Tally(), parts(3, then=KeyboardInterrupt())
    code = carry_out(going, tally, SHOWN, say_nothing, tally.keep, keep_every=keep_every)
    assert code == INTERRUPTED
    assert tally.kept[-1] == 6


def test_a_campaign_that_breaks_keeps_what_it_has() -> None:
    tally, going = Tally(), parts(3, then=OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        carry_out(going, tally, SHOWN, say_nothing, tally.keep)
    assert tally.kept[-1] == 6


def test_what_is_wrong_makes_the_exit_code_and_is_told() -> None:
    told: list[list[int]] = []
    wrong = iter([[1], [-1], [1]])
    code = carry_out(wrong, Tally(), SHOWN, lambda part, console: told.append(part), None)
    assert code == 1
    assert told == [[1], [-1], [1]]
