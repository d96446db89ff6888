"""How many system calls one request may take; the least that a loop of its own can do."""

import pytest

from bench.calls import MADE_PARTITIONS
from bench.system_calls import compared, count

LEAST = {
    "Produce": {"epoll_pwait": 1, "read": 1, "pwrite64": 1, "write": 1},
    "Fetch": {"epoll_pwait": 1, "read": 1, "pread64": 1, "write": 1},
    "OffsetCommit": {"epoll_pwait": 1, "read": 1, "pwrite64": 1, "write": 1},
    # Records, ONGOING, PREPARE, a marker, COMPLETE; two requests under TV2, three under TV1.
    "EndTxn": {"epoll_pwait": 2, "read": 2, "pwrite64": 5, "write": 2},
    "EndTxn (TV1)": {"epoll_pwait": 3, "read": 3, "pwrite64": 5, "write": 3},
}
TIMERS = 0.35
"""Of a broker's own timers, and of the threads that they use, per request."""


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, float]]:
    found = count(repeats=200)
    if found is None:
        pytest.skip("strace is missing, or may not look into a process")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("request_name", LEAST)
def test_a_request_takes_no_more_system_calls_than_it_needs(
    counted: dict[str, dict[str, float]], request_name: str
) -> None:
    for call, least in LEAST[request_name].items():
        assert counted[request_name].get(call, 0.0) <= least + TIMERS, call
    needed = {*LEAST[request_name], "futex", "total"}  # A thread that waits for work is no cost.
    others = {call: n for call, n in counted[request_name].items() if call not in needed}
    assert sum(others.values()) <= TIMERS, others


@pytest.mark.slow
def test_a_new_topic_costs_four_calls_for_files_of_a_partition_and_one_sync(
    counted: dict[str, dict[str, float]],
) -> None:
    # Its folder, its log, and `partition.metadata`, which is renamed into its place.
    told = compared(counted)
    assert told["CreateTopics: files"] <= 4 * MADE_PARTITIONS + TIMERS
    assert told["CreateTopics: syncs"] <= 1 + TIMERS
    assert max(told[f"{name}: syncs"] for name in LEAST) <= TIMERS
