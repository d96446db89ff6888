"""Runs one test on every kind of metadata store.

A kind is one function of `KINDS`: it makes the `Parties` of a new store, hands them to the body of
the test, and closes them. A test named by `on_every_store` gets the store of one party; one named
by `among_parties` has parties join, die and lose their sessions.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import pytest

from oncelog.metadata import MemoryStore, MetadataStore, Session, Write
from oncelog.metadata.memory import MemoryConnection
from oncelog.metadata.sqlite import SqliteStore
from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import Scheduler
from oncelog.simulation.store import SimulatedStore, StoreConnection
from oncelog.simulation.trace import Trace
from tests.unit.metadata.zookeeper.parties import on_zookeeper

Body = Callable[[MetadataStore], Coroutine[Any, Any, None]]

DONE_TIMEOUT_S = 30.0
DELETED_COUNT_MAX = 3
"""Deleted paths that the store in SQLite names to readers here."""


class Parties(Protocol):
    """Processes with one store among them."""

    session_ms: int
    """The timeout of their sessions: a killed party's end is waited for, on some kinds so long."""

    async def join(self) -> MetadataStore:
        """Return the store as one more party has it."""
        ...

    async def kill(self, store: MetadataStore) -> None:
        """End the party that has this store as SIGKILL does."""
        ...

    async def expire(self, session: Session) -> None:
        """Have the store end a session whose owner lives."""
        ...


Kind = Callable[[Callable[[Parties], Coroutine[Any, Any, None]], Path], None]


class MemoryParties:
    session_ms = 60_000

    def __init__(self) -> None:
        self._store = MemoryStore()

    async def join(self) -> MetadataStore:
        return self._store.connection()

    async def kill(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryConnection)
        await store.close()

    async def expire(self, session: Session) -> None:
        self._store.expire(session.session_id)


def on_memory(body: Callable[[Parties], Coroutine[Any, Any, None]], folder: Path) -> None:
    asyncio.run(body(MemoryParties()))


class SqliteParties:
    session_ms = 60_000

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "m.sqlite")
        self._stores: list[SqliteStore] = []

    async def join(self) -> MetadataStore:
        self._stores.append(SqliteStore(self._path, deleted_count_max=DELETED_COUNT_MAX))
        return self._stores[-1]

    async def kill(self, store: MetadataStore) -> None:
        await store.close()

    async def expire(self, session: Session) -> None:
        await self._stores[-1].expire(session.session_id)

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


def on_sqlite(body: Callable[[Parties], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def run() -> None:
        parties = SqliteParties(folder)
        try:
            await body(parties)
        finally:
            await parties.close()

    asyncio.run(run())


class SimulatedParties:
    """Each party is a process; the test runs in one more."""

    session_ms = 6_000

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._server = SimulatedStore(random.Random(1), Trace(lambda: scheduler.now_s))
        self._names = (f"party {number}" for number in itertools.count())

    def process(self, name: str) -> Process:
        return Process(self._scheduler, name, "10.0.0.1", random.Random(name))

    async def join(self) -> MetadataStore:
        return self._server.of(self.process(next(self._names)))

    async def kill(self, store: MetadataStore) -> None:
        assert isinstance(store, StoreConnection)
        store.process.kill("kill")

    async def expire(self, session: Session) -> None:
        self._server.expire(session.session_id)


def on_simulated(body: Callable[[Parties], Coroutine[Any, Any, None]], folder: Path) -> None:
    scheduler = Scheduler()
    parties = SimulatedParties(scheduler)
    tasks: list[asyncio.Task[None]] = []

    async def run() -> None:
        tasks.append(asyncio.create_task(body(parties)))
        await asyncio.wait(tasks)

    parties.process("test").spawn(run())
    scheduler.run_until(3_600)
    (task,) = tasks
    task.result()


KINDS: list[Kind] = [on_memory, on_sqlite, on_simulated, on_zookeeper]


def among_parties(
    body: Callable[[Parties], Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """A test that hands the parties of a new store of each kind to `body`."""

    @pytest.mark.parametrize("kind", KINDS)
    def test(kind: Kind, tmp_path: Path) -> None:
        async def bounded(parties: Parties) -> None:
            async with asyncio.timeout(DONE_TIMEOUT_S):
                await body(parties)

        kind(bounded, tmp_path)

    test.__doc__ = body.__doc__
    return test


def on_every_store(body: Body) -> Callable[..., None]:
    """A test that hands a new store of each kind to `body`."""

    async def alone(parties: Parties) -> None:
        await body(await parties.join())

    alone.__doc__ = body.__doc__
    return among_parties(alone)


async def put(
    store: MetadataStore,
    path: str,
    value: bytes | None,
    version: int = 0,
    session: Session | None = None,
    **more: Any,
) -> None:
    """Write one value."""
    session_id = None if session is None else session.session_id
    await store.write_all([Write(path, value, version, session_id)], **more)


async def version_of(store: MetadataStore, path: str) -> int:
    """Return the version of a value, 0 where there is none."""
    stored = await store.get(path)
    return 0 if stored is None else stored.version


async def deleted(store: MetadataStore, path: str, after_revision: int = 0) -> None:
    """Return once the feed tells that the value of a path was deleted."""
    while True:
        changes = await store.changes(after_revision, wait_ms=60_000)
        if any(entry.path == path and entry.value is None for entry in changes.entries):
            return
        after_revision = changes.revision
