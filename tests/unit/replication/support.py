"""Replicas without a role, and the assignments that they take."""

from uuid import UUID

from oncelog.replication.leader import LeaderState
from oncelog.replication.replica import Assignment, OfflineState, ReplicaState
from oncelog.replication.roles import assign

TOPIC_ID = UUID(int=7)
ME = 1


def replica(*, end: int = 0, high_watermark: int = 0) -> OfflineState:
    return OfflineState.unassigned(ME, TOPIC_ID, log_end_offset=end, high_watermark=high_watermark)


def given(
    isr: tuple[int, ...],
    *,
    replicas: tuple[int, ...] | None = None,
    leader: int = ME,
    epoch: int = 0,
    min_isr: int = 1,
    partition_epoch: int = 0,
) -> Assignment:
    return Assignment(leader, epoch, frozenset(isr), replicas or isr, min_isr, partition_epoch)


def take(before: ReplicaState, given: Assignment, now_ms: int = 0) -> ReplicaState:
    """Take a role with a log that ends where what counts as appended ends."""
    return assign(before, given, log_end_offset=before.log_end_offset, now_ms=now_ms)


def lead(before: ReplicaState, given: Assignment, now_ms: int = 0) -> LeaderState:
    state = take(before, given, now_ms)
    assert isinstance(state, LeaderState)
    return state
