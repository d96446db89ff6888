"""The server-side assignors: they assign the partitions of subscribed topics to members.

An assignor is a pure function of a `GroupSpec`. `range` assigns each member neighbouring partitions
of each topic, and the same ones of topics with equal partition counts. `uniform` balances the
number of partitions, and moves as few as balance allows. Members and topics are processed in the
order of their ids, so that equal groups have equal assignments; Kafka's order depends on its hash
maps.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from oncelog.group.consumer.members import Partitions, TopicIdPartition
from oncelog.group.consumer.uniform import assign_uniformly

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "GroupSpec", "MemberSpec", "assign_ranges"]


class MemberSpec(NamedTuple):
    """A member as an assignor sees it: its subscription and its previous target."""

    instance_id: str | None
    topic_ids: frozenset[UUID]
    assigned: Partitions


class GroupSpec(NamedTuple):
    """The input of an assignor. `partition_counts` has every topic that a member subscribes to."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]


Assignment = dict[str, Partitions]
Assignor = Callable[[GroupSpec], Assignment]


def assign_ranges(spec: GroupSpec) -> Assignment:
    """Assign by the `range` strategy.

    Static members come first, in the order of their instance ids, so that they keep their ranges
    when they rejoin under other member ids.
    """
    order = sorted(spec.members, key=lambda member_id: _rank(member_id, spec.members[member_id]))
    assigned: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in order}
    for topic_id, count in spec.partition_counts.items():
        subscribers = [each for each in order if topic_id in spec.members[each].topic_ids]
        if not subscribers:
            continue
        share, extra = divmod(count, len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + share + (index < extra)
            assigned[member_id].update(TopicIdPartition(topic_id, n) for n in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _rank(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    if member.instance_id is None:
        return True, member_id
    return False, member.instance_id


def assign_uniform(spec: GroupSpec) -> Assignment:
    """Assign by the `uniform` strategy."""
    return assign_uniformly(
        {member_id: member.topic_ids for member_id, member in spec.members.items()},
        {member_id: member.assigned for member_id, member in spec.members.items()},
        spec.partition_counts,
    )


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {"uniform": assign_uniform, "range": assign_ranges}
)
"""Every assignor by the name that members request."""
