"""`SqliteStore`: the metadata store of the brokers of one machine, in one SQLite file.

SQLite blocks, so every call runs on one thread of its own, in order. Writes of this process wake
its feed at once; those of other processes are found by polling the highest revision, which costs
microseconds. Every write is synced: an id or a topic that was returned survives a power loss
(INV-11).

A deleted path remains as a row without value, so that the feed can report it; rows are small and
topics are few.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from oncelog.core.limits import METADATA_POLL_MS, SQLITE_BUSY_TIMEOUT_MS
from oncelog.metadata.state import check_versions
from oncelog.metadata.store import Change, Changes, Check, Stored, StoreFailure, Write
from oncelog.metadata.waiting import Waiters, wait_for

__all__ = ["SqliteStore"]

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY, value BLOB, version INTEGER NOT NULL, revision INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS node_by_revision ON node (revision);
"""
_SCHEMA_VERSION = 2
"""2: an Oncelog of version 1 does not know the paths, and would set every log aside."""


class SqliteStore:
    """The metadata in a SQLite file; see `MetadataStore`.

    A missing file is created. Use it from one event loop. Without `syncs` a write returns before it
    survives a loss of power: for a file that is removed when this process ends.
    """

    def __init__(self, path: str, *, syncs: bool = True) -> None:
        self._path = path
        self._syncs = syncs
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="oncelog-metadata")
        self._connection: sqlite3.Connection | None = None
        self._waiters = Waiters()
        self._closed = False

    async def get(self, path: str) -> Stored | None:
        """See `MetadataStore.get`."""
        return await self._run(lambda db: _read(db, path))

    async def list(self, prefix: str) -> dict[str, Stored]:
        """See `MetadataStore.list`."""

        def work(db: sqlite3.Connection) -> dict[str, Stored]:
            rows = db.execute(
                "SELECT path, value, version FROM node WHERE substr(path, 1, ?) = ? "
                "AND value IS NOT NULL ORDER BY path",
                (len(prefix), prefix),
            )
            found: dict[str, Stored] = {}
            path: str
            value: bytes
            version: int
            for path, value, version in rows:
                found[path] = Stored(value, version)
            return found

        return await self._run(work)

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        """See `MetadataStore.write_all`."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("BEGIN IMMEDIATE")
            try:
                check_versions(partial(_version_of, db), writes, checks, fence)
                _write_all(db, writes)
                db.execute("COMMIT")
            except BaseException:
                # SQLite itself has rolled back after some errors, a full disk among them.
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

        try:
            await self._run(work)
        finally:
            self._waiters.wake()

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        """See `MetadataStore.changes`."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_ms / 1000
        while True:
            with self._waiters.joined() as changed:
                found = await self._run(lambda db: _changes(db, after_revision))
                left_s = deadline_s - loop.time()
                if found.revision > after_revision or left_s <= 0:
                    return found
                # A write of another process wakes no caller here.
                await wait_for(changed, min(left_s, METADATA_POLL_MS / 1000))

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
                    self._connection = _open(self._path, self._syncs)
                return work(self._connection)
            except sqlite3.Error as error:
                raise StoreFailure(f"metadata store {self._path}: {error}") from error

        if self._closed:
            raise StoreFailure(f"metadata store {self._path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, on_thread)


def _open(path: str, syncs: bool) -> sqlite3.Connection:
    db = sqlite3.connect(
        os.path.abspath(path),  # A name like ":memory:" would mean something else.
        timeout=SQLITE_BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _check_pages(db, path)
        # Before the journal's mode, whose change is a write that would be synced already.
        db.execute(f"PRAGMA synchronous={'FULL' if syncs else 'OFF'}")
        db.execute("PRAGMA journal_mode=WAL")
        schema_version: int
        (schema_version,) = db.execute("PRAGMA user_version").fetchone()
        if schema_version > _SCHEMA_VERSION:
            raise StoreFailure(f"metadata store {path} was written by a newer Oncelog")
        if schema_version < _SCHEMA_VERSION:
            db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={_SCHEMA_VERSION}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def _check_pages(db: sqlite3.Connection, path: str) -> None:
    """Raise `StoreFailure` for a file with damaged pages.

    SQLite reads a page when it needs it. If the damaged page held the topics, the store would have
    no topics, and the broker would set every log aside as a stray.
    """
    verdict: str
    try:
        (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.OperationalError:
        raise  # Busy, or a failing disk: that says nothing about the pages.
    except sqlite3.DatabaseError as error:
        verdict = str(error)
    except UnicodeDecodeError:
        verdict = "a name in it is no text"  # SQLite quotes it in what it says of the damage.
    if verdict != "ok":
        text = " ".join(verdict.split())
        raise StoreFailure(f"metadata store {path} is damaged ({text}): put back a copy of it")


def _read(db: sqlite3.Connection, path: str) -> Stored | None:
    row: tuple[bytes, int] | None = db.execute(
        "SELECT value, version FROM node WHERE path = ? AND value IS NOT NULL", (path,)
    ).fetchone()
    return Stored(*row) if row is not None else None


def _version_of(db: sqlite3.Connection, path: str) -> int:
    stored = _read(db, path)
    return 0 if stored is None else stored.version


def _write_all(db: sqlite3.Connection, writes: Sequence[Write]) -> None:
    revision: int
    (revision,) = db.execute("SELECT coalesce(max(revision), 0) + 1 FROM node").fetchone()
    db.executemany(
        "INSERT INTO node (path, value, version, revision) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (path) DO UPDATE SET value = excluded.value, version = excluded.version, "
        "revision = excluded.revision",
        [
            (path, value, 0 if value is None else version + 1, revision)
            for path, value, version in writes
        ],
    )


def _changes(db: sqlite3.Connection, after_revision: int) -> Changes:
    rows: list[tuple[str, bytes | None, int, int]] = db.execute(
        "SELECT path, value, version, revision FROM node WHERE revision > ? "
        "ORDER BY revision, path",
        (after_revision,),
    ).fetchall()
    revision = rows[-1][3] if rows else after_revision
    return Changes(
        revision, tuple(Change(path, value, version) for path, value, version, _ in rows)
    )
