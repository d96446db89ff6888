"""Those who wait until the ISR has confirmed that this broker leads a partition.

`oncelog.replication.leader` says what a round is. Imported with the first wait: the partitions of a
lone broker have none.
"""

from __future__ import annotations

from oncelog.broker.partitions.delayed import CommitCallback, CommitWaiters, Drop
from oncelog.core.errors import ErrorCode
from oncelog.replication.replica import ReplicaState

__all__ = ["RoundWaiters"]


class RoundWaiters:
    """The callbacks of one partition, by the round that each waits for."""

    __slots__ = ("_waiters", "advance", "fail")

    def __init__(self) -> None:
        self._waiters = CommitWaiters()
        self.advance = self._waiters.advance
        self.fail = self._waiters.fail

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, state: ReplicaState, callback: CommitCallback) -> Drop | None:
        """Call back once who may lead next has confirmed, after this call, that this broker leads.

        At once where no other broker may. NOT_ENOUGH_REPLICAS while the ISR is below
        `min.insync.replicas`, since who left it may lead; another error when leadership is lost.
        """
        error = state.leader_error()
        if error is ErrorCode.none and not state.has_enough_replicas:
            error = ErrorCode.not_enough_replicas
        if error is ErrorCode.none:
            begun = state.begin_round()
            if state.confirmed_round < begun:
                return self._waiters.add(begun, callback)
        callback(error)
        return None

    def role_taken(self, state: ReplicaState, before: ReplicaState) -> None:
        """Call back what a new state of this leader settles; another epoch is another leadership.

        A later leader may have led between the two.
        """
        if state.leader_epoch != before.leader_epoch:
            self.fail(ErrorCode.not_leader_or_follower)
        elif not state.has_enough_replicas:
            self.fail(ErrorCode.not_enough_replicas)
        else:
            self.advance(state.confirmed_round)
