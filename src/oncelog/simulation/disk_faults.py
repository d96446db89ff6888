"""Injects faults into a simulated disk besides power loss: failures, no space, decay.

`DiskFaults` decides whether an operation fails; the functions below damage files that are not in
use. The plan decides which faults strike and when, and gives their randomness.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from oncelog.simulation.disk_nodes import File, Tree, os_error

__all__ = [
    "DiskFaults",
    "FaultKind",
    "any_path",
    "cut_file",
    "empty_file",
    "flip_bit",
    "remove_file",
]

Matches = Callable[[str], bool]
Tear = Callable[[int], None]
"""Does a part of the operation: some bytes of a write, or the damage of a failed fsync."""

_FAST_S: Final = (0.0001, 0.003)
_SLOW_S: Final = (0.5, 4.0)


class FaultKind(Enum):
    """The operations that can be made to fail."""

    READ = auto()
    """Reads of bytes, whole files and names."""
    WRITE = auto()
    """Writes and changes of size. A part of a write may have been done."""
    FSYNC = auto()
    """Syncs of files and folders.

    After a failure the file's unsynced bytes may never reach the disk, although reads still return
    them and later fsyncs succeed. Names stay unsynced.
    """
    NAMES = auto()
    """Creating, renaming and removing files and folders."""


def any_path(path: str) -> bool:
    """Every file."""
    return True


class _Failure:
    __slots__ = ("after", "count", "kind", "matches", "rng")

    def __init__(
        self, kind: FaultKind, rng: random.Random, count: int, after: int, matches: Matches
    ) -> None:
        self.kind = kind
        self.rng = rng
        self.count = count
        self.after = after
        self.matches = matches


class DiskFaults:
    """The armed faults of one disk."""

    __slots__ = ("_failures", "_full", "armed", "slow", "struck_count")

    def __init__(self) -> None:
        self._failures: list[_Failure] = []
        self._full: random.Random | None = None
        self.armed = False
        """Whether any operation may fail."""
        self.slow = False
        """Whether work in the executor takes seconds."""
        self.struck_count = 0
        """Operations that have failed."""

    def fail(
        self,
        kind: FaultKind,
        rng: random.Random,
        *,
        count: int = 1,
        after: int = 0,
        matches: Matches = any_path,
    ) -> None:
        """Make `count` operations on matching paths fail with EIO, after `after` have succeeded."""
        self._failures.append(_Failure(kind, rng, max(count, 1), after, matches))
        self.armed = True

    def fill(self, rng: random.Random) -> None:
        """Fill the disk: no file can grow."""
        self._full = rng
        self.armed = True

    def drain(self) -> None:
        """The disk has free space again."""
        self._full = None
        self.armed = bool(self._failures)

    def heal(self) -> None:
        """End all faults: no operation fails, space is free, and the disk is fast."""
        self._failures.clear()
        self._full = None
        self.armed = self.slow = False

    def strike(
        self, kind: FaultKind, path: str, size: int = 0, growth: int = 0, tear: Tear | None = None
    ) -> None:
        """Raise `OSError` if a fault strikes this operation; a part of it may have been done."""
        for failure in self._failures:
            if failure.kind is not kind or not failure.matches(path):
                continue
            if failure.after > 0:
                failure.after -= 1
                continue
            failure.count -= 1
            if not failure.count:
                self._failures.remove(failure)
                self.armed = bool(self._failures) or self._full is not None
            if tear is not None and failure.rng.random() < 0.5:
                tear(failure.rng.randrange(max(size, 1)))
            self.struck_count += 1
            raise os_error(errno.EIO, path)
        if self._full is not None and growth > 0:
            self._no_space(self._full, path, size, growth, tear)

    def delay_s(self, rng: random.Random) -> float:
        """Return the duration of the executor's next work, in seconds."""
        return rng.uniform(*(_SLOW_S if self.slow else _FAST_S))

    def _no_space(
        self, rng: random.Random, path: str, size: int, growth: int, tear: Tear | None
    ) -> None:
        if not size and rng.random() < 0.5:
            return  # On a full disk a new name often still fits into its folder.
        if tear is not None and rng.random() < 0.5:
            tear(rng.randrange(max(0, size - growth), size))
        self.struck_count += 1
        raise os_error(errno.ENOSPC, path)


# --- damage


def flip_bit(tree: Tree, rng: random.Random, matches: Matches) -> str | None:
    """Flip a synced bit of one file; return where, None if there is no synced bit."""
    found = [
        (path, file, file.untouched_size())
        for path, file in _files(tree, matches)
        if file.untouched_size()
    ]
    if not found:
        return None
    path, file, size = rng.choice(found)
    position, bit = rng.randrange(size), rng.randrange(8)
    file.data[position] ^= 1 << bit
    return f"{path}: bit {bit} of byte {position} flipped"


def cut_file(tree: Tree, rng: random.Random, matches: Matches) -> str | None:
    """Truncate one file that is not empty at a random length; return where."""
    return _shorten(tree, rng, matches, rng.randrange)


def empty_file(tree: Tree, rng: random.Random, matches: Matches) -> str | None:
    """Remove all bytes of one file; return its path."""
    return _shorten(tree, rng, matches, lambda _: 0)


def remove_file(tree: Tree, rng: random.Random, matches: Matches) -> str | None:
    """Remove one file; return its path."""
    found = _files(tree, matches)
    if not found:
        return None
    path, file = rng.choice(found)
    folder, name = tree.place(path)
    tree.sync(folder)
    del folder.names[name]
    return f"{path}: removed with {len(file.data)} bytes"


def _shorten(
    tree: Tree, rng: random.Random, matches: Matches, draw: Callable[[int], int]
) -> str | None:
    found = [(path, file) for path, file in _files(tree, matches) if file.data]
    if not found:
        return None
    path, file = rng.choice(found)
    before = len(file.data)
    file.make_durable()
    del file.data[draw(before) :]
    return f"{path}: cut from {before} to {len(file.data)} bytes"


def _files(tree: Tree, matches: Matches) -> list[tuple[str, File]]:
    return [(p, node) for p, node in tree.walk() if isinstance(node, File) and matches(p)]
