"""Checks that the committed offsets of groups under KIP-848 never go back."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import Evidence
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.checkers.offsets import paired_commits
from oncelog.simulation.history import OffsetsCommitRefused, OffsetsCommitted

__all__ = ["monotonic_commits"]


@dataclass(slots=True)
class _PartitionCommits:
    """The commits of one partition."""

    accepted: list[tuple[float, float, int, str]] = field(default_factory=list)
    """(asked, answered, offset, who)"""
    doubtful: list[tuple[float, int]] = field(default_factory=list)
    """(asked, offset)"""


def monotonic_commits(evidence: Evidence) -> Iterator[Anomaly]:
    """The offsets that a group's members commit for a partition never go back.

    Each owner continues at the last committed offset, and a member that has lost the partition can
    no longer commit it. Left out are groups whose offsets are committed in transactions (INV-6,
    copies). Allowed: a commit without a response, or accepted for some partitions only, is in
    doubt; an owner may have continued from it.
    """
    excuses = Excuses(evidence)
    in_transactions = {
        event.group_id for txn in evidence.transactions.values() for event in txn.offsets
    }
    lanes: dict[tuple[str, TopicPartition], _PartitionCommits] = defaultdict(_PartitionCommits)
    for asked, answer in paired_commits(evidence):
        if asked.group_id not in evidence.consumer_groups - in_transactions:
            continue
        for partition, offset in asked.offsets.items():
            lane = lanes[asked.group_id, partition]
            if isinstance(answer, OffsetsCommitted):
                lane.accepted.append((asked.at_s, answer.at_s, offset, asked.who))
            elif not isinstance(answer, OffsetsCommitRefused) or answer.error.startswith("partly"):
                lane.doubtful.append((asked.at_s, offset))
    for (group_id, partition), lane in lanes.items():
        if not evidence.topics.was_deleted(partition.topic):
            yield from _back(excuses, group_id, partition, lane)


def _back(
    excuses: Excuses, group_id: str, partition: TopicPartition, lane: _PartitionCommits
) -> Iterator[Anomaly]:
    by_answer = sorted((answered_s, offset) for _, answered_s, offset, _ in lane.accepted)
    answered = [answered_s for answered_s, _ in by_answer]
    highest = [-1]
    for _, offset in by_answer:
        highest.append(max(highest[-1], offset))
    for asked_s, answered_s, offset, who in lane.accepted:
        before = highest[bisect_left(answered, asked_s)]
        is_doubtful = any(at_s < answered_s and other <= offset for at_s, other in lane.doubtful)
        if before > offset and not is_doubtful:
            yield found(
                "monotonic-commits",
                "a commit went back",
                f"group {group_id}, {partition}: {offset} after {before}",
                at_s=answered_s,
                who=who,
                topic_partition=partition,
                offset=offset,
                allowed=excuses.between(0.0, answered_s, CONSUMER_OFFSETS_TOPIC, partition),
            )
