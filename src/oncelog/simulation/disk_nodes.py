"""Files and folders in memory, with the changes of each since its last sync.

A name in a folder refers to a file or a folder, as a directory entry refers to an inode; a removed
file exists as long as a process holds it open. All processes see the newest state at once (`data`,
`names`); `changes` stores how to undo them after a loss of power. Like a kernel that writes back
old pages, a node drops the older half of its changes when there are too many: those count as
synced. This module knows no process, fault or randomness.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import count

from oncelog.core.limits import (
    SIMULATION_OVERWRITTEN_BYTES_MAX,
    SIMULATION_UNSYNCED_CHANGES_COUNT_MAX,
)

__all__ = ["TRUNCATION", "Change", "File", "Folder", "NameChange", "Node", "Tree", "os_error"]

Buffer = bytes | bytearray | memoryview

Change = tuple[int, int, bytes, int]
"""A write: position, length, the bytes it replaced, the file's size before. If the length is
`TRUNCATION`, a change of size: the new size, that constant, the bytes cut off, the size before.
"""

TRUNCATION = -1


def os_error(number: int, path: str | None = None, target: str | None = None) -> OSError:
    """The error that the operating system would give, of the right subclass."""
    if path is None:
        return OSError(number, os.strerror(number))
    return OSError(number, os.strerror(number), path, None, target)


class File:
    """An inode of bytes."""

    __slots__ = ("_overwritten_bytes", "changes", "data", "modified_ms", "number", "settled")

    def __init__(self, data: Buffer = b"") -> None:
        self.data = bytearray(data)
        self.changes: list[Change] = []
        """Since the last sync, oldest first."""
        self.settled: list[tuple[Change, bool]] = []
        """Earlier changes whose survival (the bool) is decided, since the system dropped unsynced
        bytes.
        """
        self.modified_ms = 0
        """Wall time of the last change, as the process that made it saw it."""
        self.number = 0
        """The number of the inode; 0 until it is asked for."""
        self._overwritten_bytes = 0

    def write(self, data: Buffer, position: int) -> None:
        """Write at a position, also beyond the end; a gap is filled with zeros."""
        content = self.data
        size = len(content)
        length = len(data)
        if position == size:
            content += data
            self.changes.append((position, length, b"", size))
        elif length:
            old = bytes(content[position : position + length])
            if position > size:
                content += bytes(position - size)
            content[position : position + length] = data
            self.changes.append((position, length, old, size))
            self._overwritten_bytes += len(old)
        if (
            len(self.changes) > SIMULATION_UNSYNCED_CHANGES_COUNT_MAX
            or self._overwritten_bytes > SIMULATION_OVERWRITTEN_BYTES_MAX
        ):
            self._write_back()

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros."""
        content = self.data
        before = len(content)
        if size == before:
            return
        old = bytes(content[size:])
        if size < before:
            del content[size:]
        else:
            content += bytes(size - before)
        self.changes.append((size, TRUNCATION, old, before))
        self._overwritten_bytes += len(old)
        if self._overwritten_bytes > SIMULATION_OVERWRITTEN_BYTES_MAX:
            self._write_back()

    def sync(self) -> None:
        """Make its content durable, except bytes that were dropped before."""
        if self.settled:
            self.settled.extend((change, True) for change in self.changes)
        self.changes.clear()
        self._overwritten_bytes = 0

    def drop_unsynced(self) -> None:
        """Drop unsynced bytes: they can be read, but never reach the disk.

        This happens after a failed fsync: the kernel marks the pages as clean.
        """
        self.settled.extend((change, False) for change in self.changes)
        self.changes.clear()
        self._overwritten_bytes = 0

    def make_durable(self) -> None:
        """Make all its bytes durable, even dropped ones."""
        self.settled.clear()
        self.sync()

    def copy(self) -> File:
        """The same bytes with the same changes."""
        other = File(self.data)
        other.changes = list(self.changes)
        other.settled = list(self.settled)
        other._overwritten_bytes = self._overwritten_bytes
        other.modified_ms = self.modified_ms
        other.number = self.number
        return other

    def untouched_size(self) -> int:
        """Return the length of the prefix that no unsynced change has touched."""
        changes = [*(change for change, _ in self.settled), *self.changes]
        return min([len(self.data), *(min(change[0], change[3]) for change in changes)])

    def _write_back(self) -> None:
        oldest = self.changes[: max(1, len(self.changes) // 2)]
        if self.settled:
            self.settled.extend((change, True) for change in oldest)
        del self.changes[: len(oldest)]
        self._overwritten_bytes = sum(len(change[2]) for change in self.changes)


class NameChange:
    """One atomic change of the names in a folder."""

    __slots__ = ("before", "crosses", "number", "operation")

    def __init__(
        self,
        number: int,
        operation: str,
        before: tuple[tuple[str, Node | None], ...],
        crosses: bool = False,
    ) -> None:
        self.number = number
        """Its place among all changes of names on this disk."""
        self.operation = operation
        self.before = before
        """The names it changed, and the nodes that they had before."""
        self.crosses = crosses
        """Whether it is one half of a rename into another folder; both halves have one number."""


class Folder:
    """An inode of names."""

    __slots__ = ("changes", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.changes: list[NameChange] = []
        """Since the last sync, oldest first."""


Node = File | Folder


class Tree:
    """All names from the root down. Paths are split at '/'; relative ones begin at the root."""

    __slots__ = ("_crossings", "_numbers", "root")

    def __init__(self) -> None:
        self.root = Folder()
        self._numbers = count(1)
        self._crossings: list[int] = []

    # --- finding

    def find(self, path: str) -> Node | None:
        """Return the node at the path, None if there is none. Raises `NotADirectoryError`."""
        node: Node = self.root
        for part in _parts(path):
            if type(node) is not Folder:
                raise os_error(errno.ENOTDIR, path)
            found = node.names.get(part)
            if found is None:
                return None
            node = found
        return node

    def place(self, path: str) -> tuple[Folder, str]:
        """The folder that holds the path's last name, and that name.

        Raises `FileNotFoundError` and `NotADirectoryError` for what is above it.
        """
        parts = _parts(path)
        if not parts:
            raise os_error(errno.EBUSY, path)
        folder: Node = self.root
        for part in parts[:-1]:
            found = folder.names.get(part) if type(folder) is Folder else None
            if found is None:
                number = errno.ENOENT if type(folder) is Folder else errno.ENOTDIR
                raise os_error(number, path)
            folder = found
        if type(folder) is not Folder:
            raise os_error(errno.ENOTDIR, path)
        return folder, parts[-1]

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Every file and folder but the root, by name, a folder before what is in it."""
        waiting = [("", self.root)]
        while waiting:
            path, folder = waiting.pop()
            below = []
            for name, node in sorted(folder.names.items()):
                yield f"{path}/{name}", node
                if type(node) is Folder:
                    below.append((f"{path}/{name}", node))
            waiting.extend(reversed(below))

    def number_of(self, file: File) -> int:
        """The number of a file's inode."""
        if not file.number:
            file.number = next(self._numbers)
        return file.number

    # --- changing

    def link(self, folder: Folder, name: str, node: Node, operation: str) -> None:
        """Give a new node a name that is free."""
        self._note(folder, operation, ((name, None),))
        folder.names[name] = node

    def unlink(self, folder: Folder, name: str, operation: str) -> None:
        """Remove a name."""
        self._note(folder, operation, ((name, folder.names[name]),))
        del folder.names[name]

    def move(self, source: Folder, name: str, target: Folder, new_name: str) -> None:
        """Rename a node, replacing one that has the new name."""
        node, replaced = source.names[name], target.names.get(new_name)
        if source is target:
            self._note(source, "rename", ((name, node), (new_name, replaced)))
        else:
            number = next(self._numbers)
            self._crossings.append(number)
            source.changes.append(NameChange(number, "rename", ((name, node),), True))
            target.changes.append(NameChange(number, "rename", ((new_name, replaced),), True))
        del source.names[name]
        target.names[new_name] = node

    def sync(self, folder: Folder) -> None:
        """Make the names in this folder durable."""
        self._sync_prefix(folder, len(folder.changes))

    def folders(self) -> list[Folder]:
        """Yield every folder that exists, or that a loss of power may restore."""
        found: dict[Folder, None] = {self.root: None}
        waiting = [self.root]
        while waiting:
            folder = waiting.pop()
            nodes: list[Node | None] = [node for _, node in sorted(folder.names.items())]
            nodes += [node for change in folder.changes for _, node in change.before]
            for node in nodes:
                if type(node) is Folder and node not in found:
                    found[node] = None
                    waiting.append(node)
        return list(found)

    def copy(self) -> Tree:
        """Return an independent copy with the same changes."""
        other = Tree()
        copies: dict[Node, Node] = {self.root: other.root}

        def copied(node: Node) -> Node:
            if node not in copies:
                copies[node] = node.copy() if isinstance(node, File) else Folder()
            return copies[node]

        for folder in self.folders():
            twin = copied(folder)
            assert isinstance(twin, Folder)
            twin.names = {name: copied(node) for name, node in folder.names.items()}
            for change in folder.changes:
                before = tuple((n, None if v is None else copied(v)) for n, v in change.before)
                twin.changes.append(
                    NameChange(change.number, change.operation, before, change.crosses)
                )
        other._crossings = list(self._crossings)
        other._numbers = count(next(self._numbers))
        return other

    def forget_changes(self) -> None:
        """Make the current names durable in all folders."""
        for folder in self.folders():
            folder.changes.clear()
        self._crossings.clear()

    def _note(
        self, folder: Folder, operation: str, before: tuple[tuple[str, Node | None], ...]
    ) -> None:
        changes = folder.changes
        changes.append(NameChange(next(self._numbers), operation, before))
        if len(changes) > SIMULATION_UNSYNCED_CHANGES_COUNT_MAX:
            self._sync_prefix(folder, len(changes) // 2)

    def _sync_prefix(self, folder: Folder, length: int) -> None:
        last = folder.changes[length - 1].number if length else 0
        del folder.changes[:length]
        barrier = max((number for number in self._crossings if number <= last), default=0)
        if not barrier:
            return
        # A rename between two folders is a barrier, as in a journal: if it survives, so do all
        # earlier changes, and none after it survives without it. So no file is lost between the
        # folders.
        self._crossings = [number for number in self._crossings if number > barrier]
        for other in self.folders():
            other.changes = [change for change in other.changes if change.number > barrier]


def _parts(path: str) -> list[str]:
    if "/." in path or path[:1] == ".":
        path = os.path.normpath(path)
    return [part for part in path.split("/") if part and part != "."]
