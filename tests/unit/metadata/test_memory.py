"""The store in memory, shared by brokers of which each has a thread and an event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from oncelog.metadata import Conflict, MemoryStore, SessionId, Stored, StoreFailure
from tests.unit.metadata.contract import put

BROKERS_COUNT = 4
WRITES_COUNT = 50


async def count_up(store: MemoryStore) -> None:
    for _ in range(WRITES_COUNT):
        while True:
            value, version = await store.get("/count") or (b"0", 0)
            try:
                await put(store, "/count", str(int(value) + 1).encode(), version)
            except Conflict:
                continue
            break


def test_of_writers_in_several_threads_none_loses_a_write() -> None:
    store = MemoryStore()
    with ThreadPoolExecutor(BROKERS_COUNT) as threads:
        list(threads.map(lambda _: asyncio.run(count_up(store)), range(BROKERS_COUNT)))
    stored = asyncio.run(store.get("/count"))
    assert stored == (str(BROKERS_COUNT * WRITES_COUNT).encode(), BROKERS_COUNT * WRITES_COUNT)


def test_a_write_wakes_who_waits_in_another_thread() -> None:
    store = MemoryStore()
    begun = threading.Barrier(BROKERS_COUNT + 1)

    async def follow() -> int:
        asyncio.get_running_loop().call_soon(begun.wait)
        async with asyncio.timeout(60):
            return (await store.changes(0, wait_ms=600_000)).revision

    with ThreadPoolExecutor(BROKERS_COUNT) as threads:
        waiting = [threads.submit(asyncio.run, follow()) for _ in range(BROKERS_COUNT)]
        begun.wait()
        asyncio.run(put(store, "/a", b"1"))
        assert [one.result() for one in waiting] == [1] * BROKERS_COUNT


def test_a_follower_whose_loop_has_ended_stops_no_writer() -> None:
    store = MemoryStore()
    loop = asyncio.new_event_loop()
    # It would say of the task, at a later test's time, that it was never ended.
    loop.set_exception_handler(lambda _loop, _context: None)
    following = loop.create_task(store.changes(0, wait_ms=600_000))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    asyncio.run(put(store, "/a", b"1"))
    assert not following.done()


async def test_a_connection_that_is_cut_fails_and_loses_its_sessions() -> None:
    store = MemoryStore()
    mine, other = store.connection(), store.connection()
    session = await mine.open_session(1)
    await put(mine, "/a", b"1", session=session)
    waiting = asyncio.create_task(mine.changes(1, wait_ms=600_000))
    await asyncio.sleep(0)
    mine.cut()
    with pytest.raises(StoreFailure, match="out of reach"):
        await waiting
    with pytest.raises(StoreFailure, match="out of reach"):
        await mine.open_session(1)
    assert await other.list("/") == {}
    known = [session.is_alive]  # Its owner cannot know.
    mine.heal()
    await session.wait_ended()
    known.append(session.is_alive)
    mine.cut()
    assert [*known, session.is_alive] == [True, False, False]


async def test_a_short_cut_ends_no_session() -> None:
    connection = MemoryStore().connection()
    session = await connection.open_session(1)
    await put(connection, "/a", b"1", session=session)
    connection.cut(ends_sessions=False)
    connection.heal()
    assert session.is_alive
    assert await connection.get("/a") is not None


async def test_an_answer_that_comes_after_a_cut_is_lost() -> None:
    store = MemoryStore()

    class Cut(MemoryStore):
        async def get(self, path: str) -> Stored | None:
            connection.cut()
            return await store.get(path)

    connection = Cut().connection()
    with pytest.raises(StoreFailure, match="out of reach"):
        await connection.get("/a")


async def test_a_closed_connection_ends_its_sessions_and_no_others() -> None:
    store = MemoryStore()
    mine, other = store.connection(), store.connection()
    for connection, path in ((mine, "/mine"), (other, "/other")):
        await put(connection, path, b"1", session=await connection.open_session(1))
    await mine.close()
    assert list(await other.list("/")) == ["/other"]
    with pytest.raises(StoreFailure, match="closed"):
        await mine.get("/other")


def test_a_session_is_ended_by_a_thread_without_an_event_loop() -> None:
    store = MemoryStore()
    opened = threading.Event()
    sessions: list[SessionId] = []

    async def own() -> None:
        session = await store.open_session(1)
        sessions.append(session.session_id)
        asyncio.get_running_loop().call_soon(opened.set)
        async with asyncio.timeout(60):
            await session.wait_ended()

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(asyncio.run, own())
        opened.wait()
        assert store.expire(sessions[0])
        assert not store.expire(sessions[0])
        done.result()


async def test_a_session_that_begins_as_the_connection_is_cut_ends() -> None:
    """Another thread cuts it, at any moment."""

    class Store(MemoryStore):
        def begin_session(self, can_learn: Callable[[], bool]) -> Any:
            session = super().begin_session(can_learn)
            begun.append(session.session_id)
            connection.cut()
            return session

    begun: list[SessionId] = []
    store = Store()
    connection = store.connection()
    with pytest.raises(StoreFailure, match="out of reach"):
        await connection.open_session(1_000)
    assert not store.has_session(begun[0])


async def test_who_looks_as_a_cut_is_healed_finds_it_healed() -> None:
    """In another thread, at the very moment when it is woken."""

    class Store(MemoryStore):
        def wake(self) -> None:
            super().wake()
            known.append(session.is_alive)

    known: list[bool] = []
    connection = Store().connection()
    session = await connection.open_session(1)
    connection.cut()
    connection.heal()
    assert known == [True, False]
