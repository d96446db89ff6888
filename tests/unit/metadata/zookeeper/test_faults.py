"""A store when its connection, its session or ZooKeeper itself is lost."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from oncelog.core.zookeeper_limits import (
    ZOOKEEPER_IN_FLIGHT_COUNT_MAX,
    ZOOKEEPER_RING_STEPS_COUNT_MAX,
    ZOOKEEPER_WRITES_COUNT_MAX,
)
from oncelog.metadata.store import Change, SessionExpired, StoreFailure, Write
from oncelog.metadata.zookeeper import ZooKeeperStore
from oncelog.metadata.zookeeper.operations import Create
from tests.support.tcp_proxy import tcp_proxy
from tests.support.zookeeper import chroot, one_server, shared_server
from tests.unit.metadata.contract import put
from tests.unit.metadata.zookeeper import suspended
from tests.unit.metadata.zookeeper.stores import stores, through, transaction_number

pytestmark = pytest.mark.slow

T = TypeVar("T")
WAIT_MS = 60_000


async def reached(call: Callable[[], Awaitable[T]]) -> T:
    """The answer to a call that is made again while the store fails: kazoo connects in its time."""
    async with asyncio.timeout(60):
        while True:
            with suppress(StoreFailure):
                return await call()


async def test_a_step_whose_answer_is_lost_may_have_been_written() -> None:
    connect = chroot()
    async with tcp_proxy(shared_server().port) as proxy, stores() as opened:
        store = opened(through(proxy.port, connect))
        await put(store, "/a", b"1")
        seen = await store.changes(0)
        proxy.lose_answer_to(transaction_number(1))
        with pytest.raises(StoreFailure, match="the connection was lost"):
            await put(store, "/a", b"2", 1)
        assert proxy.has_lost
        proxy.mend()
        changes = await store.changes(seen.revision, wait_ms=WAIT_MS)
        assert changes.entries == (Change("/a", b"2", 2),)
        assert proxy.connections_count == 2


async def test_a_session_outlives_a_lost_connection() -> None:
    connect = chroot()
    async with tcp_proxy(shared_server().port) as proxy, stores() as opened:
        store, other = opened(through(proxy.port, connect)), opened(connect)
        session = await store.open_session(18_000)
        await store.write_all([Write("/a", b"1", 0, session.session_id)])
        for _ in range(2):
            proxy.drop()
            await store.list("/")
        assert session.is_alive
        assert await other.get("/a") == (b"1", 1)


async def test_a_server_that_is_silent_at_first_does_not_cost_the_session() -> None:
    connect = chroot()
    async with tcp_proxy(shared_server().port) as proxy, stores() as opened:
        store = opened(through(proxy.port, connect), session_timeout_ms=4_500)
        session = await store.open_session(4_500)
        await store.write_all([Write("/a", b"1", 0, session.session_id)])
        proxy.mute_count = 2
        proxy.drop()
        assert await reached(partial(store.get, "/a")) == (b"1", 1)
        assert session.is_alive
        assert proxy.mute_count == 0


async def write_a_ring(store: ZooKeeperStore) -> None:
    """Write so many steps that the ring does not name those before."""
    for version in range(1, ZOOKEEPER_RING_STEPS_COUNT_MAX):
        await put(store, "/new", b"1", version)


async def write_a_long_step(store: ZooKeeperStore) -> None:
    """Write a step whose paths the ring does not name."""
    paths = [f"/long/{'x' * 100}{number}" for number in range(ZOOKEEPER_WRITES_COUNT_MAX)]
    await store.write_all([Write(path, b"1", 0) for path in paths])
    await put(store, "/new", b"1", 1)


@pytest.mark.parametrize(
    "write", [write_a_long_step, pytest.param(write_a_ring, marks=pytest.mark.soak)]
)
async def test_a_reader_that_was_away_for_a_whole_ring_reads_everything(
    write: Callable[[ZooKeeperStore], Awaitable[None]],
) -> None:
    connect = chroot()
    async with tcp_proxy(shared_server().port) as proxy, stores() as opened:
        one = opened(connect)
        other = opened(through(proxy.port, connect), reconnect_wait_ms=100)
        for path in ("/kept", "/deleted", "/restored"):
            await put(one, path, b"1")
        seen = await other.changes(0)
        following = asyncio.create_task(other.changes(seen.revision, wait_ms=WAIT_MS))
        proxy.cut()
        with pytest.raises(StoreFailure):
            await following
        await put(one, "/deleted", None, 1)
        await put(one, "/new", b"0")
        await write(one)
        await put(one, "/restored", None, 1)
        proxy.mend()
        behind = await reached(lambda: other.changes(seen.revision, wait_ms=WAIT_MS))
        changed = {change.path: change.value for change in behind.entries}
        # The ring does not name it any more.
        assert changed["/deleted"] is None
        assert (changed["/new"], changed["/restored"]) == (b"1", None)
        assert await other.list("") == await one.list("")


async def test_a_suspended_process_loses_its_session_and_learns_it() -> None:
    connect = chroot()
    command = [sys.executable, "-m", suspended.__name__, connect]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"bound\n"
        async with stores() as opened:
            store = opened(connect)
            seen = await store.changes(0)
            process.send_signal(signal.SIGSTOP)
            changes = await store.changes(seen.revision, wait_ms=WAIT_MS)
            assert changes.entries == (Change("/alive", None, 0),)
            process.send_signal(signal.SIGCONT)
            assert await process.stdout.readline() == b"ended\n"
    finally:
        process.kill()
        await process.wait()


async def test_a_loop_that_hangs_loses_its_session() -> None:
    connect = chroot()
    async with stores() as opened:
        store, other = opened(connect, session_timeout_ms=1_000), opened(connect)
        session = await store.open_session(1_000)
        await store.write_all([Write("/a", b"1", 0, session.session_id)])
        seen = await other.changes(0)
        time.sleep(1.5)  # noqa: ASYNC251 - the loop hangs
        assert (await other.changes(seen.revision, wait_ms=WAIT_MS)).entries == (
            Change("/a", None, 0),
        )
        await session.wait_ended()
        with pytest.raises(SessionExpired):
            await store.write_all([Write("/a", b"1", 0, session.session_id)])
        again = await store.open_session(1_000)
        await store.write_all([Write("/a", b"1", 0, again.session_id)])


async def test_a_session_ends_when_the_server_says_so_and_not_before() -> None:
    server, connect = shared_server(), chroot()
    async with tcp_proxy(server.port) as proxy, stores() as opened:
        way = through(proxy.port, connect)
        store = opened(way, session_timeout_ms=1_000, reconnect_wait_ms=100)
        other = opened(connect)
        session = await store.open_session(1_000)
        await store.write_all([Write("/a", b"1", 0, session.session_id)])
        seen = await store.changes(0)
        assert await other.changes(0) == seen
        server.pause()
        try:
            with pytest.raises(StoreFailure):
                await store.changes(seen.revision, wait_ms=WAIT_MS)
            assert session.is_alive
            proxy.cut()
        finally:
            server.go_on()
        ended = await other.changes(seen.revision, wait_ms=WAIT_MS)
        assert ended.entries == (Change("/a", None, 0),)
        assert session.is_alive
        proxy.mend()
        await session.wait_ended()
        # No connection has the next session yet.
        again = await reached(lambda: store.open_session(1_000))
        await store.write_all([Write("/a", b"2", 0, again.session_id)])
        changes = await store.changes(seen.revision)
        assert changes.entries == (Change("/a", b"2", 1),)
        assert changes.revision > ended.revision


async def test_a_bound_write_does_not_go_out_in_the_next_session() -> None:
    """kazoo's thread begins the next session while the write waits for its turn."""
    async with stores() as opened:
        store = opened(chroot())
        session = await store.open_session(18_000)
        connection = store._main
        assert connection is not None
        for _ in range(ZOOKEEPER_IN_FLIGHT_COUNT_MAX):
            await connection._slots.acquire()
        create = Create("/a", b"1", is_bound=True)
        writing = asyncio.create_task(connection.transact([create], session.session_id))
        await asyncio.sleep(0)
        connection._kazoo_session_id = "0x1"
        for _ in range(ZOOKEEPER_IN_FLIGHT_COUNT_MAX):
            connection._slots.release()
        with pytest.raises(SessionExpired):
            await writing
        connection._kazoo_session_id = session.session_id
        assert await store.get("/a") is None


