"""What one request may cost in Python function calls, so that no change adds to it unnoticed."""

import sys
from collections.abc import Iterator

import pytest

from bench.calls import COUNTED, count, count_replicated
from bench.counting import Calls

BOUNDS = {
    "Produce": 33,
    "Produce (TV2)": 121,
    "Fetch": 47,
    "Fetch (session of 200)": 61,
    "EndTxn": 147,
    "EndTxn (TV1)": 142,
    "AddPartitionsToTxn": 75,
    "JoinGroup": 109,
    "OffsetCommit": 85,
}

REPLICATED_BOUND = 547
"""Of a Produce with three replicas, in all three brokers, with the followers' next fetches."""

TIMER_CALLS = 3
TIMED = ("JoinGroup", "Produce (TV2)", "EndTxn", "EndTxn (TV1)", "AddPartitionsToTxn")
"""Requests that plan a timer, whose place in a heap is chance."""

METRICS_CALLS = 1
"""What a request may call more where metrics are on: the one function that notes its time."""


@pytest.fixture(scope="module", autouse=True)
def clock() -> Iterator[None]:
    """The clock of a process without time-machine, beside which it calls one function more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "time_machine", raising=False)
        yield


@pytest.fixture(scope="module")
def counted(clock: None) -> dict[str, Calls]:
    return count(repeats=15)


@pytest.mark.slow
@pytest.mark.parametrize("request_name", BOUNDS)
def test_a_request_costs_no_more_calls_than_allowed(
    counted: dict[str, Calls], request_name: str
) -> None:
    assert counted[request_name].total <= BOUNDS[request_name]


@pytest.mark.slow
def test_a_replicated_produce_costs_no_more_calls_than_allowed(clock: None) -> None:
    assert count_replicated(repeats=8).total <= REPLICATED_BOUND


@pytest.mark.slow
def test_every_request_is_counted_and_counted_alike_the_second_time(
    counted: dict[str, Calls],
) -> None:
    again = count(repeats=15)
    assert set(counted) == set(COUNTED)
    for name, calls in counted.items():
        # A timer's place in a heap is chance: it depends on the member's random id.
        assert abs(calls.total - again[name].total) <= TIMER_CALLS, name


@pytest.mark.slow
def test_what_end_txn_causes_after_its_reply_is_counted(counted: dict[str, Calls]) -> None:
    assert counted["EndTxn"].total > counted["EndTxn"].until_reply
    assert counted["Produce"].total == counted["Produce"].until_reply


@pytest.mark.slow
def test_metrics_cost_a_request_one_call(counted: dict[str, Calls]) -> None:
    for name, calls in count(repeats=15, metrics=True).items():
        more = calls.total - counted[name].total
        assert abs(more - METRICS_CALLS) <= (TIMER_CALLS if name.startswith(TIMED) else 0), name
