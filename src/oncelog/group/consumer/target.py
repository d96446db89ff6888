"""Computes the target assignment from the members' subscriptions.

Pure. `Members` is the group as it will be once the records of a decision are committed; the records
made here contain only the differences from the previous target.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self
from uuid import UUID

from oncelog.coordinator.metadata import Topics
from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.group.consumer import records
from oncelog.group.consumer.assignors import ASSIGNORS, GroupSpec, MemberSpec
from oncelog.group.consumer.group import ConsumerGroup, ResolvedRegex, subscribed_names
from oncelog.group.consumer.members import ConsumerMember, Partitions
from oncelog.group.consumer.topics import found


@dataclass(frozen=True, slots=True)
class Members:
    """A group's members and expressions after a decision, with their previous targets."""

    members: Mapping[str, ConsumerMember]
    target: Mapping[str, Partitions]
    regexes: Mapping[str, ResolvedRegex]

    @classmethod
    def of(cls, group: ConsumerGroup) -> Self:
        """Return the members of the group now."""
        return cls(group.members, group.target, group.regexes)

    def with_member(self, member: ConsumerMember, replaced_id: str | None = None) -> Self:
        """Return the members with one added or changed; a static one may replace another."""
        members, target = {**self.members, member.member_id: member}, self.target
        if replaced_id is not None:
            members.pop(replaced_id, None)
            target = {**target, member.member_id: target.get(replaced_id, frozenset())}
            target.pop(replaced_id, None)
        return replace(self, members=members, target=target)

    def without(self, member_ids: frozenset[str]) -> Self:
        """Return the members without some."""
        kept = {each: member for each, member in self.members.items() if each not in member_ids}
        return replace(self, members=kept)

    def with_regexes(self, regexes: Mapping[str, ResolvedRegex]) -> Self:
        """Return the members with other expressions."""
        return replace(self, regexes=regexes)

    def subscribed_names(self) -> frozenset[str]:
        """Return the names of all subscribed topics."""
        wanted = (subscribed_names(each, self.regexes) for each in self.members.values())
        return frozenset().union(*wanted)

    def subscribed_ids(self, member: ConsumerMember, topics: Topics) -> frozenset[UUID]:
        """Return the ids of the subscribed topics that exist."""
        return frozenset(found(topics, subscribed_names(member, self.regexes)))


def make_target(members: Members, assignor: str, topics: Topics) -> dict[str, Partitions]:
    """Return each member's new target."""
    counts: dict[UUID, int] = {}
    known: dict[frozenset[str], frozenset[UUID]] = {}
    specs = {}
    for member_id, member in members.members.items():
        names = subscribed_names(member, members.regexes)
        if names not in known:
            wanted = found(topics, names)
            counts.update({each.topic_id: each.partition_count for each in wanted.values()})
            known[names] = frozenset(wanted)
        target = members.target.get(member_id, frozenset())
        specs[member_id] = MemberSpec(member.instance_id, known[names], target)
    return ASSIGNORS[assignor](GroupSpec(specs, counts))


def target_records(
    group_id: str,
    before: Mapping[str, Partitions],
    after: Mapping[str, Partitions],
    epoch: int,
    now_ms: int,
) -> list[CoordinatorRecord]:
    """Return the records of a new target assignment."""
    entries = [
        records.target_assignment(group_id, member_id, partitions)
        for member_id, partitions in after.items()
        if before.get(member_id) != partitions
    ]
    return [*entries, records.target_epoch(group_id, epoch, now_ms)]
