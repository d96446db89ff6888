"""Checks reassignments: each step, each end, and how long a partition is led by no one.

A state is what a controller wrote, in the order of the store; requests are those of an operator,
each sent once. A request without an answer may take effect at any later time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import Evidence
from oncelog.simulation.history_cluster import (
    PartitionChanged,
    ReassignmentAnswered,
    ReassignmentAsked,
)

__all__ = ["reassignments"]

_Asked = dict[TopicPartition, list[ReassignmentAsked]]


def reassignments(evidence: Evidence) -> Iterator[Anomaly]:
    """Replicas change only as an operator asked, step by step, and end as the last request says.

    Each state of a reassignment has the replicas asked for, then those that go; it is done in one
    step, once the ISR has all that stay, or cancelled back to where it began. Who goes is noted
    until its broker has said that it has nothing. Of those with every committed record one stays,
    unless an unclean election is allowed.
    """
    asked: _Asked = {}
    for event in evidence.of(ReassignmentAsked):
        asked.setdefault(event.topic_partition, []).append(event)
    topics: dict[tuple[TopicPartition, str], list[PartitionChanged]] = {}
    for change in evidence.of(PartitionChanged):
        topics.setdefault((change.topic_partition, change.topic_id), []).append(change)
    for (label, _), states in topics.items():
        for before, after in pairwise(states):
            yield from _step(evidence, before, after, asked.get(label, ()))
    yield from _ends(evidence, asked, {label: states for (label, _), states in topics.items()})


def _step(
    evidence: Evidence,
    before: PartitionChanged,
    after: PartitionChanged,
    asked: Iterable[ReassignmentAsked],
) -> Iterator[Anomaly]:
    gone = {*before.replicas} - {*after.replicas}
    noted = ({*before.removed} | gone) - {*after.replicas}
    if not {*after.removed} <= noted or not gone <= {*after.removed}:
        yield _wrong("who has no replica any more is not noted", before, after)
    allowed = "unclean elections are allowed" if evidence.promise.unclean_elections else ""
    # One that is done has the members that the leader has asked for in the same write.
    is_done = after.completes(before)
    if not after.holders or not (is_done or before.holders & {*after.replicas}):
        yield _wrong("none of those with every record is left", before, after, allowed)
    if _placed(before) == _placed(after):
        return
    sent = [one.replicas for one in asked if one.at_s <= after.at_s]
    is_cancelled = before.is_reassigned and after.replicas == before.origin
    if None in sent and is_cancelled and not after.is_reassigned:
        return
    if after.goal not in sent:
        yield _wrong("replicas changed that no one asked for", before, after)
        return
    adding = {*after.replicas} - {*before.origin} if after.is_reassigned else set()
    removing = {*before.replicas} - {*after.goal} if after.is_reassigned else set()
    if {*after.adding} != adding or {*after.removing} != removing:
        yield _wrong("a reassignment begins with others than asked for", before, after)
    changes_them = gone or {*after.replicas} - {*before.replicas}
    if changes_them and not after.is_reassigned and not after.has_all:
        yield _wrong("a reassignment is done before all are in the ISR", before, after)
    if gone and after.leader_epoch == before.leader_epoch:
        yield _wrong("a replica is removed in the same leader epoch", before, after)


def _ends(
    evidence: Evidence, asked: _Asked, topics: dict[TopicPartition, list[PartitionChanged]]
) -> Iterator[Anomaly]:
    """Judge the last state of each partition by the last request of its operator."""
    answers: dict[TopicPartition, list[ReassignmentAnswered]] = {}
    for event in evidence.of(ReassignmentAnswered):
        answers.setdefault(event.topic_partition, []).append(event)
    for label, sent in asked.items():
        told, states = answers.get(label, []), topics.get(label)
        if len(told) < len(sent) or not states:
            continue  # Without an answer it may take effect late.
        accepted = [pair for pair in zip(sent, told, strict=True) if not pair[1].error]
        if not accepted:
            continue
        request, answer = accepted[-1]
        wanted = answer.replicas
        if wanted is None:
            is_right = any(
                after.replicas == before.origin and before.is_reassigned
                for before, after in pairwise(states)
                if request.at_s <= after.at_s <= answer.at_s
            )
        else:
            is_right = states[-1].goal == wanted
        if not is_right:
            yield found(
                "reassignments",
                "the replicas are not those asked for last",
                f"{label} has {states[-1].goal}, asked for were {wanted} at {answer.at_s:.3f} s",
                at_s=states[-1].at_s,
                topic_partition=label,
            )


def _placed(state: PartitionChanged) -> tuple[tuple[int, ...], ...]:
    return state.replicas, state.adding, state.removing


def _wrong(
    what: str, before: PartitionChanged, after: PartitionChanged, allowed: str = ""
) -> Anomaly:
    return found(
        "reassignments",
        what,
        f"{_said(before)}, then {_said(after)}",
        at_s=after.at_s,
        topic_partition=after.topic_partition,
        allowed=allowed,
    )


def _said(state: PartitionChanged) -> str:
    return (
        f"{state.topic_partition} leader {state.leader} epoch {state.leader_epoch}."
        f"{state.partition_epoch} ISR {list(state.isr)} eligible {list(state.eligible)} of "
        f"{list(state.replicas)} adding {list(state.adding)} removing {list(state.removing)} "
        f"removed {list(state.removed)}"
    )
