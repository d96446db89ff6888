"""Checks classic consumer groups: generations, assignments and ownership (INV-8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import Evidence
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.checkers.heartbeats import stale_heartbeats
from oncelog.simulation.checkers.offsets import paired_commits
from oncelog.simulation.history import (
    Assigned,
    AssignmentMade,
    BrokerDied,
    Event,
    Joined,
    OffsetsCommitted,
    Revoked,
)

__all__ = ["generations", "ownership"]


ANSWER_S: Final = 5.0
"""The longest time between a response and its arrival, in which its broker may die."""


def generations(evidence: Evidence) -> Iterator[Anomaly]:
    """INV-8: a commit of an older generation is refused, and assignments arrive unchanged.

    A generation is certainly newer if a member had received it before the commit was sent. One
    without an assignment is in the coordinator's memory only: after a broker's death the previous
    one continues. Otherwise excused only by a loss of power or damage that took the generation from
    `__consumer_offsets`. Groups with members under KIP-848 are left to `consumer_groups`.
    """
    excuses = Excuses(evidence)
    yield from _old_commits(evidence, excuses)
    yield from stale_heartbeats(evidence, excuses)
    made: dict[tuple[str, int], list[AssignmentMade]] = defaultdict(list)
    for event in evidence.of(AssignmentMade):
        made[event.group_id, event.generation].append(event)
    for assigned in evidence.of(Assigned):
        if assigned.group_id in evidence.consumer_groups:
            continue
        leaders = made.get((assigned.group_id, assigned.generation), [])
        # A static member that returns in the same generation has a new id and its old assignment.
        instance = evidence.instances.get(assigned.member_id)
        wanted = [
            set(partitions)
            for event in leaders
            for member, partitions in {assigned.member_id: (), **event.assignment}.items()
            if member == assigned.member_id
            # It may never have received its id, which begins with the instance's.
            or (instance is not None and member.startswith(f"{instance[1]}-"))
        ]
        if leaders and set(assigned.partitions) not in wanted:
            yield _of_member(
                "INV-8",
                "an assignment is not the one that the leader made",
                f"{_names(assigned.partitions)}, made {[_names(sorted(w)) for w in wanted]}",
                assigned,
            )


def _old_commits(evidence: Evidence, excuses: Excuses) -> Iterator[Anomaly]:
    told: dict[str, list[Joined | Assigned]] = defaultdict(list)
    given: list[Joined | Assigned] = [*evidence.of(Joined), *evidence.of(Assigned)]
    for event in given:
        told[event.group_id].append(event)
    died = [event.at_s for event in evidence.of(BrokerDied)]
    for asked, answer in paired_commits(evidence):
        if not isinstance(answer, OffsetsCommitted) or asked.generation < 0:
            continue
        if asked.group_id in evidence.consumer_groups:
            continue
        if not asked.offsets:
            # An answer without partitions has no place for an error.
            continue
        for event in told.get(asked.group_id, ()):
            if event.generation <= asked.generation or event.at_s >= asked.at_s:
                continue
            is_durable = isinstance(event, Assigned)
            if not is_durable and any(
                event.at_s - ANSWER_S <= at_s <= answer.at_s for at_s in died
            ):
                continue
            yield found(
                "INV-8",
                "a commit of an older generation was accepted",
                f"group {asked.group_id}, generation {asked.generation} of {asked.member_id}, "
                f"{event.generation} was there at {event.at_s:.3f} s",
                at_s=answer.at_s,
                who=asked.who,
                allowed=excuses.between(event.at_s, answer.at_s, CONSUMER_OFFSETS_TOPIC),
            )
            break


def ownership(evidence: Evidence) -> Iterator[Anomaly]:
    """No partition has two owners in one generation of a group, nor across two.

    A member owns its partitions from `Assigned` on. Under the eager protocol its next `Joined` ends
    that, under the cooperative one only `Revoked` does: so a member that has joined a generation
    and not revoked a partition is its only owner in that generation. A member that is not in the
    generation is a zombie: it may still read, but its commits are refused (INV-8). So is one whose
    instance id another member has taken. Nor does a leader assign one partition twice. Excused:
    power took a generation, whose number was then assigned again. Ownership across generations
    depends on the clients of the classic protocol, so it is no promise of the broker.
    """
    excuses = Excuses(evidence)
    yield from _made_twice(evidence)
    order: dict[type[Event], int] = {Revoked: 0, Joined: 1, Assigned: 2}
    events: list[Event] = [*evidence.of(Revoked), *evidence.of(Joined), *evidence.of(Assigned)]
    events.sort(key=lambda event: (event.at_s, order[type(event)]))
    owners: dict[tuple[str, TopicPartition], list[Assigned]] = defaultdict(list)
    joined: dict[tuple[str, str], Joined] = {}
    for event in events:
        if isinstance(event, Joined):
            joined[event.group_id, event.member_id] = event
            if "cooperative" not in event.protocol:
                _give_up(owners, event.group_id, event.member_id, None)
        elif isinstance(event, Revoked):
            _give_up(owners, event.group_id, event.member_id, event.partitions)
        elif isinstance(event, Assigned) and event.group_id not in evidence.consumer_groups:
            yield from _take(evidence, excuses, owners, joined, event)


def _made_twice(evidence: Evidence) -> Iterator[Anomaly]:
    for event in evidence.of(AssignmentMade):
        owners: dict[TopicPartition, str] = {}
        for member, partitions in event.assignment.items():
            for partition in partitions:
                other = owners.setdefault(partition, member)
                if other != member:
                    yield found(
                        "ownership",
                        "a leader assigned a partition twice",
                        f"group {event.group_id}, generation {event.generation}, {partition} to "
                        f"{other} and {member}",
                        at_s=event.at_s,
                        who=event.who,
                        topic_partition=partition,
                    )


def _give_up(
    owners: dict[tuple[str, TopicPartition], list[Assigned]],
    group: str,
    member: str,
    partitions: tuple[TopicPartition, ...] | None,
) -> None:
    for (its_group, partition), those in owners.items():
        if its_group == group and (partitions is None or partition in partitions):
            those[:] = [owner for owner in those if owner.member_id != member]


def _take(
    evidence: Evidence,
    excuses: Excuses,
    owners: dict[tuple[str, TopicPartition], list[Assigned]],
    joined: dict[tuple[str, str], Joined],
    event: Assigned,
) -> Iterator[Anomaly]:
    for partition in event.partitions:
        those = owners[event.group_id, partition]
        for owner in those:
            its_join = joined.get((event.group_id, owner.member_id))
            is_in = its_join is not None and its_join.generation == event.generation
            is_same = owner.generation == event.generation
            instance = evidence.instances.get(owner.member_id)
            is_zombie = instance is not None and instance == evidence.instances.get(event.member_id)
            is_over = is_zombie or _succeeds(event.who, owner.who)
            if owner.member_id != event.member_id and not is_over and (is_same or is_in):
                what = "in one generation" if is_same else "across two generations"
                allowed = "" if is_same else "clients of the classic protocol see to that"
                yield _of_member(
                    "ownership",
                    f"a partition has two owners {what}",
                    f"{partition}, {owner.member_id} since {owner.at_s:.3f} s",
                    event,
                    partition,
                    allowed or excuses.between(owner.at_s, event.at_s, CONSUMER_OFFSETS_TOPIC),
                )
        those[:] = [owner for owner in those if owner.member_id != event.member_id]
        those.append(event)


def _succeeds(who: str, other: str) -> bool:
    """Whether a client's process began after another one of the same client had died."""
    (client, *process), (other_client, *others) = who.split(".")[:2], other.split(".")[:2]
    return client == other_client and process > others


def _of_member(
    kind: str,
    what: str,
    particulars: str,
    event: Assigned,
    partition: TopicPartition | None = None,
    allowed: str = "",
) -> Anomaly:
    return found(
        kind,
        what,
        f"group {event.group_id}, generation {event.generation}, {event.member_id}: {particulars}",
        at_s=event.at_s,
        who=event.who,
        topic_partition=partition,
        allowed=allowed,
    )


def _names(partitions: tuple[TopicPartition, ...] | list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions)) or "nothing"
