"""Waits double up to their limit, within their jitter."""

from oncelog.runtime.backoff import Backoff


def test_waits_double_up_to_the_limit() -> None:
    backoff = Backoff(10, 100, lambda _low, _high: 1.0)
    assert [backoff.delay_ms(attempt) for attempt in range(5)] == [10, 20, 40, 80, 100]
    assert backoff.delay_ms(10**9) == 100


def test_jitter_stays_within_its_part() -> None:
    assert Backoff(10, 100, lambda low, _high: low, jitter=0.5).delay_ms(0) == 5
    assert Backoff(10, 100, lambda _low, high: high, jitter=0.5).delay_ms(0) == 15
