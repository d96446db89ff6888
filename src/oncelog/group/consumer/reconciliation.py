"""Moves a member from the partitions it owns towards its target assignment (INV-8).

Pure functions of one member. The states are those of Kafka's `CurrentAssignmentBuilder`:

- STABLE: the member owns its target of its epoch.
- UNREVOKED_PARTITIONS: it has to revoke partitions, and stays in its epoch until its heartbeat no
  longer lists them as owned.
- UNRELEASED_PARTITIONS: it has moved to the target's epoch, and waits for partitions that other
  members have not revoked yet.

A partition is assigned to a member only while no member owns it; a member owns a partition that it
has to revoke until it reports that it stopped using it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from oncelog.group.consumer.members import (
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    Partitions,
    TopicIdPartition,
)


@dataclass(frozen=True, slots=True)
class Situation:
    """The inputs of a member's next step, besides the member.

    `subscribed` are its topics, `owners` maps each owned partition to its owner, `reported` are the
    partitions that the heartbeat lists as owned (None: not sent).
    """

    assignment_epoch: int
    target: Partitions
    subscribed: frozenset[UUID]
    owners: Mapping[TopicIdPartition, str]
    reported: Partitions | None
    subscription_changed: bool = False


def reconcile(member: ConsumerMember, situation: Situation) -> ConsumerMember:
    """Return the member after its next step; the same value if there is none."""
    if member.state is MemberState.STABLE:
        if member.member_epoch != situation.assignment_epoch:
            return _advance(member, situation)
        if situation.subscription_changed:
            return _drop_unsubscribed(member, situation)
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_uses(
        member.pending_revocation, situation.reported
    ):
        if situation.subscription_changed:
            return _drop_unsubscribed(member, situation)
        return member
    return _advance(member, situation)


def _still_uses(revoked: OwnedPartitions, reported: Partitions | None) -> bool:
    """Whether the member has not reported that it stopped using all of `revoked`."""
    return reported is None or not reported.isdisjoint(revoked)


def _drop_unsubscribed(member: ConsumerMember, situation: Situation) -> ConsumerMember:
    """Revoke unsubscribed partitions, without a new target assignment."""
    kept = _of_topics(member.assigned, situation.subscribed)
    if len(kept) == len(member.assigned):
        return member
    dropped = {tp: epoch for tp, epoch in member.assigned.items() if tp not in kept}
    revoked = {**member.pending_revocation, **dropped}
    if _still_uses(revoked, situation.reported):
        state = MemberState.UNREVOKED_PARTITIONS
        return member.moved(state, member.member_epoch, kept, revoked)
    return member.moved(member.state, member.member_epoch, kept, member.pending_revocation)


def _of_topics(
    partitions: OwnedPartitions, topic_ids: frozenset[UUID]
) -> dict[TopicIdPartition, int]:
    return {tp: epoch for tp, epoch in partitions.items() if tp.topic_id in topic_ids}


def _advance(member: ConsumerMember, situation: Situation) -> ConsumerMember:
    """Revoke first; once nothing is left to revoke, enter the target's epoch and add partitions."""
    target = {tp for tp in situation.target if tp.topic_id in situation.subscribed}
    kept = {tp: epoch for tp, epoch in member.assigned.items() if tp in target}
    revoked = {tp: epoch for tp, epoch in member.assigned.items() if tp not in target}
    if revoked and _still_uses(revoked, situation.reported):
        state = MemberState.UNREVOKED_PARTITIONS
        return member.moved(state, member.member_epoch, kept, revoked)
    epoch = situation.assignment_epoch
    wanted = target - kept.keys()
    # The member still owns the partitions it was asked to revoke, so it may keep them.
    free = {tp for tp in wanted if tp not in situation.owners or tp in member.pending_revocation}
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    return member.moved(state, epoch, kept | dict.fromkeys(free, epoch))
