"""Campaigns run in several processes and can be ended at any time."""

import os
import signal

import pytest

from tests.support.campaigns import in_processes, interruptible


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
