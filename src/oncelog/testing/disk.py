"""A disk on which a broker can be killed at a write: later writes fail.

Earlier writes remain, as after SIGKILL: the system has their bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.runtime.disk import DiskFile, SystemDisk

__all__ = ["ControlledDisk", "Killed"]

Buffer = bytes | bytearray | memoryview


class Killed(BaseException):
    """Ends what a killed broker was doing.

    It derives from `BaseException` so that no error handler of the broker catches it, as none
    would run in a killed process.
    """


class ControlledDisk(SystemDisk):
    """A `SystemDisk`. `watch`, if set, is called before and after each write."""

    def __init__(self, *, syncs: bool = True) -> None:
        super().__init__(syncs=syncs)
        self.is_dead = False
        self.watch: Callable[[str, Buffer, bool], None] | None = None
        """Called with the path, the bytes, and whether the write has yet to happen."""

    def check(self) -> None:
        """Raise `Killed` once the broker is dead."""
        if self.is_dead:
            raise Killed

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """See `SystemDisk.open`."""
        if create:
            self.check()
        return _ControlledFile(super().open(path, create=create), self)

    def mkdir(self, path: str) -> None:
        """See `SystemDisk.mkdir`."""
        self.check()
        super().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        """See `SystemDisk.rename`."""
        self.check()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        """See `SystemDisk.remove`."""
        self.check()
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        """See `SystemDisk.remove_tree`."""
        self.check()
        super().remove_tree(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        """See `SystemDisk.write_atomic`."""
        self.check()
        super().write_atomic(path, data, sync=sync)


class _ControlledFile:
    """A file of a `ControlledDisk`."""

    __slots__ = ("_disk", "_file", "close", "fsync", "path", "pread", "pread_cached", "size")

    def __init__(self, file: DiskFile, disk: ControlledDisk) -> None:
        self._file = file
        self._disk = disk
        self.path = file.path
        self.pread = file.pread
        self.pread_cached = file.pread_cached
        self.size = file.size
        self.fsync = file.fsync
        self.close = file.close

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write, unless the broker is dead, or is killed at this write."""
        disk = self._disk
        disk.check()
        if disk.watch is not None:
            disk.watch(self.path, data, True)
        self._file.pwrite(data, position)
        if disk.watch is not None:
            disk.watch(self.path, data, False)

    def truncate(self, size: int) -> None:
        """Truncate, unless the broker is dead."""
        self._disk.check()
        self._file.truncate(size)
