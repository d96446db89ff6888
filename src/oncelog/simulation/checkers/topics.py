"""Finds the incarnation of a topic to which a record belongs, as far as clients know it.

A topic that is deleted and created again is another topic with the same name. Between the request
of its deletion and the response of its next creation it is unknown which one a send reaches, so
records sent then are not judged. A topic whose deletion was not requested has one incarnation,
number 0, for the whole run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from oncelog.simulation.history import TopicChanged, TopicChanging

__all__ = ["TopicIncarnations"]

NEVER = float("inf")


class TopicIncarnations:
    """The incarnations of each topic: the times from and until which they certainly existed."""

    def __init__(self) -> None:
        self._changes: dict[str, list[TopicChanging | TopicChanged]] = defaultdict(list)
        self._starts: dict[str, list[float]] = {}
        self._ends: dict[str, list[float]] = {}

    def add(self, event: TopicChanging | TopicChanged) -> None:
        """Add a change. All changes are added before any query."""
        self._changes[event.topic].append(event)

    def was_deleted(self, topic: str) -> bool:
        """Return whether its deletion was requested."""
        return any(event.change == "delete" for event in self._changes.get(topic, ()))

    def incarnation(self, topic: str, from_s: float, until_s: float) -> int | None:
        """Return the incarnation that existed from the one time to the other; None if unknown."""
        if topic not in self._changes:
            return 0
        if topic not in self._starts:
            self._find(topic)
        index = bisect_right(self._starts[topic], from_s) - 1
        return index if index >= 0 and until_s <= self._ends[topic][index] else None

    def last(self, topic: str) -> int | None:
        """Return the incarnation at the end; None if it is unknown whether there is one."""
        if topic not in self._changes:
            return 0
        if topic not in self._starts:
            self._find(topic)
        ends = self._ends[topic]
        return len(ends) - 1 if ends and ends[-1] == NEVER else None

    def _find(self, topic: str) -> None:
        changes = self._changes[topic]
        starts, ends = [-NEVER], [NEVER]
        if self.was_deleted(topic):
            is_made_here = changes[0].change == "create"
            starts, ends = ([], []) if is_made_here else ([-NEVER], [NEVER])
        create_asked_s = -NEVER
        for event in changes if self.was_deleted(topic) else ():
            is_open = bool(ends) and ends[-1] == NEVER
            if event.change == "delete":
                # Request and response both end it: the response of one in doubt may arrive late.
                create_asked_s = NEVER
                if is_open:
                    ends[-1] = event.at_s
            elif event.change == "create" and isinstance(event, TopicChanging):
                create_asked_s = event.at_s
            elif event.change == "create" and not is_open and create_asked_s < NEVER:
                starts.append(event.at_s)
                ends.append(NEVER)
        self._starts[topic], self._ends[topic] = starts, ends
