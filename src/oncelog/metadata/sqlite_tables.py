"""The tables of `SqliteStore`, and what is read and written in them. Every function blocks.

A deleted path remains as a row without value, so that the feed can report it. Of these rows the
newest are kept; the table `dropped` has the revision up to which others were dropped, and a reader
that has read less is given all values instead.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from oncelog.core.limits import SQLITE_BUSY_TIMEOUT_MS
from oncelog.metadata.state import check_sessions, check_versions
from oncelog.metadata.store import (
    Change,
    Changes,
    Check,
    SessionId,
    Stored,
    StoreFailure,
    Write,
)

__all__ = [
    "SessionRow",
    "changes",
    "end_sessions",
    "list_values",
    "newest_revision",
    "open_database",
    "read",
    "sessions",
    "write_all",
]

_NODE = """
CREATE TABLE node (
    path TEXT PRIMARY KEY, value BLOB, version INTEGER NOT NULL, revision INTEGER NOT NULL,
    session TEXT
) WITHOUT ROWID
"""
_NODE_BY_REVISION = "CREATE INDEX node_by_revision ON node (revision)"
_SESSION = """
CREATE TABLE session (
    id TEXT PRIMARY KEY, slot INTEGER NOT NULL, boot_id TEXT NOT NULL, timeout_ms INTEGER NOT NULL
) WITHOUT ROWID
"""
_NODE_DELETED = "CREATE INDEX node_deleted ON node (revision) WHERE value IS NULL"
_DROPPED = "CREATE TABLE dropped (revision INTEGER NOT NULL)"
_NOTHING_DROPPED = "INSERT INTO dropped VALUES (0)"
_SCHEMA_VERSION = 3
"""2: an Oncelog of version 1 does not know the paths, and would set every log aside.
3: one of version 2 would miss deletions whose rows were dropped."""
_PRIMARY_CODE = 0xFF
_OPEN_RETRY_S = 0.01
_SYNCED_AT_CHECKPOINTS = 1
"""`PRAGMA synchronous=NORMAL`: a loss of power may take the newest transactions, never a part."""
_SCHEMA_STEPS = {
    0: (_NODE, _NODE_BY_REVISION, _SESSION, _NODE_DELETED, _DROPPED, _NOTHING_DROPPED),
    1: (
        "ALTER TABLE node ADD COLUMN session TEXT",
        *(_SESSION, _NODE_DELETED, _DROPPED, _NOTHING_DROPPED),
    ),
    2: (_NODE_DELETED, _DROPPED, _NOTHING_DROPPED),
}


class SessionRow(NamedTuple):
    """A session that has not ended, as the file notes it with the first value bound to it."""

    session_id: SessionId
    slot: int
    """The number of its file; see `oncelog.metadata.session_file`."""
    boot_id: str
    timeout_ms: int


def open_database(path: str, syncs: bool) -> sqlite3.Connection:
    """Open the file, and make or upgrade its tables. Raises `StoreFailure` and `sqlite3.Error`.

    Of processes that open a new file at once SQLite refuses some without the wait that it has for
    other locks: those try again.
    """
    deadline_s = time.monotonic() + SQLITE_BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            return _open(path, syncs)
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & _PRIMARY_CODE == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() >= deadline_s:
                raise
        time.sleep(_OPEN_RETRY_S)


def _open(path: str, syncs: bool) -> sqlite3.Connection:
    _make_file(path)
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
        schema_version = _schema_version(db)
        if schema_version > _SCHEMA_VERSION:
            raise StoreFailure(f"metadata store {path} was written by a newer Oncelog")
        if schema_version < _SCHEMA_VERSION:
            _make_tables(db)
    except BaseException:
        db.close()
        raise
    return db


def _make_file(path: str) -> None:
    """Make a missing file readable by its owner alone, since passwords can be guessed from it.

    SQLite gives the files beside it the same mode. One that is there is not opened: to close it
    again would end the locks that this process has on it.
    """
    with contextlib.suppress(OSError):  # SQLite says why it cannot be made.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _schema_version(db: sqlite3.Connection) -> int:
    schema_version: int
    (schema_version,) = db.execute("PRAGMA user_version").fetchone()
    return schema_version


def _make_tables(db: sqlite3.Connection) -> None:
    with _transaction(db):
        # Another process may have made them since.
        for statement in _SCHEMA_STEPS.get(_schema_version(db), ()):
            db.execute(statement)
        db.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")


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
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """One atomic step, which no other process writes beside."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # SQLite itself has rolled back after some errors, a full disk among them.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def read(db: sqlite3.Connection, path: str) -> Stored | None:
    """See `MetadataStore.get`."""
    row: tuple[bytes, int] | None = db.execute(
        "SELECT value, version FROM node WHERE path = ? AND value IS NOT NULL", (path,)
    ).fetchone()
    return Stored(*row) if row is not None else None


