"""Ratios with their intervals, and when a broker counts as warm."""

import pytest

from bench.stats import WARM_S_MIN, is_warm, ratio


def test_the_ratio_is_of_the_medians() -> None:
    assert ratio([10, 20, 1000], [5, 10, 15]).value == 2.0


def test_the_interval_holds_the_ratio_and_says_how_much_the_rounds_differ() -> None:
    steady = ratio([10.0] * 7, [5.0] * 7)
    assert (steady.low, steady.high) == (2.0, 2.0)
    shaky = ratio([8, 9, 10, 11, 12, 10, 10], [5.0] * 7)
    assert shaky.low < shaky.value < shaky.high


def test_rounds_are_resampled_in_pairs() -> None:
    """What slows both systems down in one round is no difference between them."""
    found = ratio([10, 20, 40], [5, 10, 20])
    assert found.low == found.high == 2.0


def test_the_same_rounds_give_the_same_interval() -> None:
    assert ratio([1, 2, 3, 4], [4, 3, 2, 1]) == ratio([1, 2, 3, 4], [4, 3, 2, 1])


@pytest.mark.parametrize(("ours", "value"), [([1.0], float("inf")), ([0.0], 1.0)])
def test_a_peer_at_zero_does_not_end_the_report(ours: list[float], value: float) -> None:
    assert ratio(ours, [0.0]).value == value


@pytest.mark.parametrize(
    ("rates", "warm"),
    [
        ([100, 101], False),
        ([50, 80, 100], False),
        ([50, 80, 100, 104], True),
        ([104, 104, 100], True),
        ([100, 100, 90], False),
    ],
    ids=["too few windows", "rising", "risen", "falling a little", "falling"],
)
def test_a_broker_is_warm_when_two_windows_in_a_row_are_alike(
    rates: list[float], warm: bool
) -> None:
    assert is_warm(rates, WARM_S_MIN) is warm


def test_no_broker_is_warm_at_once() -> None:
    assert not is_warm([100.0] * 9, WARM_S_MIN - 0.1)
