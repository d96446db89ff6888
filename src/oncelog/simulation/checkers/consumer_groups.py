"""Checks groups with members under KIP-848: owners, epochs, commits, expulsions (INV-8).

A coordinator's state is known by its responses alone. A heartbeat without an error found its member
in the group; if its response assigned a partition, the member owned it at some time between request
and response. A heartbeat without a response may have arrived at any time, also long after, and the
coordinator may have applied its owned partitions then. Members of the classic protocol in such a
group are judged only by promises of the broker, not by their generations.

Excused: power or damage took records of `__consumer_offsets`. Deleted topics are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import NEVER, Evidence
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.checkers.heartbeats import early_expulsions_of_classic
from oncelog.simulation.checkers.offsets import paired_commits
from oncelog.simulation.history import (
    Assigned,
    BrokerStarted,
    GroupDescribed,
    HeartbeatAnswered,
    HeartbeatAsked,
    Joined,
    LateRequest,
    OffsetsCommitted,
    OffsetsCommitting,
    Revoked,
)
from oncelog.simulation.history_cluster import PartitionChanged

__all__ = [
    "early_expulsions",
    "member_epochs",
    "silent_members",
    "two_owners",
]

SILENCE_GRACE_S: Final = 2.0
"""The time after the end of its session during which a member may still be described."""
_GroupEvent: TypeAlias = HeartbeatAsked | HeartbeatAnswered | Joined | Assigned | Revoked
_GONE: Final = frozenset({"unknown_member_id", "fenced_instance_id"})


@dataclass(slots=True, eq=False)
class _Heartbeat:
    """One heartbeat, and its response if there was one."""

    asked: HeartbeatAsked
    answer: HeartbeatAnswered | None = None

    @property
    def is_accepted(self) -> bool:
        return self.answer is not None and not self.answer.error

    @property
    def answered_s(self) -> float:
        return NEVER if self.answer is None else self.answer.at_s


@dataclass(slots=True, eq=False)
class _Holding:
    """A member owns a partition, as far as it knows: from `assigned` until `until_s`.

    Its coordinator assigned it at some time after `asked_s`.
    """

    member_id: str
    assigned: Assigned
    asked_s: float
    until_s: float = NEVER


@dataclass(slots=True, eq=False)
class _JudgedGroup:
    """One group: the heartbeats of each member in order, and the owners of each partition."""

    group_id: str
    beats: dict[str, list[_Heartbeat]] = field(default_factory=lambda: defaultdict(list))
    holdings: dict[TopicPartition, list[_Holding]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def is_in(self, member_id: str, from_s: float, until_s: float) -> bool:
        """Return whether a heartbeat at that time found the member in the group."""
        return any(
            beat.is_accepted and beat.asked.epoch > 0 and from_s <= beat.asked.at_s < until_s
            for beat in self.beats.get(member_id, ())
        )

    def may_have_given_up(self, member_id: str, partition: TopicPartition, before_s: float) -> bool:
        """Return whether a heartbeat without a response says that the member does not own it."""
        return any(
            beat.answer is None
            and beat.asked.at_s < before_s
            and beat.asked.owned is not None
            and partition not in beat.asked.owned
            for beat in self.beats.get(member_id, ())
        )


def _groups(evidence: Evidence) -> dict[str, _JudgedGroup]:
    groups = {group_id: _JudgedGroup(group_id) for group_id in sorted(evidence.consumer_groups)}
    events: list[_GroupEvent] = [
        *evidence.of(HeartbeatAsked),
        *evidence.of(HeartbeatAnswered),
        *evidence.of(Joined),
        *evidence.of(Assigned),
        *evidence.of(Revoked),
    ]
    events = [event for event in events if event.group_id in groups]
    order = {Revoked: 0, HeartbeatAnswered: 1, Joined: 1, Assigned: 2, HeartbeatAsked: 3}
    events.sort(key=lambda event: (event.at_s, order[type(event)]))
    joined_s: dict[tuple[str, str], float] = {}
    for event in events:
        if isinstance(event, HeartbeatAsked):
            groups[event.group_id].beats[event.member_id].append(_Heartbeat(event))
        elif isinstance(event, HeartbeatAnswered):
            groups[event.group_id].beats[event.member_id][-1].answer = event
        elif isinstance(event, Joined):
            joined_s[event.group_id, event.member_id] = event.at_s
        elif isinstance(event, Assigned):
            since_s = joined_s.get((event.group_id, event.member_id), event.at_s)
            _assign(groups[event.group_id], event, since_s)
        elif isinstance(event, Revoked):
            _end(groups[event.group_id], event.member_id, event.partitions, event.at_s)
    return groups


def _assign(group: _JudgedGroup, event: Assigned, joined_s: float) -> None:
    held = {at for at, those in group.holdings.items() if _holding(those, event.member_id)}
    _end(group, event.member_id, held - set(event.partitions), event.at_s)
    beats = [beat for beat in group.beats.get(event.member_id, ()) if beat.is_accepted]
    asked_s = beats[-1].asked.at_s if beats else joined_s
    for partition in sorted(set(event.partitions) - held):
        group.holdings[partition].append(_Holding(event.member_id, event, asked_s))


def _holding(those: list[_Holding], member_id: str) -> _Holding | None:
    return next((h for h in those if h.member_id == member_id and h.until_s == NEVER), None)


def _end(
    group: _JudgedGroup,
    member_id: str,
    partitions: set[TopicPartition] | tuple[TopicPartition, ...],
    at_s: float,
) -> None:
    for partition in partitions:
        holding = _holding(group.holdings[partition], member_id)
        if holding is not None:
            holding.until_s = at_s


# --- ownership ---------------------------------------------------------------------------


def two_owners(evidence: Evidence) -> Iterator[Anomaly]:
    """Under KIP-848 two members never own one partition at a time.

    A member owns a partition from the response that assigns it until it reports that it revoked it,
    whatever its epoch is meanwhile. So no other member may get that partition while the member is
    in the group; a later heartbeat that is no rejoin and still owns the partition shows that it
    was. Members that were expelled without knowing it are not judged here: their commits are
    refused (`member_epochs`). Nor does the coordinator describe two owners.

    Allowed: a heartbeat or JoinGroup that was sent before the partition was assigned, without it,
    and arrived after.
    """
    excuses = Excuses(evidence)
    for group in _groups(evidence).values():
        for partition, holdings in group.holdings.items():
            if evidence.topics.was_deleted(partition.topic):
                continue
            for index, earlier in enumerate(holdings):
                for later in holdings[index + 1 :]:
                    yield from _both(excuses, group, partition, earlier, later)
    yield from _described_twice(evidence)


def _both(
    excuses: Excuses,
    group: _JudgedGroup,
    partition: TopicPartition,
    earlier: _Holding,
    later: _Holding,
) -> Iterator[Anomaly]:
    since_s = later.assigned.at_s
    if earlier.member_id == later.member_id or later.asked_s < earlier.assigned.at_s:
        return
    if not group.is_in(earlier.member_id, since_s, earlier.until_s):
        return
    allowed = excuses.between(earlier.assigned.at_s, since_s, CONSUMER_OFFSETS_TOPIC)
    if group.may_have_given_up(earlier.member_id, partition, since_s):
        allowed = allowed or "a heartbeat without an answer may have come late"
    yield found(
        "two-owners",
        "a partition was given to a member before its owner had given it up",
        f"group {group.group_id}, {partition} of {earlier.member_id} since "
        f"{earlier.assigned.at_s:.3f} s to {later.member_id} in epoch {later.assigned.generation}",
        at_s=since_s,
        who=later.assigned.who,
        topic_partition=partition,
        allowed=allowed,
    )


def _described_twice(evidence: Evidence) -> Iterator[Anomaly]:
    for event in evidence.of(GroupDescribed):
        owners: dict[TopicPartition, str] = {}
        for member_id, partitions in event.members.items():
            for partition in partitions:
                other = owners.setdefault(partition, member_id)
                if other != member_id and not evidence.topics.was_deleted(partition.topic):
                    yield found(
                        "two-owners",
                        "a partition is described as that of two members",
                        f"group {event.group_id}, {partition} of {other} and {member_id}",
                        at_s=event.at_s,
                        who=event.who,
                        topic_partition=partition,
                    )


# --- commits -----------------------------------------------------------------------------


def member_epochs(evidence: Evidence) -> Iterator[Anomaly]:
    """INV-8: no commit is accepted from a non-member, or with a past epoch.

    - of a member that was fenced and has not sent a join since;
    - with an older epoch than the member has, for a partition that it has reported as revoked in
      that epoch or after it. (One that it owned all the time may be committed: KIP-1251.)
    - for a partition that another member was assigned, of a member that has not revoked it: so it
      was expelled.

    A member's epoch never goes back while it stays in the group. Excused: power or damage took the
    member's records.
    """
    excuses = Excuses(evidence)
    groups = _groups(evidence)
    for asked, answer in paired_commits(evidence):
        group = groups.get(asked.group_id)
        if group is None or not isinstance(answer, OffsetsCommitted) or asked.generation < 0:
            continue
        if group.beats.get(asked.member_id):
            yield from _judge_commit(evidence, excuses, group, asked, answer)
    for group in groups.values():
        for beats in group.beats.values():
            yield from _epochs_back(excuses, beats)


def _judge_commit(
    evidence: Evidence,
    excuses: Excuses,
    group: _JudgedGroup,
    asked: OffsetsCommitting,
    answer: OffsetsCommitted,
) -> Iterator[Anomaly]:
    beats = group.beats[asked.member_id]
    heard = [beat for beat in beats if beat.answered_s < asked.at_s]
    joins_s = [beat.asked.at_s for beat in beats if beat.asked.epoch == 0]

    def accepted(what: str, particulars: str, since_s: float) -> Anomaly:
        return found(
            "member-epochs",
            what,
            f"group {group.group_id}, {asked.member_id} in epoch {asked.generation}: {particulars}",
            at_s=answer.at_s,
            who=asked.who,
            allowed=excuses.between(since_s, answer.at_s, CONSUMER_OFFSETS_TOPIC),
        )

    if not heard:
        return
    last = heard[-1].answer
    is_gone = last is not None and last.error in _GONE
    if is_gone and last and not any(last.at_s <= at_s < answer.at_s for at_s in joins_s):
        what = "a commit of a member that was told it is none was accepted"
        yield accepted(what, f"{last.error} at {last.at_s:.3f} s", heard[0].asked.at_s)
        return
    for partition in asked.offsets:
        if evidence.topics.was_deleted(partition.topic):
            continue
        given_up = _given_up(_of_this_group(heard), asked.generation, partition)
        if given_up is not None:
            what = "a commit of an older epoch was accepted"
            particulars = f"{partition} was given up in {given_up.asked.epoch}"
            yield accepted(what, particulars, given_up.asked.at_s)
            return
        other = _taken_by(group, asked, partition, joins_s, answer.at_s)
        if other is not None:
            what = "a commit of a member that had lost the partition was accepted"
            particulars = f"{partition}, {other.member_id} since {other.assigned.at_s:.3f} s"
            yield accepted(what, particulars, heard[0].asked.at_s)
            return


def _of_this_group(heard: list[_Heartbeat]) -> list[_Heartbeat]:
    """Return the heartbeats since epochs began at 1 again, because the group was created again.

    A group that became empty under the classic protocol is replaced when a member joins it by
    KIP-848 (`GroupMetadataManager.maybeDeleteEmptyClassicGroup`).
    """
    first, highest = 0, 0
    for index, beat in enumerate(heard):
        if beat.answer is None or not beat.is_accepted:
            continue
        if beat.asked.epoch == 0 and beat.answer.epoch < highest:
            first, highest = index, 0
        highest = max(highest, beat.answer.epoch)
    return heard[first:]


def _given_up(heard: list[_Heartbeat], epoch: int, partition: TopicPartition) -> _Heartbeat | None:
    """Return the heartbeat that reported that this epoch no longer owns the partition."""
    for index, beat in enumerate(heard):
        owned = beat.asked.owned
        if not beat.is_accepted or owned is None or partition in owned:
            continue
        if beat.asked.epoch < max(epoch, 1):
            continue
        # It gives up what it has; what it was assigned since, it may not have received.
        said = [each.asked.owned for each in heard[:index] if each.asked.owned is not None]
        if partition not in (said[-1] if said else ()):
            continue
        later = [after.answer for after in heard[index:] if after.is_accepted]
        if any(each is not None and each.epoch > epoch for each in later):
            return beat
    return None


def _taken_by(
    group: _JudgedGroup,
    asked: OffsetsCommitting,
    partition: TopicPartition,
    joins_s: list[float],
    answered_s: float,
) -> _Holding | None:
    """Return the member that was assigned this member's partition before its commit."""
    holdings = group.holdings.get(partition, [])
    mine = [h for h in holdings if h.member_id == asked.member_id and h.assigned.at_s <= asked.at_s]
    if not mine or group.may_have_given_up(asked.member_id, partition, asked.at_s):
        return None
    since_s = mine[-1].assigned.at_s
    if any(since_s < at_s < answered_s for at_s in joins_s):
        return None
    for beat in group.beats[asked.member_id]:
        owned = beat.asked.owned
        if since_s < beat.asked.at_s < answered_s and owned is not None and partition not in owned:
            return None  # It revoked the partition; its own epoch may still commit.
    for other in holdings:
        is_other = other.member_id != asked.member_id
        if is_other and since_s < other.asked_s and other.assigned.at_s < asked.at_s:
            return other
    return None


