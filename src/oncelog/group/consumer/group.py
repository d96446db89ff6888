"""Holds the state of one KIP-848 consumer group, as its records define it.

All fields that are not documented as volatile are durable and changed only by replaying records
(`oncelog.group.consumer.records`).

Invariants: a partition has at most one owner (INV-8); an instance id belongs to at most one member.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from oncelog.group.consumer.members import ConsumerMember, Partitions, TopicIdPartition


class ConsumerGroupState(Enum):
    """The group's state in ConsumerGroupDescribe, spelled as in Kafka."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that an expression matched, at which revision of the metadata, and when."""

    topics: frozenset[str]
    revision: int
    timestamp_ms: int


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """One group. `target` holds each member's target assignment of `assignment_epoch`."""

    group_id: str
    group_epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = -1
    assignment_timestamp_ms: int = 0
    """When the target assignment was made; 0 if unknown."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    has_partition_metadata: bool = False
    """Whether a broker before 4.1 left a record that is to be deleted."""
    static_ids: dict[str, str] = field(default_factory=dict)
    """The member of each instance id."""
    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    """The owner of each partition that has one."""
    seen_revision: int = -1
    """Volatile: the metadata revision for which `metadata_hash` was last checked."""
    regexes_refreshed_ms: int | None = None
    """Volatile: when the expressions were last matched against all topics."""

    @property
    def state(self) -> ConsumerGroupState:
        """The state, derived from the epochs and members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled_to(self.assignment_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member of an instance id, if any."""
        member_id = self.static_ids.get(instance_id) if instance_id is not None else None
        return self.members.get(member_id) if member_id is not None else None

    def put(self, member: ConsumerMember) -> None:
        """Add or replace a member.

        A later record determines a partition's owner: compaction may have removed the earlier
        owner's revocation.
        """
        self._disown(self.members.get(member.member_id))
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        for partitions in (member.assigned, member.pending_revocation):
            for partition in partitions:
                self.owners[partition] = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member."""
        member = self.members.pop(member_id, None)
        self._disown(member)
        if member is None or member.instance_id is None:
            return
        if self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]

    def _disown(self, member: ConsumerMember | None) -> None:
        if member is not None:
            for partition in (*member.assigned, *member.pending_revocation):
                if self.owners.get(partition) == member.member_id:
                    del self.owners[partition]

    def preferred_assignor(
        self, default: str, members: Iterable[ConsumerMember] | None = None
    ) -> str:
        """The assignor that most members request; the first by name wins a tie."""
        votes = Counter(
            member.server_assignor
            for member in (self.members.values() if members is None else members)
            if member.server_assignor is not None
        )
        return min(votes, key=lambda name: (-votes[name], name)) if votes else default

    @property
    def classic_count(self) -> int:
        """The count of members that speak the classic protocol."""
        return sum(member.classic is not None for member in self.members.values())


def subscribed_names(
    member: ConsumerMember, regexes: Mapping[str, ResolvedRegex]
) -> frozenset[str]:
    """The names of a member's topics; an expression not resolved yet matches none."""
    resolved = regexes.get(member.topic_regex) if member.topic_regex else None
    return member.topic_names if resolved is None else member.topic_names | resolved.topics
