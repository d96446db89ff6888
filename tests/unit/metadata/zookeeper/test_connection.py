"""What a connection asks of kazoo and makes of its answers, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    NoAuthError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from oncelog.core.secret import Secret
from oncelog.core.zookeeper_limits import ZOOKEEPER_IN_FLIGHT_COUNT_MAX
from oncelog.metadata.store import StoreFailure
from oncelog.metadata.zookeeper.access import Access
from oncelog.metadata.zookeeper.client import OPEN, Acl, acl_for
from oncelog.metadata.zookeeper.connection import ZooKeeperConnection
from oncelog.metadata.zookeeper.nodes import parse_servers

SESSION = "0x1"
DIGEST = Secret("broker:secret")
TURNS_COUNT = 50


class Promise:
    """An answer that is there, or that `hold` keeps back."""

    def __init__(
        self, value: object = None, hold: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        self.value = value
        self.exception: Exception | None = value if isinstance(value, Exception) else None
        self._hold = hold

    def rawlink(self, callback: Callable[[Promise], None]) -> None:
        if self._hold is None:
            callback(self)
        else:
            self._hold(lambda: callback(self))


class Kazoo:
    """A client that is connected; it notes what it is asked to change."""

    connected = True

    def __init__(self) -> None:
        self.acls: dict[str, Acl] = {}
        self.made: list[str] = []
        self.closed: list[str] = []
        self.results: list[object] = []
        """What a transaction's operations are answered with."""
        self.reads_count = 1
        """Reads are answered when so many wait."""
        self.reads: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()

    def start_async(self) -> None:
        pass

    def get_async(self, path: str, watch: object) -> Promise:
        return Promise(NoNodeError(), self._hold)

    def _hold(self, answer: Callable[[], None]) -> None:
        self.reads.append(answer)
        if len(self.reads) == self.reads_count:
            for one in self.reads:
                one()
            self.reads.clear()

    def create_async(self, path: str, value: bytes, acl: Acl) -> Promise:
        self.made.append(path)
        return Promise(path)

    def get_acls_async(self, path: str) -> Promise:
        return Promise((self.acls[path], None) if path in self.acls else NoNodeError())

    def set_acls_async(self, path: str, acl: Acl) -> Promise:
        self.acls[path] = acl
        return Promise()

    def transaction(self) -> Kazoo:
        return self

    def commit_async(self) -> Promise:
        return Promise(self.results)

    def stop(self) -> None:
        """End the session while the event loop goes on: in a thread of its caller."""
        for _ in range(TURNS_COUNT):
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result()
        self.closed.append("session")

    def close(self) -> None:
        self.closed.append("client")


def connected(
    connect: str = "127.0.0.1:1", timeout_ms: int = 60_000, **settings: Any
) -> tuple[ZooKeeperConnection, Kazoo]:
    """A connection that has a session, and the client below it."""
    connection = ZooKeeperConnection(parse_servers(connect), timeout_ms, lambda: None, **settings)
    kazoo: Any = Kazoo()
    connection._client = kazoo
    connection.session_id = connection._kazoo_session_id = connection._synced_id = SESSION
    return connection, kazoo


@pytest.mark.parametrize(
    ("known", "held", "is_connected"), [("b", "b", True), ("a", "b", False), ("", "", False)]
)
async def test_a_session_that_the_loop_does_not_know_yet_is_waited_for(
    known: str, held: str, is_connected: bool
) -> None:
    """What is asked for an earlier session would go out in the next one."""
    connection, _ = connected()
    connection.session_id, connection._kazoo_session_id = known, held
    if is_connected:
        await connection._until_connected(0)
    else:
        with pytest.raises(StoreFailure, match="does not answer"):
            await connection._until_connected(0)


async def test_a_chroot_is_made_with_all_nodes_above_it_the_highest_first() -> None:
    connection, kazoo = connected("127.0.0.1:1/a/b/c/d")
    await connection.make_chroot()
    assert kazoo.made == ["/a", "/a/b", "/a/b/c", "/a/b/c/d"]


