"""Counts what the authorizer decides."""

from __future__ import annotations

__all__ = ["DecisionCounts"]


class DecisionCounts:
    """How often a client might do something to a resource, and how often not."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0
