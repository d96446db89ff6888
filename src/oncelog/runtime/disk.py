"""Files and folders, and the executor for the work that blocks.

`Disk` is the storage package's whole interface to files; `SystemDisk` implements it with the
machine's file system, the simulation with one in memory that loses unsynced bytes (D3). It knows
nothing of logs or records.

Rules that keep INV-9:

- Every failure of the operating system surfaces as `StorageFailure`. Its caller must take the
  folder off line and must not retry an fsync: after a failed one the kernel may have dropped the
  dirty pages and would report success (D12).
- `write_atomic` is temp file, (fsync), rename: a reader finds the old content or the new, never a
  mixture.
- A file that was removed stays readable through the `DiskFile`s that are open on it, until the last
  reference goes. So a reader on the event loop is safe from retention in the executor, without a
  lock around its reads, and one in the executor from `OpenFiles`.
- Each kind of work in the executor has a lane with its own threads, so that an acknowledgement that
  waits for an fsync does not queue behind the removal of files.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Final, Protocol, TypeVar

from oncelog.core.errors import ErrorCode, OncelogError
from oncelog.core.limits import DISK_EXECUTOR_THREAD_COUNT
from oncelog.runtime.file_place import FilePlace, system_place
from oncelog.runtime.open_files import OpenFiles, log_files_count_max
from oncelog.runtime.process_lock import ProcessLock

__all__ = [
    "Disk",
    "DiskFile",
    "DiskLock",
    "FolderInUse",
    "Lane",
    "NotCached",
    "StorageFailure",
    "SystemDisk",
]

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

_REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})


class StorageFailure(OncelogError):  # noqa: N818 - names what happened to the disk
    """The disk refused an operation or failed: the log directory must go off line.

    `code` is the error for clients.
    """

    code = ErrorCode.kafka_storage_error

    def __init__(self, operation: str, path: str, cause: BaseException | str) -> None:
        reason = (cause.strerror or cause) if isinstance(cause, OSError) else cause
        super().__init__(f"cannot {operation} {path}: {reason}")
        self.operation = operation
        self.path = path
        self.missing = isinstance(cause, FileNotFoundError)
        """Whether the failure is only that the file does not exist."""
        self.refused = isinstance(cause, OSError) and cause.errno in _REFUSALS
        """Whether the disk works, but is full, or the process has no file descriptor left."""


class NotCached(OncelogError):  # noqa: N818 - names a state of the file
    """The bytes may not be in memory: reading them blocks, so the executor has to do it."""


class Lane(Enum):
    """The purpose of work in the executor. Each lane has its own threads."""

    UPKEEP = "upkeep"
    """Recovery, retention, compaction, checkpoints, creating and removing folders."""
    SYNC = "sync"
    """Fsyncs that acknowledgements wait for."""
    READ = "read"
    """Reads that fetches, lookups by time and loading coordinators wait for."""


class FolderInUse(OncelogError):  # noqa: N818 - names a state of the folder
    """Another process holds the lock of this folder."""


class DiskFile(Protocol):
    """An open file, addressed by position; it has no cursor of its own."""

    path: str

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position` (bytes).

        Raises `StorageFailure`; part of it may have been written.
        """
        ...

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; less only at the end of the file."""
        ...

    def pread_cached(self, size: int, position: int) -> bytes | bytearray:
        """Like `pread`, for bytes in memory. Raises `NotCached` where that is not known."""
        ...

    def size(self) -> int:
        """Length in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Cut (or extend with zeros) to `size` bytes."""
        ...

    def fsync(self) -> None:
        """Return when what was written before the call survives a loss of power."""
        ...

    def close(self) -> None:
        """Close; harmless when closed already."""
        ...


class DiskLock(Protocol):
    """Holds a folder against other processes until released or until this process ends."""

    def release(self) -> None:
        """Release the lock."""
        ...


class Disk(Protocol):
    """A file system and an executor.

    Paths are absolute or relative to the process, with '/' between parts.
    """

    files: OpenFiles
    """The files that stay open for long on this disk."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading and writing. Without `create` a missing file is a `StorageFailure`."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or folder of that name is there."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether it is a folder."""
        ...

    def modified_ms(self, path: str) -> int:
        """Wall time at which the file was last written."""
        ...

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the time of the file's last write, which the next write replaces."""
        ...

    def place_of(self, path: str) -> FilePlace | None:
        """Return where a file is, by which a copy is told apart; None where there is none."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a folder and its missing parents; harmless when it is there."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing a file at `target`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; harmless when it is gone already."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a folder and all in it; harmless when it is gone already."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return a whole small file, or None when there is none."""
        ...

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replace the file's content through a temp file and a rename.

        `sync` makes it survive a loss of power.
        """
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in this folder survive a loss of power."""
        ...

    def usage(self, path: str) -> tuple[int, int] | None:
        """Return total and usable bytes of the file system of `path`; None if unknown."""
        ...

    def lock(self, path: str) -> DiskLock:
        """Take the lock file `path` for this process. Raises `FolderInUse`."""
        ...

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        """Run blocking work off the event loop."""
        ...


