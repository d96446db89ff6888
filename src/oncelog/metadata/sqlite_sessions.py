"""The sessions of one `SqliteStore`, and what it sees of those of other processes.

A session is a locked file (`oncelog.metadata.session_file`) and, from the first value that is
bound to it, a row of the database, by which others know it and which ends it when it is gone.
A store that polls ends the sessions of the dead (`oncelog.metadata.liveness`).

A lone session neither beats nor looks at files. Its owner learns of company by the revision that
each first bound value has, and beats from then on. A session without a beat is judged by its lock,
and late only after its whole timeout beside a session of who judges: so long its owner had company.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from uuid import uuid4

from oncelog.core.cluster_limits import METADATA_COMPANY_POLL_MS, SQLITE_BEATS_PER_TIMEOUT_COUNT
from oncelog.core.limits import METADATA_POLL_MS
from oncelog.metadata import sqlite_tables
from oncelog.metadata.liveness import has_ended, is_late
from oncelog.metadata.session_file import SessionFile, look_at
from oncelog.metadata.sqlite_tables import SessionRow
from oncelog.metadata.store import SessionExpired, SessionId
from oncelog.runtime.file_place import boot_id

__all__ = ["Machine", "SqliteSession", "SqliteSessions"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the processes of one machine have in common, and how to let time pass there."""

    boot_id: Callable[[], str] = boot_id
    now_ns: Callable[[], int] = time.monotonic_ns
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Returns after so many seconds."""


class SqliteSession:
    """A session of this process; see `Session`."""

    def __init__(
        self,
        row: SessionRow,
        file: SessionFile,
        machine: Machine,
        end: Callable[[SqliteSession], Awaitable[None]],
    ) -> None:
        self.session_id = row.session_id
        self.row = row
        self.file = file
        self.is_noted = False
        """Whether the database has its row, or had. The store's thread sets this."""
        self._machine = machine
        self._end = end
        self._beat_ns: int | None = None
        self._ended = asyncio.Event()

    @property
    def is_alive(self) -> bool:
        """See `Session.is_alive`."""
        if self.is_late:
            self.note_end()
        return not self._ended.is_set()

    @property
    def is_late(self) -> bool:
        """Whether others may have ended it: this process has not beaten for too long."""
        now_ns = self._machine.now_ns()
        return self._beat_ns is not None and is_late(self.row, self._beat_ns, now_ns)

    def beat(self, now_ns: int) -> None:
        """Show that the event loop ran at that time. Raises `OSError`. May block."""
        self.file.beat(now_ns)
        self._beat_ns = now_ns

    def note_end(self) -> None:
        """Let the owner know that it has ended."""
        self._ended.set()

    async def wait_ended(self) -> None:
        """See `Session.wait_ended`."""
        await self._ended.wait()

    async def close(self) -> None:
        """See `Session.close`."""
        if not self._ended.is_set():
            self.note_end()
            await self._end(self)


class SqliteSessions:
    """The sessions of one store. What takes a database runs in the store's thread."""

    def __init__(self, path: str, machine: Machine) -> None:
        self.has_company = False
        """Whether other sessions were there when it looked last."""
        self._path = path
        self._machine = machine
        self._own: dict[SessionId, SqliteSession] = {}
        self._silent_since_ns: dict[SessionId, int] = {}
        self._said: set[SessionId] = set()

    @property
    def own(self) -> list[SqliteSession]:
        """The sessions of this store that it has not ended."""
        return list(self._own.values())

    @property
    def pause_s(self) -> float:
        """How long to pause between two beats."""
        pauses = [one.row.timeout_ms / SQLITE_BEATS_PER_TIMEOUT_COUNT for one in self.own]
        return min([METADATA_POLL_MS, *pauses]) / 1000

    @property
    def poll_pause_s(self) -> float:
        """How long to pause between two looks at what others wrote, and at who of them lives."""
        if not self.has_company:
            return self.pause_s
        return min(METADATA_COMPANY_POLL_MS / 1000, self.pause_s)

    def open(
        self,
        db: sqlite3.Connection,
        timeout_ms: int,
        end: Callable[[SqliteSession], Awaitable[None]],
    ) -> tuple[SqliteSession, list[SqliteSession]]:
        """Begin a session, and `look`: return both outcomes. Raises `StoreFailure`."""
        session_id = SessionId(uuid4().hex)
        file = SessionFile.take(self._path, session_id)
        row = SessionRow(session_id, file.slot, self._machine.boot_id(), timeout_ms)
        session = self._own[session_id] = SqliteSession(row, file, self._machine, end)
        try:
            return session, self.look(db)
        except BaseException:
            self._drop(session)
            raise

    def new(self, named: Iterable[SessionId | None]) -> list[SqliteSession]:
        """Return those of the named sessions that the database does not know yet.

        Raises `SessionExpired` for one that others may have ended.
        """
        found = [self._own[one] for one in named if one in self._own]
        for session in found:
            if session.is_late:
                raise SessionExpired(f"session {session.session_id} has ended: its beat was late")
        return [session for session in found if not session.is_noted]

    def look(self, db: sqlite3.Connection) -> list[SqliteSession]:
        """End the sessions of the dead. Return those of this store that were ended."""
        rows = sqlite_tables.sessions(db)
        noted = {row.session_id for row in rows}
        ended = [one for one in self.own if one.is_late or self._was_ended(one, noted)]
        late = {one.session_id for one in ended if one.session_id in noted}
        dead = [row for row in rows if self._is_dead(row)]
        if late or dead:
            sqlite_tables.end_sessions(db, lambda row: row.session_id in late or self._is_dead(row))
        for session in ended:
            self._drop(session)
        self._silent_since_ns = {
            one: since_ns for one, since_ns in self._silent_since_ns.items() if one in noted
        }
        self.has_company = len(rows) - len(dead) > len(noted & self._own.keys())
        return ended

    def end(self, db: sqlite3.Connection, session: SqliteSession) -> None:
        """End a session of this store."""
        try:
            if session.is_noted:
                session_id = session.session_id
                sqlite_tables.end_sessions(db, lambda row: row.session_id == session_id)
        finally:
            self._drop(session)

    def release(self) -> list[SqliteSession]:
        """Leave all sessions of this store as the death of the process does."""
        left = self.own
        for session in left:
            self._drop(session)
        return left

    def _drop(self, session: SqliteSession) -> None:
        self._own.pop(session.session_id, None)
        session.file.release()

    @staticmethod
    def _was_ended(session: SqliteSession, noted: set[SessionId]) -> bool:
        return session.is_noted and session.session_id not in noted

    def _is_dead(self, row: SessionRow) -> bool:
        if row.session_id in self._own:
            return False
        now_ns = self._machine.now_ns()
        try:
            seen = look_at(self._path, row.slot)
        except OSError as error:
            self._say(row, f"cannot be looked at: {error}")
            return False
        if not seen.is_there:
            self._say(row, "has lost its file: it is ended")
        if seen.beat_ns is not None:
            self._silent_since_ns.pop(row.session_id, None)
            silent_since_ns = now_ns
        elif any(session.is_noted for session in self.own):
            silent_since_ns = self._silent_since_ns.setdefault(row.session_id, now_ns)
        else:
            silent_since_ns = now_ns  # Its owner cannot know that it is looked at.
        return has_ended(row, seen, self._machine.boot_id(), now_ns, silent_since_ns)

    def _say(self, row: SessionRow, what: str) -> None:
        if row.session_id not in self._said:
            self._said.add(row.session_id)
            log.warning("%s: session %s %s", self._path, row.session_id, what)
