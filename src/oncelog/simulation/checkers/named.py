"""Checks that a broker serves what it names as its own: coordinators and leaders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import Evidence
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.history import Logged

__all__ = ["REFUSED", "refused_names"]

REFUSED: Final = "it refuses what it names: "
"""The beginning of each line of `simulation/naming.py`, behind its logger's name."""


def refused_names(evidence: Evidence) -> Iterator[Anomaly]:
    """No broker refuses a request for a partition or an id that it names as its own.

    Excused: a folder failed. Its partitions are refused at once, and named no more from the next
    turn of the loop on.
    """
    excuses, failures_s = Excuses(evidence), evidence.promise.storage_failures_s
    for event in evidence.of(Logged):
        _, is_ours, what = event.message.partition(REFUSED)
        if is_ours:
            failed_s = excuses.storage_failed(failures_s, event.who, event.at_s)
            yield found(
                "named",
                "a broker refuses what it names",
                what,
                at_s=event.at_s,
                who=event.who,
                allowed="" if failed_s is None else f"the storage failed at {failed_s:.3f} s",
            )
