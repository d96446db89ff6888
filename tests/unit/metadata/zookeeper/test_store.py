"""What brokers see of each other in one ZooKeeper, and what its nodes look like from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from oncelog.core.errors import InvariantViolation, OncelogError
from oncelog.core.zookeeper_limits import (
    ZOOKEEPER_WRITE_BYTES_MAX,
    ZOOKEEPER_WRITES_COUNT_MAX,
)
from oncelog.metadata.store import (
    Change,
    Check,
    Conflict,
    SessionExpired,
    StoreFailure,
    Write,
    WriteTooLarge,
)
from oncelog.metadata.zookeeper.connection import ZooKeeperConnection
from oncelog.metadata.zookeeper.nodes import parse_servers
from oncelog.metadata.zookeeper.ring import RING_PATH, decode_ring, newest_named
from oncelog.metadata.zookeeper.store import IMPORT_PATH
from tests.support.zookeeper import chroot, shared_server
from tests.unit.metadata.contract import put
from tests.unit.metadata.zookeeper.stores import stores

TIMEOUT_MS = 60_000


@pytest.fixture
def outside() -> Iterator[KazooClient]:
    """A monitor's or an operator's client, in ZooKeeper's root."""
    client = KazooClient(shared_server().bootstrap_servers)
    client.start()
    yield client
    client.stop()
    client.close()


def below(connect: str, path: str) -> str:
    """The path of a node in ZooKeeper's root."""
    return "/" + connect.partition("/")[2] + path


async def test_two_brokers_see_the_same_values_and_revisions() -> None:
    connect = chroot()
    async with stores() as opened:
        one, other = opened(connect), opened(connect)
        await put(one, "/a", b"1")
        await put(other, "/b", b"1")
        seen = await one.changes(0)
        assert seen.entries == (Change("/a", b"1", 1), Change("/b", b"1", 1))
        assert await other.changes(0) == seen
        assert await other.list("/") == await one.list("")


async def test_values_are_at_their_paths_below_the_chroot(outside: KazooClient) -> None:
    connect = chroot()
    async with stores() as opened:
        store = opened(connect)
        session = await store.open_session(TIMEOUT_MS)
        await store.write_all([Write("/brokers/ids/1", b"{}", 0, session.session_id)])
        await put(store, "/group-configs/..", b"x")
        data, stat = outside.get(below(connect, "/brokers/ids/1"))
        assert data == b"{}"
        assert stat.ephemeralOwner != 0
        assert list(await store.list("/group")) == ["/group-configs/.."]
        ring, ring_stat = outside.get(below(connect, RING_PATH))
        named = newest_named(decode_ring(ring, ring_stat.mzxid))
        bound = [path for path, one in named.items() if one.is_bound]
        assert bound == ["/brokers/ids/1"], "readers watch no other value"
    assert outside.exists(below(connect, "/brokers/ids/1")) is None


async def test_the_end_of_a_session_is_a_deletion_to_all() -> None:
    connect = chroot()
    async with stores() as opened:
        one, other = opened(connect), opened(connect)
        session = await one.open_session(18_000)
        await one.write_all([Write("/b/1", b"1", 0, session.session_id)])
        seen = await other.changes(0)
        assert await one.changes(0) == seen
        following = asyncio.create_task(other.changes(seen.revision, wait_ms=TIMEOUT_MS))
        await session.close()
        assert not session.is_alive
        await session.wait_ended()
        ended = await following
        assert ended.entries == (Change("/b/1", None, 0),)
        # Whoever begins later has the same revision, and so has the one whose session it was.
        assert (await opened(connect).changes(0)).revision == ended.revision
        assert (await one.changes(seen.revision)) == ended


async def test_a_deletion_of_a_bound_value_that_nobody_saw_has_its_revision() -> None:
    connect = chroot()
    async with stores() as opened:
        one, other = opened(connect), opened(connect)
        seen = await other.changes(0)
        session = await one.open_session(18_000)
        await one.write_all([Write("/b/1", b"1", 0, session.session_id)])
        await put(one, "/b/1", b"2", 1)
        before = await one.changes(0)
        await session.close()
        ended = await other.changes(seen.revision)
        assert ended.entries == (Change("/b/1", None, 0),)
        assert ended.revision == (await one.changes(before.revision)).revision


async def test_a_second_session_of_a_store_lives_by_itself() -> None:
    async with stores() as opened:
        store = opened(chroot())
        first, second = [await store.open_session(18_000) for _ in range(2)]
        assert first.session_id != second.session_id
        await store.write_all([Write("/1", b"1", 0, first.session_id)])
        await store.write_all([Write("/2", b"1", 0, second.session_id)])
        assert list(await store.list("")) == ["/1", "/2"]
        await second.close()
        assert list(await store.list("")) == ["/1"]
        assert first.is_alive
        await first.close()
        # Reads go on, by a connection with another session.
        assert await store.list("") == {}
        with pytest.raises(SessionExpired):
            await store.write_all([Write("/1", b"1", 0, first.session_id)])
        third = await store.open_session(18_000)
        await store.write_all([Write("/1", b"1", 0, third.session_id)])


