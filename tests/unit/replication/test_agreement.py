"""Replicas that lead by turns, and follow each other by answers alone, agree in the end.

A log is the list of the epochs of its records. Who leads writes, also as a leader that does not
know that it was replaced; who follows asks and cuts its log until the leader answers with records.
Then its log is a beginning of the leader's, and no record was cut that both had.
"""

from __future__ import annotations

import random

import pytest

from oncelog.replication.follower import (
    FetchAnswer,
    FollowerState,
    HeldLog,
    TakeRecords,
    Truncate,
)
from tests.unit.replication.support import ME, given, replica, take

REPLICAS_COUNT = 3
LEADER = 2


def epochs_of(log: list[int]) -> list[tuple[int, int]]:
    """Each epoch of a log, with its first offset."""
    return [(epoch, at) for at, epoch in enumerate(log) if not at or log[at - 1] != epoch]


def answer_to(last_epoch: int, offset: int, log: list[int], epoch: int) -> FetchAnswer:
    """What a leader of `epoch` with this log answers (KIP-595)."""
    known = [*epochs_of(log), (epoch, len(log))]
    below = [each for each, _ in known if each <= last_epoch]
    if not below and last_epoch >= 0:
        return FetchAnswer(diverging=(last_epoch, known[0][1]))
    if last_epoch >= 0:
        largest = below[-1]
        end = min([at for each, at in known if each > largest], default=len(log))
        if largest != last_epoch or end < offset:
            return FetchAnswer(diverging=(largest, end))
    assert offset <= len(log)
    return FetchAnswer()


def follow(log: list[int], leader: list[int], epoch: int) -> None:
    """Cut a follower's log until it agrees with its leader's."""
    common = 0
    for own, other in zip(log, leader, strict=False):
        if own != other:
            break
        common += 1
    state = take(replica(end=len(log)), given((LEADER, ME), leader=LEADER, epoch=epoch))
    assert isinstance(state, FollowerState)
    for _ in range(len(log) + 1):
        held = HeldLog(0, len(log), epochs_of(log))
        asked = state.position(held, 0)
        assert asked is not None
        told = answer_to(asked.last_fetched_epoch, asked.offset, leader, epoch)
        step = state.answered(asked.leader_epoch, asked.offset, told, held)
        if isinstance(step, TakeRecords):
            assert leader[: len(log)] == log
            assert len(log) == common
            return
        assert isinstance(step, Truncate)
        del log[step.offset :]
        state.truncated(len(log))
    pytest.fail("it asks without end")


@pytest.mark.parametrize("seed", range(30))
def test_replicas_agree_whoever_led(seed: int) -> None:
    rng = random.Random(seed)
    logs: list[list[int]] = [[] for _ in range(REPLICAS_COUNT)]
    epoch = 0
    led: dict[int, int] = {}
    """The replicas that take themselves for leaders, with their epochs."""
    for _ in range(60):
        kind = rng.random()
        if kind < 0.3:
            epoch += 1
            led[rng.randrange(REPLICAS_COUNT)] = epoch
        elif kind < 0.7 and led:
            leader = rng.choice(list(led))
            logs[leader] += [led[leader]] * rng.randint(1, 3)
        elif led:
            leader = max(led, key=lambda each: led[each])
            follower = rng.choice([each for each in range(REPLICAS_COUNT) if each != leader])
            led.pop(follower, None)
            follow(logs[follower], logs[leader], led[leader])
            copied = rng.randint(len(logs[follower]), len(logs[leader]))
            logs[follower] = logs[leader][:copied]
