"""One consumer group of the new protocol: what its records say, and what follows from them.

All but the fields that are named volatile is durable and changed by replaying records alone
(`oncelog.group.consumer.records`).

Invariants: a partition has one owner at most (INV-8); an instance id names one member at most.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from oncelog.group.consumer.members import ConsumerMember, Partitions, TopicIdPartition


class ConsumerGroupState(Enum):
    """What ConsumerGroupDescribe says of a group, spelled as there."""

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
    """When the target assignment was made; 0 if that is not known."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    has_partition_metadata: bool = False
    """Whether a broker before 4.1 left a record that is to be deleted."""
    static_ids: dict[str, str] = field(default_factory=dict)
    """The member of each instance id."""
    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    """The member that owns a partition, where one does."""
    seen_revision: int = -1
    """Volatile: the revision of the metadata that `metadata_hash` is known to be right for."""
    regexes_refreshed_ms: int | None = None
    """Volatile: when the expressions were last matched against all topics."""

    @property
    def state(self) -> ConsumerGroupState:
        """How far the group is."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled_to(self.assignment_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member of an instance id, if there is one."""
        member_id = self.static_ids.get(instance_id) if instance_id is not None else None
        return self.members.get(member_id) if member_id is not None else None

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace what is known of it.

        A later record is right about who owns a partition: of the log's history not all is left, so
        that the record of the owner before may still come.
        """
        self._disown(self.members.get(member.member_id))
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        for partitions in (member.assigned, member.pending_revocation):
            for partition in partitions:
                self.owners[partition] = member.member_id

    def remove(self, member_id: str) -> None:
        """Forget a member."""
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
        """The assignor that most members ask for; of equals the first by name."""
        votes = Counter(
            member.server_assignor
            for member in (self.members.values() if members is None else members)
            if member.server_assignor is not None
        )
        return min(votes, key=lambda name: (-votes[name], name)) if votes else default

    @property
    def classic_count(self) -> int:
        """How many members speak the classic protocol."""
        return sum(member.classic is not None for member in self.members.values())


def subscribed_names(
    member: ConsumerMember, regexes: Mapping[str, ResolvedRegex]
) -> frozenset[str]:
    """The topics that a member wants, by name; an expression not resolved yet matches none."""
    resolved = regexes.get(member.topic_regex) if member.topic_regex else None
    return member.topic_names if resolved is None else member.topic_names | resolved.topics
