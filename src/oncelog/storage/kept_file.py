"""A log file that stays open, but may be closed at any moment to limit open files.

`OpenFiles` closes it, from any thread, and the next use opens it again; a reader keeps the
descriptor it began with, which closes with its last user. Only this module opens and closes `.log`
files, and the cleaner, which reads sealed ones through its own descriptors.

A file with written bytes that no fsync has covered is not closed. The kernel reports a failed write
to descriptors that are open at the time; if none is, it may forget the failure together with the
bytes, and the next fsync reports success (D12). So where no other file can be closed, such a file
is synced first, and a failure of that sync is stored for the next flush.
"""

from collections.abc import Callable

from oncelog.runtime.disk import Disk, DiskFile, NotCached, StorageFailure

__all__ = ["KeptFile", "Pread"]

Pread = Callable[[int, int], bytes | bytearray]
"""Reads (size, position)."""


class KeptFile:
    """A `.log` file; it implements `oncelog.runtime.open_files.FileHolder`."""

    __slots__ = ("_disk", "_failure", "held", "path", "recently_used", "unsynced", "written")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._failure: StorageFailure | None = None
        self.path = path
        self.held: DiskFile | None = None
        """The open file, if it is open. Take it once: it may be None the next time."""
        self.recently_used = False
        self.unsynced = True
        """Whether it may have bytes that no fsync has covered, of any process."""
        self.written = False
        """Whether this process wrote such bytes; set it before the file is taken to write."""

    @property
    def file(self) -> DiskFile:
        """The file, opened if it is not open."""
        file = self.held
        if file is None:
            file = self.held = self._disk.open(self.path)
            self._disk.files.opened(self)
        self.recently_used = True
        return file

    def create(self) -> DiskFile:
        """Open it; make it if it is not there."""
        file = self.held = self._disk.open(self.path, create=True)
        self._disk.files.opened(self)
        return file

    def reader(self, *, cached_only: bool) -> Pread:
        """Return a reader. A cached one raises `NotCached` for bytes that are not in memory."""
        if not cached_only:
            return self.file.pread
        file = self.held
        if file is None:
            raise NotCached(self.path)
        self.recently_used = True
        return file.pread_cached

    # ---- closing ----

    def release(self) -> None:
        """Close the descriptor unless it is still needed for a sync."""
        if self.let_go():
            self._disk.files.closed(self)

    def let_go(self, *, sync: bool = False) -> bool:
        """See `FileHolder.let_go`."""
        file, self.held = self.held, None
        # A writer sets `written` and then takes the file. So either it has seen that there is none
        # and opens its own, or `written` is seen here.
        if file is not None and self.written:
            if sync:
                self._sync_now(file)
            if self.written:
                self.held = file
                return False
        return True

    def _sync_now(self, file: DiskFile) -> None:
        self.written = False
        try:
            file.fsync()
        except StorageFailure as failure:
            self._failure = failure
            self.written = True

    def close(self) -> None:
        """Close the descriptor without a sync: no remaining byte has to be durable."""
        self.held = None
        self._disk.files.closed(self)

    # ---- syncing ----

    def sync_plan(self) -> Callable[[], None]:
        """Return a function that syncs all written bytes. It blocks and may raise `StorageFailure`.

        The function is made under the log's lock and runs without it; those of one file run one
        after the other. A failed fsync is final: no later one asks the kernel again.
        """
        held, is_needed = self.held, self.unsynced
        self.unsynced = self.written = False

        def sync() -> None:
            if self._failure is not None:
                raise self._failure
            if not is_needed:
                return
            # What this process wrote is open still; for what an earlier one wrote it is opened.
            file = self.file if held is None else held
            try:
                file.fsync()
            except StorageFailure as failure:
                self._failure = failure
                raise

        return sync
