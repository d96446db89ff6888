"""Assigns the partitions of a classic group's topics to its members, as Kafka's assignors do.

The group's leader does it for all. Each function is pure: subscriptions and partition counts in,
partitions by member id out. Members are taken in the order of their ids, static ones by instance
id, so that a restart changes nothing.

- range: of each topic on its own, neighbouring partitions to each subscribed member.
- roundrobin: all partitions of all topics in turn.
- sticky: as balanced as subscriptions allow, and what a member owns stays with it.
- cooperative-sticky: the same, but a partition that moves has no owner until the former one gave
  it up, which takes a second rebalance (KIP-429).

Sources: `RangeAssignor`, `RoundRobinAssignor`, `AbstractStickyAssignor`, `StickyAssignor`,
`CooperativeStickyAssignor` (Java). Racks (KIP-881) are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Protocol, runtime_checkable

from oncelog.core.errors import ProtocolError
from oncelog.core.ids import TopicPartition
from oncelog.core.values import message
from oncelog.protocol.codec import reader, writer
from oncelog.protocol.consumer_protocol import (
    NO_GENERATION,
    ConsumerProtocolPartitions,
    MemberSubscription,
    by_topic,
    flat,
)
from oncelog.protocol.fields import Int32, Versions

__all__ = [
    "ASSIGNORS",
    "Assigned",
    "PartitionAssignor",
    "SubscribedMember",
    "cooperative_sticky",
    "range_assignor",
    "round_robin",
    "sticky",
]

Assigned = dict[str, list[TopicPartition]]
"""Partitions by member id; every member is in it."""


@dataclass(frozen=True, slots=True)
class SubscribedMember:
    """A member as the leader sees it."""

    member_id: str
    subscription: MemberSubscription
    group_instance_id: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Static members come first, in the order of their instance ids."""
        is_dynamic = self.group_instance_id is None
        return is_dynamic, self.group_instance_id or self.member_id


