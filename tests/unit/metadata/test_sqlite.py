"""What the store in a SQLite file promises beyond the contract of all stores."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from oncelog.metadata import Change, Conflict, Stored, Write, sqlite_tables
from oncelog.metadata.session_file import look_at
from oncelog.metadata.sqlite import SqliteStore
from oncelog.metadata.sqlite_sessions import Machine
from oncelog.metadata.store import Changes, StoreFailure
from tests.unit.metadata.contract import put


async def test_sqlite_keeps_values_and_revisions_across_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sqlite")
    first = SqliteStore(path)
    await put(first, "/a", b"1")
    await put(first, "/a", None, 1)
    seen = (await first.changes(0)).revision
    await first.close()
    second = SqliteStore(path)
    await put(second, "/b", b"2")
    assert (await second.changes(seen)).entries == (Change("/b", b"2", 1),)
    await second.close()


async def test_a_store_that_only_waits_learns_of_what_another_writes_and_reads_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "m.sqlite")
    reader, writer = SqliteStore(path), SqliteStore(path)
    reads: list[int] = []
    read = sqlite_tables.changes

    def counted(db: sqlite3.Connection, after_revision: int) -> Changes:
        reads.append(after_revision)
        return read(db, after_revision)

    monkeypatch.setattr(sqlite_tables, "changes", counted)
    waiting = asyncio.create_task(reader.changes(0, wait_ms=60_000))
    await asyncio.sleep(0.1)
    await put(writer, "/a", b"1")
    assert (await asyncio.wait_for(waiting, 20)).entries == (Change("/a", b"1", 1),)
    assert len(reads) < 20
    await reader.close()
    await writer.close()


async def test_only_its_owner_reads_a_new_file_and_an_old_one_keeps_its_mode(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.sqlite"
    before = os.umask(0o022)
    try:
        store = SqliteStore(str(path))
        await put(store, "/a", b"1")
        assert modes_in(tmp_path) == dict.fromkeys(
            ("m.sqlite", "m.sqlite-shm", "m.sqlite-wal"), 0o600
        )
        await store.close()
        path.chmod(0o640)
        store = SqliteStore(str(path))
        await put(store, "/b", b"1")
        assert set(modes_in(tmp_path).values()) == {0o640}
        await store.close()
    finally:
        os.umask(before)


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}


async def delete_each(store: SqliteStore, count: int) -> None:
    """One after another, each beside something that stays."""
    await store.write_all([Write(f"/{number}", b"1", 0) for number in range(count)])
    for number in range(count):
        await store.write_all([Write(f"/{number}", None, 1), Write("/last", b"1", number)])


async def test_the_file_keeps_a_bounded_number_of_deleted_paths(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "m.sqlite"), deleted_count_max=2)
    await delete_each(store, 9)
    assert len((await store.changes(0)).entries) == 2 + 1
    assert not (await store.changes(8)).is_whole
    assert (await store.changes(7)).is_whole
    await store.close()


async def test_a_revision_never_falls_though_its_rows_are_dropped(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sqlite")
    store = SqliteStore(path, deleted_count_max=1)
    await store.write_all([Write("/a", b"1", 0), Write("/b", b"1", 0)])
    await store.write_all([Write("/a", None, 1), Write("/b", None, 1)])
    assert await store.changes(1) == Changes(2, (), is_whole=True)
    await store.close()
    other = SqliteStore(path)
    await put(other, "/c", b"1")
    assert await other.changes(2) == Changes(3, (Change("/c", b"1", 1),))
    await other.close()


async def test_sqlite_finds_what_another_process_wrote(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sqlite")
    mine, other = SqliteStore(path), SqliteStore(path)
    await put(other, "/a", b"1")
    assert (await mine.changes(0)).entries == (Change("/a", b"1", 1),)
    with pytest.raises(Conflict):
        await put(mine, "/a", b"2")
    await mine.close()
    await other.close()


async def test_a_step_binds_values_to_several_new_sessions(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "m.sqlite"))
    first, second = [await store.open_session(60_000) for _ in range(2)]
    for version in range(2):
        await store.write_all(
            [
                Write("/first", b"1", version, first.session_id),
                Write("/second", b"1", version, second.session_id),
            ]
        )
    await first.close()
    assert list(await store.list("/")) == ["/second"]
    await store.close()


async def test_a_closed_store_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    store = SqliteStore(str(tmp_path / "m.sqlite"))
    await store.open_session(60_000)
    await store.beat()
    assert threading.active_count() == before + 2
    await store.close()
    assert threading.active_count() == before


async def test_a_closed_store_leaves_no_task(tmp_path: Path) -> None:
    stores = [SqliteStore(str(tmp_path / "m.sqlite")) for _ in range(2)]
    for number, store in enumerate(stores):
        await put(store, f"/{number}", b"1", session=await store.open_session(60_000))
    assert len(asyncio.all_tasks()) == 1 + 3, "both look, and the one that has company beats"
    for store in stores:
        await store.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_session_in_company_beats_at_once_though_its_store_looked_before(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "m.sqlite")
    one, other = SqliteStore(path), SqliteStore(path)
    await put(one, "/a", b"1", session=await one.open_session(60_000))
    await other.poll(looks=True)
    await other.open_session(60_000)
    assert look_at(path, 1).beat_ns is not None
    for store in (one, other):
        await store.close()


async def test_what_ended_the_polling_is_raised_to_who_waits(tmp_path: Path) -> None:
    """Nobody would hear of another process's writes any more."""

    async def fail(_: float) -> None:
        raise RuntimeError("a bug")

    store = SqliteStore(str(tmp_path / "m.sqlite"), machine=Machine(sleep=fail))
    async with asyncio.timeout(20):
        with pytest.raises(RuntimeError, match="a bug"):
            await store.changes(0, wait_ms=600_000)
    await store.close()


