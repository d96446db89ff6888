"""Simulates what our consumers decide alone: the assignors of a group's leader, and ownership.

Assignments are compared with the rules of Kafka's assignors, worked out as naively as possible:
range and roundrobin exactly, the sticky ones by balance and by what must stay.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from oncelog.client.machines.assignors import ASSIGNORS, PartitionAssignor, SubscribedMember
from oncelog.client.machines.membership import ChangeKind, Ownership, OwnershipChange
from oncelog.core.ids import TopicPartition
from oncelog.protocol.consumer_protocol import MemberSubscription

__all__ = ["assignments", "groups", "owners"]

GROUPS_COUNT: Final = 4
CHANGES_COUNT: Final = 10
STEPS_COUNT: Final = 40
_TOPICS: Final = ("a", "b", "c")
_Given = dict[str, list[TopicPartition]]


def assignments(rng: random.Random) -> Iterator[str]:
    """Simulate some groups of each assignor, and some owners; yield what is wrong."""
    yield from groups(rng, ASSIGNORS)
    for _ in range(GROUPS_COUNT):
        yield from owners(rng)


def groups(rng: random.Random, assignors: Mapping[str, PartitionAssignor]) -> Iterator[str]:
    """Simulate some groups of each assignor."""
    for _ in range(GROUPS_COUNT):
        yield from _AssignedGroup(rng, assignors[rng.choice(sorted(assignors))]).live()


class _AssignedGroup:
    """Members that come and go; after each change the leader assigns."""

    def __init__(self, rng: random.Random, assignor: PartitionAssignor) -> None:
        self._rng = rng
        self._assignor = assignor
        self._name = assignor.name
        self._counts = {topic: rng.choice((1, 2, 3, 6)) for topic in _TOPICS}
        self._is_mixed = rng.random() < 0.4
        self._members: dict[str, tuple[tuple[str, ...], str | None]] = {}
        self._owned: _Given = {}
        self._generation = 0
        self._number = 0

    def live(self) -> Iterator[str]:
        """Change the group, and look at each assignment; stop at what is wrong."""
        for _ in range(CHANGES_COUNT):
            self._change()
            for turn in range(3):
                members = self._subscribed()
                given = self._assignor.assign(members, self._counts)
                self._generation += 1
                texts = list(self._judge(members, given, turn))
                if texts:
                    yield from (f"{self._name} of {members}, {self._counts}: {t}" for t in texts)
                    return
                is_same = given == self._owned
                self._owned = given
                if is_same or not self._assignor.is_cooperative:
                    break

    def _change(self) -> None:
        rng = self._rng
        choice = rng.random()
        if choice < 0.5 or not self._members:
            self._number += 1
            topics: tuple[str, ...] = _TOPICS
            if self._is_mixed:
                topics = tuple(rng.sample(_TOPICS, rng.choice((1, 2, 3))))
            instance_id = f"i{rng.randrange(100)}-{self._number}" if rng.random() < 0.3 else None
            self._members[f"m{rng.randrange(100)}-{self._number}"] = topics, instance_id
        elif choice < 0.75 and len(self._members) > 1:
            gone = rng.choice(sorted(self._members))
            del self._members[gone]
            self._owned.pop(gone, None)
        else:
            self._counts[rng.choice(_TOPICS)] += 1

    def _subscribed(self) -> list[SubscribedMember]:
        members = []
        for member_id, (topics, instance_id) in self._members.items():
            owned = tuple(self._owned.get(member_id, ()))
            said = MemberSubscription(
                topics,
                owned if self._assignor.is_cooperative else (),
                self._generation if self._rng.random() < 0.5 else -1,
                None,
                self._assignor.user_data(owned, self._generation),
            )
            members.append(SubscribedMember(member_id, said, instance_id))
        self._rng.shuffle(members)
        return members

    def _judge(
        self, members: Sequence[SubscribedMember], given: _Given, turn: int
    ) -> Iterator[str]:
        topics = {member.member_id: member.subscription.topics for member in members}
        flat = [at for share in given.values() for at in share]
        everything = [
            TopicPartition(topic, index)
            for topic in _TOPICS
            if any(topic in wanted for wanted in topics.values())
            for index in range(self._counts[topic])
        ]
        if given.keys() != topics.keys() or len(set(flat)) != len(flat):
            yield f"{given} is no assignment"
            return
        strangers = [
            at for each, share in given.items() for at in share if at.topic not in topics[each]
        ]
        if strangers:
            yield f"{strangers} go to members that do not read them"
        is_cooperative = self._assignor.is_cooperative
        if not is_cooperative and set(flat) != set(everything):
            yield f"{sorted(flat)} are given, not {everything}"
        names = [member.member_id for member in sorted(members, key=_rank)]
        if self._name in ("range", "roundrobin"):
            due = _range(names, topics, self._counts)
            if self._name == "roundrobin":
                due = _in_turn(names, topics, everything)
            if {each: sorted(share) for each, share in given.items()} != due:
                yield f"{given}, not {due}"
            return
        yield from self._judge_sticky(topics, given, everything, turn)

    def _judge_sticky(
        self,
        topics: Mapping[str, tuple[str, ...]],
        given: _Given,
        everything: list[TopicPartition],
        turn: int,
    ) -> Iterator[str]:
        is_cooperative = self._assignor.is_cooperative
        held = {at: each for each, share in self._owned.items() for at in share}
        if is_cooperative:
            taken = [
                at for each, share in given.items() for at in share if held.get(at, each) != each
            ]
            if taken:
                yield f"{taken} are given away while another member owns them: {self._owned}"
            if turn == 2 and {at for share in given.values() for at in share} != set(everything):
                yield f"the third assignment in a row leaves partitions out: {given}"
        if not is_cooperative or turn == 2:
            for each, share in given.items():
                for other in given:
                    movable = [at for at in share if at.topic in topics[other]]
                    if movable and len(share) - len(given[other]) > 1:
                        yield f"{each} has more than {other}: {given}"
        if len(set(map(frozenset, topics.values()))) == 1 and turn == 0:
            size, extra = divmod(len(everything), len(topics))
            had = [len(set(self._owned.get(each, ())) & set(everything)) for each in topics]
            may_keep = sum(min(count, size) for count in had)
            may_keep += min(extra, sum(count > size for count in had))
            kept = sum(len(set(self._owned.get(each, ())) & set(given[each])) for each in topics)
            if kept != may_keep:
                yield f"{kept} partitions stay, {may_keep} can: {self._owned} becomes {given}"


def _rank(member: SubscribedMember) -> tuple[bool, str]:
    """Static members come first."""
    return not member.group_instance_id, member.group_instance_id or member.member_id


def _range(
    names: Sequence[str], topics: Mapping[str, tuple[str, ...]], counts: Mapping[str, int]
) -> _Given:
    due: _Given = {name: [] for name in names}
    for topic in _TOPICS:
        readers = [name for name in names if topic in topics[name]]
        for index in range(counts[topic] if readers else 0):
            share, extra = divmod(counts[topic], len(readers))
            wide = extra * (share + 1)
            number = index // (share + 1) if index < wide else extra + (index - wide) // share
            due[readers[number]].append(TopicPartition(topic, index))
    return due


def _in_turn(
    names: Sequence[str],
    topics: Mapping[str, tuple[str, ...]],
    everything: Sequence[TopicPartition],
) -> _Given:
    due: _Given = {name: [] for name in names}
    turn = -1
    for at in everything:
        turn += 1
        while at.topic not in topics[names[turn % len(names)]]:
            turn += 1
        due[names[turn % len(names)]].append(at)
    return due


def owners(rng: random.Random, make: type[Ownership] = Ownership) -> Iterator[str]:
    """Plan changes of ownership, carry some out, and compare what is owned."""
    real, owned = make(), set[TopicPartition]()
    planned: list[OwnershipChange] = []
    begun: OwnershipChange | None = None
    places = [TopicPartition("t", index) for index in range(5)]
    for step in range(STEPS_COUNT):
        choice = rng.random()
        if choice < 0.35:
            wanted = set(rng.sample(places, rng.randint(0, 5)))
            gives_up = real.plan_towards(wanted)
            revoked = tuple(sorted(owned - wanted))
            planned = [OwnershipChange(ChangeKind.REVOKED, revoked)] if revoked else []
            planned.append(OwnershipChange(ChangeKind.ASSIGNED, tuple(sorted(wanted - owned))))
            if gives_up != bool(revoked):
                yield f"step {step}: gives up {gives_up}, {revoked}"
        elif choice < 0.45:
            change = OwnershipChange(ChangeKind.LOST, real.owned)
            real.plan(change)
            planned = [change] if owned else []
        elif choice < 0.75:
            due = planned.pop(0) if begun is None and planned else None
            found = real.begin()
            begun = begun or due
            if found != due:
                yield f"step {step}: begins {found}, not {due}"
                return
        else:
            real.end()
            if begun is not None:
                is_more = begun.kind is ChangeKind.ASSIGNED
                owned = owned.union(begun.partitions) if is_more else owned - {*begun.partitions}
            begun = None
        state = (real.owned, real.is_begun, real.is_planned, real.is_at_rest)
        implied = (
            *(tuple(sorted(owned)), begun is not None, bool(planned)),
            begun is None and not planned,
        )
        if state != implied:
            yield f"step {step}: owned, begun, planned, at rest are {state}, not {implied}"
            return
