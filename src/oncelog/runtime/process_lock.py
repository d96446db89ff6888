"""`ProcessLock`: a lock on a file that the kernel frees at the end of the process that took it."""

from __future__ import annotations

import fcntl
import os

__all__ = ["ProcessLock"]


class ProcessLock:
    """An advisory lock on a whole file, also against others of the same process.

    A lock of `flock` belongs to the open file, which a forked child shares: there it is closed, so
    that no child holds the lock once this process is dead.
    """

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        """Of the file, for reading and writing; -1 once released."""
        _held.add(self)

    @classmethod
    def take(cls, path: str) -> ProcessLock | None:
        """Lock a file, which is created if it is missing; None: another has it locked.

        Raises `OSError`, also where the file system has no locks.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor)

    def release(self) -> None:
        """Unlock the file. It may be called again."""
        descriptor, self.descriptor = self.descriptor, -1
        _held.discard(self)
        if descriptor >= 0:
            # A child that was forked without Python's knowledge has it too: a close would not do.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


_held: set[ProcessLock] = set()


def _let_go_in_child() -> None:
    for lock in _held:
        os.close(lock.descriptor)
        lock.descriptor = -1
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)
