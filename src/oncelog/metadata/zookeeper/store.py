"""`ZooKeeperStore`: the metadata store of the brokers of several machines, in ZooKeeper.

A value is a node below the chroot, and a step of writes one transaction. Kafka's nodes are at
Kafka's paths, so that monitors of a cluster read them. Reads and writes go through one connection,
whose session is the first that is opened here: a reader sees what it has written.

Revisions are ZooKeeper's zxids: those of two brokers can be compared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Sequence
from functools import partial

from oncelog.core.errors import OncelogError, require
from oncelog.core.zookeeper_limits import (
    ZOOKEEPER_RECONNECT_WAIT_MS,
    ZOOKEEPER_WRITE_ATTEMPTS_MAX,
    ZOOKEEPER_WRITE_BYTES_MAX,
    ZOOKEEPER_WRITES_COUNT_MAX,
)
from oncelog.metadata.state import check_versions
from oncelog.metadata.store import (
    Changes,
    Check,
    Conflict,
    Fenced,
    Session,
    SessionExpired,
    SessionId,
    Stored,
    StoreFailure,
    Write,
    WriteLimit,
    WriteTooLarge,
)
from oncelog.metadata.waiting import Waiters, wait_for
from oncelog.metadata.zookeeper.access import OPEN_ACCESS, Access
from oncelog.metadata.zookeeper.connection import ZooKeeperConnection
from oncelog.metadata.zookeeper.mirror import Mirror
from oncelog.metadata.zookeeper.nodes import OURS, Znode, ancestors_of, parse_servers, stored_in
from oncelog.metadata.zookeeper.operations import Operation, SetData, operations_for
from oncelog.metadata.zookeeper.reading import close_to_others, read_changes, ring_in
from oncelog.metadata.zookeeper.ring import RING_PATH, encode_ring

__all__ = ["IMPORT_PATH", "ZooKeeperStore"]

log = logging.getLogger(__name__)

IMPORT_PATH = "/oncelog/import"
"""There while a lone broker's metadata is being moved here."""

_KAFKAS = ("/brokers/ids", "/brokers/topics", "/cluster/id", "/controller_epoch", "/consumers")
"""Some of them are there after each start of Kafka's."""


