"""A fault counts its occasions, and can be waited for."""

import pytest

from oncelog.testing import ArmedFault


def test_it_strikes_at_the_nth_occasion_so_many_times_and_never_again() -> None:
    fault = ArmedFault("x", 2, 2, lambda: None)
    assert [fault.strikes() for _ in range(5)] == [False, True, True, False, False]
    assert (fault.hits_count, fault.is_spent) == (2, True)
    assert repr(fault) == "<ArmedFault: x, struck 2 times>"


def test_who_waits_in_vain_is_told_for_what() -> None:
    with pytest.raises(TimeoutError, match="not happened: the reply to Produce is lost"):
        ArmedFault("the reply to Produce is lost", 1, 1, lambda: None).wait(0.01)


@pytest.mark.parametrize(("nth", "times"), [(0, 1), (1, 0)])
def test_counts_begin_with_one(nth: int, times: int) -> None:
    with pytest.raises(ValueError, match="count from 1"):
        ArmedFault("x", nth, times, lambda: None)
