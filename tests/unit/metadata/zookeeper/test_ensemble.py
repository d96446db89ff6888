"""The store on three servers that die, hang, lag and lead in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from oncelog.metadata.store import Changes, Conflict, StoreFailure, Write
from oncelog.metadata.zookeeper import ZooKeeperStore
from tests.support.tcp_proxy import tcp_proxy
from tests.support.zookeeper import Ensemble, ensemble
from tests.unit.metadata.contract import put
from tests.unit.metadata.zookeeper.stores import stores

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

SESSION_MS = 20_000
NUMBER = "/number"


@pytest.fixture
def servers() -> Iterator[Ensemble]:
    with ensemble() as running:
        yield running


def kill_a_follower(servers: Ensemble) -> None:
    servers.followers()[0].restart()


def hang_a_follower(servers: Ensemble) -> None:
    one, other = servers.followers()
    one.pause()
    other.restart()
    one.go_on()


def hang_the_leader(servers: Ensemble) -> None:
    old = servers.leader()
    old.pause()
    servers.leader()
    old.go_on()


def kill_all(servers: Ensemble) -> None:
    servers.stop()
    servers.start()


def move_the_leader(servers: Ensemble) -> None:
    servers.move_leader()


FAULTS = (move_the_leader, kill_a_follower, hang_a_follower, hang_the_leader, kill_all)


async def count_up(store: ZooKeeperStore, is_over: Callable[[], bool]) -> int:
    """Write 1, 2 and so on; returns the last one, which the store has taken."""
    number = 0
    while not is_over():
        try:
            stored = await store.get(NUMBER)
            found, version = (0, 0) if stored is None else (int(stored.value), stored.version)
            # One whose answer was lost may have been taken.
            assert found in (number, number + 1)
            number = found
            if stored is None or number == found:
                await put(store, NUMBER, b"%d" % (number + 1), version)
                number += 1
        except StoreFailure:
            continue
        except Conflict:
            # That of a write whose answer was lost, which came late.
            continue
    return number


async def follow(store: ZooKeeperStore, until: Callable[[int], bool]) -> None:
    """Read numbers, of which none may be lower than one before, until one is the last."""
    revision, number = 0, 0
    while not until(number):
        try:
            changes = await store.changes(revision, wait_ms=200)
        except StoreFailure:
            continue
        assert changes.revision >= revision
        revision = changes.revision
        for change in changes.entries:
            if change.path == NUMBER:
                assert change.value is not None
                assert int(change.value) > number
                number = int(change.value)


async def test_what_was_written_is_read_in_order_through_all_faults(servers: Ensemble) -> None:
    last: list[int] = []
    is_over = asyncio.Event()
    connect = f"{servers.hosts}/oncelog"
    async with stores() as opened, asyncio.TaskGroup() as tasks:
        writer, reader = [opened(connect, session_timeout_ms=SESSION_MS) for _ in range(2)]
        session = await writer.open_session(SESSION_MS)
        await writer.write_all([Write("/bound", b"1", 0, session.session_id)])
        counting = tasks.create_task(count_up(writer, is_over.is_set))
        tasks.create_task(follow(reader, lambda number: [number] == last))
        for fault in FAULTS:
            await asyncio.to_thread(fault, servers)
        is_over.set()
        last.append(await counting)
        assert last[0] > len(FAULTS)
        assert session.is_alive
        assert list(await reader.list("/b")) == ["/bound"]


async def test_a_server_that_lags_shows_nothing_older(servers: Ensemble) -> None:
    leader, follower = servers.leader(), servers.followers()[0]
    async with tcp_proxy(leader.port) as proxy, stores() as opened:
        writer = opened(f"{leader.bootstrap_servers}/oncelog")
        reader = opened(f"{proxy.address}/oncelog")
        await put(writer, NUMBER, b"0")
        for number in range(1, 11):
            follower.pause()
            await put(writer, NUMBER, b"%d" % number, number)
            seen = await reader.changes(0)
            assert seen.entries[-1].value == b"%d" % number
            proxy.server_port = follower.port
            proxy.drop()
            follower.go_on()
            fresh = opened(f"{follower.bootstrap_servers}/oncelog")
            assert (await fresh.get(NUMBER) or (b"", 0))[0] == b"%d" % number
            assert await fresh.changes(0) == seen
            await fresh.close()
            assert await reader.changes(seen.revision) == Changes(seen.revision, ())
            assert (await reader.get(NUMBER) or (b"", 0))[0] == b"%d" % number
            proxy.server_port = leader.port
            proxy.drop()
