"""`MemoryStore`: the metadata store in memory, for tests and for brokers of one process.

Brokers may share one, also from several threads, each with an event loop. `connection` gives a
broker a way of its own to the store, which can be cut.

No session ends by time, because a debugger or a slow machine would end it: `Session.close`,
`MemoryStore.expire`, `MemoryConnection.cut` and the close of a connection end sessions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from oncelog.metadata.state import StoreState
from oncelog.metadata.store import (
    Changes,
    Check,
    Session,
    SessionId,
    Stored,
    StoreFailure,
    Write,
)
from oncelog.metadata.waiting import Waiters, wait_for

__all__ = ["MemoryConnection", "MemoryStore"]

T = TypeVar("T")


class MemoryStore:
    """The metadata in memory; see `MetadataStore`."""

    write_limit = None

    def __init__(self) -> None:
        self._state = StoreState()
        # Held for one call of the state, which never waits.
        self._lock = threading.Lock()
        self._waiters = Waiters()

    def connection(self) -> MemoryConnection:
        """Return a `MetadataStore` on the same values that can be cut from them."""
        return MemoryConnection(self)

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

    async def open_session(self, timeout_ms: int) -> Session:
        """See `MetadataStore.open_session`. No time ends the session."""
        return self.begin_session(lambda: True)

    async def close(self) -> None:
        """Do nothing: another broker may still use it."""

    def expire(self, session_id: SessionId) -> bool:
        """End a session, as if its owner were silent for too long. False: it has ended before.

        Any thread may call it.
        """
        with self._lock:
            has_ended = self._state.end_session(session_id)
        self._waiters.wake()
        return has_ended

    def begin_session(self, can_learn: Callable[[], bool]) -> _MemorySession:
        """Begin a session whose owner knows of its end while `can_learn` is true."""
        with self._lock:
            session_id = self._state.open_session(0, 0)
        return _MemorySession(self, session_id, can_learn)

    def has_session(self, session_id: SessionId) -> bool:
        """Whether a session has not ended."""
        with self._lock:
            return self._state.is_alive(session_id)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once it is true; it is asked at each write and each end of a session."""
        while True:
            with self._waiters.joined() as changed:
                if condition():
                    return
                await changed

    def wake(self) -> None:
        """Have all that wait look again."""
        self._waiters.wake()

    def _changes(self, after_revision: int) -> Changes:
        with self._lock:
            return self._state.changes(after_revision)


class _MemorySession:
    """A session; see `Session`."""

    def __init__(
        self, store: MemoryStore, session_id: SessionId, can_learn: Callable[[], bool]
    ) -> None:
        self.session_id = session_id
        self._store = store
        self._can_learn = can_learn
        self._is_known_to_have_ended = False

    @property
    def is_alive(self) -> bool:
        """See `Session.is_alive`."""
        if self._can_learn() and not self._store.has_session(self.session_id):
            self._is_known_to_have_ended = True
        return not self._is_known_to_have_ended

    async def wait_ended(self) -> None:
        """See `Session.wait_ended`."""
        await self._store.wait_until(lambda: not self.is_alive)

    async def close(self) -> None:
        """See `Session.close`."""
        self._is_known_to_have_ended = True
        self._store.expire(self.session_id)


class MemoryConnection:
    """One broker's way to a `MemoryStore`; see `MetadataStore`. Any thread may cut and heal it."""

    write_limit = None

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._sessions: list[SessionId] = []
        self._is_cut = False
        self._is_closed = False

    def cut(self, *, ends_sessions: bool = True) -> None:
        """Have every call fail, those that wait too.

        The sessions end, as after their timeout; their owner knows of it when the cut is healed.
        """
        self._is_cut = True
        if ends_sessions:
            self._end_sessions()
        self._store.wake()

    def heal(self) -> None:
        """End a cut."""
        self._is_cut = False
        self._store.wake()

    async def get(self, path: str) -> Stored | None:
        """See `MetadataStore.get`."""
        return await self._call(self._store.get(path))

    async def list(self, prefix: str) -> dict[str, Stored]:
        """See `MetadataStore.list`."""
        return await self._call(self._store.list(prefix))

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        """See `MetadataStore.write_all`."""
        await self._call(self._store.write_all(writes, checks=checks, fence=fence))

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        """See `MetadataStore.changes`."""
        return await self._call(self._store.changes(after_revision, wait_ms=wait_ms))

    async def open_session(self, timeout_ms: int) -> Session:
        """See `MetadataStore.open_session`. No time ends the session."""
        self._fail_if_away()
        session = self._store.begin_session(lambda: not self._is_cut)
        self._sessions.append(session.session_id)
        try:
            # Another thread may have cut it meanwhile, and not seen this session.
            self._fail_if_away()
        except StoreFailure:
            self._store.expire(session.session_id)
            raise
        return session

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        self._is_closed = True
        self._end_sessions()

    def _end_sessions(self) -> None:
        for session_id in self._sessions:
            self._store.expire(session_id)
        self._sessions.clear()

    async def _call(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            self._fail_if_away()
        except StoreFailure:
            call.close()
            raise
        answer = await call
        self._fail_if_away()
        return answer

    def _fail_if_away(self) -> None:
        if self._is_closed:
            raise StoreFailure("the metadata store is closed")
        if self._is_cut:
            raise StoreFailure("the metadata store is out of reach")
