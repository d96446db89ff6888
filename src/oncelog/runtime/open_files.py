"""Limits how many files are open at once.

The system limits the descriptors of a process, sockets included. `raise_limit` raises that to its
maximum; `OpenFiles` limits a broker's long-lived open files to a share of it. It knows nothing of
logs: the owner of an open file is a `FileHolder`, and may be asked to close it.

A descriptor through which unsynced bytes were written is not simply closed: while no descriptor is
open the kernel may forget that writing them back failed, and the next fsync would report success
(D12). Holders refuse to close such files; when no others are left, one is synced first.
"""

import resource
import threading
from itertools import islice
from typing import Protocol

from oncelog.core.limits import (
    DESCRIPTORS_COUNT_MAX,
    LOG_FILES_OPEN_COUNT_MIN,
    OPEN_FILES_LOOKED_AT_COUNT_MAX,
)

__all__ = ["FileHolder", "OpenFiles", "log_files_count_max", "raise_limit"]


def raise_limit() -> int:
    """Raise this process's limit of descriptors as far as the system allows; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    wanted = DESCRIPTORS_COUNT_MAX if hard == infinite else min(hard, DESCRIPTORS_COUNT_MAX)
    # Where the hard limit is infinite the system has another one (macOS: 10,240 by default).
    for limit in (wanted, 10_240):
        if soft == infinite or soft >= limit:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):
            continue
        break
    return _limit()


def log_files_count_max() -> int:
    """Return how many log files may be open: half of the limit, the rest is for sockets."""
    return max(_limit() // 2, LOG_FILES_OPEN_COUNT_MIN)


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_COUNT_MAX if soft == resource.RLIM_INFINITY else soft


class FileHolder(Protocol):
    """The owner of an open file."""

    recently_used: bool
    """Set at each use. `OpenFiles` clears it, and does not close a file that it finds set."""

    def let_go(self, *, sync: bool = False) -> bool:
        """Close the file; readers that use it continue.

        False when it has unsynced bytes, and stays open. With `sync` these are synced first; the
        holder raises a failure of that later. Called from any thread.
        """
        ...


class OpenFiles:
    """The open files, in the order of opening. Thread-safe."""

    __slots__ = ("_holders", "_lock", "count_max")

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self._holders: dict[FileHolder, None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: FileHolder) -> None:
        """Record that `holder` opened its file; close another if there are too many."""
        with self._lock:
            self._holders[holder] = None
            if len(self._holders) <= self.count_max:
                return
            unsynced = self._let_one_go(holder)
        # An fsync takes its time: others may open files meanwhile.
        if unsynced is not None and unsynced.let_go(sync=True):
            self.closed(unsynced)

    def closed(self, holder: FileHolder) -> None:
        """Record that `holder` closed its file itself."""
        with self._lock:
            self._holders.pop(holder, None)

    def close_some(self) -> bool:
        """Close half of the files, as the process has no descriptor left; False if none closed."""
        with self._lock:
            count = len(self._holders)
            for holder in list(islice(self._holders, (count + 1) // 2)):
                if holder.let_go():
                    del self._holders[holder]
            return len(self._holders) < count

    def _let_one_go(self, newest: FileHolder) -> FileHolder | None:
        """Close the first idle, synced file; else return a holder that has to be synced first."""
        unsynced = None
        # Two rounds: the first may find that each file was used since the last search.
        for _ in range(min(2 * len(self._holders), OPEN_FILES_LOOKED_AT_COUNT_MAX)):
            holder = next(iter(self._holders))
            del self._holders[holder]
            if holder is not newest and not holder.recently_used and holder.let_go():
                return None
            if holder is not newest and unsynced is None and not holder.recently_used:
                unsynced = holder
            holder.recently_used = False
            self._holders[holder] = None
        return unsynced
