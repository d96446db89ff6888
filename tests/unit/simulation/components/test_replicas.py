"""The replicas that are simulated alone: sound as they are, and each slip of theirs is seen."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from oncelog.replication.partition import PartitionState, ReplicaRole
from oncelog.simulation.components.replica_model import Assignment, ExpectedReplica
from oncelog.simulation.components.replicas import STEPS_COUNT, SimulatedReplicas, replicas


def found(make: type[PartitionState], runs: int = 30) -> list[str]:
    """What is found in the first run of that machine that shows anything."""
    for seed in range(runs):
        texts = list(replicas(random.Random(f"{seed}:replicas"), make))
        if texts:
            return texts
    return []


def test_the_machine_as_it_is_passes() -> None:
    assert found(PartitionState) == []


class LargestEnd(PartitionState):
    def _advance(self) -> bool:
        reached = max(self._end_offsets.values())
        if not self.has_enough_replicas or reached <= self.high_watermark:
            return False
        self.high_watermark = min(reached, self.log_end_offset)
        return True


class IgnoresTheMinimum(PartitionState):
    def _advance(self) -> bool:
        self.has_enough_replicas = True
        return super()._advance()


class RemembersFetchesOfItsLastEpoch(PartitionState):
    def assign(
        self,
        *,
        leader: int,
        leader_epoch: int,
        isr: Iterable[int],
        replicas: Iterable[int],
        min_insync_replicas: int | None = None,
    ) -> bool:
        if self.is_leader and leader == self.broker_id:
            self.leader_epoch = max(self.leader_epoch, leader_epoch)
        return super().assign(
            leader=leader,
            leader_epoch=leader_epoch,
            isr=isr,
            replicas=replicas,
            min_insync_replicas=min_insync_replicas,
        )


class TruncatesAsALeader(PartitionState):
    def truncated(self, log_end_offset: int) -> None:
        self.role, role = ReplicaRole.FOLLOWER, self.role
        super().truncated(log_end_offset)
        self.role = role


class LearnsMoreThanItHas(PartitionState):
    def leader_high_watermark(self, high_watermark: int) -> bool:
        if self.role is not ReplicaRole.FOLLOWER or high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        return True


@pytest.mark.parametrize(
    "slip",
    [
        LargestEnd,
        IgnoresTheMinimum,
        RemembersFetchesOfItsLastEpoch,
        TruncatesAsALeader,
        LearnsMoreThanItHas,
    ],
)
def test_a_slip_of_the_machine_is_seen(slip: type[PartitionState]) -> None:
    assert found(slip)


def test_the_model_counts_the_smallest_end_of_the_isr() -> None:
    model = ExpectedReplica(0, 10, 0)
    model.assign(Assignment(0, 1, frozenset({0, 1, 2}), (0, 1, 2), 2))
    assert not model.fetch(1, 7)
    assert model.fetch(2, 5)
    assert model.high_watermark == 5
    assert not model.fetch(3, 9)


def test_lives_are_long_enough_to_commit_records() -> None:
    clusters = [
        SimulatedReplicas(random.Random(f"{seed}:replicas"), PartitionState) for seed in range(9)
    ]
    for cluster in clusters:
        for _ in range(STEPS_COUNT):
            cluster.step()
    assert sum(bool(cluster.committed) for cluster in clusters) > 5
