"""`MemoryStore`: the metadata store in memory, for tests and for brokers of one process.

Brokers may share one, also from several threads, each with an event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from oncelog.metadata.state import StoreState
from oncelog.metadata.store import Changes, Check, Stored, Write
from oncelog.metadata.waiting import Waiters, wait_for

__all__ = ["MemoryStore"]


class MemoryStore:
    """The metadata in memory; see `MetadataStore`."""

    def __init__(self) -> None:
        self._state = StoreState()
        # Held for one call of the state, which never waits.
        self._lock = threading.Lock()
        self._waiters = Waiters()

    async def get(self, path: str) -> Stored | None:
        """See `MetadataStore.get`."""
        with self._lock:
            return self._state.get(path)

    async def list(self, prefix: str) -> dict[str, Stored]:
        """See `MetadataStore.list`."""
        with self._lock:
            return self._state.list(prefix)

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        """See `MetadataStore.write_all`."""
        with self._lock:
            self._state.write_all(writes, checks, fence)
        self._waiters.wake()

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        """See `MetadataStore.changes`."""
        if wait_ms > 0:
            with self._waiters.joined() as changed:
                if self._changes(after_revision).revision <= after_revision:
                    await wait_for(changed, wait_ms / 1000)
        return self._changes(after_revision)

    async def close(self) -> None:
        """Do nothing: another broker may still use it."""

    def _changes(self, after_revision: int) -> Changes:
        with self._lock:
            return self._state.changes(after_revision)
