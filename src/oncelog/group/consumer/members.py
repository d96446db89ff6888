"""Holds one member of a consumer group, as its records define it.

A value: a heartbeat makes a changed copy, and replaying its records stores that in the group. This
module knows no other member, no topics and no bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from oncelog.group.events import JoinProtocol

JOIN_EPOCH: Final = 0
"""The epoch with which a member joins, or rejoins after it was fenced."""
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that left and is expected to rejoin within its session timeout."""


class TopicIdPartition(NamedTuple):
    """One partition, by its topic's id."""

    topic_id: UUID
    partition: int


Partitions = frozenset[TopicIdPartition]
OwnedPartitions = Mapping[TopicIdPartition, int]
"""Partitions with the member epoch at which each was assigned."""

NO_PARTITIONS: Final[OwnedPartitions] = MappingProxyType({})


class MemberState(IntEnum):
    """A member's progress towards its target assignment; numbered as in the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """A state that a newer broker wrote."""


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """The additional state of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member: its metadata first, then its current assignment.

    It may use the partitions in `assigned`, and has to revoke those in `pending_revocation` first.
    It owns both.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    server_assignor: str | None = None
    classic: ClassicSide | None = None
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: OwnedPartitions = field(default_factory=dict)
    pending_revocation: OwnedPartitions = field(default_factory=dict)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has reached that target assignment."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def has_metadata_of(self, other: "ConsumerMember") -> bool:
        """Whether a metadata record would be equal for both."""
        return self == other.with_assignment_of(self)

    def has_assignment_of(self, other: "ConsumerMember") -> bool:
        """Whether a current assignment record would be equal for both."""
        return self.with_assignment_of(other) == self

    def with_assignment_of(self, other: "ConsumerMember") -> "ConsumerMember":
        """Return this member's metadata with the current assignment of `other`."""
        return replace(
            self,
            member_epoch=other.member_epoch,
            previous_member_epoch=other.previous_member_epoch,
            state=other.state,
            assigned=other.assigned,
            pending_revocation=other.pending_revocation,
        )

    def moved(
        self,
        state: MemberState,
        member_epoch: int,
        assigned: OwnedPartitions,
        pending_revocation: OwnedPartitions = NO_PARTITIONS,
    ) -> "ConsumerMember":
        """Return the member after a reconciliation step, with its epoch as the previous one."""
        return replace(
            self,
            state=state,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def left_for_now(self) -> "ConsumerMember":
        """Return a static member that left temporarily: it keeps its assignment.

        Its successor has another member id and begins at epoch 0, and so do the assignment epochs.
        """
        return replace(
            self,
            member_epoch=STATIC_LEAVE_EPOCH,
            assigned=dict.fromkeys(self.assigned, 0),
            pending_revocation=NO_PARTITIONS,
        )

    def succeeded_by(self, member_id: str) -> "ConsumerMember":
        """Return the member that replaces a static member."""
        return replace(
            self, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH
        )
