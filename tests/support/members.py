"""Several real brokers in one event loop: one metadata store in memory, sockets of the loopback.

::

    async with members(3) as cluster:
        await cluster[1].broker.controller.create_topics([TopicToCreate("t", 1, 3)])
        await cluster.kill(cluster.leader_of("t", 0))

Brokers are named by their ids, 1 to n. Each has a folder and a port that survive its restarts, and
a way of its own to the store, which a test can cut or hold up. Nothing waits for a fixed time.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from oncelog.broker.broker import Broker
from oncelog.core.config import BrokerConfig
from oncelog.metadata.memory import MemoryConnection, MemoryStore
from oncelog.metadata.store import Check, Session, StoreFailure, Write
from oncelog.runtime.disk import Disk
from oncelog.storage.files import LIFE_NAME
from oncelog.storage.lives import parse_note
from tests.support.scratch import scratch_folder

__all__ = ["Cluster", "Member", "StoreLink", "members"]

T = TypeVar("T")

UNTIL_TIMEOUT_S = 20.0
_FEW: Mapping[str, object] = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}


class StoreLink(MemoryConnection):
    """One broker's way to the store, which can also be held up, and lose answers."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.sessions: list[_LinkSession] = []
        """All that this life has opened; the last one may be alive."""
        self.is_open = asyncio.Event()
        """Calls and their answers wait while it is not set, as those of a paused process do."""
        self.is_open.set()
        self.answers_lost_count = 0
        """The answers to so many of the next writes are lost."""
        self.writes: list[Sequence[Write]] = []
        """The writes of this broker that took effect."""
        self.around_write: Callable[[Sequence[Write], bool], Awaitable[None]] | None = None
        """Awaited before each write, with False, and after it, with True."""

    @property
    def is_cut(self) -> bool:
        """Whether every call fails."""
        return self._is_cut

    def cut(self, *, ends_sessions: bool = False) -> None:
        """Have every call fail. The store ends no session before a test says so."""
        super().cut(ends_sessions=ends_sessions)

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        """See `MetadataStore.write_all`."""
        if self.around_write is not None:
            await self.around_write(writes, False)
        await super().write_all(writes, checks=checks, fence=fence)
        self.writes.append(writes)
        if self.around_write is not None:
            await self.around_write(writes, True)
        if self.answers_lost_count:
            self.answers_lost_count -= 1
            raise StoreFailure("the answer to a write is lost")

    async def open_session(self, timeout_ms: int) -> Session:
        """See `MetadataStore.open_session`. No time ends the session."""
        session = _LinkSession(self, await self._call(self._store.open_session(timeout_ms)))
        self.sessions.append(session)
        return session

    def expire(self) -> None:
        """End the session, as the store does that has not heard of the broker for a while."""
        self._store.expire(self.sessions[-1].session_id)

    async def close(self) -> None:
        """Do nothing: the session of a broker that was killed outlives it."""

    async def _call(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            await self.is_open.wait()
        except BaseException:
            call.close()
            raise
        answer = await super()._call(call)
        await self.is_open.wait()
        self.fail_if_cut()
        return answer

    def fail_if_cut(self) -> None:
        """Raise `StoreFailure` while the link is cut."""
        self._fail_if_away()


class _LinkSession:
    """A session, of whose end its owner hears over the link."""

    def __init__(self, link: StoreLink, session: Session) -> None:
        self.session_id = session.session_id
        self._link = link
        self._session = session
        self._has_ended = False

    @property
    def is_alive(self) -> bool:
        """See `Session.is_alive`."""
        hears = self._link.is_open.is_set() and not self._link.is_cut
        if hears and not self._session.is_alive:
            self._has_ended = True
        return not self._has_ended

    async def wait_ended(self) -> None:
        """See `Session.wait_ended`."""
        await self._session.wait_ended()
        while self.is_alive:
            await self._link.is_open.wait()
            await asyncio.sleep(0.001)  # A cut has no event of its own.

    async def close(self) -> None:
        """See `Session.close`."""
        self._link.fail_if_cut()
        await self._session.close()
        self._has_ended = True


class Member:
    """One broker of a cluster, through all of its lives. `broker` is there while it runs."""

    def __init__(
        self, broker_id: int, folder: str, store: MemoryStore, config: Mapping[str, object]
    ) -> None:
        self.broker_id = broker_id
        self.folder = folder
        self.config = dict(config)
        """Of the next life."""
        self.port = 0
        self.disk: Disk | None = None
        """Of the next life; None: a disk of its own."""
        self.link = StoreLink(store)
        self._store = store
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        """The broker of the present life."""
        assert self._broker is not None, f"broker {self.broker_id} does not run"
        return self._broker

    @property
    def is_running(self) -> bool:
        """Whether it has started, and was not killed or stopped since."""
        return self._broker is not None

    async def start(self) -> Broker:
        """Begin a life; returns when it serves. It has a way of its own to the store."""
        assert self._broker is None, f"broker {self.broker_id} runs"
        own = {
            "node.id": self.broker_id,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": self.folder,
        }
        settings = {key: str(value) for key, value in {**_FEW, **own, **self.config}.items()}
        self.link = StoreLink(self._store)
        broker = Broker(BrokerConfig(settings), store=self.link, disk=self.disk, syncs=False)
        await broker.start()
        self._broker = broker
        self.port = broker.server.port
        return broker

    async def stop(self) -> None:
        """End the life in order."""
        broker, self._broker = self.broker, None
        await broker.stop()

    async def kill(self) -> None:
        """End the life as SIGKILL does; the store is not told.

        Its folders say already which life it is: else the next one waits for the session to end.
        """
        while not self._is_noted():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.001)
        broker, self._broker = self.broker, None
        self.link.cut()
        self.link.is_open.set()
        broker.kill()
        await broker.stop()

    def _is_noted(self) -> bool:
        file = Path(self.folder, LIFE_NAME)
        note = parse_note(file.read_bytes()) if file.exists() else None
        return note is not None and note.broker_epoch == self.broker.membership.broker_epoch


