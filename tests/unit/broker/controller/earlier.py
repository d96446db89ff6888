"""Metadata stores that earlier versions wrote, by the commit that wrote them.

`earlier_stores.json` has the rows of their `metadata.sqlite`: path, value, version and revision,
as written; of the internal topics only two partitions, and in the last one the level of a feature.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path

Row = tuple[str, str | None, int, int]

STORES: dict[str, list[Row]] = json.loads(
    Path(__file__).with_name("earlier_stores.json").read_text()
)
COMMITS = sorted(STORES)

_SCHEMA = """
CREATE TABLE node (
    path TEXT PRIMARY KEY, value BLOB, version INTEGER NOT NULL, revision INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX node_by_revision ON node (revision);
PRAGMA user_version=1;
"""


def write_store(commit: str, path: Path) -> None:
    """Write the store as that commit's broker left it."""
    write_rows(STORES[commit], path)


def write_rows(stored: Iterable[Row], path: Path) -> None:
    """Write a store of format 1."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.executescript(_SCHEMA)
    rows = [
        (name, None if value is None else value.encode(), version, revision)
        for name, value, version, revision in stored
    ]
    database.executemany("INSERT INTO node VALUES (?, ?, ?, ?)", rows)
    database.commit()
    database.close()


def value_of(commit: str, path: str) -> str:
    """The value at a path of such a store."""
    (value,) = [value for name, value, *_ in STORES[commit] if name == path]
    assert value is not None
    return value