def _epochs_back(excuses: Excuses, beats: list[_Heartbeat]) -> Iterator[Anomaly]:
    for beat in beats:
        answer = beat.answer
        if answer is not None and not answer.error and 0 < answer.epoch < beat.asked.epoch:
            yield found(
                "member-epochs",
                "the epoch of a member went back",
                f"group {answer.group_id}, {answer.member_id}: {beat.asked.epoch} to "
                f"{answer.epoch}",
                at_s=answer.at_s,
                who=answer.who,
                allowed=excuses.between(0.0, answer.at_s, CONSUMER_OFFSETS_TOPIC),
            )


# --- members that come and go ------------------------------------------------------------


def silent_members(evidence: Evidence) -> Iterator[Anomaly]:
    """A member that is silent for longer than its session is expelled.

    Judged after the last fault, when the coordinator describes the group. A session restarts when a
    broker starts, when coordinators move, and when a request of its client arrives late, if an
    earlier heartbeat has no response: it may be that one. Nothing else excuses it. Left out are
    members whose last heartbeat has no response: it may have arrived late, if their process was
    frozen.
    """
    session_s = evidence.promise.member_session_s + SILENCE_GRACE_S
    started = [event.at_s for event in evidence.of(BrokerStarted)]
    started += _moves_s(evidence)
    groups = _groups(evidence)
    told = set()
    for described in evidence.of(GroupDescribed):
        at_s = described.at_s
        for member_id in described.members:
            key = described.group_id, member_id
            known = groups[described.group_id].beats if described.group_id in groups else {}
            beats = [beat for beat in known.get(member_id, ()) if beat.asked.at_s <= at_s]
            if not beats or key in told or beats[-1].answered_s > at_s:
                continue
            heard_s = beats[-1].asked.at_s
            starts = [started_s for started_s in started if started_s <= at_s]
            since_s = max([heard_s, evidence.promise.last_fault_s, *starts])
            if at_s - since_s > session_s and at_s - _late_s(evidence, beats, at_s) > session_s:
                told.add(key)
                yield found(
                    "silent-member",
                    "a member that is silent is kept in its group",
                    f"group {described.group_id}, {member_id}, last heard at {heard_s:.3f} s",
                    at_s=at_s,
                    who=described.who,
                )


