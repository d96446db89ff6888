"""The store in memory, shared by brokers of which each has a thread and an event loop."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from oncelog.metadata import Conflict, MemoryStore
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
    following = loop.create_task(store.changes(0, wait_ms=600_000))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    asyncio.run(put(store, "/a", b"1"))
    assert not following.done()
