"""Delayed operations complete once, by what they wait for or by their deadline."""

from functools import partial
from pathlib import Path

import pytest

from oncelog.broker.partitions.delayed import (
    CommitWaiters,
    DelayedFetch,
    DelayedProduce,
    FetchIsolation,
)
from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ErrorCode
from tests.unit.broker.support import ME, NOW_MS, HandLoop, assignment, batch, make_partition

OTHER = 2


@pytest.fixture
def loop() -> HandLoop:
    return HandLoop()


@pytest.fixture
def replicated(tmp_path: Path, loop: HandLoop) -> Partition:
    """A partition whose commits wait for a follower."""
    return make_partition(tmp_path, loop, (ME, OTHER))


def test_commit_waiters_are_released_lowest_offset_first() -> None:
    waiters = CommitWaiters()
    released: list[tuple[int, ErrorCode]] = []

    def release(end: int, error: ErrorCode) -> None:
        released.append((end, error))

    for end_offset in (7, 3, 5):
        waiters.add(end_offset, partial(release, end_offset))
    waiters.advance(5)
    assert released == [(3, ErrorCode.none), (5, ErrorCode.none)]
    assert waiters


def test_commit_waiters_that_were_dropped_leave_nothing_behind() -> None:
    """Each fetch of an idle partition adds one and drops it, for as long as the broker lives."""
    waiters = CommitWaiters()
    waiters.add(10**9, lambda _: None)
    for end_offset in range(1000):
        waiters.add(end_offset, lambda _: None)()
    assert len(waiters) == 1
    assert len(waiters._heap) < 5


def test_commit_waiters_fail_all_at_once() -> None:
    waiters = CommitWaiters()
    released: list[ErrorCode] = []
    waiters.add(3, released.append)
    waiters.fail(ErrorCode.not_leader_or_follower)
    assert released == [ErrorCode.not_leader_or_follower]
    assert not waiters


def produced(partition: Partition, loop: HandLoop, count: int = 1) -> list[dict[int, ErrorCode]]:
    """What a Produce of so many records, which may wait for 1 s, is told once it is complete."""
    outcomes: list[dict[int, ErrorCode]] = []
    produce = DelayedProduce(outcomes.append)
    result = partition.append(batch(count), now_ms=NOW_MS)
    produce.wait_for(0, partition.on_committed, result.last_offset + 1)
    produce.start(loop, 1000)  # type: ignore[arg-type]
    return outcomes


def test_a_produce_finishes_when_the_high_watermark_passes_all_its_appends(
    replicated: Partition, loop: HandLoop
) -> None:
    outcomes = produced(replicated, loop, 3)
    replicated.follower_fetched(OTHER, 2, 0)
    assert outcomes == []
    replicated.follower_fetched(OTHER, 3, 0)
    assert outcomes == [{0: ErrorCode.none}]
    loop.advance(2)
    assert len(outcomes) == 1


def test_a_produce_times_out_while_a_follower_is_silent(
    replicated: Partition, loop: HandLoop
) -> None:
    outcomes = produced(replicated, loop)
    loop.advance(1)
    assert outcomes == [{0: ErrorCode.request_timed_out}]
    replicated.follower_fetched(OTHER, 1, 0)
    assert len(outcomes) == 1


def test_a_produce_gets_an_error_when_leadership_is_lost(
    replicated: Partition, loop: HandLoop
) -> None:
    outcomes = produced(replicated, loop)
    replicated.assign(assignment((OTHER,), (ME, OTHER), leader=OTHER, epoch=1), 0)
    assert outcomes == [{0: ErrorCode.not_leader_or_follower}]


class Attempts:
    """What a fetch would do: note each look, and say how many bytes are missing."""

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.is_answered = False
        self.finals: list[bool] = []

    def __call__(self, final: bool) -> int | None:
        self.finals.append(final)
        return None if self.is_answered else self.missing


def park(
    partition: Partition,
    loop: HandLoop,
    attempts: Attempts,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
) -> DelayedFetch:
    fetch = DelayedFetch(attempts, [partition], isolation=isolation, missing_bytes=attempts.missing)
    fetch.park(loop, 500)  # type: ignore[arg-type]
    return fetch