async def test_a_value_is_taken_over_from_a_session_that_lives() -> None:
    connect = chroot()
    async with stores() as opened:
        one, other = opened(connect), opened(connect)
        old, new = await one.open_session(18_000), await other.open_session(18_000)
        await one.write_all([Write("/controller", b"1", 0, old.session_id)])
        await other.write_all([Write("/controller", b"2", 1, new.session_id)])
        # What the first saw does not fit again.
        with pytest.raises(Conflict):
            await put(one, "/controller", None, 1)
        await old.close()
        assert await other.get("/controller") == (b"2", 2)
        await new.close()
        assert await one.get("/controller") is None


async def test_a_step_is_bound_to_one_session() -> None:
    async with stores() as opened:
        store = opened(chroot())
        first, second = [await store.open_session(18_000) for _ in range(2)]
        with pytest.raises(InvariantViolation, match="two sessions"):
            await store.write_all(
                [Write("/1", b"1", 0, first.session_id), Write("/2", b"1", 0, second.session_id)]
            )


async def test_writers_at_the_same_time_both_write() -> None:
    connect = chroot()
    async with stores() as opened:
        writers = [opened(connect) for _ in range(3)]
        await asyncio.gather(
            *(put(one, f"/{n}-{turn}", b"1") for n, one in enumerate(writers) for turn in range(5))
        )
        assert len(await writers[0].list("/")) == 15


async def test_a_step_of_many_paths_is_read_by_all() -> None:
    connect = chroot()
    async with stores() as opened:
        one, other = opened(connect), opened(connect)
        seen = await other.changes(0)
        paths = [f"/t/{'x' * 100}{number}" for number in range(ZOOKEEPER_WRITES_COUNT_MAX)]
        await one.write_all([Write(path, b"1", 0) for path in paths])
        assert [change.path for change in (await other.changes(seen.revision)).entries] == sorted(
            paths
        )
        with pytest.raises(WriteTooLarge):
            await one.write_all([Write(f"{path}y", b"1", 0) for path in (*paths, "/z")])
        with pytest.raises(WriteTooLarge):
            await put(one, "/big", b"x" * ZOOKEEPER_WRITE_BYTES_MAX)
        await put(one, "/big", b"x" * (ZOOKEEPER_WRITE_BYTES_MAX - 4))


async def test_the_nodes_of_a_deleted_topic_are_gone(outside: KazooClient) -> None:
    connect = chroot()
    async with stores() as opened:
        store = opened(connect)
        states = [f"/brokers/topics/t/partitions/{number}/state" for number in range(3)]
        await store.write_all([Write(path, b"1", 0) for path in states])
        await put(store, "/brokers/topics/t", b"2", checks=[Check("/brokers/topics/t", 0)])
        assert await store.get("/brokers/topics/t") == (b"2", 2)
        await put(store, "/brokers/topics/t", None, 2)
        await store.write_all([Write(path, None, 1) for path in states])
        assert outside.get_children(below(connect, "/brokers/topics")) == []
        await put(store, "/brokers/topics/t", b"3")
        assert await store.get("/brokers/topics/t") == (b"3", 1)


async def test_the_nodes_of_a_kafka_cluster_are_left_alone(outside: KazooClient) -> None:
    connect = chroot()
    outside.create(below(connect, "/brokers/ids"), makepath=True)
    async with stores() as opened:
        store = opened(connect)
        for _ in range(2):
            with pytest.raises(OncelogError, match="has the nodes of an Apache Kafka cluster"):
                await store.get("/a")
    assert outside.get_children(below(connect, "")) == ["brokers"]


async def test_an_import_that_has_not_ended_is_no_store() -> None:
    connect = chroot()
    async with stores() as opened:
        await put(opened(connect), IMPORT_PATH, b"1")
        with pytest.raises(OncelogError, match="has not ended: repeat `oncelog cluster import`"):
            await opened(connect).get("/a")
        assert await opened(connect, is_import=True).get(IMPORT_PATH) == (b"1", 1)


async def test_a_store_that_lost_its_nodes_is_no_empty_store(outside: KazooClient) -> None:
    connect = chroot()
    async with stores() as opened:
        store = opened(connect)
        await put(store, "/a", b"1")
        seen = await store.changes(0)
        outside.delete(below(connect, ""), recursive=True)
        with pytest.raises(StoreFailure, match="has lost its data"):
            await store.changes(seen.revision)
        with pytest.raises(StoreFailure, match="has lost its data"):
            await put(store, "/b", b"1")
        # Somebody else began anew.
        await put(opened(connect), "/b", b"1")
        assert (await store.changes(seen.revision)).entries == (Change("/b", b"1", 1),)


async def test_a_server_that_is_not_there_is_said_in_time() -> None:
    async with stores() as opened:
        with pytest.raises(StoreFailure, match=r"ZooKeeper at 127\.0\.0\.1:1 does not answer"):
            await opened("127.0.0.1:1", connection_timeout_ms=100).get("/a")


async def test_a_connection_that_is_closed_while_it_is_made_is_not_waited_for() -> None:
    connection = ZooKeeperConnection(parse_servers("127.0.0.1:1"), 1_000, lambda: None)
    starting = asyncio.create_task(connection.start(600_000))
    await asyncio.sleep(0)
    await connection.close()
    async with asyncio.timeout(60):
        with pytest.raises(StoreFailure, match="was closed"):
            await starting


async def test_a_closed_store_answers_nothing() -> None:
    async with stores() as opened:
        store = opened(chroot())
        await put(store, "/a", b"1")
        await store.close()
        with pytest.raises(StoreFailure, match="closed"):
            await store.get("/a")
