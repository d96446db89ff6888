"""A leader of a partition with followers: their progress, the ISR, the high watermark.

The high watermark is the smallest end over the *maximal* ISR: the committed one, and the followers
that the controller was asked to add. These count from the moment they are asked for, also when the
answer is lost, until a state with a newer partition epoch says otherwise: the controller may have
added them, and elect them. It does not move while the committed ISR is below `min.insync.replicas`
(KIP-966).
"""

from __future__ import annotations

from oncelog.core.errors import ErrorCode, require
from oncelog.replication.progress import FollowerProgress
from oncelog.replication.replica import Assignment, ReplicaState

__all__ = ["LeaderState"]


class LeaderState(ReplicaState):
    """The leader in one leader epoch, by one state of the partition.

    It knows followers outside the ISR too. What it knew in an older epoch it forgets, because a
    follower may have truncated its log since.
    """

    __slots__ = ("_counted", "epoch_start_offset", "followers", "joining")

    is_leader = True
    _error = ErrorCode.none

    def __init__(
        self, before: ReplicaState, given: Assignment, *, log_end_offset: int, now_ms: float
    ) -> None:
        super().__init__(before, given)
        known: dict[int, FollowerProgress] = {}
        self.joining: frozenset[int] = frozenset()
        """The followers that the controller was asked to add to the ISR."""
        self.epoch_start_offset: int = log_end_offset
        """Where the log ended when this broker began to lead: all before may be committed.

        After a restart in the same epoch that is more than the high watermark of the checkpoint.
        """
        if isinstance(before, LeaderState) and before.leader_epoch == given.leader_epoch:
            known = before.followers
            self.epoch_start_offset = before.epoch_start_offset
            if before.partition_epoch == given.partition_epoch:
                self.joining = before.joining - given.isr
        others = {*given.replicas, *given.isr} - {self.broker_id}
        self.followers: dict[int, FollowerProgress] = {
            each: known.get(each) or FollowerProgress(now_ms) for each in others
        }
        self._count()

    def local_end_moved(self, log_end_offset: int) -> bool:
        """Record the local log end offset. Returns whether that moved the high watermark."""
        self.log_end_offset = log_end_offset
        return self._advance()

    def follower_fetched(
        self, broker_id: int, offset: int, *, log_end_offset: int, now_ms: float
    ) -> ErrorCode:
        """Record that a follower fetched at this offset, so it has every record below it.

        Returns the error for the fetch. A follower ahead of the leader's log has to truncate its
        own. An unknown one may be of a state that this broker does not have yet, and asks again.
        """
        follower = self.followers.get(broker_id)
        if follower is None:
            return ErrorCode.unknown_leader_epoch
        if offset > log_end_offset:
            return ErrorCode.offset_out_of_range
        follower.fetched(offset, log_end_offset, now_ms)
        self._advance()
        return ErrorCode.none

    def may_join(self, broker_id: int, offset: int) -> bool:
        """Whether a follower that fetches at this offset now may be added to the ISR.

        It needs all that is committed, and all that an earlier leader, or this one before its
        restart, may have known to be committed. What it fetched earlier counts not: it may have
        lost records since.
        """
        if broker_id not in self.followers or broker_id in self.isr or broker_id in self.joining:
            return False
        return offset >= max(self.high_watermark, self.epoch_start_offset)

    def join(self, broker_id: int) -> None:
        """Count a follower, because the controller is now asked to add it to the ISR."""
        require(broker_id in self.followers, "INV-1: who is no replica does not join the ISR")
        self.joining |= {broker_id}
        self._count()

    def lagging(self, now_ms: float, lag_max_ms: float) -> frozenset[int]:
        """Return the followers in the ISR that were last caught up before `lag_max_ms`."""
        due_ms = now_ms - lag_max_ms
        return frozenset(
            each
            for each, follower in self.followers.items()
            if each in self.isr and follower.caught_up_ms < due_ms
        )

    def _count(self) -> None:
        members = self.isr | self.joining
        self._counted = [f for each, f in self.followers.items() if each in members]
        self._advance()

    def _advance(self) -> bool:
        if not self.has_enough_replicas:
            return False
        reached = self.log_end_offset
        for follower in self._counted:
            reached = min(reached, follower.end_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True