_READ_CACHED: Final[int] = getattr(os, "RWF_NOWAIT", 0)
"""Linux only: read what is in the page cache, fail with EAGAIN rather than wait for a device."""

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


@contextlib.contextmanager
def _failing(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailure(operation, path, error) from error


class _SystemFile:
    """A descriptor.

    It closes with its last reference, so that a reader never uses a number that was reused.
    """

    __slots__ = ("_close_lock", "_descriptor", "_syncs", "path")

    def __init__(self, descriptor: int, path: str, *, syncs: bool) -> None:
        self._descriptor = descriptor
        self._syncs = syncs
        self.path = path
        # fsync runs in the executor while the loop may close: the number must stay ours meanwhile.
        self._close_lock = threading.Lock()

    def pwrite(self, data: Buffer, position: int) -> None:
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written != len(data):
                view = memoryview(data)
                while written < len(view):
                    count = os.pwrite(self._descriptor, view[written:], position + written)
                    if count == 0:
                        raise OSError("wrote nothing")
                    written += count
        except OSError as error:
            raise StorageFailure("write", self.path, error) from error

    def pread(self, size: int, position: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size or not data:
                return data
            # A short read means the end of the file, a signal, or Linux's limit of 2 GiB per call.
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(self._descriptor, size - got, position + got)):
                parts.append(data)
                got += len(data)
        except OSError as error:
            raise StorageFailure("read", self.path, error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pread_cached(self, size: int, position: int) -> bytes | bytearray:
        if not _READ_CACHED:
            raise NotCached(self.path)
        buffer = bytearray(size)
        try:
            count = os.preadv(self._descriptor, [buffer], position, _READ_CACHED)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                raise NotCached(self.path) from None
            raise StorageFailure("read", self.path, error) from error
        if count == size:
            return buffer
        # The end of the file, or of its cached part: a read in the executor decides.
        raise NotCached(self.path)

    def size(self) -> int:
        with _failing("stat", self.path):
            return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        with _failing("truncate", self.path):
            os.ftruncate(self._descriptor, size)

    def fsync(self) -> None:
        with self._close_lock, _failing("fsync", self.path):
            if self._descriptor >= 0 and self._syncs:
                os.fsync(self._descriptor)

    def close(self) -> None:
        with self._close_lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class SystemDisk:
    """The machine's file system, with a small pool of threads per lane for blocking work.

    `files_count_max` limits the files that stay open; it follows from the process's limit. Without
    `syncs` nothing waits for the device: for files that are removed when this process ends.
    """

    def __init__(self, files_count_max: int | None = None, *, syncs: bool = True) -> None:
        self.syncs = syncs
        self._executors: dict[Lane, ThreadPoolExecutor] = {}
        if files_count_max is None:
            self.files = OpenFiles(log_files_count_max(), self._close_files)
        else:
            self.files = OpenFiles(files_count_max)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading and writing; descriptors are not inherited by child processes."""
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        with _failing("open", path):
            return _SystemFile(self._descriptor(path, flags), path, syncs=self.syncs)

    def _descriptor(self, path: str, flags: int) -> int:
        """Open as `os.open`; when the process has no descriptor left, log files are closed."""
        flags |= os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS or not self.files.close_some():
                raise
        return os.open(path, flags, 0o644)

    def exists(self, path: str) -> bool:
        """Whether a file or folder of that name is there."""
        return os.path.lexists(path)

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted."""
        with _failing("list", path):
            return sorted(os.listdir(path))

    def is_dir(self, path: str) -> bool:
        """Whether it is a folder."""
        return os.path.isdir(path)

    def modified_ms(self, path: str) -> int:
        """Return the wall time of the last write, as the file system records it."""
        with _failing("stat", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the time of the last write."""
        with _failing("stat", path):
            os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def place_of(self, path: str) -> FilePlace | None:
        """Return where a file is, by its boot, device and inode."""
        with _failing("stat", path):
            return system_place(path)

    def mkdir(self, path: str) -> None:
        """Make a folder and its missing parents."""
        with _failing("create", path):
            os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing a file at `target`."""
        with _failing("rename", source):
            os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file; harmless when it is gone already."""
        with _failing("remove", path), contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove a folder and all in it, children first."""
        with _failing("remove", path):
            for folder, folders, files in os.walk(path, topdown=False):
                for name in files:
                    os.remove(os.path.join(folder, name))
                for name in folders:
                    os.rmdir(os.path.join(folder, name))
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)

    def read(self, path: str) -> bytes | None:
        """Return a whole small file, or None when there is none."""
        with _failing("read", path):
            try:
                with open(path, "rb", opener=self._descriptor) as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        """Temp file, (fsync), rename, (fsync of the folder)."""
        # One name per thread: the loop and the executor may replace the same file at once.
        temporary = f"{path}.{threading.get_ident()}.tmp"
        with _failing("write", path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            descriptor = self._descriptor(temporary, flags)
            file = _SystemFile(descriptor, path, syncs=self.syncs)
            try:
                file.pwrite(data, 0)
                if sync:
                    file.fsync()
            finally:
                file.close()
            os.replace(temporary, path)
        if sync:
            self.sync_dir(os.path.dirname(path) or ".")

    def sync_dir(self, path: str) -> None:
        """Fsync of the folder itself."""
        if not self.syncs:
            return
        with _failing("fsync", path):
            descriptor = self._descriptor(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def usage(self, path: str) -> tuple[int, int] | None:
        """Return total and usable bytes, as `df` does."""
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            return None
        return usage.total, usage.free

    def lock(self, path: str) -> DiskLock:
        """An advisory lock that the kernel drops when the process ends, however it ends."""
        with _failing("lock", path):
            lock = ProcessLock.take(path)
        if lock is None:
            folder = os.path.dirname(path) or "."
            raise FolderInUse(f"the log directory {folder} is in use by another broker")
        return lock

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        """Run blocking work in this disk's threads."""
        return await asyncio.get_running_loop().run_in_executor(self._executor(lane), work)

    def _executor(self, lane: Lane) -> ThreadPoolExecutor:
        executor = self._executors.get(lane)
        if executor is None:
            name = f"oncelog-{lane.value}"
            executor = self._executors[lane] = ThreadPoolExecutor(DISK_EXECUTOR_THREAD_COUNT, name)
        return executor

    def _close_files(self, work: Callable[[], None]) -> None:
        self._executor(Lane.UPKEEP).submit(work)

    def close(self) -> None:
        """Wait for the work in the executor and end its threads."""
        for executor in self._executors.values():
            executor.shutdown(wait=True)
        self._executors.clear()
