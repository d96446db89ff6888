"""How sessions of brokers that share one SQLite file end: by lock, by beat, by boot, by hand."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from oncelog.metadata import MetadataStore, Session, SessionExpired, StoreFailure
from oncelog.metadata.session_file import SessionFile
from oncelog.metadata.sqlite import SqliteStore
from oncelog.metadata.sqlite_sessions import Machine, SqliteSession
from tests.unit.metadata.contract import put, version_of

TIMEOUT_MS = 60_000


class Party:
    """A broker's store on a clock that the test moves, which polls and beats when told to."""

    def __init__(self, name: str, path: Path, machine: Machine) -> None:
        self.name = name
        self.store = SqliteStore(str(path), machine=machine)
        self.session: Session

    async def register(self) -> None:
        """Open a session, and bind a value of that name to it."""
        self.session = await self.store.open_session(TIMEOUT_MS)
        await put(self.store, f"/{self.name}", b"1", session=self.session)

    async def beat(self) -> None:
        """Do what the store's tasks do from time to time."""
        await self.store.beat()
        await self.store.poll()

    async def die(self) -> None:
        """Leave the file as the death of the process does."""
        await self.store.close()


class Brokers:
    """Parties on one file of one machine. Their tasks pause until `let_pass`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_ms = 1_000_000
        self.boot_id = "first boot"
        self.pauses_s: list[float] = []
        self._parties: list[Party] = []
        self._pausing: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def sleep(self, delay_s: float) -> None:
        self.pauses_s.append(delay_s)
        future = asyncio.get_running_loop().create_future()
        self._pausing.put_nowait(future)
        await future

    async def let_pass(self, time_ms: int, tasks_count: int) -> None:
        """Move the clock while so many tasks pause, and let each of them work once."""
        async with asyncio.timeout(60):
            pausing = [await self._pausing.get() for _ in range(tasks_count)]
        self.now_ms += time_ms
        for future in pausing:
            future.set_result(None)

    def party(self, name: str) -> Party:
        machine = Machine(lambda: self.boot_id, lambda: self.now_ms * 1_000_000, self.sleep)
        self._parties.append(Party(name, self.path, machine))
        return self._parties[-1]

    async def registered(self, *names: str) -> list[Party]:
        parties = [self.party(name) for name in names]
        for party in parties:
            await party.register()
        return parties

    def file(self, slot: int) -> Path:
        return Path(f"{self.path}-session-{slot}")

    async def close(self) -> None:
        for party in self._parties:
            await party.store.close()


@asynccontextmanager
async def brokers(folder: Path) -> AsyncIterator[Brokers]:
    found = Brokers(folder / "m.sqlite")
    try:
        yield found
    finally:
        await found.close()


async def names(store: MetadataStore) -> list[str]:
    """Who is registered."""
    return [path.removeprefix("/") for path in await store.list("/")]


async def test_a_lone_session_does_not_beat(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        (a,) = await c.registered("a")
        before = c.file(0).read_bytes()
        c.now_ms += 10 * TIMEOUT_MS
        await a.store.poll()
        assert c.file(0).read_bytes() == before
        assert a.session.is_alive


async def test_a_lone_broker_polls_by_one_statement(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        (a,) = await c.registered("a")
        await a.store.poll()
        statements: list[str] = []
        await a.store._run(lambda db: db.set_trace_callback(statements.append))
        await a.store.poll()
        assert len(statements) == 1


async def test_who_has_company_looks_more_often_than_it_beats(tmp_path: Path) -> None:
    """What one broker decides, clients of the others wait for."""
    async with brokers(tmp_path) as c:
        a, _ = await c.registered("a", "b")
        await c.let_pass(1, 3)
        assert c.pauses_s == [0.5, 0.1, 0.5], "the first one alone, the second one, and its beats"
        await c.let_pass(1, 4)
        assert sorted(c.pauses_s[3:]) == [0.1, 0.1, 0.5, 0.5]
        assert a.session.is_alive


async def test_who_waits_for_changes_is_told_that_the_file_fails(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        (a,) = await c.registered("a")
        revision = (await a.store.changes(0)).revision
        waiting = asyncio.create_task(a.store.changes(revision, wait_ms=600_000))
        await c.let_pass(1, 1)
        await a.store._run(lambda db: db.execute("ALTER TABLE node RENAME TO away"))
        await c.let_pass(1, 1)
        async with asyncio.timeout(60):
            with pytest.raises(StoreFailure, match="no such table: node"):
                await waiting


async def test_beats_begin_with_the_second_session(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        alone = c.file(0).read_bytes()
        await a.beat()
        assert c.file(0).read_bytes() != alone
        for _ in range(5):
            c.now_ms += TIMEOUT_MS
            await a.store.beat()
            await b.store.beat()
            await a.store.poll()
            await b.store.poll()
        assert a.session.is_alive
        assert b.session.is_alive
        assert await names(a.store) == ["a", "b"]


async def test_brokers_that_do_nothing_keep_their_sessions(tmp_path: Path) -> None:
    """A task of each store beats, and one looks at the other."""
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        await c.let_pass(TIMEOUT_MS // 4, 3)  # The first has no company yet, and only looks.
        for _ in range(20):
            await c.let_pass(TIMEOUT_MS // 4, 4)
        assert a.session.is_alive
        assert b.session.is_alive
        assert await names(a.store) == ["a", "b"]


async def test_a_store_looks_four_times_within_the_shortest_timeout(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        a = c.party("a")
        for timeout_ms in (TIMEOUT_MS, 400):
            session = await a.store.open_session(timeout_ms)
            await c.let_pass(1, 1)
        await c.let_pass(1, 1)
        await session.close()
        await c.let_pass(1, 1)
        await c.let_pass(1, 1)
        assert c.pauses_s[:2] == [0.5, 0.1]
        assert c.pauses_s[-1] == 0.5


async def test_a_session_that_could_not_be_opened_leaves_its_slot(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        a = c.party("a")
        await a.store._run(lambda db: db.execute("ALTER TABLE session RENAME TO away"))
        with pytest.raises(StoreFailure, match="no such table: session"):
            await a.register()
        await a.store._run(lambda db: db.execute("ALTER TABLE away RENAME TO session"))
        await c.registered("b")
        assert not c.file(1).exists()


async def test_a_session_whose_beat_is_late_is_ended_by_who_polls(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        await a.beat()
        c.now_ms += TIMEOUT_MS
        await b.beat()
        assert await names(b.store) == ["a", "b"]
        c.now_ms += 1
        await b.store.poll()
        assert await names(b.store) == ["b"]
        assert b.session.is_alive


async def test_a_hung_owner_that_wakes_up_knows_that_its_session_ended(tmp_path: Path) -> None:
    """Also where nobody has ended it yet: somebody may at any moment."""
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        await a.beat()
        c.now_ms += TIMEOUT_MS + 1
        beaten = c.file(0).read_bytes()
        await a.store.beat()
        assert c.file(0).read_bytes() == beaten
        with pytest.raises(SessionExpired):
            await put(a.store, "/a", b"2", 1, session=a.session)
        assert not a.session.is_alive
        await a.session.wait_ended()
        assert await names(b.store) == []
        await a.store.poll()
        assert await names(b.store) == []


async def test_a_beat_that_could_not_be_written_does_not_count(tmp_path: Path) -> None:
    """Others see the one before."""

    class FullDisk:
        def beat(self, now_ns: int) -> None:
            raise OSError(errno.ENOSPC, "no space is left")

    async with brokers(tmp_path) as c:
        a, _ = await c.registered("a", "b")
        await a.beat()
        session = a.session
        assert isinstance(session, SqliteSession)
        file, session.file = session.file, cast(SessionFile, FullDisk())
        c.now_ms += TIMEOUT_MS
        await a.store.beat()
        known = [session.is_alive]
        c.now_ms += 1
        assert [*known, session.is_alive] == [True, False]
        session.file = file


async def test_a_session_that_is_being_closed_is_not_alive(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        (a,) = await c.registered("a")
        closing = asyncio.create_task(a.session.close())
        await asyncio.sleep(0)
        assert not a.session.is_alive
        assert not closing.done()
        await closing


async def test_a_late_owner_whose_session_was_ended_cannot_write(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        await a.beat()
        c.now_ms += TIMEOUT_MS + 1
        await b.beat()
        c.now_ms -= TIMEOUT_MS  # As where it beat just before it was stopped.
        with pytest.raises(SessionExpired):
            await put(a.store, "/more", b"1", session=a.session)
        assert not a.session.is_alive
        assert await b.store.get("/more") is None


async def test_a_silent_session_is_late_after_its_timeout_in_company(tmp_path: Path) -> None:
    """A lone broker may have been stopped before the second one came, and beats no more."""
    async with brokers(tmp_path) as c:
        await c.registered("a")
        c.now_ms += 10 * TIMEOUT_MS
        (b,) = await c.registered("b")
        await b.beat()
        c.now_ms += TIMEOUT_MS
        await b.beat()
        assert await names(b.store) == ["a", "b"]
        c.now_ms += 1
        await b.beat()
        assert await names(b.store) == ["b"]


async def test_who_has_bound_nothing_takes_nobody_for_late(tmp_path: Path) -> None:
    """The other cannot know that it has company."""
    async with brokers(tmp_path) as c:
        (a,) = await c.registered("a")
        b = c.party("b")
        await b.store.open_session(TIMEOUT_MS)
        reader = c.party("reader")
        for _ in range(3):
            c.now_ms += TIMEOUT_MS
            await b.beat()
            await reader.store.poll(looks=True)
        assert await names(b.store) == ["a"]
        await a.store.poll()
        assert a.session.is_alive


async def test_the_session_of_a_dead_process_is_ended_by_who_polls(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        await a.die()
        assert not a.session.is_alive
        assert await names(b.store) == ["a", "b"]
        await b.store.poll()
        assert await names(b.store) == ["b"]


async def test_a_newcomer_ends_the_session_of_the_life_before(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        for _ in range(3):
            (a,) = await c.registered("a")
            assert await version_of(a.store, "/a") == 1
            await a.die()
        assert not c.file(1).exists()


async def test_a_restart_of_the_machine_ends_all_sessions(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        await c.registered("a", "b")
        c.boot_id = "second boot"
        (d,) = await c.registered("d")
        assert await names(d.store) == ["d"]


async def test_an_expired_session_is_known_to_its_owner_at_the_next_poll(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        await b.store.expire(a.session.session_id)
        assert await names(b.store) == ["b"]
        await a.store.poll()
        assert not a.session.is_alive


async def test_who_expires_its_own_session_knows_it_at_once(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        await a.store.expire(a.session.session_id)
        assert not a.session.is_alive
        assert b.session.is_alive


def damaged(content: bytes) -> bytes:
    return content[:40] + bytes([content[40] ^ 1]) + content[41:]


@pytest.mark.parametrize("damage", [damaged, lambda _: b"", lambda _: b"\xff" * 200])
async def test_a_beat_that_cannot_be_read_is_replaced_by_the_next(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        await a.beat()
        c.file(0).write_bytes(damage(c.file(0).read_bytes()))
        c.now_ms += TIMEOUT_MS
        await b.beat()
        await a.store.beat()
        c.now_ms += 1
        await b.beat()
        assert await names(b.store) == ["a", "b"]
        c.file(0).write_bytes(damage(c.file(0).read_bytes()))
        await b.beat()
        c.now_ms += TIMEOUT_MS
        await b.beat()
        assert await names(b.store) == ["a", "b"]
        c.now_ms += 1
        await b.beat()
        assert await names(b.store) == ["b"]


async def test_a_session_that_lost_its_file_is_ended_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        c.file(0).unlink()
        await b.store.poll()
        assert await names(b.store) == ["b"]
        assert f"session {a.session.session_id} has lost its file" in caplog.text
        await a.store.poll()
        assert not a.session.is_alive


async def test_a_slot_is_taken_by_the_next_session(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        await a.die()
        (d,) = await c.registered("d")
        assert await names(b.store) == ["b", "d"]
        await b.store.poll()
        assert d.session.is_alive
        assert b.session.is_alive
        assert not c.file(2).exists()


async def test_where_files_cannot_be_locked_no_session_is_opened(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        c.file(0).mkdir()
        with pytest.raises(
            StoreFailure, match="session-0 cannot be used for a session: Is a directory"
        ):
            await c.registered("a")


async def test_the_end_of_a_session_is_not_synced(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        modes: list[int] = []

        def noted(statement: str) -> None:
            if statement.startswith("DELETE FROM session"):
                modes.append(-1)
            elif statement.startswith("PRAGMA synchronous="):
                modes.append(int(statement[-1]))

        await b.store._run(lambda db: db.set_trace_callback(noted))
        await a.die()
        await b.store.poll()
        assert modes == [1, -1, 2]


async def test_who_opens_another_session_hears_of_the_end_of_the_first(tmp_path: Path) -> None:
    async with brokers(tmp_path) as machine:
        one, other = await machine.registered("one", "other")
        await other.store.expire(one.session.session_id)
        first = one.session
        await one.register()
        assert not first.is_alive
        await asyncio.wait_for(first.wait_ended(), 20)
        assert one.session.is_alive


async def test_nothing_is_kept_of_sessions_that_are_gone(tmp_path: Path) -> None:
    """Each life of each broker has a new one, and one that was alone has not beaten."""
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        await b.store.poll()
        silent = b.store._sessions._silent_since_ns
        assert list(silent) == [a.session.session_id]
        await a.die()
        await b.store.poll()
        await b.store.poll(looks=True)
        assert b.store._sessions._silent_since_ns == {}


async def test_each_session_of_a_store_beats(tmp_path: Path) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        more = await a.store.open_session(TIMEOUT_MS)
        await put(a.store, "/more", b"1", session=more)
        await b.store.poll()
        for _ in range(3):
            c.now_ms += TIMEOUT_MS
            await a.store.beat()
            await b.store.beat()
            await b.store.poll()
        assert await names(b.store) == ["a", "b", "more"]


@pytest.mark.parametrize(
    "look", [lambda a: a.store.poll(), lambda a: a.store.open_session(TIMEOUT_MS), Party.die]
)
async def test_a_store_learns_of_the_end_of_each_of_its_sessions_and_leaves_its_slot(
    tmp_path: Path, look: Callable[[Party], Awaitable[object]]
) -> None:
    async with brokers(tmp_path) as c:
        a, b = await c.registered("a", "b")
        more = await a.store.open_session(TIMEOUT_MS)
        await put(a.store, "/more", b"1", session=more)
        for session in (a.session, more):
            await b.store.expire(session.session_id)
        await look(a)
        assert not a.session.is_alive
        assert not more.is_alive
        taken = [one.store._sessions.own[0].row.slot for one in await c.registered("d", "e")]
        assert taken == [0, 2]


async def test_of_the_sessions_of_a_write_none_may_be_late(tmp_path: Path) -> None:
    """Others may have ended it: a shorter one may be late beside one that is not."""
    async with brokers(tmp_path) as c:
        a, _ = await c.registered("a", "b")
        short = await a.store.open_session(TIMEOUT_MS // 2)
        await a.beat()
        ids = [a.session.session_id, short.session_id]
        assert [one.session_id for one in a.store._sessions.new(ids)] == ids[1:]
        c.now_ms += TIMEOUT_MS // 2 + 1
        for named in (ids, ids[::-1]):
            with pytest.raises(SessionExpired, match=f"session {short.session_id} has ended"):
                a.store._sessions.new(named)
