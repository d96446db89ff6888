"""A simulated disk as one process sees it: a `Disk` of `oncelog.runtime.disk`.

It behaves exactly as `SystemDisk` does. What that does in several system calls (`write_atomic`,
`remove_tree`, `mkdir`) is several changes here, so a process may die between any two. Operations
that run on the event loop take no virtual time, because synchronous code cannot wait; work in the
executor does.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from oncelog.core.limits import SIMULATED_OPEN_FILES_COUNT_MAX
from oncelog.runtime.disk import (
    DiskFile,
    DiskLock,
    FolderInUse,
    Lane,
    NotCached,
    StorageFailure,
)
from oncelog.runtime.file_place import FilePlace
from oncelog.runtime.open_files import OpenFiles
from oncelog.simulation.disk_device import Device, DeviceAccess, DiskOwner
from oncelog.simulation.disk_executor import Executor
from oncelog.simulation.disk_faults import FaultKind
from oncelog.simulation.disk_nodes import File, Folder, Node, os_error

__all__ = ["ProcessDisk"]

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

_NAMES, _WRITE = FaultKind.NAMES, FaultKind.WRITE
_FSYNC, _READ = FaultKind.FSYNC, FaultKind.READ

_CACHED_RATE = 0.7
"""How often what is read again is in memory; never while the disk is slow."""


@contextmanager
def _failing(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailure(operation, path, error) from error


class _OpenFile:
    """A `DiskFile`: an inode, which stays readable when its names are gone."""

    __slots__ = ("_file", "_view", "path")

    def __init__(self, view: ProcessDisk, file: File, path: str) -> None:
        self._view = view
        self._file: File | None = file
        self.path = path

    def pwrite(self, data: Buffer, position: int) -> None:
        try:
            self._view.write_file(self._file, self.path, data, position)
        except OSError as error:
            raise StorageFailure("write", self.path, error) from error

    def pread(self, size: int, position: int) -> bytes:
        try:
            return self._view.read_file(self._file, self.path, size, position)
        except OSError as error:
            raise StorageFailure("read", self.path, error) from error

    def pread_cached(self, size: int, position: int) -> bytes:
        if not self._view.is_cached():
            raise NotCached(self.path)
        return self.pread(size, position)

    def size(self) -> int:
        self._view.enter()
        with _failing("stat", self.path):
            if self._file is None:
                raise os_error(errno.EBADF)
            return len(self._file.data)

    def truncate(self, size: int) -> None:
        with _failing("truncate", self.path):
            self._view.truncate_file(self._file, self.path, size)

    def fsync(self) -> None:
        with _failing("fsync", self.path):
            self._view.sync_file(self._file, self.path)

    def close(self) -> None:
        self._file = None


class ProcessDisk(DeviceAccess):
    """The disk of its machine as one process sees it, with an executor; a `Disk`."""

    __slots__ = (
        "_executor",
        "_rng",
        "_temporary_suffix",
        "_tree",
        "files",
        "loop_operations_count",
        "number",
    )

    def __init__(self, device: Device, process: DiskOwner, number: int, rng: random.Random) -> None:
        super().__init__(device, process)
        self.number = number
        self.files = OpenFiles(SIMULATED_OPEN_FILES_COUNT_MAX)
        self.loop_operations_count = 0
        """Those that the event loop asked for, and was held up by."""
        self._tree = device.tree
        self._rng = rng
        self._temporary_suffix = f".{number}.tmp"
        self._executor = Executor(process, lambda: device.faults.delay_s(rng))

    def enter(self) -> None:
        """Count who asked."""
        super().enter()
        if not self._executor.is_working:
            self.loop_operations_count += 1

    def is_cached(self) -> bool:
        """Whether what is about to be read is in memory."""
        return not self.device.faults.slow and self._rng.random() < _CACHED_RATE

    # --- names

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading and writing."""
        with _failing("open", path):
            return _OpenFile(self, self._open(path, create=create), path)

    def exists(self, path: str) -> bool:
        """Whether a file or folder of that name is there."""
        self.enter()
        try:
            return self._tree.find(path) is not None
        except NotADirectoryError:
            return False

    def usage(self, path: str) -> tuple[int, int] | None:
        """All paths are on one file system."""
        self.enter()
        device = self.device
        return device.capacity_bytes, max(0, device.capacity_bytes - device.used_bytes())

    def is_dir(self, path: str) -> bool:
        """Whether it is a folder."""
        self.enter()
        try:
            return isinstance(self._tree.find(path), Folder)
        except NotADirectoryError:
            return False

    def modified_ms(self, path: str) -> int:
        """Wall time of the last write, by the clock of the process that wrote."""
        self.enter()
        with _failing("stat", path):
            node = self._tree.find(path)
            if not isinstance(node, File):
                raise os_error(errno.ENOENT, path)
            return node.modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set that time. A loss of power does not take it."""
        self.enter()
        with _failing("stat", path):
            node = self._tree.find(path)
            if not isinstance(node, File):
                raise os_error(errno.ENOENT, path)
            node.modified_ms = time_ms

    def place_of(self, path: str) -> FilePlace | None:
        """The number of the inode, and of the boot of the machine: a loss of power ends one."""
        self.enter()
        with _failing("stat", path):
            node = self._tree.find(path)
            if not isinstance(node, File):
                return None
            boot_id = f"boot {self.device.boots_count}"
            return FilePlace(boot_id, 1, self._tree.number_of(node), is_local=True)

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted."""
        with _failing("list", path):
            self.enter()
            node = self._tree.find(path)
            if not isinstance(node, Folder):
                raise os_error(errno.ENOENT if node is None else errno.ENOTDIR, path)
            if self.device.faults.armed:
                self.device.faults.strike(_READ, path)
            return sorted(node.names)

    def mkdir(self, path: str) -> None:
        """Make a folder and its missing parents, each a change of its own."""
        with _failing("create", path):
            self.enter()
            above = path.rstrip("/")
            missing = []
            while (node := self._find_or_none(above)) is None:
                missing.append(above)
                above = os.path.dirname(above)
            if not isinstance(node, Folder):
                if missing:
                    raise os_error(errno.ENOTDIR, missing[-1])
                raise os_error(errno.EEXIST, path)
            for each in reversed(missing):
                folder, name = self._tree.place(each)
                self.before(_NAMES, "mkdir", each, growth=1)
                self._tree.link(folder, name, Folder(), "mkdir")
                self.after("mkdir", each)

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing a file at `target`."""
        with _failing("rename", source):
            self._rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file; harmless when it is gone already."""
        with _failing("remove", path):
            if (found := self._look_up(path)) is None:
                return
            folder, name, node = found
            if isinstance(node, Folder):
                raise os_error(errno.EISDIR, path)
            self._unlink(folder, name, "remove", path)

    def remove_tree(self, path: str) -> None:
        """Remove a folder and all in it, children first, each a change of its own."""
        with _failing("remove", path):
            if (found := self._look_up(path)) is None:
                return
            folder, name, node = found
            if isinstance(node, File):
                raise os_error(errno.ENOTDIR, path)
            self._empty(node, path)
            self._unlink(folder, name, "rmdir", path)

    def sync_dir(self, path: str) -> None:
        """Make the names in this folder survive a loss of power."""
        with _failing("fsync", path):
            self.enter()
            node = self._tree.find(path)
            if node is None:
                raise os_error(errno.ENOENT, path)
            if isinstance(node, File):
                self.sync_file(node, path)
                return
            self.before(_FSYNC, "sync_dir", path)
            self._tree.sync(node)
            self.after("sync_dir", path)

    def lock(self, path: str) -> DiskLock:
        """Take the lock file `path`. Raises `FolderInUse` while a living process holds it."""
        with _failing("open", path):
            file = self._open(path, create=True)
        lock = self.device.lock(file, self.process)
        if lock is None:
            folder = os.path.dirname(path) or "."
            raise FolderInUse(f"the log directory {folder} is in use by another broker")
        return lock

    # --- whole files

    def read(self, path: str) -> bytes | None:
        """A whole small file, or None when there is none."""
        with _failing("read", path):
            self.enter()
            node = self._tree.find(path)
            if node is None:
                return None
            if isinstance(node, Folder):
                raise os_error(errno.EISDIR, path)
            if self.device.faults.armed:
                self.device.faults.strike(_READ, path)
            return bytes(node.data)

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        """Temp file, write, (fsync), rename, (sync of the folder), each a change of its own."""
        temporary = path + self._temporary_suffix
        with _failing("write", path):
            file = self._open(temporary, create=True)
            if file.data:
                self.truncate_file(file, temporary, 0)
            if data:
                self.write_file(file, temporary, data, 0)
            if sync:
                self.sync_file(file, temporary)
            self._rename(temporary, path)
        if sync:
            self.sync_dir(os.path.dirname(path) or ".")

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        """Run blocking work later, as one unit; see `Executor`.

        When the process dies in it, this never returns.
        """
        return await self._executor.run(work, lane)

    # --- operations on an inode, for open files and for `write_atomic`

    def write_file(self, file: File | None, path: str, data: Buffer, position: int) -> None:
        """As pwrite. Raises `OSError`."""
        self.enter()
        if file is None or position < 0:
            raise os_error(errno.EBADF if file is None else errno.EINVAL)
        size = len(data)
        growth = position + size - len(file.data) if size else 0
        if self.kill_at is not None or self.device.faults.armed:

            def tear(length: int) -> None:
                file.write(memoryview(data)[:length], position)
                self.note("write", path, length)

            self.before(_WRITE, "write", path, size, growth, tear)
        else:
            self.before(_WRITE, "write", path, size, growth)
        file.write(data, position)
        file.modified_ms = self.process.clock.now_ms()
        if self.kill_at is not None:
            self.after("write", path)

    def read_file(self, file: File | None, path: str, size: int, position: int) -> bytes:
        """As pread. Raises `OSError`."""
        self.enter()
        if file is None or position < 0:
            raise os_error(errno.EBADF if file is None else errno.EINVAL)
        if self.device.faults.armed:
            self.device.faults.strike(_READ, path)
        return bytes(memoryview(file.data)[position : position + size])

    def truncate_file(self, file: File | None, path: str, size: int) -> None:
        """As ftruncate. Raises `OSError`."""
        self.enter()
        if file is None or size < 0:
            raise os_error(errno.EBADF if file is None else errno.EINVAL)
        self.before(_WRITE, "truncate", path, size, size - len(file.data))
        file.truncate(size)
        file.modified_ms = self.process.clock.now_ms()
        self.after("truncate", path)

    def sync_file(self, file: File | None, path: str) -> None:
        """As fsync; harmless when it is closed. Raises `OSError`."""
        self.enter()
        if file is None:
            return
        self.before(_FSYNC, "fsync", path, tear=lambda _: file.drop_unsynced())
        file.sync()
        self.after("fsync", path)

    # --- the parts of these operations

    def _open(self, path: str, *, create: bool) -> File:
        self.enter()
        folder, name = self._tree.place(path)
        node = folder.names.get(name)
        if isinstance(node, Folder):
            raise os_error(errno.EISDIR, path)
        if node is not None:
            return node
        if not create:
            raise os_error(errno.ENOENT, path)
        self.before(_NAMES, "create", path, growth=1)
        file = File()
        file.modified_ms = self.process.clock.now_ms()
        self._tree.link(folder, name, file, "create")
        self.after("create", path)
        return file

    def _look_up(self, path: str) -> tuple[Folder, str, Node] | None:
        """The folder that holds `path`, its name there, and what it is; None if it is gone."""
        self.enter()
        try:
            folder, name = self._tree.place(path)
        except FileNotFoundError:
            return None
        node = folder.names.get(name)
        return None if node is None else (folder, name, node)

    def _rename(self, source: str, target: str) -> None:
        self.enter()
        try:
            folder, name = self._tree.place(source)
            new_folder, new_name = self._tree.place(target)
        except OSError as error:
            raise os_error(error.errno or errno.EIO, source, target) from None
        node, replaced = folder.names.get(name), new_folder.names.get(new_name)
        number = 0
        if node is None:
            number = errno.ENOENT
        elif isinstance(node, Folder) and _holds(node, new_folder):
            number = errno.EINVAL
        elif isinstance(replaced, Folder) and _holds(replaced, folder):
            number = errno.ENOTEMPTY
        elif node is replaced:
            return
        elif isinstance(node, Folder) and isinstance(replaced, File):
            number = errno.ENOTDIR
        elif isinstance(node, File) and isinstance(replaced, Folder):
            number = errno.EISDIR
        elif isinstance(replaced, Folder) and replaced.names:
            number = errno.ENOTEMPTY
        if number:
            raise os_error(number, source, target)
        self.before(_NAMES, "rename", source)
        self._tree.move(folder, name, new_folder, new_name)
        self.after("rename", source)

    def _unlink(self, folder: Folder, name: str, operation: str, path: str) -> None:
        self.before(_NAMES, operation, path)
        self._tree.unlink(folder, name, operation)
        self.after(operation, path)

    def _empty(self, folder: Folder, path: str) -> None:
        for name, node in sorted(folder.names.items()):
            if isinstance(node, Folder):
                self._empty(node, f"{path}/{name}")
        for name, node in sorted(folder.names.items(), key=_files_first):
            operation = "rmdir" if isinstance(node, Folder) else "remove"
            self.enter()
            self._unlink(folder, name, operation, f"{path}/{name}")

    def _find_or_none(self, path: str) -> Node | None:
        try:
            return self._tree.find(path)
        except NotADirectoryError:
            return None


def _holds(folder: Folder, sought: Folder) -> bool:
    """Whether `sought` is this folder or somewhere in it."""
    return folder is sought or any(
        _holds(node, sought) for node in folder.names.values() if isinstance(node, Folder)
    )


def _files_first(entry: tuple[str, Node]) -> tuple[bool, str]:
    return isinstance(entry[1], Folder), entry[0]
