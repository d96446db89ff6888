"""Hashes all events of a run: two runs are the same if their hashes are.

Every delivery of bytes, every file operation and every event of the history goes in, with its
virtual time. It is not for security; it finds a wall clock, a thread, a hash order or an address
that affects a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from oncelog.simulation.history import Event

__all__ = ["Trace"]


class Trace:
    """One per run. `now_s` gives the virtual time."""

    __slots__ = ("_hash", "_keep", "_now_s", "count", "lines")

    def __init__(self, now_s: Callable[[], float], *, keep: bool = False) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._now_s = now_s
        self._keep = keep
        self.count = 0
        """The count of events."""
        self.lines: list[str] = []
        """All events as text, if they are kept, to find the first difference of two runs."""

    def note(self, *parts: object) -> None:
        """Add an event: ints, floats, text and bytes."""
        line = repr((self._now_s(), parts))
        self._hash.update(line.encode())
        self.count += 1
        if self._keep:
            self.lines.append(line)

    def event(self, event: Event) -> None:
        """Add an event of the history."""
        self.note(repr(event))

    def digest(self) -> str:
        """Return the hash so far, as 32 hexadecimal digits."""
        return self._hash.hexdigest()
