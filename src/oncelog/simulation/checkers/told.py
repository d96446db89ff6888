"""Checks that coordinators which have been replaced tell nothing by their state alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import Evidence
from oncelog.simulation.checkers.replicated import is_unclean
from oncelog.simulation.history_cluster import PartitionChanged, StaleAnswer

__all__ = ["stale_answers"]


def stale_answers(evidence: Evidence) -> Iterator[Anomaly]:
    """What a coordinator describes, lists or refuses was so after it was asked.

    Excused by an unclean election: one that is alone in its ISR asks no broker before it answers.
    """
    for event in evidence.of(StaleAnswer):
        label = event.topic_partition
        states = [
            state
            for state in evidence.of(PartitionChanged)
            if state.topic_partition == label and state.at_s <= event.at_s
        ]
        was_unclean = any(is_unclean(before, after) for before, after in pairwise(states))
        yield found(
            "stale-answers",
            "a coordinator answers that has been replaced",
            f"{label}: {event.asked} in epoch {event.leader_epoch}, while the coordinator of epoch "
            f"{event.later_epoch} serves",
            at_s=event.at_s,
            who=event.who,
            topic_partition=label,
            allowed="an unclean election chose another leader" if was_unclean else "",
        )