def test_several_appends_of_one_turn_wake_a_fetch_once(tmp_path: Path, loop: HandLoop) -> None:
    partition = make_partition(tmp_path, loop)
    attempts = Attempts(missing=1)
    park(partition, loop, attempts)
    partition.append(batch(), now_ms=NOW_MS)
    partition.append(batch(), now_ms=NOW_MS)
    attempts.is_answered = True
    loop.run()
    assert attempts.finals == [False]
    assert not partition.fetches


def test_a_fetch_with_min_bytes_is_not_read_again_before_they_can_be_there(
    tmp_path: Path, loop: HandLoop
) -> None:
    partition = make_partition(tmp_path, loop)
    size = len(batch())
    attempts = Attempts(missing=size + 1)
    park(partition, loop, attempts)
    partition.append(batch(), now_ms=NOW_MS)
    loop.run()
    assert attempts.finals == []
    partition.append(batch(), now_ms=NOW_MS)
    attempts.is_answered = True
    loop.run()
    assert attempts.finals == [False]


def test_a_fetch_looks_a_last_time_at_its_deadline(tmp_path: Path, loop: HandLoop) -> None:
    partition = make_partition(tmp_path, loop)
    attempts = Attempts(missing=1)
    park(partition, loop, attempts)
    loop.advance(0.5)
    assert attempts.finals == [True]
    assert not partition.fetches


def test_a_fetch_to_the_logs_end_wakes_before_the_record_is_committed(
    replicated: Partition, loop: HandLoop
) -> None:
    """It is a follower's: the high watermark waits for it."""
    attempts, consumer = Attempts(missing=1), Attempts(missing=1)
    park(replicated, loop, attempts, FetchIsolation.LOG_END)
    park(replicated, loop, consumer)
    attempts.is_answered = True
    replicated.append(batch(), now_ms=NOW_MS)
    replicated.append(batch(), now_ms=NOW_MS)
    loop.run()
    assert attempts.finals == [False]
    assert consumer.finals == []
    assert replicated.state.high_watermark == 0


def test_a_fetch_to_the_logs_end_waits_for_its_minimum(
    replicated: Partition, loop: HandLoop
) -> None:
    attempts = Attempts(missing=len(batch()) + 1)
    park(replicated, loop, attempts, FetchIsolation.LOG_END)
    replicated.append(batch(), now_ms=NOW_MS)
    loop.run()
    assert attempts.finals == []


def test_a_marker_wakes_a_fetch_to_the_logs_end(replicated: Partition, loop: HandLoop) -> None:
    replicated.append(batch(producer_id=5, epoch=0, sequence=0, transactional=True), now_ms=NOW_MS)
    attempts = Attempts(missing=1)
    park(replicated, loop, attempts, FetchIsolation.LOG_END)
    attempts.is_answered = True
    replicated.append_marker(5, 0, 0, commit=True, now_ms=NOW_MS, transaction_version=0)
    loop.run()
    assert attempts.finals == [False]


def test_a_cancelled_fetch_is_never_read_again(tmp_path: Path, loop: HandLoop) -> None:
    partition = make_partition(tmp_path, loop)
    attempts = Attempts(missing=1)
    fetch = park(partition, loop, attempts)
    partition.append(batch(), now_ms=NOW_MS)
    fetch.cancel()
    assert all(timer.is_cancelled for timer in loop.timers)
    loop.advance(1)
    assert attempts.finals == []


def test_read_committed_wakes_by_the_marker_and_not_by_the_records(
    tmp_path: Path, loop: HandLoop
) -> None:
    """INV-3 and INV-7: what is below the high watermark but above the LSO is nothing to read."""
    partition = make_partition(tmp_path, loop)
    attempts = Attempts(missing=1)
    park(partition, loop, attempts, FetchIsolation.TXN_COMMITTED)
    records = batch(producer_id=5, epoch=0, sequence=0, transactional=True)
    partition.append(records, now_ms=NOW_MS)
    loop.run()
    assert attempts.finals == []
    attempts.is_answered = True
    partition.append_marker(5, 0, 0, commit=True, now_ms=NOW_MS, transaction_version=0)
    loop.run()
    assert attempts.finals == [False]
