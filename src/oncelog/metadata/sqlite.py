"""`SqliteStore`: the metadata store of the brokers of one machine, in one SQLite file.

SQLite blocks, so every call runs on one thread of its own, in order. Writes of this process wake
its feed at once; those of other processes are found by polling the highest revision, which costs
microseconds. Every write is synced: an id or a topic that was returned survives a power loss
(INV-11).
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import uuid4

from oncelog.core.limits import METADATA_POLL_MS
from oncelog.metadata import sqlite_tables
from oncelog.metadata.sqlite_tables import SessionRow
from oncelog.metadata.store import (
    Changes,
    Check,
    Session,
    SessionExpired,
    SessionId,
    Stored,
    StoreFailure,
    Write,
)
from oncelog.metadata.waiting import Waiters, wait_for

__all__ = ["SqliteStore"]

T = TypeVar("T")


class SqliteStore:
    """The metadata in a SQLite file; see `MetadataStore`.

    A missing file is created. Use it from one event loop. Without `syncs` a write returns before it
    survives a loss of power: for a file that is removed when this process ends.
    """

    write_limit = None

    def __init__(self, path: str, *, syncs: bool = True) -> None:
        self._path = path
        self._syncs = syncs
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="oncelog-metadata")
        self._connection: sqlite3.Connection | None = None
        self._waiters = Waiters()
        self._sessions: dict[SessionId, _SqliteSession] = {}
        self._closed = False

    async def get(self, path: str) -> Stored | None:
        """See `MetadataStore.get`."""
        return await self._run(lambda db: sqlite_tables.read(db, path))

    async def list(self, prefix: str) -> dict[str, Stored]:
        """See `MetadataStore.list`."""
        return await self._run(lambda db: sqlite_tables.list_values(db, prefix))

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        """See `MetadataStore.write_all`."""

        def work(db: sqlite3.Connection) -> None:
            named = {write.session for write in writes}
            own = [self._sessions[one] for one in named if one in self._sessions]
            new = [session for session in own if not session.is_noted]
            sqlite_tables.write_all(db, writes, checks, fence, [session.row for session in new])
            for session in new:
                session.is_noted = True

        try:
            await self._run(work)
        except SessionExpired:
            await self._look_at_sessions()
            raise
        finally:
            self._waiters.wake()

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        """See `MetadataStore.changes`."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_ms / 1000
        while True:
            with self._waiters.joined() as changed:
                found = await self._run(lambda db: sqlite_tables.changes(db, after_revision))
                left_s = deadline_s - loop.time()
                if found.revision > after_revision or left_s <= 0:
                    return found
                # A write of another process wakes no caller here.
                await wait_for(changed, min(left_s, METADATA_POLL_MS / 1000))

    async def open_session(self, timeout_ms: int) -> Session:
        """See `MetadataStore.open_session`. Nothing is written before the first bound value."""
        session = _SqliteSession(self, SessionRow(SessionId(uuid4().hex), "", timeout_ms))
        self._sessions[session.session_id] = session
        return session

    async def expire(self, session_id: SessionId) -> bool:
        """End a session of any process: a fault. False: it has ended, or nothing is bound to it."""
        has_ended = await self._run(lambda db: sqlite_tables.end_session(db, session_id))
        await self._look_at_sessions()
        self._waiters.wake()
        return has_ended

    async def end_session(self, session_id: SessionId) -> None:
        """End a session of this store, as far as the file can be written."""
        del self._sessions[session_id]
        with contextlib.suppress(StoreFailure):
            await self._run(lambda db: sqlite_tables.end_session(db, session_id))
        self._waiters.wake()

    async def _look_at_sessions(self) -> None:
        """Find out which sessions of this store have been ended."""
        noted = [session for session in self._sessions.values() if session.is_noted]

        def ended(db: sqlite3.Connection) -> list[_SqliteSession]:
            return [one for one in noted if not sqlite_tables.has_session(db, one.session_id)]

        for session in await self._run(ended):
            self._sessions.pop(session.session_id, None)
            session.note_end()

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        if self._closed:
            return
        self._closed = True

        def work() -> None:
            if self._connection is not None:
                self._connection.close()

        await asyncio.get_running_loop().run_in_executor(self._thread, work)
        self._thread.shutdown()

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def on_thread() -> T:
            try:
                if self._connection is None:
                    self._connection = sqlite_tables.open_database(self._path, self._syncs)
                return work(self._connection)
            except sqlite3.Error as error:
                raise StoreFailure(f"metadata store {self._path}: {error}") from error

        if self._closed:
            raise StoreFailure(f"metadata store {self._path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, on_thread)


class _SqliteSession:
    """A session of this process; see `Session`."""

    def __init__(self, store: SqliteStore, row: SessionRow) -> None:
        self.session_id = row.session_id
        self.row = row
        self.is_noted = False
        """Whether the file notes it. The store's thread sets this."""
        self._store = store
        self._ended = asyncio.Event()

    @property
    def is_alive(self) -> bool:
        """See `Session.is_alive`."""
        return not self._ended.is_set()

    def note_end(self) -> None:
        """Let the owner know that it has ended."""
        self._ended.set()

    async def wait_ended(self) -> None:
        """See `Session.wait_ended`."""
        await self._ended.wait()

    async def close(self) -> None:
        """See `Session.close`."""
        if self.is_alive:
            self.note_end()
            await self._store.end_session(self.session_id)