def list_values(db: sqlite3.Connection, prefix: str) -> dict[str, Stored]:
    """See `MetadataStore.list`."""
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


def changes(db: sqlite3.Connection, after_revision: int) -> Changes:
    """See `MetadataStore.changes`."""
    rows = _rows_after(db, after_revision)
    # Read after the rows: another process may drop some at any time.
    dropped = _dropped_revision(db)
    is_whole = after_revision < dropped
    if is_whole:
        rows = _rows_after(db, 0)
    revision = max(after_revision, dropped, rows[-1][3] if rows else 0)
    entries = tuple(Change(path, value, version) for path, value, version, _ in rows)
    return Changes(revision, entries, is_whole)


def _rows_after(db: sqlite3.Connection, revision: int) -> list[tuple[str, bytes | None, int, int]]:
    return db.execute(
        "SELECT path, value, version, revision FROM node WHERE revision > ? "
        "ORDER BY revision, path",
        (revision,),
    ).fetchall()


def _dropped_revision(db: sqlite3.Connection) -> int:
    revision: int
    (revision,) = db.execute("SELECT revision FROM dropped").fetchone()
    return revision


def _drop_oldest(db: sqlite3.Connection, deleted_count_max: int) -> None:
    """Keep so many of the newest deleted paths, or fewer: all of one step are dropped together."""
    row: tuple[int] | None = db.execute(
        "SELECT revision FROM node WHERE value IS NULL ORDER BY revision DESC LIMIT 1 OFFSET ?",
        (deleted_count_max,),
    ).fetchone()
    if row is not None:
        db.execute("DELETE FROM node WHERE value IS NULL AND revision <= ?", row)
        db.execute("UPDATE dropped SET revision = ?", row)


def write_all(
    db: sqlite3.Connection,
    writes: Sequence[Write],
    checks: Sequence[Check],
    fence: Check | None,
    new_sessions: Sequence[SessionRow],
    deleted_count_max: int,
) -> None:
    """See `MetadataStore.write_all`. Notes `new_sessions`, of which nothing was bound before."""
    with _transaction(db):
        db.executemany("INSERT INTO session VALUES (?, ?, ?, ?)", new_sessions)
        check_sessions(partial(_has_session, db), writes)
        check_versions(partial(_version_of, db), writes, checks, fence)
        revision = newest_revision(db) + 1
        db.executemany(
            "INSERT INTO node (path, value, version, revision, session) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (path) DO UPDATE SET value = excluded.value, version = excluded.version, "
            "revision = excluded.revision, session = CASE WHEN excluded.value IS NULL THEN NULL "
            "ELSE coalesce(excluded.session, session) END",
            [
                (path, value, 0 if value is None else version + 1, revision, session)
                for path, value, version, session in writes
            ],
        )
        if any(write.value is None for write in writes):
            _drop_oldest(db, deleted_count_max)


def newest_revision(db: sqlite3.Connection) -> int:
    """Return the revision of the newest write; 0: there was none."""
    revision: int
    # The rows of the newest step may have been dropped.
    (revision,) = db.execute(
        "SELECT max(coalesce((SELECT max(revision) FROM node), 0), revision) FROM dropped"
    ).fetchone()
    return revision


def sessions(db: sqlite3.Connection) -> list[SessionRow]:
    """Return the sessions that were noted, and have not ended."""
    return [SessionRow(*row) for row in db.execute("SELECT * FROM session ORDER BY id")]


def end_sessions(db: sqlite3.Connection, has_ended: Callable[[SessionRow], bool]) -> None:
    """End the sessions of which that is true, and delete what is bound to them.

    It is asked when no other process writes. Nothing is synced: a session whose end a loss of power
    takes back ends again, as its process is dead.
    """
    with _without_sync(db), _transaction(db):
        ended = [(row.session_id,) for row in sessions(db) if has_ended(row)]
        db.executemany("DELETE FROM session WHERE id = ?", ended)
        revision = newest_revision(db) + 1
        db.executemany(
            f"UPDATE node SET value = NULL, version = 0, session = NULL, revision = {revision} "
            "WHERE session = ?",
            ended,
        )


@contextmanager
def _without_sync(db: sqlite3.Connection) -> Iterator[None]:
    (mode,) = db.execute("PRAGMA synchronous").fetchone()
    db.execute(f"PRAGMA synchronous={min(mode, _SYNCED_AT_CHECKPOINTS)}")
    try:
        yield
    finally:
        db.execute(f"PRAGMA synchronous={mode}")


def _has_session(db: sqlite3.Connection, session_id: SessionId) -> bool:
    row = db.execute("SELECT 1 FROM session WHERE id = ?", (session_id,)).fetchone()
    return row is not None


def _version_of(db: sqlite3.Connection, path: str) -> int:
    stored = read(db, path)
    return 0 if stored is None else stored.version
