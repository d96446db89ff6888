"""Waiting until it is confirmed that this broker leads: what settles a wait, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.partitions.delayed import DelayedFetch, FetchIsolation
from oncelog.broker.partitions.partition import Partition
from oncelog.core.errors import ErrorCode
from oncelog.replication.leader import LeaderState
from oncelog.replication.replica import Assignment
from tests.unit.broker.support import ME, TOPIC_ID, HandLoop, assignment, make_partition

FOLLOWER, THIRD = 2, 3
ALL = (ME, FOLLOWER, THIRD)


@pytest.fixture
def loop() -> HandLoop:
    return HandLoop()


@pytest.fixture
def partition(tmp_path: Path, loop: HandLoop) -> Partition:
    return make_partition(tmp_path, loop, ALL)


def asked(partition: Partition) -> list[ErrorCode]:
    told: list[ErrorCode] = []
    partition.on_confirmed(told.append)
    return told


def confirm(partition: Partition, *followers: int) -> None:
    """These are answered, and fetch once more."""
    state = partition.state
    assert isinstance(state, LeaderState)
    for each in followers:
        partition.follower_fetched(each, 0, 0, confirmed_round=state.carry_round())


def test_who_leads_alone_is_confirmed_within_the_call(tmp_path: Path, partition: Partition) -> None:
    lone = make_partition(tmp_path / "lone", HandLoop())
    assert asked(lone) == [ErrorCode.none]
    partition.assign(assignment((ME,), ALL, epoch=1), 0)
    assert asked(partition) == [ErrorCode.none]


def test_a_wait_is_over_with_the_last_confirmation_and_once(partition: Partition) -> None:
    first, second = asked(partition), asked(partition)
    confirm(partition, FOLLOWER)
    assert (first, second) == ([], [])
    late = asked(partition)
    confirm(partition, THIRD)
    assert (first, second, late) == ([ErrorCode.none], [ErrorCode.none], [])
    confirm(partition, FOLLOWER)
    assert late == [ErrorCode.none]
    confirm(partition, *ALL[1:])
    assert (first, second, late) == ([ErrorCode.none], [ErrorCode.none], [ErrorCode.none])


def test_a_wait_that_is_dropped_is_not_told(partition: Partition) -> None:
    told: list[ErrorCode] = []
    drop = partition.on_confirmed(told.append)
    assert drop is not None
    drop()
    confirm(partition, *ALL[1:])
    assert told == []


def of(isr: tuple[int, ...], **fields: Any) -> Assignment:
    """A state of the three replicas; with `partition_epoch` a newer one of the same leader."""
    epoch = fields.pop("partition_epoch", 0)
    given = assignment(isr, ALL, **fields)
    return Assignment(
        given.leader,
        given.leader_epoch,
        given.isr,
        given.replicas,
        given.min_insync_replicas,
        epoch,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (of(ALL, leader=FOLLOWER, epoch=1), ErrorCode.not_leader_or_follower),
        (of(ALL, epoch=1), ErrorCode.not_leader_or_follower),
        (of((ME, THIRD), min_isr=3, partition_epoch=1), ErrorCode.not_enough_replicas),
        (of((ME, FOLLOWER), partition_epoch=1), ErrorCode.none),
        (of((ME, THIRD), partition_epoch=1), None),
    ],
    ids=["lost", "led again in another epoch", "too few", "who lacked has left", "one lacks"],
)
def test_a_new_state_settles_what_it_decides(
    partition: Partition, given: Assignment, expected: ErrorCode | None
) -> None:
    told = asked(partition)
    confirm(partition, FOLLOWER)
    partition.assign(given, 0)
    assert told == ([] if expected is None else [expected])


def test_a_joining_follower_that_is_refused_is_waited_for_no_more(partition: Partition) -> None:
    partition.assign(of((ME, FOLLOWER), partition_epoch=1), 0)
    state = partition.state
    assert isinstance(state, LeaderState)
    wanted = tuple((each, 0) for each in ALL)
    state.ask(wanted)
    told = asked(partition)
    confirm(partition, FOLLOWER)
    assert told == []
    partition.isr_refused(wanted)
    assert told == [ErrorCode.none]


def test_nothing_is_confirmed_where_too_few_are_in_sync(partition: Partition) -> None:
    partition.assign(of((ME,), min_isr=2, partition_epoch=1), 0)
    assert asked(partition) == [ErrorCode.not_enough_replicas]


def test_who_does_not_lead_is_told_so_at_once(partition: Partition) -> None:
    waiting = asked(partition)
    partition.resign(ErrorCode.unknown_topic_or_partition)
    assert waiting == [ErrorCode.unknown_topic_or_partition]
    assert asked(partition) == [ErrorCode.not_leader_or_follower]


def test_a_wait_wakes_the_parked_fetches_of_followers(partition: Partition, loop: HandLoop) -> None:
    """Else it would take as long as a fetch waits."""
    woken: list[bool] = []

    def attempt(final: bool) -> int | None:
        woken.append(final)
        return None

    fetch = DelayedFetch(attempt, [partition], isolation=FetchIsolation.LOG_END, missing_bytes=1)
    fetch.park(loop, 500)  # type: ignore[arg-type]
    asked(partition)
    loop.run()
    assert woken == [False]
    assert partition.state.topic_id == TOPIC_ID
