"""Minimises a finding: the same seed, fewer clients, faults and restarts, and less time.

Delta debugging: parts are removed in ever smaller groups while a run without them still has the
finding. Every part has its own randomness, so the others do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oncelog.simulation.plan import Plan

__all__ = ["minimise"]


def minimise(plan: Plan, shows: Callable[[Plan], bool], runs_max: int = 80) -> tuple[Plan, int]:
    """Return the smallest plan that still `shows` the finding, and the number of runs used."""
    search = _Search(shows, runs_max)
    parts = list(plan.parts)
    size = max(1, len(parts) // 2)
    while size >= 1 and search.runs_left:
        for start in range(0, len(parts), size):
            smaller = plan.without(parts[start : start + size])
            if len(smaller.parts) < len(plan.parts) and search.shows(smaller):
                plan = smaller
        parts = [part for part in parts if part in plan.parts]
        size = size // 2 if size > 1 else 0
    for share in (0.25, 0.5, 0.75):
        shorter = replace(plan, duration_s=plan.duration_s * share)
        if search.runs_left and search.shows(shorter):
            plan = shorter
            break
    return plan, runs_max - search.runs_left


class _Search:
    def __init__(self, shows: Callable[[Plan], bool], runs_max: int) -> None:
        self._shows = shows
        self.runs_left = runs_max

    def shows(self, plan: Plan) -> bool:
        if not self.runs_left:
            return False
        self.runs_left -= 1
        return self._shows(plan)
