"""A broker's role in one partition: leader epoch, in-sync replicas, high watermark.

The machine takes assignments (from the metadata image) and log end offsets (from the local log and
from the fetches of followers) and answers one question: up to which offset is the log committed.
One replica is the special case of many: its high watermark is its log end offset because the
minimum over an ISR of one is that, not because the check is skipped.

It must not know of logs, bytes, sockets or time. Invariants kept here: INV-7 (high watermark <= log
end offset on the leader, and it does not move back within a leader epoch).
"""

from collections.abc import Iterable
from enum import Enum

from oncelog.core.errors import ErrorCode, InvariantViolation, require
from oncelog.core.ids import NO_LEADER_EPOCH, TopicId

__all__ = ["PartitionState", "ReplicaRole"]


class ReplicaRole(Enum):
    """The role of this broker in a partition."""

    OFFLINE = "offline"
    LEADER = "leader"
    FOLLOWER = "follower"


ROLE_CHANGES: dict[ReplicaRole, frozenset[ReplicaRole]] = {
    ReplicaRole.OFFLINE: frozenset({ReplicaRole.LEADER, ReplicaRole.FOLLOWER}),
    ReplicaRole.LEADER: frozenset({ReplicaRole.LEADER, ReplicaRole.FOLLOWER, ReplicaRole.OFFLINE}),
    ReplicaRole.FOLLOWER: frozenset(
        {ReplicaRole.LEADER, ReplicaRole.FOLLOWER, ReplicaRole.OFFLINE}
    ),
}
"""Legal moves. A replica that is OFFLINE stays so until it is assigned a role."""


class PartitionState:
    """Leader epoch, ISR and high watermark of one replica of one partition.

    `high_watermark` starts at the value of the checkpoint, an offset known to be committed, but not
    above the log end offset.
    """

    __slots__ = (
        "_end_offsets",
        "broker_id",
        "has_enough_replicas",
        "high_watermark",
        "is_failed",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "log_end_offset",
        "min_insync_replicas",
        "replicas",
        "role",
        "topic_id",
    )

    def __init__(
        self,
        broker_id: int,
        topic_id: TopicId,
        *,
        log_end_offset: int,
        high_watermark: int = 0,
        min_insync_replicas: int = 1,
    ) -> None:
        self.broker_id = broker_id
        self.topic_id = topic_id
        self.role = ReplicaRole.OFFLINE
        self.is_leader = False
        """Whether this broker leads the partition now."""
        self.has_enough_replicas = False
        """Whether the ISR has `min.insync.replicas` members, which an acks=all append needs."""
        self.is_failed = False
        """Whether the log directory of the partition is off line: no role is accepted."""
        self.leader = -1
        self.leader_epoch: int = NO_LEADER_EPOCH
        self.isr: frozenset[int] = frozenset()
        self.replicas: tuple[int, ...] = ()
        self.min_insync_replicas = min_insync_replicas
        self.log_end_offset = log_end_offset
        self.high_watermark = min(high_watermark, log_end_offset)
        self._end_offsets: dict[int, int] = {}

    def assign(
        self,
        *,
        leader: int,
        leader_epoch: int,
        isr: Iterable[int],
        replicas: Iterable[int],
        min_insync_replicas: int | None = None,
    ) -> bool:
        """Take the role that the metadata image assigns.

        Returns False when the assignment is older than the present one.

        As a new leader the end offsets of followers are unknown (0) until they fetch, so the high
        watermark stays where it was unless this broker is the only member of the ISR.

        `min_insync_replicas` is the topic's setting, None to keep the present one. It is capped at
        the number of replicas, as in Kafka's `Partition.effectiveMinIsr`; otherwise a lone broker
        could never write its internal topics (D9).
        """
        if leader_epoch < self.leader_epoch or self.is_failed:
            return False
        renewed = leader_epoch > self.leader_epoch or leader != self.leader
        role = ReplicaRole.LEADER if leader == self.broker_id else ReplicaRole.FOLLOWER
        require(role in ROLE_CHANGES[self.role], f"illegal move {self.role} -> {role}")
        self.role = role
        self.is_leader = role is ReplicaRole.LEADER
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.isr = frozenset(isr)
        self.replicas = tuple(replicas)
        if min_insync_replicas is not None:
            self.min_insync_replicas = min(min_insync_replicas, len(self.replicas))
        self.has_enough_replicas = len(self.isr) >= self.min_insync_replicas
        if self.is_leader:
            known = {} if renewed else self._end_offsets
            members = self.isr | {self.broker_id}
            self._end_offsets = {member: known.get(member, 0) for member in members}
            self._end_offsets[self.broker_id] = self.log_end_offset
            self._advance()
        else:
            self._end_offsets = {}
        return True

    def resign(self) -> None:
        """Stop serving the partition: it was deleted, or the broker stops."""
        self.role = ReplicaRole.OFFLINE
        self.is_leader = False
        self._end_offsets = {}

    def fail(self) -> None:
        """Stop serving the partition: its log directory is off line, until a restart."""
        self.is_failed = True
        self.resign()

    def local_end_moved(self, log_end_offset: int) -> bool:
        """Record the local log end offset. Returns whether that moved the high watermark."""
        self.log_end_offset = log_end_offset
        if not self.is_leader:
            return False
        ends = self._end_offsets
        ends[self.broker_id] = log_end_offset
        if len(ends) > 1 or not self.has_enough_replicas or log_end_offset <= self.high_watermark:
            return self._advance()
        # The minimum over one.
        self.high_watermark = log_end_offset
        return True

    def follower_end_moved(self, broker_id: int, log_end_offset: int) -> bool:
        """Record that a follower fetched at this offset, so it has every record below it.

        Returns whether that moved the high watermark.

        Followers outside the ISR do not hold the high watermark back.
        """
        require(log_end_offset <= self.log_end_offset, "a follower is ahead of its leader's log")
        if self.role is not ReplicaRole.LEADER or broker_id not in self._end_offsets:
            return False
        self._end_offsets[broker_id] = log_end_offset
        return self._advance()

    def leader_high_watermark(self, high_watermark: int) -> bool:
        """Apply the leader's high watermark on a follower. Returns whether its own moved."""
        if self.role is not ReplicaRole.FOLLOWER:
            return False
        reached = min(high_watermark, self.log_end_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def truncated(self, log_end_offset: int) -> None:
        """Record that a follower truncated its log to agree with the leader.

        The high watermark falls only if it is above the new log end offset.
        """
        require(self.role is not ReplicaRole.LEADER, "INV-1: a leader never truncates its log")
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def leader_error(self, request_epoch: int = NO_LEADER_EPOCH) -> ErrorCode:
        """Return the error for a request that needs the leader: check the epoch, then the role.

        `request_epoch` is the leader epoch that the client knows, -1 for none (KIP-320).
        """
        if self.is_failed:
            return ErrorCode.kafka_storage_error
        if request_epoch != NO_LEADER_EPOCH:
            if request_epoch < self.leader_epoch:
                return ErrorCode.fenced_leader_epoch
            if request_epoch > self.leader_epoch:
                return ErrorCode.unknown_leader_epoch
        if self.role is not ReplicaRole.LEADER:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.none

    def _advance(self) -> bool:
        if not self.has_enough_replicas:
            return False
        reached = min(self._end_offsets.values())
        if reached <= self.high_watermark:
            return False
        if reached > self.log_end_offset:
            raise InvariantViolation("INV-7: high watermark above the log end offset")
        self.high_watermark = reached
        return True
