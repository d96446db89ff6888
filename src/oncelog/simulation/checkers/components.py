"""Checks what the components that were simulated by themselves have shown."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import Evidence
from oncelog.simulation.history import ComponentFailed

__all__ = ["components"]


def components(evidence: Evidence) -> Iterator[Anomaly]:
    """A component does what its facts imply. Nothing excuses it: no fault of the run meets it."""
    for event in evidence.of(ComponentFailed):
        yield found(
            "components",
            f"{event.component} simulated alone do not as they must",
            event.particulars,
            at_s=event.at_s,
            who=event.component,
        )