async def test_only_nodes_that_are_open_get_another_acl() -> None:
    connection, kazoo = connected("127.0.0.1:1/c", access=Access(digest=DIGEST, sets_acls=True))
    of_all, of_brokers = acl_for(DIGEST, is_secret=False), acl_for(DIGEST, is_secret=True)
    strict = [*of_brokers, *of_brokers]  # As an operator may have it: no more open than ours.
    kazoo.acls = {"/c/brokers": OPEN, "/c/oncelog": OPEN, "/c/config": strict}
    paths = ["/brokers", "/gone", "/config", "/oncelog"]
    assert await connection.close_to_others(paths) == 2
    assert kazoo.acls == {"/c/brokers": of_all, "/c/oncelog": of_brokers, "/c/config": strict}
    assert await connection.close_to_others(paths) == 0


@pytest.mark.parametrize(
    ("results", "is_written"),
    [
        (["/a", True], True),
        ([RolledBackError(), BadVersionError(), RuntimeInconsistency()], False),
        ([RolledBackError(), NoNodeError(), RuntimeInconsistency()], False),
    ],
)
async def test_a_step_that_was_outrun_is_not_written(
    results: list[object], is_written: bool
) -> None:
    connection, kazoo = connected()
    kazoo.results = results
    assert await connection.transact([], None) is is_written


@pytest.mark.parametrize(
    ("cause", "text"), [(NoAuthError(), "are for others"), (BadArgumentsError(), "BadArguments")]
)
async def test_a_step_that_is_refused_for_another_cause_is_a_failure(
    cause: Exception, text: str
) -> None:
    """ZooKeeper says so of one operation, and of those before and after it that they are undone."""
    connection, kazoo = connected()
    kazoo.results = [RolledBackError(), RolledBackError(), cause, RuntimeInconsistency()]
    with pytest.raises(StoreFailure, match=f"refused a write: .*{text}"):
        await connection.transact([], None)


async def test_requests_that_were_not_answered_in_time_leave_room_for_as_many() -> None:
    connection, kazoo = connected(timeout_ms=10, reconnect_wait_ms=10)
    every = ["/a"] * ZOOKEEPER_IN_FLIGHT_COUNT_MAX
    kazoo.reads_count = len(every) + 1
    with pytest.raises(StoreFailure, match="does not answer"):
        await connection.get_all([*every, "/one/more"])
    assert len(kazoo.reads) == len(every)
    kazoo.reads.clear()
    kazoo.reads_count = len(every)
    connection.timeout_ms = 20_000
    assert await connection.get_all(every) == [None] * len(every)


async def close(connection: ZooKeeperConnection) -> None:
    await connection.close()


async def hang(connection: ZooKeeperConnection) -> None:
    """Have the thread that watches the loop find that it has not run for the session's timeout."""
    assert connection._beat is not None
    connection._beat.cancel()


@pytest.mark.parametrize(("end", "timeout_ms"), [(close, 60_000), (hang, 10)])
async def test_a_session_is_known_to_have_ended_once_the_server_knows_it(
    end: Callable[[ZooKeeperConnection], Awaitable[None]], timeout_ms: int
) -> None:
    """What was bound to it is gone then: the next session may bind the same."""
    connection, kazoo = connected(timeout_ms=timeout_ms)
    earlier, present = connection.ended("0x0"), connection.ended(SESSION)
    await connection.start(60_000)
    assert [earlier.is_set(), present.is_set()] == [True, False]
    await end(connection)
    async with asyncio.timeout(20):
        await present.wait()
    assert kazoo.closed == ["session", "client"]
    assert connection.is_over


async def test_each_session_but_the_next_one_has_ended() -> None:
    connection, _ = connected()
    ended = [connection.ended(one) for one in ("0x0", SESSION)]
    connection._moved("")
    assert [one.is_set() for one in ended] == [True, True]
    connection._moved("0x2")
    assert not connection.ended("0x2").is_set()
    assert connection.ended(SESSION).is_set()
