"""`SqliteStore`: the metadata store of the brokers of one machine, in one SQLite file.

SQLite blocks, so every call runs on one thread of its own, in order. Writes of this process wake
its feed at once; those of other processes are found by polling the highest revision, which costs
microseconds. Every write is synced: an id or a topic that was returned survives a power loss
(INV-11).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from oncelog.core.cluster_limits import METADATA_DELETED_COUNT_MAX
from oncelog.metadata import sqlite_tables
from oncelog.metadata.sqlite_sessions import Machine, SqliteSession, SqliteSessions
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

log = logging.getLogger(__name__)

T = TypeVar("T")


class SqliteStore:
    """The metadata in a SQLite file; see `MetadataStore`.

    A missing file is created. Use it from one event loop. Without `syncs` a write returns before it
    survives a loss of power: for a file that is removed when this process ends.
    """

    write_limit = None

    def __init__(
        self,
        path: str,
        *,
        syncs: bool = True,
        machine: Machine | None = None,
        deleted_count_max: int = METADATA_DELETED_COUNT_MAX,
    ) -> None:
        self._path = path
        self._absolute_path = os.path.abspath(path)
        self._syncs = syncs
        self._deleted_count_max = deleted_count_max
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="oncelog-metadata")
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Device and inode of what is open."""
        self._waiters = Waiters()
        self._machine = machine or Machine()
        self._sessions = SqliteSessions(path, self._machine)
        self._polled_revision = 0
        self._poller: asyncio.Task[None] | None = None
        self._beats: asyncio.Task[None] | None = None
        # Beside the other thread, which may wait for a sync or for another process's write.
        self._beat_thread: ThreadPoolExecutor | None = None
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
            new = self._sessions.new({write.session for write in writes})
            rows = [session.row for session in new]
            sqlite_tables.write_all(db, writes, checks, fence, rows, self._deleted_count_max)
            for session in new:
                session.is_noted = True

        try:
            await self._run(work)
        except SessionExpired:
            await self.poll(looks=True)
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
                self._keep_polling()
                await wait_for(changed, left_s)

    async def open_session(self, timeout_ms: int) -> Session:
        """See `MetadataStore.open_session`. The file learns of it with its first bound value."""
        session, ended = await self._run(
            lambda db: self._sessions.open(db, timeout_ms, self._end_session)
        )
        for other in ended:
            other.note_end()
        self._keep_polling()
        await self._keep_beating()
        return session

    async def expire(self, session_id: SessionId) -> None:
        """End a session of any process, as if it had been silent: a fault for tests."""
        await self._run(
            lambda db: sqlite_tables.end_sessions(db, lambda row: row.session_id == session_id)
        )
        await self.poll(looks=True)

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        if self._closed:
            return
        self._closed = True
        for task in (self._poller, self._beats):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

        def work() -> list[SqliteSession]:
            if self._connection is not None:
                self._connection.close()
            return self._sessions.release()

        for session in await asyncio.get_running_loop().run_in_executor(self._thread, work):
            session.note_end()
        self._thread.shutdown()
        if self._beat_thread is not None:
            self._beat_thread.shutdown()

    async def poll(self, *, looks: bool = False) -> None:
        """Find out what other processes wrote, and with company, or `looks`, who of them is dead.

        A task does it again and again while a session is open or a caller waits for changes.
        """

        def work(db: sqlite3.Connection) -> tuple[int, list[SqliteSession]]:
            revision = sqlite_tables.newest_revision(db)
            has_moved = revision != self._polled_revision
            if not (looks or has_moved or self._sessions.has_company):
                return revision, []
            ended = self._sessions.look(db)
            return sqlite_tables.newest_revision(db), ended

        revision, ended = await self._run(work)
        for session in ended:
            session.note_end()
        if revision != self._polled_revision:
            self._polled_revision = revision
            self._waiters.wake()
        await self._keep_beating()

    async def beat(self) -> None:
        """Show other processes that the sessions of this store live. A task does it in company."""
        now_ns = self._machine.now_ns()
        if self._beat_thread is None:
            self._beat_thread = ThreadPoolExecutor(1, thread_name_prefix="oncelog-session")
        for session in self._sessions.own:
            if session.is_alive:
                beat = partial(session.beat, now_ns)
                try:
                    await asyncio.get_running_loop().run_in_executor(self._beat_thread, beat)
                except OSError as error:
                    log.warning("%s: a session cannot show that it lives: %s", self._path, error)

    async def _end_session(self, session: SqliteSession) -> None:
        # Without the file its values are deleted by the process that finds it unlocked.
        with contextlib.suppress(StoreFailure):
            await self._run(lambda db: self._sessions.end(db, session))
        self._waiters.wake()

    def _keep_polling(self) -> None:
        """Poll from now on. Raises what ended the task that does."""
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll_on())
            self._poller.add_done_callback(lambda _: self._waiters.wake())
        elif self._poller.done():
            self._poller.result()

    async def _poll_on(self) -> None:
        while True:
            await self._machine.sleep(self._sessions.poll_pause_s)
            try:
                await self.poll()
            except StoreFailure:
                self._waiters.wake()  # Each finds out for itself, and tells its caller.

    async def _keep_beating(self) -> None:
        """Beat now and from now on, if there is company."""
        if self._beats is None and self._sessions.has_company and self._sessions.own:
            self._beats = asyncio.create_task(self._beat_on())
            await self.beat()

    async def _beat_on(self) -> None:
        while True:
            await self._machine.sleep(self._sessions.pause_s)
            await self.beat()

    def _found_file(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._absolute_path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def on_thread() -> T:
            try:
                if self._connection is None:
                    self._connection = sqlite_tables.open_database(self._path, self._syncs)
                    self._file = self._found_file()
                elif self._found_file() != self._file:
                    # SQLite would go on with the file that no path names any more.
                    raise StoreFailure(
                        f"metadata store {self._path} was replaced or removed while it was open: "
                        "stop its brokers, or put it back"
                    )
                return work(self._connection)
            except sqlite3.Error as error:
                raise StoreFailure(f"metadata store {self._path}: {error}") from error

        if self._closed:
            raise StoreFailure(f"metadata store {self._path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, on_thread)