class ZooKeeperStore:
    """The metadata in ZooKeeper; see `MetadataStore`. Use it from one event loop.

    `connect` is ``host:port,host:port/chroot``; a chroot that is not there is made. Without a
    session of its own the store connects with `session_timeout_ms`. All paths begin with one of the
    names in `roots`, if these are given: what else is there is of others.
    """

    write_limit = WriteLimit(ZOOKEEPER_WRITES_COUNT_MAX, ZOOKEEPER_WRITE_BYTES_MAX)

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        reconnect_wait_ms: int = ZOOKEEPER_RECONNECT_WAIT_MS,
        is_import: bool = False,
        roots: Container[str] | None = None,
        access: Access = OPEN_ACCESS,
    ) -> None:
        self._servers = parse_servers(connect)
        self._timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms
        self._reconnect_wait_ms = reconnect_wait_ms
        self._is_import = is_import
        self._roots = roots
        self._access = access
        self._mirror = Mirror()
        self._main: ZooKeeperConnection | None = None
        self._others: list[ZooKeeperConnection] = []
        self._given: set[str] = set()
        """The sessions that were opened here."""
        self._is_prepared = False
        self._is_closed = False
        self._waiters = Waiters()
        # One of each at a time: the second begins where the first ended.
        self._connecting = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()

    async def get(self, path: str) -> Stored | None:
        """See `MetadataStore.get`."""
        (node,) = await (await self._connected()).get_all([path])
        return stored_in(node)

    async def list(self, prefix: str) -> dict[str, Stored]:
        """See `MetadataStore.list`."""
        await self._read()
        return self._mirror.list(prefix)

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        """See `MetadataStore.write_all`; raises `WriteTooLarge` beyond `write_limit`.

        After a `StoreFailure` the writes may or may not have taken effect, or do so later.
        """
        if not self.write_limit.fits(writes):
            raise WriteTooLarge(f"{len(writes)} writes are too many for one step in ZooKeeper")
        every = [*checks, *([] if fence is None else [fence])]
        session_id = _session_of(writes)
        async with self._writing:
            for attempts_count in range(ZOOKEEPER_WRITE_ATTEMPTS_MAX):
                connection = await self._connected()
                writer = self._writer_for(session_id) or connection
                if attempts_count:
                    # The server that was read may be behind the one that refused.
                    await connection.sync()
                nodes = await _read_nodes(connection, writes, every)
                try:
                    check_versions(partial(_version_in, nodes), writes, checks, fence)
                except (Conflict, Fenced):
                    if attempts_count:
                        raise
                    continue
                if not writes:
                    return
                operations = _operations(writes, every, nodes)
                if await writer.transact(operations, session_id):
                    if writer is not connection:
                        # The reader's server may be another.
                        await connection.sync()
                    return
        raise StoreFailure("ZooKeeper's nodes change faster than this broker can write")

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        """See `MetadataStore.changes`."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_ms / 1000
        while True:
            with self._waiters.joined() as changed:
                await self._read()
                found = self._mirror.changes(after_revision)
                left_s = deadline_s - loop.time()
                if found.entries or left_s <= 0:
                    return found
                await wait_for(changed, left_s)

    async def open_session(self, timeout_ms: int) -> Session:
        """See `MetadataStore.open_session`; the server may grant another timeout."""
        connection = await self._connected()
        await connection.sync()  # So that it has a session, if the last one has expired.
        if connection.session_id in self._given or connection.timeout_ms != timeout_ms:
            connection = await self._connect(timeout_ms)
            self._others.append(connection)
        self._given.add(connection.session_id)
        return _ZooKeeperSession(connection)

    async def close(self) -> None:
        """See `MetadataStore.close`. Ends the sessions that were opened here."""
        self._is_closed = True
        connections = [*self._others, *([] if self._main is None else [self._main])]
        await asyncio.gather(*(connection.close() for connection in connections))

    def _wake(self) -> None:
        self._waiters.wake()

    async def _connected(self) -> ZooKeeperConnection:
        """Return the connection for reads, a new one after its session was closed."""
        if self._is_closed:
            raise StoreFailure("the connection to ZooKeeper is closed")
        async with self._connecting:
            if self._main is None or self._main.is_over:
                self._main = await self._connect(self._timeout_ms)
            if not self._is_prepared:
                await self._prepare(self._main)
                self._is_prepared = True
            return self._main

    async def _connect(self, timeout_ms: int) -> ZooKeeperConnection:
        connection = ZooKeeperConnection(
            self._servers,
            timeout_ms,
            self._wake,
            access=self._access,
            reconnect_wait_ms=self._reconnect_wait_ms,
        )
        await connection.start(self._connection_timeout_ms)
        return connection

    async def _prepare(self, connection: ZooKeeperConnection) -> None:
        """Make what the store needs, unless the chroot is another's.

        Raises `OncelogError` for Kafka's, and where an import has not ended.
        """
        at = f"ZooKeeper at {self._servers.hosts}{self._servers.chroot}"
        (ours, unfinished, *kafkas) = await connection.get_all([OURS, IMPORT_PATH, *_KAFKAS])
        if ours is None and any(kafkas):
            raise OncelogError(
                f"{at} has the nodes of an Apache Kafka cluster: name a chroot of its own in "
                "zookeeper.connect"
            )
        if unfinished is not None and not self._is_import:
            raise OncelogError(
                f"an import into {at} has not ended: repeat `oncelog cluster import`"
            )
        if ours is None:
            await connection.make_chroot()
            await connection.create(OURS, b"")
        await connection.create(RING_PATH, encode_ring([], (), ()))
        if self._access.sets_acls:
            count = await close_to_others(connection, self._roots)
            if count:
                log.info("%s: %d nodes were open to others, and are not any more", *(at, count))

    async def _read(self) -> None:
        async with self._reading:
            connection = await self._connected()
            self._mirror.take(await read_changes(connection, self._mirror, self._roots))

    def _writer_for(self, session_id: SessionId | None) -> ZooKeeperConnection | None:
        if session_id is None:
            return None
        for connection in (self._main, *self._others):
            if connection is not None and connection.session_id == session_id:
                return connection
        raise SessionExpired(f"session {session_id} has ended")


class _ZooKeeperSession:
    """A session that ZooKeeper gave; see `Session`.

    It is known to have ended when ZooKeeper says so, or when it was ended here. While no server
    answers it is alive as far as known: where ZooKeeper is away, no session ends.
    """

    def __init__(self, connection: ZooKeeperConnection) -> None:
        self.session_id = SessionId(connection.session_id)
        self._connection = connection
        self._ended = connection.ended(self.session_id)

    @property
    def is_alive(self) -> bool:
        """See `Session.is_alive`."""
        return not self._ended.is_set()

    async def wait_ended(self) -> None:
        """See `Session.wait_ended`."""
        await self._ended.wait()

    async def close(self) -> None:
        """See `Session.close`."""
        if self.is_alive:
            await self._connection.close()


def _session_of(writes: Sequence[Write]) -> SessionId | None:
    sessions = {write.session for write in writes if write.session is not None}
    require(len(sessions) <= 1, "a step of writes is bound to two sessions")
    return next(iter(sessions), None)


def _operations(
    writes: Sequence[Write], checks: Sequence[Check], nodes: dict[str, Znode | None]
) -> list[Operation]:
    """Return what carries out a step on what was read, and names it in the ring."""
    ring = nodes[RING_PATH]
    bound = [write.path for write in writes if write.session is not None]
    value = encode_ring(ring_in(ring), [write.path for write in writes], bound)
    version = 0 if ring is None else ring.version
    return [*operations_for(writes, checks, nodes), SetData(RING_PATH, value, version)]


def _version_in(nodes: dict[str, Znode | None], path: str) -> int:
    stored = stored_in(nodes[path])
    return 0 if stored is None else stored.version


async def _read_nodes(
    connection: ZooKeeperConnection, writes: Sequence[Write], checks: Sequence[Check]
) -> dict[str, Znode | None]:
    """Read what `operations_for` has to know, and the ring."""
    named = [*(write.path for write in writes), *(check.path for check in checks)]
    paths = list(dict.fromkeys([RING_PATH, *named]))
    nodes = dict(zip(paths, await connection.get_all(paths), strict=True))
    deleted = {write.path for write in writes if write.value is None}
    above = {
        above
        for path, node in nodes.items()
        if node is None or path in deleted
        for above in ancestors_of(path)
    }
    more = sorted(above - nodes.keys())
    nodes.update(zip(more, await connection.get_all(more), strict=True))
    return nodes
