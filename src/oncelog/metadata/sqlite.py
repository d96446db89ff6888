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
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from oncelog.core.limits import METADATA_POLL_MS, SQLITE_BUSY_TIMEOUT_MS
from oncelog.metadata.store import (
    CONTROLLER_EPOCH_PATH,
    Change,
    Changes,
    Conflict,
    ControllerFenced,
    Stored,
    StoreFailure,
    Write,
)

__all__ = ["SqliteStore"]

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY, value BLOB, version INTEGER NOT NULL, revision INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS node_by_revision ON node (revision);
"""
_SCHEMA_VERSION = 1


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
        self._changed = asyncio.Event()
        self._closed = False

    async def get(self, path: str) -> Stored | None:
        """See `MetadataStore.get`."""
        return await self._run(lambda db: _read(db, path))

    async def create(self, path: str, value: bytes, *, controller_epoch: int | None = None) -> int:
        """See `MetadataStore.create`."""

        def work(db: sqlite3.Connection) -> int:
            with _writing(db, controller_epoch):
                _check_version(db, path, 0)
                _write(db, path, value, 1)
            return 1

        return await self._run_write(work)

    async def compare_and_set(
        self, path: str, value: bytes, version: int, *, controller_epoch: int | None = None
    ) -> int:
        """See `MetadataStore.compare_and_set`."""

        def work(db: sqlite3.Connection) -> int:
            with _writing(db, controller_epoch):
                _check_version(db, path, version)
                _write(db, path, value, version + 1)
            return version + 1

        return await self._run_write(work)

    async def delete(
        self, path: str, version: int | None = None, *, controller_epoch: int | None = None
    ) -> None:
        """See `MetadataStore.delete`."""

        def work(db: sqlite3.Connection) -> None:
            with _writing(db, controller_epoch):
                _check_version(db, path, version)
                _write(db, path, None, 0)

        await self._run_write(work)

    async def write_all(
        self, writes: Sequence[Write], *, controller_epoch: int | None = None
    ) -> None:
        """See `MetadataStore.write_all`."""

        def work(db: sqlite3.Connection) -> None:
            with _writing(db, controller_epoch):
                for path, value, version in writes:
                    _check_version(db, path, version)
                    _write(db, path, value, version + 1 if value is not None else 0)

        await self._run_write(work)

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

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        """See `MetadataStore.changes`."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_ms / 1000
        while True:
            if wait_ms > 0:
                self._changed.clear()
            found = await self._run(lambda db: _changes(db, after_revision))
            left_s = deadline_s - loop.time()
            if found.revision > after_revision or left_s <= 0:
                return found
            try:
                # In Python 3.11 `wait_for` forgets a cancellation that comes with the change.
                async with asyncio.timeout(min(left_s, METADATA_POLL_MS / 1000)):
                    await self._changed.wait()
            except TimeoutError:
                continue

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

    async def _run_write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._run(work)
        finally:
            self._changed.set()


def _open(path: str, syncs: bool) -> sqlite3.Connection:
    db = sqlite3.connect(
        path, timeout=SQLITE_BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
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


@contextmanager
def _writing(db: sqlite3.Connection, controller_epoch: int | None) -> Iterator[None]:
    """Run one atomic write; refuse it when a newer controller has claimed the role."""
    db.execute("BEGIN IMMEDIATE")
    try:
        if controller_epoch is not None:
            newest = _read(db, CONTROLLER_EPOCH_PATH)
            if newest is not None and int(newest.value) != controller_epoch:
                raise ControllerFenced(
                    f"controller epoch {controller_epoch}, newest is {newest.value.decode()}"
                )
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _read(db: sqlite3.Connection, path: str) -> Stored | None:
    row: tuple[bytes, int] | None = db.execute(
        "SELECT value, version FROM node WHERE path = ? AND value IS NOT NULL", (path,)
    ).fetchone()
    return Stored(*row) if row is not None else None


def _check_version(db: sqlite3.Connection, path: str, version: int | None) -> None:
    stored = _read(db, path)
    if version == 0:
        if stored is not None:
            raise Conflict(f"{path} exists")
        return
    if stored is None:
        raise Conflict(f"{path} does not exist")
    if version is not None and stored.version != version:
        raise Conflict(f"{path} is at version {stored.version}, not {version}")


def _write(db: sqlite3.Connection, path: str, value: bytes | None, version: int) -> None:
    db.execute(
        "INSERT INTO node (path, value, version, revision) "
        "VALUES (?, ?, ?, (SELECT coalesce(max(revision), 0) + 1 FROM node)) "
        "ON CONFLICT (path) DO UPDATE SET value = excluded.value, version = excluded.version, "
        "revision = excluded.revision",
        (path, value, version),
    )


def _changes(db: sqlite3.Connection, after_revision: int) -> Changes:
    rows: list[tuple[str, bytes | None, int]] = db.execute(
        "SELECT path, value, revision FROM node WHERE revision > ? ORDER BY revision",
        (after_revision,),
    ).fetchall()
    revision = rows[-1][2] if rows else after_revision
    return Changes(revision, tuple(Change(path, value) for path, value, _ in rows))
