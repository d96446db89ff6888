"""A leader of a partition with followers: their progress, the ISR, the high watermark.

The high watermark is the smallest end over the *maximal* ISR: the committed one, and the followers
that the controller was asked to add. These count from the moment they are asked for, also when the
answer is lost, until a state with a newer partition epoch says otherwise: the controller may have
added them, and elect them. It does not move while the committed ISR is below `min.insync.replicas`
(KIP-966).

An answer by which others decide waits for a *round*: it is confirmed when each follower that counts
was answered after the round began, and has fetched once more in this epoch. None of them had taken
a later epoch by then, and a later leader is one of them, so none led when the round began. Answers
say which round they carry (`carry_round`); the next fetch of the same session confirms it. The
followers asked to be added count here too: the controller may have elected one.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from oncelog.core.errors import ErrorCode, require
from oncelog.replication.progress import FollowerProgress
from oncelog.replication.replica import Assignment, IsrMembers, ReplicaState

__all__ = ["LeaderState"]


class LeaderState(ReplicaState):
    """The leader in one leader epoch, by one state of the partition.

    It knows followers outside the ISR too. What it knew in an older epoch it forgets, because a
    follower may have truncated its log since.
    """

    __slots__ = ("_counted", "_is_carried", "epoch_start_offset", "followers", "joining")

    joining: frozenset[int]
    """The followers that the controller was asked to add to the ISR."""

    is_leader = True
    _error = ErrorCode.none

    def __init__(
        self, before: ReplicaState, given: Assignment, *, log_end_offset: int, now_ms: float
    ) -> None:
        super().__init__(before, given)
        known: dict[int, FollowerProgress] = {}
        self.epoch_start_offset: int = log_end_offset
        """Where the log ended when this broker began to lead: all before may be committed.

        After a restart in the same epoch that is more than the high watermark of the checkpoint.
        """
        self._is_carried = True
        """Whether an answer may have carried the last round, as one before this state may have."""
        if isinstance(before, LeaderState) and before.leader_epoch == given.leader_epoch:
            known = before.followers
            self.epoch_start_offset = before.epoch_start_offset
        others = {*given.replicas, *given.isr} - {self.broker_id}
        self.followers: dict[int, FollowerProgress] = {
            each: known.get(each) or FollowerProgress(now_ms) for each in others
        }
        for each in others - given.isr:
            self.followers[each].has_lost_records = False
        self._count()

    @property
    def knows_committed_end(self) -> bool:
        """A new leader knows it once the high watermark has reached its epoch (KIP-207)."""
        return self.high_watermark >= self.epoch_start_offset

    def local_end_moved(self, log_end_offset: int) -> bool:
        """Record the local log end offset. Returns whether that moved the high watermark."""
        self.log_end_offset = log_end_offset
        return self._advance()

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
        """Record that a follower fetched at this offset, so it has every record below it.

        `confirmed_round` is what the answer carried that it had before it sent this fetch.

        Returns the error for the fetch. A follower ahead of the leader's log has to truncate its
        own. An unknown one may be of a state that this broker does not have yet, and asks again.
        One of an earlier life of its broker says nothing of the log that it has now (KIP-903).
        """
        follower = self.followers.get(broker_id)
        if follower is None:
            return ErrorCode.unknown_leader_epoch
        if broker_epoch < follower.broker_epoch:
            return ErrorCode.not_leader_or_follower
        if offset > log_end_offset:
            return ErrorCode.offset_out_of_range
        has_lost = follower.fetched(offset, log_end_offset, now_ms, broker_epoch, log_start_offset)
        if has_lost and (broker_id in self.isr or broker_id in self.joining):
            follower.has_lost_records = True
        if confirmed_round > follower.confirmed_round:
            follower.confirmed_round = confirmed_round
        self._advance()
        return ErrorCode.none

    def begin_round(self) -> int:
        """Return the round that confirms what is asked now; one that no answer carried serves."""
        if self._is_carried:
            self._is_carried = False
            self.round_begun += 1
        return self.round_begun

    def carry_round(self) -> int:
        """Return the round that an answer carries which is made now."""
        self._is_carried = True
        return self.round_begun

    @property
    def confirmed_round(self) -> int:
        """The last round that each follower has confirmed that counts."""
        return min([self.round_begun, *(each.confirmed_round for each in self._counted)])

    def awaits(self, broker_id: int) -> bool:
        """Whether a follower is to be answered at once, so that it can confirm the last round."""
        follower = self.followers[broker_id]
        return follower.confirmed_round < self.round_begun and follower in self._counted

    def diverged(self, broker_id: int) -> None:
        """Count nothing of it until it fetches."""
        follower = self.followers.get(broker_id)
        if follower is not None:
            follower.diverged()

    def may_join(self, broker_id: int, offset: int) -> bool:
        """Whether a follower that fetches at this offset now may be added to the ISR.

        It needs all that is committed, and all that an earlier leader, or this one before its
        restart, may have known to be committed. What it fetched earlier counts not: it may have
        lost records since.
        """
        if broker_id not in self.followers or broker_id in self.isr or broker_id in self.joining:
            return False
        return offset >= max(self.high_watermark, self.epoch_start_offset)

    def ask(self, members: IsrMembers) -> None:
        """Count whom these members add, because the controller is now asked for this ISR."""
        added = {each for each, _ in members} - self.isr
        require(added <= self.followers.keys(), "INV-1: who is no replica does not join the ISR")
        if added and members not in self.asked:
            self.asked += (members,)
            self._count()

    def refused(self, members: IsrMembers) -> None:
        """Count these no more: the controller will never write this ISR, however often asked.

        That is so where a member's life has ended: INELIGIBLE_REPLICA.
        """
        self.asked = tuple(each for each in self.asked if each != members)
        self._count()

    def wanted_isr(
        self, broker_epoch: int, wishes: Mapping[int, int], now_ms: float, lag_max_ms: float
    ) -> IsrMembers | None:
        """Return the ISR that the controller should be asked for; None if it has no reason.

        `wishes` are followers that may join, each with the broker epoch at its fetch. What was
        asked and may still be written is asked first: as long as it can be, it counts.
        """
        if self.asked:
            return self.asked[0]
        joining = {
            each
            for each, epoch in wishes.items()
            if each in self.followers and self.followers[each].broker_epoch == epoch
            if self.may_join(each, self.followers[each].end_offset)
        }
        members = (self.isr - self.lagging(now_ms, lag_max_ms)) | joining
        if members == self.isr:
            return None
        epochs = {each: follower.broker_epoch for each, follower in self.followers.items()}
        epochs[self.broker_id] = broker_epoch
        return tuple((each, epochs[each]) for each in sorted(members))

    def lagging(self, now_ms: float, lag_max_ms: float) -> frozenset[int]:
        """Return the followers in the ISR that were last caught up before `lag_max_ms`.

        And those that have lost records.
        """
        due_ms = now_ms - lag_max_ms
        return frozenset(
            each
            for each, follower in self.followers.items()
            if each in self.isr and (follower.caught_up_ms < due_ms or follower.has_lost_records)
        )

    def nearest_replica(
        self, offset: int, rack: str, racks: Mapping[int, str | None]
    ) -> int | None:
        """Choose as Kafka's `RackAwareReplicaSelector`, of the ISR and of brokers with a rack.

        The one with most records, then the one that was caught up last, where the rack has several.
        """
        if racks.get(self.broker_id) == rack:
            return None
        found = [
            (follower.end_offset, follower.caught_up_ms, each)
            for each, follower in self.followers.items()
            if each in self.isr and racks.get(each) == rack
            if follower.log_start_offset <= offset <= follower.end_offset
        ]
        return max(found)[2] if found else None

    def low_watermark(self, log_start_offset: int, alive: Container[int]) -> int:
        """Return the smallest log start of the replicas that live; -1 while one is not known."""
        live = [follower for each, follower in self.followers.items() if each in alive]
        return min([log_start_offset, *(follower.log_start_offset for follower in live)])

    def _count(self) -> None:
        self.joining = frozenset(each for members in self.asked for each, _ in members) - self.isr
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
