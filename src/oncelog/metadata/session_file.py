"""The file by which a session of `SqliteStore` shows that its process lives.

Beside the database are files with numbers, the slots. A session takes the first one that is
free, and locks it until it ends; the kernel frees the lock at the death of the process. In the file
are the session's id and, once it has company, its newest beat: a time of the monotonic clock that
all processes of one machine share. The file is written in place and never synced, as a restart of
the system ends the session anyway. Slots are used again, and never removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.core.cluster_limits import SQLITE_SESSIONS_COUNT_MAX
from oncelog.metadata.store import SessionId, StoreFailure
from oncelog.runtime.process_lock import ProcessLock

__all__ = ["SessionFile", "Sighting", "look_at"]

_WITHOUT_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_FIELDS: Final = 3
_SIZE_MAX: Final = 100


class Sighting(NamedTuple):
    """What another process sees of a slot."""

    is_there: bool
    is_locked: bool = False
    session_id: SessionId | None = None
    """None where the content cannot be read."""
    beat_ns: int | None = None
    """None before the first beat, and where the content cannot be read."""


class SessionFile:
    """The slot of one session of this process."""

    def __init__(self, slot: int, lock: ProcessLock, session_id: SessionId) -> None:
        self.slot = slot
        self._lock = lock
        # A beat comes from a thread of its own: the descriptor must not be closed beneath it.
        self._mutex = threading.Lock()
        self._session_id = session_id
        try:
            self._write(0)
        except OSError:
            lock.release()
            raise

    @classmethod
    def take(
        cls,
        store_path: str,
        session_id: SessionId,
        lock_file: Callable[[str], ProcessLock | None] = ProcessLock.take,
    ) -> SessionFile:
        """Take a free slot. Raises `StoreFailure` where that is impossible."""
        for slot in range(SQLITE_SESSIONS_COUNT_MAX):
            path = _path(store_path, slot)
            try:
                lock = lock_file(path)
                if lock is not None:
                    return cls(slot, lock, session_id)
            except OSError as error:
                text = f"{path} cannot be used for a session: {error.strerror}"
                if error.errno in _WITHOUT_LOCKS:
                    text += "; a metadata file needs a file system that has locks (flock)"
                raise StoreFailure(text) from error
        raise StoreFailure(f"{store_path} has {SQLITE_SESSIONS_COUNT_MAX} sessions already")

    def beat(self, now_ns: int) -> None:
        """Note the time of a beat, unless the slot is released. Raises `OSError`."""
        self._write(now_ns)

    def release(self) -> None:
        """Let others see that the session has ended. It may be called again."""
        with self._mutex:
            self._lock.release()

    def _write(self, beat_ns: int) -> None:
        text = f"{self._session_id} {beat_ns:020d}"
        with self._mutex:
            if self._lock.descriptor >= 0:
                os.pwrite(self._lock.descriptor, f"{text} {_checksum(text)}\n".encode(), 0)


def look_at(store_path: str, slot: int) -> Sighting:
    """Look at the slot of another session. Raises `OSError`."""
    try:
        descriptor = os.open(_path(store_path, slot), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return Sighting(is_there=False)
    try:
        try:
            # Shared, so that of two who look at once neither takes the other for the owner.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Sighting(True, True, *_parsed(os.pread(descriptor, _SIZE_MAX, 0)))
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return Sighting(is_there=True)
    finally:
        os.close(descriptor)


def _path(store_path: str, slot: int) -> str:
    return f"{store_path}-session-{slot}"


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _parsed(content: bytes) -> tuple[SessionId | None, int | None]:
    """Return session and beat; a reader may come in the middle of a write, or find anything."""
    line, _, _ = content.partition(b"\n")
    fields = line.decode("ascii", errors="replace").split()
    if len(fields) != _FIELDS or fields[2] != _checksum(f"{fields[0]} {fields[1]}"):
        return None, None
    beat_ns = int(fields[1])
    return SessionId(fields[0]), beat_ns if beat_ns > 0 else None
