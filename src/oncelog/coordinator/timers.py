"""Stores deadlines by key, for both coordinators.

Moving a deadline is cheap, as every heartbeat does so. The heap holds at most a few stale lines per
key; a line is checked against the key's current deadline when it falls due. The caller passes the
time, in ms. There are no callbacks.
"""

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from oncelog.core.limits import INT32_MAX

KeyT = TypeVar("KeyT", bound=Hashable)


class Timers(Generic[KeyT]):
    """A set of deadlines.

    Each key has one valid line in the heap, with the time in `_lines`. Moving a deadline later
    leaves the line in place; when it falls due it is planned again. Other lines are stale and
    skipped, unless their time happens to be right again. Keys are not compared: of two lines with
    one time the older one comes first.
    """

    def __init__(self) -> None:
        self.deadlines: dict[KeyT, int] = {}
        """By key, to be read only. A hot path reads it to save a call while there are none."""
        self._lines: dict[KeyT, int] = {}
        self._heap: list[tuple[int, int, KeyT]] = []
        self._sequence = count()

    def __contains__(self, key: KeyT) -> bool:
        return key in self.deadlines

    def __len__(self) -> int:
        return len(self.deadlines)

    def set(self, key: KeyT, deadline_ms: int) -> None:
        """Set the deadline of `key` to `deadline_ms`, replacing an earlier one."""
        self.deadlines[key] = deadline_ms
        planned_ms = self._lines.get(key)
        if planned_ms is None or deadline_ms < planned_ms:
            sequence = next(self._sequence)
            self._lines[key] = deadline_ms
            heappush(self._heap, (deadline_ms, sequence, key))

    def cancel(self, key: KeyT) -> None:
        """Remove `key`, if it is planned."""
        self.deadlines.pop(key, None)

    def due(self, now_ms: int, count_max: int = INT32_MAX) -> list[KeyT]:
        """Remove and return the keys that are due, earliest first; at most so many."""
        due: list[KeyT] = []
        while len(due) < count_max:
            next_ms = self.next_deadline_ms()
            if next_ms is None or next_ms > now_ms:
                break
            key = heappop(self._heap)[2]
            del self._lines[key]
            del self.deadlines[key]
            due.append(key)
        return due

    def next_look_ms(self) -> int:
        """Return when to call `due` next; there is a deadline, and none before that time.

        For a hot path that moves deadlines later: no line is planned again before it falls due.
        """
        return self._heap[0][0]

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline, or None."""
        while self._heap:
            planned_ms, _, key = self._heap[0]
            deadline_ms = self.deadlines.get(key)
            if deadline_ms == planned_ms:
                return planned_ms
            heappop(self._heap)
            if self._lines.get(key) == planned_ms:
                del self._lines[key]
                if deadline_ms is not None:
                    self.set(key, deadline_ms)
        return None
