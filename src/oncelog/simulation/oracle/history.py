"""Reads a partition's `.log` files in order, and follows the state that they imply as they grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from oncelog.simulation.oracle.batches import RawBatch, batches_in
from oncelog.simulation.oracle.partition import LogState

__all__ = ["RawLog", "base_offset_of", "log_files_among"]

Read = Callable[[str], bytes]
"""Returns the bytes of a file of the folder by its name."""
LOG_SUFFIX = ".log"
NAME_DIGITS = 20


def base_offset_of(name: str) -> int:
    """Return the offset that the name of a segment's file begins with."""
    return int(name[:NAME_DIGITS])


def log_files_among(names: Iterable[str]) -> list[str]:
    """Return the names of the segments' `.log` files, in the order of their offsets."""
    length = NAME_DIGITS + len(LOG_SUFFIX)
    return sorted(
        name
        for name in names
        if len(name) == length and name.endswith(LOG_SUFFIX) and name[:NAME_DIGITS].isdecimal()
    )


class RawLog:
    """The batches of one folder, by segment, and the state after them."""

    def __init__(self) -> None:
        self.turn = 0
        """How often everything was read again from the start."""
        self.segments: dict[str, list[RawBatch]] = {}
        self._known: dict[str, bytes] = {}
        """The bytes of their whole batches."""
        self.state = LogState()

    @property
    def first_offset(self) -> int:
        """The base offset of the oldest file."""
        return base_offset_of(next(iter(self.segments), "0" * NAME_DIGITS))

    def batches(self) -> list[RawBatch]:
        """Return all batches."""
        return [batch for batches in self.segments.values() for batch in batches]

    def read(self, names: Iterable[str], read: Read) -> None:
        """Read what was added since the last call; everything where files have changed."""
        files = {name: read(name) for name in log_files_among(names)}
        if not self._has_grown_to(files):
            self.turn += 1
            self.segments, self._known, self.state = {}, {}, LogState()
        for name, data in files.items():
            known = self.segments.setdefault(name, [])
            end = len(self._known.get(name, b""))
            for batch in batches_in(data, end):
                known.append(batch)
                self.state.add(batch)
                end = batch.position + len(batch.data)
            self._known[name] = data[:end]

    def _has_grown_to(self, files: dict[str, bytes]) -> bool:
        """Whether all known bytes are there, and only the last known file has more.

        The sizes do not tell: a follower cuts its log and appends as much from another leader.
        """
        known = list(self.segments)
        if list(files)[: len(known)] != known:
            return False
        if any(len(self._known[name]) != len(files[name]) for name, _ in pairwise(known)):
            return False
        return all(files[name].startswith(self._known[name]) for name in known)
