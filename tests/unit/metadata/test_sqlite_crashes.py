"""What processes that share a SQLite file leave when they are killed or stopped."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.metadata import SessionExpired, Write
from oncelog.metadata.sqlite import SqliteStore
from tests.unit.metadata.contract import deleted, put

LONG_MS = 60_000
SHORT_MS = 1_000
DONE_TIMEOUT_S = 60

CHILD = f"""
import asyncio, sys
from oncelog.metadata import SessionExpired, Write
from oncelog.metadata.sqlite import SqliteStore

async def main(path):
    store = SqliteStore(path)
    session = await store.open_session({SHORT_MS})
    await store.write_all([Write("/child", b"1", 0, session.session_id)])
    print("registered", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(session.is_alive, flush=True)
    try:
        await store.write_all([Write("/again", b"1", 0, session.session_id)])
    except SessionExpired:
        print("expired", flush=True)
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


@asynccontextmanager
async def child(path: Path) -> AsyncIterator[Process]:
    """A process with a registered session, which writes again once it is told to."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(path), stdin=PIPE, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"registered\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.slow
async def test_a_killed_process_loses_its_session_at_once(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "m.sqlite"))
    session = await store.open_session(LONG_MS)
    await put(store, "/parent", b"1", session=session)
    async with asyncio.timeout(DONE_TIMEOUT_S), child(tmp_path / "m.sqlite") as process:
        process.kill()
        await deleted(store, "/child")
    assert list(await store.list("/")) == ["/parent"]
    await store.close()


@pytest.mark.slow
async def test_a_stopped_process_finds_its_session_ended_when_it_goes_on(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "m.sqlite"))
    session = await store.open_session(LONG_MS)
    await put(store, "/parent", b"1", session=session)
    async with asyncio.timeout(DONE_TIMEOUT_S), child(tmp_path / "m.sqlite") as process:
        process.send_signal(signal.SIGSTOP)
        await deleted(store, "/child")
        process.send_signal(signal.SIGCONT)
        said, _ = await process.communicate(b"\n")
        assert said.split() == [b"False", b"expired"]
    assert list(await store.list("/")) == ["/parent"]
    assert session.is_alive
    await store.close()


class Killed:
    """Copies of a store's files, each as a process leaves them that is killed at a statement."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "metadata.sqlite"
        self.left: list[Path] = []

    async def trace(self, store: SqliteStore) -> None:
        """Copy the files before each statement of this store."""
        await store._run(lambda db: db.set_trace_callback(self._keep))

    async def end(self, store: SqliteStore) -> None:
        """Copy them once more, and no longer."""
        await store._run(lambda db: db.set_trace_callback(None))
        self._keep("")

    def _keep(self, _statement: str) -> None:
        folder = self.path.parent / str(len(self.left))
        folder.mkdir()
        for file in self.path.parent.glob("metadata.sqlite*"):
            shutil.copy(file, folder)
        self.left.append(folder / self.path.name)


async def next_life(path: Path) -> dict[str, bytes]:
    """What a broker finds that starts on these files twice; its first life is killed too."""
    found = {}
    for life in range(2):
        store = SqliteStore(str(path))
        session = await store.open_session(LONG_MS)
        found = {path: stored.value for path, stored in (await store.list("/")).items()}
        assert "/next" not in found, "a dead session of the life before is alive"
        await put(store, "/next", str(life).encode(), session=session)
        await store.close()
    return found


async def live(store: SqliteStore) -> None:
    """A whole life of a session."""
    session = await store.open_session(LONG_MS)
    bound = Write("/bound", b"1", 0, session.session_id)
    await store.write_all([bound, Write("/kept", b"1", 0)])
    await store.write_all([bound._replace(value=b"2", version=1), Write("/kept", b"2", 1)])
    await session.close()


async def lose_its_session(store: SqliteStore) -> None:
    """A life whose session another ends."""
    session = await store.open_session(LONG_MS)
    await store.write_all([Write("/bound", b"1", 0, session.session_id), Write("/kept", b"1", 0)])
    await store.expire(session.session_id)
    with pytest.raises(SessionExpired):
        await put(store, "/bound", b"2", session=session)
    await put(store, "/kept", b"2", 1)


@pytest.mark.parametrize("life", [live, lose_its_session])
async def test_a_kill_at_any_statement_of_a_session_leaves_a_sound_store(
    tmp_path: Path, life: Callable[[SqliteStore], Awaitable[None]]
) -> None:
    killed = Killed(tmp_path)
    store = SqliteStore(str(killed.path))
    await killed.trace(store)
    await life(store)
    await killed.end(store)
    await store.close()
    assert len(killed.left) > 20
    found = [await next_life(path) for path in killed.left]
    kept = [one.get("/kept") for one in found]
    assert all(set(one) <= {"/kept"} for one in found)
    assert kept == sorted(kept, key=lambda value: value or b"")
    assert set(kept) == {None, b"1", b"2"}


async def test_a_kill_as_deleted_paths_are_dropped_hides_no_deletion(tmp_path: Path) -> None:
    """Who has read revision 1 is told of each deletion, by its row or by its absence."""
    killed = Killed(tmp_path)
    store = SqliteStore(str(killed.path), deleted_count_max=1)
    names = ["/a", "/b", "/c"]
    await store.write_all([Write(name, b"1", 0) for name in names])
    await killed.trace(store)
    for name in names:
        await put(store, name, None, 1)
    await killed.end(store)
    await store.close()
    for path in killed.left:
        found = SqliteStore(str(path))
        changes = await found.changes(1)
        known: dict[str, bytes | None] = {}
        if not changes.is_whole:
            known |= dict.fromkeys(names, b"1")
        known |= {entry.path: entry.value for entry in changes.entries}
        there = {name for name, value in known.items() if value is not None}
        assert there == set(await found.list("/"))
        await found.close()


async def test_a_kill_while_the_dead_are_ended_leaves_them_to_the_next(tmp_path: Path) -> None:
    killed = Killed(tmp_path)
    dead = SqliteStore(str(killed.path))
    for number in range(2):
        await put(dead, f"/bound/{number}", b"1", session=await dead.open_session(LONG_MS))
    await dead.close()
    store = SqliteStore(str(killed.path))
    await killed.trace(store)
    await store.open_session(LONG_MS)
    await killed.end(store)
    assert await store.list("/") == {}
    await store.close()
    assert len(killed.left) > 5
    for path in killed.left:
        assert await next_life(path) == {}