@runtime_checkable
class PartitionAssignor(Protocol):
    """What `partition_assignment_strategy` takes beside the names of Kafka's assignors.

    name: what the members of a group agree on. is_cooperative: members keep their partitions
    during a rebalance, and `assign` gives no member what another still owns.
    """

    name: str
    is_cooperative: bool

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """What this member tells the leader beside its topics."""

    def assign(self, members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> Assigned:
        """The partitions of each member; `counts` has the topics that exist."""


# --- range and roundrobin ----------------------------------------------------------------


def range_assignor(members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> Assigned:
    """Give each member neighbouring partitions of each of its topics; the first get one more."""
    shares = _empty(members)
    for topic in sorted(counts):
        readers = _readers(members, topic)
        begin = 0
        for number, member in enumerate(readers):
            size = counts[topic] // len(readers) + (number < counts[topic] % len(readers))
            end = begin + size
            shares[member.member_id] += [TopicPartition(topic, i) for i in range(begin, end)]
            begin = end
    return shares


def round_robin(members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> Assigned:
    """Give each partition to the next member that reads its topic."""
    shares = _empty(members)
    order = _in_order(members)
    turn = 0
    for at in _partitions(counts):
        for _ in order:
            member = order[turn % len(order)]
            turn += 1
            if at.topic in member.subscription.topics:
                shares[member.member_id].append(at)
                break
    return shares


# --- sticky ------------------------------------------------------------------------------


def sticky(members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> Assigned:
    """Balance the partitions, and leave with a member what it owns."""
    owners = {at: owner for owner, owned in _owned(members).items() for at in owned}
    return _balanced(members, counts, owners)


def cooperative_sticky(members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> Assigned:
    """Balance as `sticky` does, and give no member a partition that another still owns."""
    wanted = sticky(members, counts)
    claimed = {at: m.member_id for m in _in_order(members) for at in m.subscription.owned}
    owners = {at: owner for owner, owned in _owned(members).items() for at in owned}
    claimed |= owners
    return {
        member_id: [at for at in share if claimed.get(at, member_id) == member_id]
        for member_id, share in wanted.items()
    }


def _owned(members: Sequence[SubscribedMember]) -> dict[str, list[TopicPartition]]:
    """What each member may keep.

    Of two that claim a partition the one of the later generation owns it. If both claim it in the
    same generation neither can be trusted, and the partition has no owner.
    """
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member in _in_order(members):
        subscription = member.subscription
        for at in subscription.owned:
            if at.topic in subscription.topics:
                claims.setdefault(at, []).append((subscription.generation, member.member_id))
    owned: dict[str, list[TopicPartition]] = {}
    for at, claimed in claims.items():
        newest = max(generation for generation, _ in claimed)
        owners = [member_id for generation, member_id in claimed if generation == newest]
        match owners:
            case [owner]:
                owned.setdefault(owner, []).append(at)
    return owned


def _balanced(
    members: Sequence[SubscribedMember],
    counts: Mapping[str, int],
    owners: Mapping[TopicPartition, str],
) -> Assigned:
    shares = _empty(members)
    by_id = {member.member_id: member for member in members}
    order = [member.member_id for member in _in_order(members)]
    readers = {topic: [m.member_id for m in _readers(members, topic)] for topic in sorted(counts)}
    partitions = [at for at in _partitions(counts) if readers[at.topic]]
    for at in partitions:
        if (owner := owners.get(at)) is not None and owner in by_id:
            shares[owner].append(at)
    for at in partitions:
        if owners.get(at) not in by_id:
            taker = min(readers[at.topic], key=lambda member_id: len(shares[member_id]))
            shares[taker].append(at)
    _even_out(shares, order, readers)
    return {member_id: sorted(share) for member_id, share in shares.items()}


def _even_out(shares: Assigned, order: Sequence[str], readers: Mapping[str, Sequence[str]]) -> None:
    """Move partitions until no member has two more than one that could take one of them.

    Each move brings two shares nearer to each other, so the sum of their squares falls: it ends.
    """
    while _move_one(shares, order, readers):
        pass


def _move_one(shares: Assigned, order: Sequence[str], readers: Mapping[str, Sequence[str]]) -> bool:
    """Move one partition of the member that has most, so that no more move than have to."""
    for giver in sorted(order, key=lambda member_id: -len(shares[member_id])):
        share = shares[giver]
        # What was given last is not owned yet, so it moves first.
        for index in range(len(share) - 1, -1, -1):
            taker = min(readers[share[index].topic], key=lambda each: len(shares[each]))
            if len(share) - len(shares[taker]) >= 2:
                shares[taker].append(share.pop(index))
                return True
    return False


# --- what they share ---------------------------------------------------------------------


def _in_order(members: Iterable[SubscribedMember]) -> list[SubscribedMember]:
    return sorted(members, key=lambda member: member.order)


def _readers(members: Iterable[SubscribedMember], topic: str) -> list[SubscribedMember]:
    return [member for member in _in_order(members) if topic in member.subscription.topics]


def _empty(members: Iterable[SubscribedMember]) -> Assigned:
    return {member.member_id: [] for member in _in_order(members)}


def _partitions(counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, i) for topic in sorted(counts) for i in range(counts[topic])]


# --- the assignors by name ---------------------------------------------------------------


@message
class StickyUserData:
    """What Kafka's eager sticky assignor tells the leader: it has revoked what it owned."""

    previous_assignment: tuple[ConsumerProtocolPartitions, ...] = ()
    generation: Annotated[Int32, Versions(1)] = NO_GENERATION


class _Plain:
    """An assignor that looks at topics only."""

    is_cooperative = False

    def __init__(self, name: str) -> None:
        self.name = name

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(self, members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> Assigned:
        return (range_assignor if self.name == "range" else round_robin)(members, counts)


class _Sticky:
    """Eager members own nothing when they join, so they tell what they had in bytes of their own.

    The layout is that of Kafka's `StickyAssignor`, whose members may be in the same group.
    """

    name = "sticky"
    is_cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        if not owned:
            return None
        value = StickyUserData(previous_assignment=by_topic(owned), generation=generation)
        out = bytearray()
        writer(StickyUserData, 1, flexible=False)(out, value)
        return bytes(out)

    def assign(self, members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> Assigned:
        return sticky([_with_previous(member) for member in members], counts)


class _CooperativeSticky:
    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        # Older members of Kafka's know the generation from here only.
        return None if generation < 0 else generation.to_bytes(4, signed=True)

    def assign(self, members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> Assigned:
        return cooperative_sticky([_with_generation(member) for member in members], counts)


def _with_previous(member: SubscribedMember) -> SubscribedMember:
    """The member owning what its bytes say; nothing if they are not to be read."""
    subscription = member.subscription
    for version in (1, 0):
        try:
            found = reader(StickyUserData, version, flexible=False)(
                subscription.user_data or b"", 0
            )
        except ProtocolError:
            continue
        owned = flat(found.previous_assignment)
        changed = subscription._replace(owned=owned, generation=found.generation)
        return SubscribedMember(member.member_id, changed, member.group_instance_id)
    return member


def _with_generation(member: SubscribedMember) -> SubscribedMember:
    subscription = member.subscription
    if subscription.generation >= 0 or len(subscription.user_data or b"") < 4:
        return member
    generation = int.from_bytes((subscription.user_data or b"")[:4], signed=True)
    changed = subscription._replace(generation=generation)
    return SubscribedMember(member.member_id, changed, member.group_instance_id)


ASSIGNORS: Final[Mapping[str, PartitionAssignor]] = {
    assignor.name: assignor
    for assignor in (_Plain("range"), _Plain("roundrobin"), _Sticky(), _CooperativeSticky())
}
"""Kafka's assignors by the names that members agree on."""