async def test_a_restart_of_the_server_ends_no_session() -> None:
    server, connect = shared_server(), chroot()
    async with stores() as opened:
        store = opened(connect, reconnect_wait_ms=20_000)
        session = await store.open_session(18_000)
        await store.write_all([Write("/a", b"1", 0, session.session_id)])
        for version in (1, 2):
            seen = await store.changes(0)
            server.restart()
            await put(store, "/a", b"2", version)
            changes = await store.changes(seen.revision)
            assert changes.entries == (Change("/a", b"2", version + 1),)
        assert session.is_alive


async def test_a_server_that_lost_its_data_is_not_read() -> None:
    with one_server() as server:
        async with stores() as opened:
            store = opened(server.bootstrap_servers, reconnect_wait_ms=200)
            await put(store, "/a", b"1")
            seen = await store.changes(0)
            server.kill()
            server.lose_data()
            server.start()
            with pytest.raises(StoreFailure):
                await store.changes(seen.revision)
            with pytest.raises(StoreFailure):
                await put(store, "/b", b"1")
            assert await opened(server.bootstrap_servers).list("") == {}


async def test_what_others_have_in_the_root_is_passed_over() -> None:
    with one_server() as server:
        outside = KazooClient(server.bootstrap_servers)
        outside.start()
        outside.create("/secret", b"1", acl=[make_digest_acl("they", "pass", all=True)])
        outside.create("/others", b"1", ephemeral=True)
        async with stores() as opened:
            store = opened(server.bootstrap_servers, roots={"brokers", "oncelog"})
            await put(store, "/brokers/a", b"1")
            other = opened(server.bootstrap_servers, roots={"brokers", "oncelog"})
            assert (await other.changes(0)).entries == (Change("/brokers/a", b"1", 1),)
        outside.stop()
        outside.close()
