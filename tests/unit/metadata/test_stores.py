"""What every metadata store promises, asked of each of them; and what SQLite promises beyond."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.metadata import (
    Change,
    Conflict,
    ControllerFenced,
    MemoryStore,
    MetadataStore,
    Stored,
    Write,
)
from oncelog.metadata.sqlite import SqliteStore
from oncelog.metadata.store import CONTROLLER_EPOCH_PATH, StoreFailure


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    made: MetadataStore = (
        MemoryStore() if request.param == "memory" else SqliteStore(str(tmp_path / "m.sqlite"))
    )
    yield made
    await made.close()


async def test_a_value_is_created_once_and_read_back(store: MetadataStore) -> None:
    assert await store.get("/a") is None
    assert await store.create("/a", b"1") == 1
    assert await store.get("/a") == Stored(b"1", 1)
    with pytest.raises(Conflict):
        await store.create("/a", b"2")
    assert await store.get("/a") == Stored(b"1", 1)


async def test_a_write_needs_the_version_it_has_seen(store: MetadataStore) -> None:
    await store.create("/a", b"1")
    assert await store.compare_and_set("/a", b"2", 1) == 2
    with pytest.raises(Conflict):
        await store.compare_and_set("/a", b"3", 1)
    with pytest.raises(Conflict):
        await store.compare_and_set("/missing", b"3", 1)
    assert await store.get("/a") == Stored(b"2", 2)


async def test_a_deleted_value_is_gone_and_can_be_made_again(store: MetadataStore) -> None:
    await store.create("/a", b"1")
    with pytest.raises(Conflict):
        await store.delete("/a", 9)
    await store.delete("/a", 1)
    assert await store.get("/a") is None
    with pytest.raises(Conflict):
        await store.delete("/a")
    assert await store.create("/a", b"2") == 1


async def test_a_list_is_by_prefix_and_sorted(store: MetadataStore) -> None:
    for path in ("/t/b", "/t/a", "/u", "/t_x"):
        await store.create(path, path.encode())
    assert list(await store.list("/t/")) == ["/t/a", "/t/b"]


async def test_the_feed_tells_the_newest_state_of_what_changed(store: MetadataStore) -> None:
    await store.create("/a", b"1")
    await store.create("/b", b"1")
    first = await store.changes(0)
    assert first.entries == (Change("/a", b"1"), Change("/b", b"1"))
    await store.compare_and_set("/a", b"2", 1)
    await store.compare_and_set("/a", b"3", 2)
    await store.delete("/b")
    second = await store.changes(first.revision)
    assert second.entries == (Change("/a", b"3"), Change("/b", None))
    assert second.revision > first.revision
    assert await store.changes(second.revision) == (second.revision, ())


async def test_a_waiting_feed_wakes_with_a_write(store: MetadataStore) -> None:
    async with asyncio.timeout(10):
        waiting = asyncio.create_task(store.changes(0, wait_ms=60_000))
        await asyncio.sleep(0)
        await store.create("/a", b"1")
        assert (await waiting).entries == (Change("/a", b"1"),)


async def test_a_controller_that_was_replaced_writes_nothing(store: MetadataStore) -> None:
    await store.create(CONTROLLER_EPOCH_PATH, b"1")
    await store.create("/a", b"1", controller_epoch=1)
    await store.compare_and_set(CONTROLLER_EPOCH_PATH, b"2", 1)
    with pytest.raises(ControllerFenced):
        await store.create("/b", b"1", controller_epoch=1)
    with pytest.raises(ControllerFenced):
        await store.compare_and_set("/a", b"2", 1, controller_epoch=1)
    with pytest.raises(ControllerFenced):
        await store.delete("/a", controller_epoch=1)
    assert await store.get("/a") == Stored(b"1", 1)
    await store.delete("/a", controller_epoch=2)


async def test_of_concurrent_creators_one_wins(store: MetadataStore) -> None:
    attempts = [store.create("/a", str(index).encode()) for index in range(10)]
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert [outcome for outcome in outcomes if outcome == 1] == [1]
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 9


async def test_sqlite_keeps_values_and_revisions_across_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sqlite")
    first = SqliteStore(path)
    await first.create("/a", b"1")
    await first.delete("/a")
    seen = (await first.changes(0)).revision
    await first.close()
    second = SqliteStore(path)
    await second.create("/b", b"2")
    assert (await second.changes(seen)).entries == (Change("/b", b"2"),)
    await second.close()


async def test_sqlite_finds_what_another_process_wrote(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sqlite")
    mine, other = SqliteStore(path), SqliteStore(path)
    await other.create("/a", b"1")
    assert (await mine.changes(0)).entries == (Change("/a", b"1"),)
    with pytest.raises(Conflict):
        await mine.create("/a", b"2")
    await mine.close()
    await other.close()


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


async def test_several_writes_take_effect_together_or_not_at_all(store: MetadataStore) -> None:
    await store.create("/a", b"1")
    await store.create("/b", b"1")
    seen = (await store.changes(0)).revision
    await store.write_all([Write("/a", None, 1), Write("/b", b"2", 1), Write("/c", b"1", 0)])
    assert await store.list("/") == {"/b": Stored(b"2", 2), "/c": Stored(b"1", 1)}
    changes = await store.changes(seen)
    assert set(changes.entries) == {Change("/a", None), Change("/b", b"2"), Change("/c", b"1")}
    for hopeless in (Write("/a", b"3", 1), Write("/b", b"3", 1), Write("/c", b"3", 0)):
        with pytest.raises(Conflict):
            await store.write_all([Write("/d", b"1", 0), Write("/b", None, 2), hopeless])
    assert await store.list("/") == {"/b": Stored(b"2", 2), "/c": Stored(b"1", 1)}
    assert (await store.changes(changes.revision)).entries == ()


async def test_a_replaced_controller_writes_none_of_several(store: MetadataStore) -> None:
    await store.create(CONTROLLER_EPOCH_PATH, b"2")
    with pytest.raises(ControllerFenced):
        await store.write_all([Write("/a", b"1", 0)], controller_epoch=1)
    assert await store.get("/a") is None


async def test_a_file_with_a_damaged_page_is_refused_before_anything_is_read_of_it(
    tmp_path: Path,
) -> None:
    """SQLite itself finds a page without rows in place of another, and answers that there are none.

    A broker would then set every folder aside.
    """
    path = tmp_path / "m.sqlite"
    store = SqliteStore(str(path))
    await store.create("/topics/t", b"t")
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


async def test_a_file_whose_names_are_no_text_is_refused(tmp_path: Path) -> None:
    """Python cannot decode what SQLite says of them."""
    path = tmp_path / "m.sqlite"
    store = SqliteStore(str(path))
    await store.create("/topics/t", b"t")
    await store.close()
    data = path.read_bytes()
    assert b"ON node (" in data
    path.write_bytes(data.replace(b"ON node (", b"ON nod\xf2 ("))
    store = SqliteStore(str(path))
    with pytest.raises(StoreFailure, match="is damaged"):
        await store.list("/topics/")
    await store.close()


async def test_a_follower_that_is_cancelled_as_a_change_arrives_is_stopped(
    store: MetadataStore,
) -> None:
    """`asyncio.wait_for` of Python 3.11 forgets such a cancellation, and the broker never ends."""
    revision = (await store.changes(0)).revision
    following = asyncio.create_task(store.changes(revision, wait_ms=60_000))
    changed: Any = store
    for _ in range(1000):
        await asyncio.sleep(0)
        if changed._changed._waiters:
            break
    changed._changed.set()
    following.cancel()
    await asyncio.wait([following])
    assert following.cancelled()
