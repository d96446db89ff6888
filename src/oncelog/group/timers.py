"""Deadlines by key, cheap to move: a heartbeat moves its member's deadline thousands of times.

The heap holds at most a few stale lines per key; a line is checked against the key's real deadline
when it comes up. Time is whatever the caller passes, in ms. Nothing here calls back.
"""

from enum import Enum, auto
from heapq import heappop, heappush
from typing import NamedTuple


class TimerKind(Enum):
    """What a deadline is for."""

    SESSION = auto()
    JOIN = auto()
    SYNC = auto()
    SWEEP = auto()
    REVOCATION = auto()
    MEMBER_JOIN = auto()
    MEMBER_SYNC = auto()

    # A kind is one object; Enum hashes its name by a Python function.
    __hash__ = object.__hash__


class TimerKey(NamedTuple):
    """Names one deadline; `member_id` only for a member's, `group_id` for all but the sweep."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class Timers:
    """A set of deadlines.

    Each key has one line in the heap that counts, named by its sequence number in `_lines`. Moving
    a deadline later leaves the line where it is; when it comes up it is planned again. Other lines
    are stale and skipped.
    """

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._lines: dict[TimerKey, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._sequence = 0

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: TimerKey, deadline_ms: int) -> None:
        """Plan `key` for `deadline_ms`, in place of what was planned for it."""
        self._deadlines[key] = deadline_ms
        line = self._lines.get(key)
        if line is None or deadline_ms < line[0]:
            self._sequence += 1
            self._lines[key] = (deadline_ms, self._sequence)
            heappush(self._heap, (deadline_ms, self._sequence, key))

    def cancel(self, key: TimerKey) -> None:
        """Forget `key`, if it is planned at all."""
        self._deadlines.pop(key, None)

    def due(self, now_ms: int) -> list[TimerKey]:
        """Remove and return what is due by now, earliest first."""
        due: list[TimerKey] = []
        while (next_ms := self.next_deadline_ms()) is not None and next_ms <= now_ms:
            key = heappop(self._heap)[2]
            del self._lines[key]
            del self._deadlines[key]
            due.append(key)
        return due

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline, or None."""
        while self._heap:
            planned_ms, sequence, key = self._heap[0]
            counts = self._lines.get(key) == (planned_ms, sequence)
            deadline_ms = self._deadlines.get(key)
            if counts and deadline_ms == planned_ms:
                return planned_ms
            heappop(self._heap)
            if counts:
                del self._lines[key]
                if deadline_ms is not None:
                    self.set(key, deadline_ms)
        return None
