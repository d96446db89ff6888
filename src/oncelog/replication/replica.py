"""What every role of a replica has, and the roles of a broker without other replicas.

A role takes log end offsets (from the local log and from the fetches of followers) and answers one
question: up to which offset is the log committed. It must not know of logs, bytes or sockets.
Invariants kept here and in `leader`: INV-7 (high watermark <= log end offset on the leader, and it
does not move back within a leader epoch).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import ClassVar, Final

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import NO_LEADER_EPOCH, TopicId
from oncelog.core.values import value

__all__ = [
    "Assignment",
    "FailedState",
    "IsrMembers",
    "LoneLeader",
    "OfflineState",
    "ReplicaState",
]

IsrMembers = tuple[tuple[int, int], ...]
"""An ISR that the controller is asked for: (broker id, broker epoch) of each member, sorted."""

_NOTHING_ASKED: Final[tuple[IsrMembers, ...]] = ()


@value
class Assignment:
    """One state of a partition, as the controller wrote it; leader -1 for none.

    `min_insync_replicas` is the topic's setting. Each change of the leader raises `leader_epoch`,
    each change of the state `partition_epoch`.
    """

    leader: int
    leader_epoch: int
    isr: frozenset[int]
    replicas: tuple[int, ...]
    min_insync_replicas: int = 1
    partition_epoch: int = 0
    eligible: frozenset[int] = frozenset()
    """Those outside the ISR that have all that is committed (KIP-966)."""


@value
class Replica:
    """A replica by its log, before it has a role."""

    broker_id: int
    topic_id: TopicId
    log_end_offset: int
    high_watermark: int
    leader_epoch: ClassVar[int] = NO_LEADER_EPOCH
    partition_epoch: ClassVar[int] = -1
    asked: ClassVar[tuple[IsrMembers, ...]] = _NOTHING_ASKED
    told_in: ClassVar[tuple[int, int]] = (NO_LEADER_EPOCH, -1)
    round_begun: ClassVar[int] = 0


UNASSIGNED = Assignment(-1, NO_LEADER_EPOCH, frozenset(), (), partition_epoch=-1)


class ReplicaState:
    """The role of this broker in one partition.

    `log_end_offset` is the end of what counts as appended here: of what is synced, where appends
    have to be.
    """

    __slots__ = (
        "asked",
        "broker_id",
        "has_enough_replicas",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "log_end_offset",
        "min_insync_replicas",
        "partition_epoch",
        "replicas",
        "round_begun",
        "told_in",
        "topic_id",
    )

    is_leader: ClassVar[bool] = False
    is_follower: ClassVar[bool] = False
    is_lone: ClassVar[bool] = False
    """Whether it leads without other replicas, so that no other broker ever takes its place."""
    is_failed: ClassVar[bool] = False
    """Whether the log directory of the partition is off line: no role is accepted."""
    _error: ClassVar[ErrorCode] = ErrorCode.not_leader_or_follower
    """The error for a request that needs the leader."""

    def __init__(self, before: ReplicaState | Replica, given: Assignment) -> None:
        """Take a role after another one, or the first one of a replica."""
        self.broker_id: int = before.broker_id
        self.topic_id: TopicId = before.topic_id
        self.log_end_offset: int = before.log_end_offset
        self.high_watermark: int = before.high_watermark
        self.leader = given.leader
        self.leader_epoch: int = given.leader_epoch
        self.partition_epoch = given.partition_epoch
        self.isr = given.isr
        self.replicas = given.replicas
        self.min_insync_replicas = min(given.min_insync_replicas, len(given.replicas))
        """Capped as in Kafka's `Partition.effectiveMinIsr`.

        Otherwise a lone broker could never write its internal topics (D9).
        """
        self.has_enough_replicas = len(given.isr) >= self.min_insync_replicas
        """Whether the ISR has `min.insync.replicas` members, which an acks=all append needs."""
        epochs = before.leader_epoch, before.partition_epoch
        is_same = epochs == (given.leader_epoch, given.partition_epoch)
        self.asked: tuple[IsrMembers, ...] = before.asked if is_same else _NOTHING_ASKED
        """The ISRs that the controller was asked for, and may still write.

        One that gives the role up and takes it again by the same state has not taken them back.
        """
        self.told_in: tuple[int, int] = before.told_in
        """The leader epoch and the broker epoch in which its own end was told to a leader last.

        The leader of that epoch may count on all below that end.
        """
        self.round_begun: int = before.round_begun
        """The last round of confirmations that was begun. No two have one number."""

    def local_end_moved(self, log_end_offset: int) -> bool:
        """Record the local log end offset. Returns whether that moved the high watermark."""
        self.log_end_offset = log_end_offset
        return False

    def begin_round(self) -> int:
        """Begin to confirm that this broker leads; return the number of the round."""
        return self.round_begun

    @property
    def confirmed_round(self) -> int:
        """The last round that was confirmed, and with it all before."""
        return self.round_begun

    @property
    def knows_committed_end(self) -> bool:
        """Whether the high watermark is above all that an earlier leader may have committed."""
        return True

    def leader_error(self, request_epoch: int = NO_LEADER_EPOCH) -> ErrorCode:
        """Return the error for a request that needs the leader: check the epoch, then the role.

        `request_epoch` is the leader epoch that the client knows, -1 for none (KIP-320).
        """
        if request_epoch != NO_LEADER_EPOCH:
            if request_epoch < self.leader_epoch:
                return ErrorCode.fenced_leader_epoch
            if request_epoch > self.leader_epoch:
                return ErrorCode.unknown_leader_epoch
        return self._error

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
        """Return the error for the fetch of a follower: this broker has no such follower."""
        error = self.leader_error()
        return ErrorCode.unknown_leader_epoch if error is ErrorCode.none else error

    def diverged(self, broker_id: int) -> None:
        """Record that a follower was told where its log diverges: it truncates."""

    def refused(self, members: IsrMembers) -> None:
        """Record that the controller will never write this ISR."""

    def low_watermark(self, log_start_offset: int, alive: Container[int]) -> int:
        """Return the smallest log start of the replicas that live; -1 while one is not known."""
        return log_start_offset

    def nearest_replica(
        self, offset: int, rack: str, racks: Mapping[int, str | None]
    ) -> int | None:
        """Return the follower that a consumer in `rack` should read from; None for this leader."""
        return None

    @property
    def assignment(self) -> Assignment:
        """What this role was taken by."""
        return Assignment(
            self.leader,
            self.leader_epoch,
            self.isr,
            self.replicas,
            self.min_insync_replicas,
            self.partition_epoch,
        )


class OfflineState(ReplicaState):
    """No role: none is assigned yet, the partition was deleted or moves, or the broker stops."""

    __slots__ = ()

    @classmethod
    def unassigned(
        cls, broker_id: int, topic_id: TopicId, *, log_end_offset: int, high_watermark: int = 0
    ) -> OfflineState:
        """Begin with a log; `high_watermark` is that of the checkpoint, known to be committed."""
        known = min(high_watermark, log_end_offset)
        return cls(Replica(broker_id, topic_id, log_end_offset, known), UNASSIGNED)

    def with_log(self, log_end_offset: int) -> OfflineState:
        """Begin with the same log at another place, which was moved there."""
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)
        return self


class FailedState(OfflineState):
    """The log directory of the partition is off line, until a restart."""

    __slots__ = ()

    is_failed = True

    def leader_error(self, request_epoch: int = NO_LEADER_EPOCH) -> ErrorCode:
        """The disk counts before the epoch."""
        return ErrorCode.kafka_storage_error


class LoneLeader(ReplicaState):
    """The leader of a partition without other replicas: what it appends is committed."""

    __slots__ = ()

    is_leader = True
    is_lone = True
    _error = ErrorCode.none

    def __init__(self, before: ReplicaState, given: Assignment) -> None:
        super().__init__(before, given)
        self.high_watermark = self.log_end_offset

    def local_end_moved(self, log_end_offset: int) -> bool:
        """The smallest end of one replica is its own."""
        self.log_end_offset = log_end_offset
        if log_end_offset <= self.high_watermark:
            return False
        self.high_watermark = log_end_offset
        return True
