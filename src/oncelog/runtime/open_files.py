"""Limits how many files are open at once.

The system limits the descriptors of a process, sockets included. `raise_limit` raises that to its
maximum; `OpenFiles` limits a broker's long-lived open files to a share of it. It knows nothing of
logs: the owner of an open file is a `FileHolder`, and may be asked to close it.

A descriptor through which unsynced bytes were written is not simply closed: while no descriptor is
open the kernel may forget that writing them back failed, and the next fsync would report success
(D12). Holders refuse to close such files; when no others are left, one is synced first.

Files are closed in the background, so that a thread that opens one waits neither for a search nor
for a sync: for that a few more may be open than there should be. Only beyond those the opener
closes one itself, since no process has descriptors without end.
"""

import logging
import resource
import threading
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from oncelog.core.limits import (
    DESCRIPTORS_COUNT_MAX,
    LOG_FILES_OPEN_COUNT_MIN,
    OPEN_FILES_LOOKED_AT_COUNT_MAX,
    OPEN_FILES_LOOKED_AT_TOGETHER_COUNT_MAX,
)

__all__ = ["FileHolder", "OpenFiles", "log_files_count_max", "raise_limit"]

log = logging.getLogger(__name__)


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


TOO_MANY = (
    "more log files are in use than the %d that stay open: for each one that is opened another is"
    " synced and closed. This process may have %d descriptors; a broker needs twice as many as it"
    " has partitions (ulimit -n, LimitNOFILE)"
)

CLOSERS_COUNT_MAX = 3
"""How many threads close files at a time: one of a lane stays for other work."""

Background = Callable[[Callable[[], None]], object]
"""Starts work in another thread."""


class OpenFiles:
    """The open files, in the order of opening. Thread-safe.

    With `background` a quarter more than `count_max` may be open while it closes some, and it is
    said once that there are too many.
    """

    __slots__ = (
        "_background",
        "_closers_count",
        "_has_warned",
        "_holders",
        "_lock",
        "_spare_count",
        "count_max",
    )

    def __init__(self, count_max: int, background: Background | None = None) -> None:
        self.count_max = count_max
        self._background = background
        self._spare_count = 0 if background is None else count_max // 4
        self._closers_count = 0
        self._has_warned = background is None
        self._holders: dict[FileHolder, None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: FileHolder) -> None:
        """Record that `holder` opened its file; close another if there are too many."""
        with self._lock:
            self._holders[holder] = None
            over_count = len(self._holders) - self.count_max
            if over_count <= 0:
                return
            # The more there are to close, the more threads sync some at a time.
            begins = (
                self._background is not None
                and self._closers_count < CLOSERS_COUNT_MAX
                and self._closers_count * self._spare_count < CLOSERS_COUNT_MAX * over_count
            )
            is_first, self._has_warned = not self._has_warned, True
            self._closers_count += begins
            unsynced = None
            if over_count > self._spare_count:
                unsynced = self._let_one_go(holder, OPEN_FILES_LOOKED_AT_COUNT_MAX)
        if is_first:
            log.warning(TOO_MANY, self.count_max, _limit())
        if begins and self._background is not None:
            self._background(self._close_spare_ones)
        self._let_synced_go(unsynced)

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

    def _close_spare_ones(self) -> None:
        """Close files until there is room for some; called in the background."""
        room = self.count_max - self.count_max // 16
        fruitless_rounds = 0
        while fruitless_rounds < 2:
            with self._lock:
                before = len(self._holders)
                if before <= room:
                    break
                unsynced = self._let_one_go(None, OPEN_FILES_LOOKED_AT_TOGETHER_COUNT_MAX)
            self._let_synced_go(unsynced)
            # A file that was used since the last search, or cannot be synced, stays.
            fruitless_rounds = 0 if len(self) < before else fruitless_rounds + 1
        with self._lock:
            self._closers_count -= 1

    def _let_synced_go(self, holder: FileHolder | None) -> None:
        """Sync a file and close it. An fsync takes its time: others may open files meanwhile."""
        if holder is None:
            return
        self.closed(holder)
        if not holder.let_go(sync=True):
            with self._lock:
                self._holders[holder] = None

    def _let_one_go(self, newest: FileHolder | None, looks_max: int) -> FileHolder | None:
        """Close the first idle, synced file; else return a holder that has to be synced first."""
        unsynced = None
        # Two rounds: the first may find that each file was used since the last search.
        for _ in range(min(2 * len(self._holders), looks_max)):
            holder = next(iter(self._holders))
            del self._holders[holder]
            if holder is not newest and not holder.recently_used and holder.let_go():
                return None
            if holder is not newest and unsynced is None and not holder.recently_used:
                unsynced = holder
            holder.recently_used = False
            self._holders[holder] = None
        return unsynced