async def test_a_file_that_is_no_database_is_a_failure_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def recorded(*args: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*args, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", recorded)
    path = tmp_path / "m.sqlite"
    path.write_bytes(b"no database" * 1000)
    store = SqliteStore(str(path))
    with pytest.raises(StoreFailure, match=str(path)):
        await store.get("/a")
    (connection,) = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
    await store.close()
    with pytest.raises(StoreFailure, match="closed"):
        await store.get("/a")


async def test_a_file_with_a_damaged_page_is_refused_before_anything_is_read_of_it(
    tmp_path: Path,
) -> None:
    """SQLite itself finds a page without rows in place of another, and answers that there are none.

    A broker would then set every folder aside.
    """
    path = tmp_path / "m.sqlite"
    store = SqliteStore(str(path))
    await put(store, "/topics/t", b"t")
    await store.close()
    data = bytearray(path.read_bytes())
    page_size = int.from_bytes(data[16:18], "big")
    data[page_size : page_size + 8] = bytes.fromhex("0a0000000010000000")[:8]
    path.write_bytes(data)
    before = path.read_bytes()
    store = SqliteStore(str(path))
    with pytest.raises(StoreFailure, match="is damaged"):
        await store.list("/topics/")
    await store.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize(("syncs", "mode"), [(True, 2), (False, 0)])
async def test_a_write_to_sqlite_is_synced_unless_the_file_is_temporary(
    tmp_path: Path, syncs: bool, mode: int
) -> None:
    store = SqliteStore(str(tmp_path / "m.sqlite"), syncs=syncs)
    assert await store._run(lambda db: db.execute("PRAGMA synchronous").fetchone()) == (mode,)
    await store.close()


async def test_a_temporary_file_is_not_synced_as_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To change the journal's mode is a write."""
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **options)
        db.set_trace_callback(statements.append)
        return db

    monkeypatch.setattr(sqlite3, "connect", traced)
    store = SqliteStore(str(tmp_path / "m.sqlite"), syncs=False)
    await store.get("/a")
    await store.close()
    writes = [one for one in statements if "journal_mode=" in one or one.startswith("BEGIN")]
    assert len(writes) == 2
    assert statements.index("PRAGMA synchronous=OFF") < statements.index(writes[0])


async def test_a_file_whose_names_are_no_text_is_refused(tmp_path: Path) -> None:
    """Python cannot decode what SQLite says of them."""
    path = tmp_path / "m.sqlite"
    store = SqliteStore(str(path))
    await put(store, "/topics/t", b"t")
    await store.close()
    data = path.read_bytes()
    assert b"ON node (" in data
    path.write_bytes(data.replace(b"ON node (", b"ON nod\xf2 ("))
    store = SqliteStore(str(path))
    with pytest.raises(StoreFailure, match="is damaged"):
        await store.list("/topics/")
    await store.close()


async def test_a_full_disk_refuses_a_write_and_leaves_the_store_of_use(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "m.sqlite"))
    await put(store, "/a", b"1")
    (pages,) = await store._run(lambda db: db.execute("PRAGMA page_count").fetchone())
    await store._run(lambda db: db.execute(f"PRAGMA max_page_count={pages}").fetchone())
    with pytest.raises(StoreFailure, match="full"):
        await put(store, "/b", bytes(100_000))
    await put(store, "/a", b"2", 1)
    assert await store.list("/") == {"/a": Stored(b"2", 2)}
    await store.close()


async def test_a_new_file_that_another_broker_makes_at_once_is_waited_for(tmp_path: Path) -> None:
    """SQLite refuses to change a file's mode while another process does, and does not wait."""
    path = str(tmp_path / "m.sqlite")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store = SqliteStore(path)
    opening = asyncio.create_task(store.get("/a"))
    await asyncio.wait([opening], timeout=0.1)
    assert not opening.done()
    other.execute("COMMIT")
    other.close()
    assert await opening is None
    await store.close()


@pytest.mark.parametrize("is_replaced", [True, False])
async def test_a_file_that_is_not_there_any_more_is_not_written(
    tmp_path: Path, is_replaced: bool
) -> None:
    """SQLite would go on with the file that no path names: all that is written would be lost."""
    path, aside = tmp_path / "m.sqlite", tmp_path / "aside"
    store = SqliteStore(str(path))
    await put(store, "/a", b"1")
    path.rename(aside)
    if is_replaced:
        path.write_bytes(aside.read_bytes())
    for call in (put(store, "/b", b"1"), store.changes(0)):
        with pytest.raises(StoreFailure, match="was replaced or removed while it was open"):
            await call
    aside.rename(path)
    await put(store, "/b", b"1")
    assert list(await store.list("/")) == ["/a", "/b"]
    await store.close()
