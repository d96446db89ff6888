"""The replicas that are simulated alone: sound as they are, and each slip of theirs is seen."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.replication.divergence import truncation_offset
from oncelog.replication.follower import FollowerState
from oncelog.replication.leader import LeaderState
from oncelog.replication.replica import (
    Assignment,
    IsrMembers,
    LoneLeader,
    OfflineState,
    ReplicaState,
)
from oncelog.replication.roles import assign
from oncelog.simulation.components.replica_model import ExpectedReplica
from oncelog.simulation.components.replicas import (
    STEPS_COUNT,
    Rules,
    SimulatedReplicas,
    replicas,
)


def found(rules: Rules, runs: int = 30) -> list[str]:
    """What is found in the first run by those rules that shows anything."""
    for seed in range(runs):
        texts = list(replicas(random.Random(f"{seed}:replicas"), rules))
        if texts:
            return texts
    return []


def test_the_rules_as_they_are_pass() -> None:
    assert found(Rules()) == []


class LargestEnd(LeaderState):
    def _advance(self) -> bool:
        ends = [self.log_end_offset, *(f.end_offset for f in self._counted)]
        if not self.has_enough_replicas or max(ends) <= self.high_watermark:
            return False
        self.high_watermark = min(max(ends), self.log_end_offset)
        return True


class IgnoresTheMinimum(LeaderState):
    def _advance(self) -> bool:
        self.has_enough_replicas = True
        return super()._advance()


class RemembersFetchesOfItsLastEpoch(LeaderState):
    def __init__(
        self, before: ReplicaState, given: Assignment, *, log_end_offset: int, now_ms: float
    ) -> None:
        super().__init__(before, given, log_end_offset=log_end_offset, now_ms=now_ms)
        if isinstance(before, LeaderState):
            self.followers = before.followers
            self._count()


class CountsWhoJoinedOnlyLater(LeaderState):
    def ask(self, members: IsrMembers) -> None:
        self.asked += (members,)
        self.joining |= {each for each, _ in members} - self.isr


class ForgetsWhomItAskedFor(LeaderState):
    def __init__(
        self, before: ReplicaState, given: Assignment, *, log_end_offset: int, now_ms: float
    ) -> None:
        super().__init__(before, given, log_end_offset=log_end_offset, now_ms=now_ms)
        self.asked = ()
        self._count()


def forgets_what_it_asked_when_it_moves(
    before: ReplicaState, given: Assignment, *, log_end_offset: int, now_ms: float
) -> ReplicaState:
    if type(before) is OfflineState:
        before.asked = ()
    return assign(before, given, log_end_offset=log_end_offset, now_ms=now_ms)


class LetsJoinAtTheHighWatermark(LeaderState):
    """Its own epoch may have begun later, or the leader been restarted."""

    def may_join(self, broker_id: int, offset: int) -> bool:
        self.epoch_start_offset = 0
        return super().may_join(broker_id, offset)


class TakesAFollowerAhead(LeaderState):
    def follower_fetched(
        self,
        broker_id: int,
        offset: int,
        *,
        log_end_offset: int,
        now_ms: float,
        broker_epoch: int = -1,
        log_start_offset: int = -1,
        confirmed_round: int = 0,
    ) -> ErrorCode:
        return super().follower_fetched(
            broker_id, offset, log_end_offset=max(offset, log_end_offset), now_ms=now_ms
        )


class LearnsMoreThanItHas(FollowerState):
    def leader_high_watermark(self, high_watermark: int) -> bool:
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        return True


class LoneAmongOthers(LoneLeader):
    """A leader with followers that it does not wait for."""

    def __init__(
        self, before: ReplicaState, given: Assignment, *, log_end_offset: int, now_ms: float
    ) -> None:
        super().__init__(before, given)


def instead(kind: Callable[..., ReplicaState], of: type[ReplicaState]) -> Rules:
    """The rules with another kind of role in place of one."""

    def choose(
        before: ReplicaState, given: Assignment, *, log_end_offset: int, now_ms: float
    ) -> ReplicaState:
        state = assign(before, given, log_end_offset=log_end_offset, now_ms=now_ms)
        if type(state) is not of:
            return state
        if of is FollowerState:
            return kind(before, given)
        return kind(before, given, log_end_offset=log_end_offset, now_ms=now_ms)

    return Rules(choose)


@pytest.mark.parametrize(
    "slip",
    [
        LargestEnd,
        IgnoresTheMinimum,
        RemembersFetchesOfItsLastEpoch,
        CountsWhoJoinedOnlyLater,
        ForgetsWhomItAskedFor,
        LetsJoinAtTheHighWatermark,
        TakesAFollowerAhead,
        LoneAmongOthers,
    ],
)
def test_a_slip_of_a_leader_is_seen(slip: Callable[..., ReplicaState]) -> None:
    assert found(instead(slip, LeaderState))


def test_a_leader_that_moves_and_forgets_what_it_asked_is_seen() -> None:
    assert found(Rules(forgets_what_it_asked_when_it_moves))


def test_a_slip_of_a_follower_is_seen() -> None:
    assert found(instead(LearnsMoreThanItHas, FollowerState))


def test_a_role_taken_by_an_old_state_is_seen() -> None:
    def takes_all(before: ReplicaState, given: Assignment, **rest: int) -> ReplicaState:
        before.partition_epoch = -1
        return assign(before, given, **rest)

    assert found(Rules(takes_all))


def test_a_truncation_that_leaves_what_the_leader_lacks_is_seen() -> None:
    def own_epoch_alone(
        epoch: int, _end_offset: int, epochs: list[tuple[int, int]], log_end_offset: int
    ) -> int:
        return truncation_offset(epoch, log_end_offset, epochs, log_end_offset)

    assert found(Rules(truncation_offset=own_epoch_alone))


def test_the_model_counts_the_smallest_end_of_the_isr() -> None:
    model = ExpectedReplica(0, 10, 0)
    model.assign(Assignment(0, 1, frozenset({0, 1, 2}), (0, 1, 2, 3), 2), 10, 0)
    model.fetch(1, (7, 10, 0))
    assert model.high_watermark == 0
    model.fetch(2, (5, 10, 0))
    assert model.high_watermark == 5
    model.fetch(3, (1, 10, 0))
    assert model.high_watermark == 5
    model.join(3)
    model.fetch(2, (7, 10, 0))
    assert model.high_watermark == 5


def test_lives_are_long_enough_to_commit_records() -> None:
    clusters = [SimulatedReplicas(random.Random(f"{seed}:replicas"), Rules()) for seed in range(9)]
    for cluster in clusters:
        for _ in range(STEPS_COUNT):
            cluster.step()
    assert sum(bool(cluster.committed) for cluster in clusters) > 5