def _moves_s(evidence: Evidence) -> Iterator[float]:
    """Yield when a partition of the coordinators' topic got another leader epoch."""
    epochs: dict[TopicPartition, int] = {}
    for event in evidence.of(PartitionChanged):
        at = event.topic_partition
        if at.topic == CONSUMER_OFFSETS_TOPIC and event.leader_epoch > epochs.get(at, -1):
            epochs[at] = event.leader_epoch
            yield event.at_s


def _late_s(evidence: Evidence, beats: list[_Heartbeat], until_s: float) -> float:
    """Return when a heartbeat without a response may last have arrived, or 0."""
    lost = [beat.asked for beat in beats if beat.answer is None]
    return max(
        (
            event.at_s
            for event in evidence.of(LateRequest)
            # A client has the name of its process, perhaps with numbers behind it.
            if lost and f"{lost[0].who}.".startswith(f"{event.who}.")
            if lost[0].at_s <= event.at_s <= until_s
        ),
        default=0.0,
    )


def early_expulsions(evidence: Evidence) -> Iterator[Anomaly]:
    """No member is expelled before its session is over.

    Between a heartbeat that was answered and the next one, which finds the member gone, is less
    than a session. Left out are members that have not reported exactly their assignment as owned:
    their rebalance timeout may be over. So are those that sent a leave. Excused: power or damage
    took the member. Allowed: a heartbeat without a response arrived late, and got the partitions to
    revoke, which are not sent again.
    """
    excuses = Excuses(evidence)
    yield from early_expulsions_of_classic(evidence, excuses)
    for group in _groups(evidence).values():
        for beats in group.beats.values():
            told: set[TopicPartition] | None = None
            is_reconciled = False
            for index, (before, beat) in enumerate(pairwise(beats)):
                if before.answer is not None and before.answer.assigned is not None:
                    told = set(before.answer.assigned)
                    is_reconciled = False
                if before.is_accepted and before.asked.owned is not None:
                    is_reconciled = set(before.asked.owned) == told
                answer = beat.answer
                if answer is None or answer.error != "unknown_member_id":
                    continue
                if before.is_accepted and before.asked.epoch >= 0 and is_reconciled:
                    is_lost = any(each.answered_s > beat.asked.at_s for each in beats[:index])
                    yield from _expelled(evidence, excuses, before, answer, is_lost)


def _expelled(
    evidence: Evidence,
    excuses: Excuses,
    before: _Heartbeat,
    answer: HeartbeatAnswered,
    is_lost: bool,
) -> Iterator[Anomaly]:
    if answer.at_s - before.asked.at_s >= evidence.promise.member_session_s:
        return
    late = "a heartbeat without an answer may have come late" if is_lost else ""
    yield found(
        "early-expulsion",
        "a member was taken out before its session was over",
        f"group {answer.group_id}, {answer.member_id}, last heard at {before.asked.at_s:.3f} s",
        at_s=answer.at_s,
        who=answer.who,
        allowed=late or excuses.between(0.0, answer.at_s, CONSUMER_OFFSETS_TOPIC),
    )