class Cluster:
    """Brokers by id. Those that run are stopped when the block is left."""

    def __init__(self, folder: str, count: int, config: Mapping[str, object]) -> None:
        self.store = MemoryStore()
        self._folder = folder
        self._config = config
        self._members: dict[int, Member] = {}
        for broker_id in range(1, count + 1):
            self.add(broker_id)

    def add(self, broker_id: int, config: Mapping[str, object] | None = None) -> Member:
        """Make a broker that has not begun its first life."""
        folder = f"{self._folder}/{broker_id}"
        member = Member(broker_id, folder, self.store, {**self._config, **(config or {})})
        self._members[broker_id] = member
        return member

    def __getitem__(self, broker_id: int) -> Member:
        return self._members[broker_id]

    def __iter__(self) -> Iterator[Member]:
        """Iterate over those that run."""
        return iter([member for member in self._members.values() if member.is_running])

    async def start(self, *broker_ids: int) -> None:
        """Begin lives, one after the other."""
        for broker_id in broker_ids:
            await self[broker_id].start()

    async def stop(self, broker_id: int) -> None:
        """Stop a broker in order."""
        await self[broker_id].stop()

    async def kill(self, broker_id: int) -> None:
        """End a broker as SIGKILL does. The store is not told."""
        await self[broker_id].kill()

    def expire(self, broker_id: int) -> None:
        """End the session of a broker; of one that was killed, too. It hears of it if it lives."""
        self[broker_id].link.expire()

    async def restart(self, broker_id: int) -> Broker:
        """Begin the next life of a broker; one that runs is stopped in order before."""
        if self[broker_id].is_running:
            await self.stop(broker_id)
        return await self[broker_id].start()

    def leader_of(self, topic: str, partition: int) -> int:
        """Return who leads, as the first broker that runs has applied it; -1: nobody."""
        image = next(iter(self)).broker.image.partition(topic, partition)
        return -1 if image is None else image.leader

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once it is true, as what the brokers do makes it. Raises `TimeoutError`."""
        async with asyncio.timeout(UNTIL_TIMEOUT_S):
            while not condition():  # noqa: ASYNC110 - brokers have no event for a test to wait for
                await asyncio.sleep(0.001)

    async def agreed(self) -> int:
        """Wait until every broker that runs has applied the newest metadata; return its revision.

        The brokers may go on to change it, as when a replica joins the ISR.
        """
        newest = (await self.store.changes(0)).revision
        await self.until(
            lambda: all(
                one.broker.image.revision >= newest and one.broker.feed.is_settled for one in self
            )
        )
        return newest


@asynccontextmanager
async def members(
    count: int, config: Mapping[str, object] | None = None, *, starts: bool = True
) -> AsyncIterator[Cluster]:
    """Return `count` brokers, started in the order of their ids unless `starts` is false."""
    with tempfile.TemporaryDirectory(prefix="oncelog-members-", dir=scratch_folder()) as folder:
        cluster = Cluster(folder, count, config or {})
        try:
            if starts:
                await cluster.start(*range(1, count + 1))
            yield cluster
        finally:
            for member in cluster:
                member.link.is_open.set()
                member.link.heal()
            for member in cluster:
                await member.stop()
