"""Checks who was let in: that users may do what they have a right to, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import Evidence
from oncelog.simulation.history_access import AccessWrong

__all__ = ["access"]


def access(evidence: Evidence) -> Iterator[Anomaly]:
    """A change of rights or passwords is in force on every broker once it is answered.

    What no answer has settled is not judged (`oncelog.simulation.access.ledger`), so nothing
    excuses what was found.
    """
    for event in evidence.of(AccessWrong):
        yield found("access", event.what, event.particulars, at_s=event.at_s, who=event.who)
