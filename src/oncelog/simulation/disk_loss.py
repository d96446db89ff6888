"""Computes what a power loss leaves on a simulated disk.

Synced bytes survive. Each unsynced write survives, is lost or is torn; of each folder's unsynced
changes of names, some of the first survive. One rate is drawn per loss, so that often all of them
survive and often none. It knows no processes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Final

from oncelog.simulation.disk_nodes import TRUNCATION, File, Folder, NameChange, Tree

__all__ = ["SECTOR_BYTES", "draw_rate", "lose_power"]

SECTOR_BYTES: Final = 512
"""A disk writes a sector of this many bytes completely or not at all."""


class _Fate(Enum):
    KEPT = "kept"
    LOST = "lost"
    TORN = "torn"
    """Only the sectors before one boundary inside the write survive, or only those after it."""
    EMPTY = "empty"
    """Only the file's size survives; its new bytes are zeros."""


def draw_rate(rng: random.Random) -> float:
    """Draw the share of unsynced changes that survives: 0 and 1 in a quarter of the cases each."""
    return min(max(rng.uniform(-0.5, 1.5), 0.0), 1.0)


def lose_power(
    tree: Tree, rng: random.Random, rate: float, spared: Callable[[str], bool] | None
) -> list[str]:
    """Reduce `tree` to what survives, all of it synced; return what was lost, sorted.

    Files whose path `spared` accepts lose no bytes (but maybe their names).
    """
    undone = _lose_names(tree, rng, rate)
    lost = []
    paths: dict[Folder, str] = {tree.root: ""}
    for path, node in tree.walk():
        if type(node) is Folder:
            paths[node] = path
        elif type(node) is File:
            note = _lose_bytes(node, rng, 1.0 if spared is not None and spared(path) else rate)
            if note:
                lost.append(f"{path}: {note}")
    lost += [f"{paths[folder]}/{note}" for folder, note in undone if folder in paths]
    return sorted(lost)


# --- names


def _lose_names(tree: Tree, rng: random.Random, rate: float) -> list[tuple[Folder, str]]:
    """Undo the last changes of names in each folder; return them by folder."""
    folders = tree.folders()
    last_kept, first_lost = _renames_between_folders(folders, rng, rate)
    undone = []
    for folder in folders:
        changes = folder.changes
        least = sum(change.number <= last_kept for change in changes)
        most = sum(change.number < first_lost for change in changes)
        for change in reversed(changes[_prefix(rng, rate, least, most) :]):
            undone.append((folder, _describe(folder, change)))
            for name, node in change.before:
                if node is None:
                    del folder.names[name]
                else:
                    folder.names[name] = node
    tree.forget_changes()
    return undone


def _describe(folder: Folder, change: NameChange) -> str:
    names = " -> ".join(name for name, _ in change.before)
    node = folder.names.get(change.before[0][0])
    size = f", {len(node.data)} bytes" if type(node) is File else ""
    return f"{names}: {change.operation} undone{size}"


def _renames_between_folders(
    folders: list[Folder], rng: random.Random, rate: float
) -> tuple[int, float]:
    """Return the number of the last such rename that survives and of the first that is lost."""
    numbers = sorted({c.number for folder in folders for c in folder.changes if c.crosses})
    kept = _prefix(rng, rate, 0, len(numbers))
    return (numbers[kept - 1] if kept else 0), (numbers[kept] if kept < len(numbers) else inf)


def _prefix(rng: random.Random, rate: float, least: int, most: int) -> int:
    if rate <= 0 or least == most:
        return least
    return most if rate >= 1 else rng.randint(least, most)


# --- bytes


def _lose_bytes(file: File, rng: random.Random, rate: float) -> str:
    """Lose unsynced bytes; return a description, "" for none."""
    if not file.changes and not file.settled:
        return ""
    changes = [*(change for change, _ in file.settled), *file.changes]
    fates = [_Fate.KEPT if kept else _Fate.LOST for _, kept in file.settled]
    fates += _draw_fates(rng, rate, len(file.changes))
    written = _undo(file, changes)
    unsynced_bytes = lost_bytes = lost_cuts_count = 0
    for (position, length, _, _), data, fate in zip(changes, written, fates, strict=True):
        if length == TRUNCATION:
            if fate is _Fate.KEPT:
                _set_size(file.data, position)
            else:
                lost_cuts_count += 1
            continue
        unsynced_bytes += length
        lost_bytes += length - _write(file.data, position, data, fate, rng)
    file.make_durable()
    notes = []
    if lost_bytes:
        notes.append(f"{lost_bytes} of {unsynced_bytes} unsynced bytes lost")
    if lost_cuts_count:
        notes.append(f"{lost_cuts_count} changes of its size lost")
    return ", ".join(notes)


def _draw_fates(rng: random.Random, rate: float, count: int) -> list[_Fate]:
    if rate >= 1 or rate <= 0:
        return [_Fate.KEPT if rate >= 1 else _Fate.LOST] * count
    if rng.random() < 0.5:
        # Written back in order up to one point, as log files mostly are.
        kept = rng.choice((0, count, rng.randint(0, count)))
        broken = [rng.choice((_Fate.LOST, _Fate.TORN, _Fate.EMPTY))] if kept < count else []
        return [_Fate.KEPT] * kept + broken + [_Fate.LOST] * (count - kept - 1)
    others = (_Fate.LOST, _Fate.LOST, _Fate.TORN, _Fate.EMPTY)
    return [_Fate.KEPT if rng.random() < rate else rng.choice(others) for _ in range(count)]


def _undo(file: File, changes: list[tuple[int, int, bytes, int]]) -> list[bytes]:
    """Undo all changes; return the bytes that each had written."""
    content = file.data
    written = []
    for position, length, old, size in reversed(changes):
        if length == TRUNCATION:
            written.append(b"")
            if size > position:
                content += old
        else:
            written.append(bytes(content[position : position + length]))
            content[position : position + len(old)] = old
        del content[size:]
    written.reverse()
    return written


def _write(content: bytearray, position: int, data: bytes, fate: _Fate, rng: random.Random) -> int:
    """Apply what survives of a write again; return how many of its bytes do."""
    if fate is _Fate.EMPTY:
        _set_size(content, max(len(content), position + len(data)))
        return 0
    if fate is _Fate.TORN:
        first = position // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES
        boundaries = range(first, position + len(data), SECTOR_BYTES)
        if not boundaries:
            return 0
        cut = rng.choice(boundaries) - position
        if rng.random() < 0.5:
            data = data[:cut]
        else:
            data, position = data[cut:], position + cut
    elif fate is _Fate.LOST:
        return 0
    if position > len(content):
        content += bytes(position - len(content))
    content[position : position + len(data)] = data
    return len(data)


def _set_size(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content += bytes(size - len(content))
