"""Chooses the role of this broker in a partition, when the metadata assigns it or a disk fails."""

from __future__ import annotations

from oncelog.replication.replica import (
    Assignment,
    FailedState,
    LoneLeader,
    OfflineState,
    ReplicaState,
)

__all__ = ["assign", "fail", "resign"]


def assign(
    before: ReplicaState, given: Assignment, *, log_end_offset: int, now_ms: float
) -> ReplicaState:
    """Return the role that follows `before`; itself where `given` is older, or its disk failed.

    `log_end_offset` is where the log ends, which can be above the end of what counts as appended.
    `now_ms` is of the monotonic clock by which followers are judged.
    """
    epochs = given.leader_epoch, given.partition_epoch
    if before.is_failed or epochs < (before.leader_epoch, before.partition_epoch):
        return before
    broker_id = before.broker_id
    if given.leader == broker_id and given.replicas == (broker_id,) and given.isr == {broker_id}:
        return LoneLeader(before, given)
    # Imported here because a lone broker needs neither.
    from oncelog.replication.follower import FollowerState
    from oncelog.replication.leader import LeaderState

    if given.leader == broker_id:
        return LeaderState(before, given, log_end_offset=log_end_offset, now_ms=now_ms)
    return FollowerState(before, given)


def resign(before: ReplicaState) -> ReplicaState:
    """Give the role up: the partition was deleted or moves, or the broker stops."""
    return before if before.is_failed else OfflineState(before, before.assignment)


def fail(before: ReplicaState) -> ReplicaState:
    """Give the role up, for the log directory is off line until a restart."""
    return FailedState(before, before.assignment)
