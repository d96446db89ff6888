"""One client of ZooKeeper: kazoo's threads on one side, the event loop on the other.

Nothing here retries a request: one whose connection is lost may have taken effect. kazoo connects
again by itself, to any server that is not behind what this client has seen; when the server says
that the session has expired, it begins another, of which the first request is a `sync`.

kazoo's thread pings as long as it lives, also when the event loop hangs and nothing is served. So a
thread watches the loop, and ends the session when the loop has not run for the session's timeout.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TypeVar

from oncelog.core.zookeeper_limits import (
    ZOOKEEPER_CLOSE_WAIT_MS,
    ZOOKEEPER_IN_FLIGHT_COUNT_MAX,
    ZOOKEEPER_RECONNECT_WAIT_MS,
)
from oncelog.metadata.store import SessionExpired, StoreFailure
from oncelog.metadata.zookeeper.access import DIGEST_KEY, OPEN_ACCESS, Access
from oncelog.metadata.zookeeper.client import (
    ANY_FAILURE,
    CONNECTED,
    CONSEQUENCES,
    LOST,
    LOST_CONNECTION,
    NOT_ALLOWED,
    NOT_CLOSED,
    NOT_THERE_OR_THERE,
    OPEN,
    OUTRUN,
    SESSION_ENDED,
    Acl,
    Handler,
    KazooPromise,
    Multi,
    Stat,
    acl_for,
    is_open,
    new_client,
)
from oncelog.metadata.zookeeper.nodes import (
    Servers,
    Znode,
    ancestors_of,
    has_secrets,
    session_name,
    to_node_path,
)
from oncelog.metadata.zookeeper.operations import (
    CheckVersion,
    Create,
    Delete,
    Operation,
    SetData,
)

__all__ = ["ZooKeeperConnection"]

log = logging.getLogger(__name__)

_DIGEST_HINT = f"give this broker the {DIGEST_KEY} of the brokers that made them"

T = TypeVar("T")
Request = Callable[[], KazooPromise[T]]
"""Gives kazoo a request."""


class _ConnectionLost(StoreFailure):
    """What was asked may have taken effect."""


class ZooKeeperConnection:
    """A client with a session of its own. Use it from the event loop in which it was started.

    `on_wake` is called in the loop when a watched node has changed or the connection is another.
    """

    def __init__(
        self,
        servers: Servers,
        timeout_ms: int,
        on_wake: Callable[[], None],
        *,
        access: Access = OPEN_ACCESS,
        reconnect_wait_ms: int = ZOOKEEPER_RECONNECT_WAIT_MS,
    ) -> None:
        self.timeout_ms = timeout_ms
        """Asked for; the server may grant less or more, by which kazoo pings."""
        self._reconnect_wait_ms = reconnect_wait_ms
        self.session_id = ""
        """The present session, as far as known here."""
        self.is_over = False
        """Whether it was closed, or the loop hung for too long."""
        self._servers = servers
        self._on_wake = on_wake
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(ZOOKEEPER_IN_FLIGHT_COUNT_MAX)
        self._has_moved = asyncio.Event()
        self._ended: dict[str, asyncio.Event] = {}
        self._synced_id = ""
        # Held for a step of either side: a request of one session never goes out in the next one.
        self._lock = threading.Lock()
        self._kazoo_session_id = ""
        self._loop_ran = threading.Event()
        # kazoo's client is stopped by one thread, and any other waits for it.
        self._stopping = threading.Lock()
        self._access = access
        self._handler = Handler(access)
        self._client = new_client(servers.hosts, timeout_ms, self._handler, access)
        self._client.add_listener(self._state_changed)
        self._beat: asyncio.TimerHandle | None = None

    async def start(self, wait_ms: float) -> None:
        """Connect. Raises `StoreFailure` when no server answers in time."""
        self._client.start_async()
        self._tick()
        threading.Thread(target=self._watch_loop, name="oncelog-zookeeper", daemon=True).start()
        try:
            await self._until_connected(wait_ms)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session, and the threads. One that ZooKeeper does not hear of expires."""
        done = self._loop.create_future()

        def work() -> None:
            self._stop()
            self._call_loop(partial(_set, done))

        threading.Thread(target=work, name="oncelog-zookeeper-close", daemon=True).start()
        await asyncio.wait([done], timeout=ZOOKEEPER_CLOSE_WAIT_MS / 1000)
        self._over()

    def ended(self, session_id: str) -> asyncio.Event:
        """Return what is set once the session is known to have ended."""
        event = self._ended.setdefault(session_id, asyncio.Event())
        if self.is_over or session_id != self.session_id:
            event.set()
        return event

    async def get_all(
        self, paths: Sequence[str], watched: Container[str] = ()
    ) -> list[Znode | None]:
        """Return the nodes at these paths, read in this order; None where there is none.

        Of those in `watched` the next change wakes.
        """
        answers = await self._read_all([self._get(path, path in watched) for path in paths])
        return [None if found is None else _node(*found) for found in answers]

    async def children_of(self, paths: Sequence[str]) -> list[tuple[list[str], int]]:
        """Return the names of the nodes directly below each of these paths.

        With them comes the transaction that last created or deleted one.
        """
        requests = [
            partial(self._client.get_children_async, self.real(path), include_data=True)
            for path in paths
        ]
        answers = await self._read_all(requests)
        return [([], 0) if found is None else (found[0], found[1].pzxid) for found in answers]

    async def sync(self) -> None:
        """Have the server catch up with the ensemble's leader."""
        await self._read_all([self._sync])

    async def transact(self, operations: Sequence[Operation], session_id: str | None) -> bool:
        """Carry out all operations, or none: False when another writer was faster.

        Raises `SessionExpired` when `session_id` has ended, and `StoreFailure` also when it is not
        known whether they took effect.
        """
        transaction = self._client.transaction()
        for operation in operations:
            _add(transaction, operation, self.real(operation.path), self._acl_of(operation.path))
        (results,) = await self._ask_all([transaction.commit_async], session_id)
        failures = [one for one in results or () if isinstance(one, Exception)]
        for cause in failures:
            if not isinstance(cause, (*CONSEQUENCES, *OUTRUN)):
                raise StoreFailure(f"{self._said} refused a write: {_text(cause)}") from cause
        return not failures

    async def make_chroot(self) -> None:
        """Make the node below which the store is, and those above it, unless they are there."""
        for path in ancestors_of(self._servers.chroot):
            await self._ask_all([partial(self._client.create_async, path, b"", OPEN)])
        if self._servers.chroot:
            await self.create("", b"")

    async def create(self, path: str, data: bytes) -> None:
        """Make a node unless it is there."""
        real, acl = self.real(path), self._acl_of(path)
        await self._ask_all([partial(self._client.create_async, real, data, acl)])

    async def close_to_others(self, paths: Sequence[str]) -> int:
        """Give nodes that are more open than those that are made here the ACL of these.

        Returns how many these were. Raises `StoreFailure` for one that only others may change.
        """
        requests = [partial(self._client.get_acls_async, self.real(path)) for path in paths]
        answers = await self._read_all(requests)
        changes = [
            partial(self._client.set_acls_async, self.real(path), self._acl_of(path))
            for path, found in zip(paths, answers, strict=True)
            if found is not None and is_open(found[0], is_secret=has_secrets(path))
        ]
        await self._ask_all(changes)
        return len(changes)

    async def _read_all(self, requests: Sequence[Request[T]]) -> list[T | None]:
        """Ask what may be asked twice: once more when the connection is lost meanwhile."""
        try:
            return await self._ask_all(requests)
        except _ConnectionLost:
            return await self._ask_all(requests)

    async def _ask_all(
        self, requests: Sequence[Request[T]], session_id: str | None = None
    ) -> list[T | None]:
        """Send requests in this order and return their answers; None where there is no node.

        Raises `StoreFailure`, and `SessionExpired` when `session_id` is not the present session.
        """
        await self._until_connected(self._reconnect_wait_ms)
        futures: list[asyncio.Future[T]] = []
        try:
            # A server that is silent is left by kazoo before this.
            async with asyncio.timeout((self.timeout_ms + self._reconnect_wait_ms) / 1000):
                for request in requests:
                    await self._slots.acquire()
                    futures.append(self._send(request, session_id))
                answers = await asyncio.gather(*futures, return_exceptions=True)
        except TimeoutError:
            raise StoreFailure(f"{self._said} does not answer") from None
        finally:
            for future in futures:
                future.cancel()
        return [self._answer(answer, session_id) for answer in answers]

    def real(self, path: str) -> str:
        """Return the path of a node in ZooKeeper: that of the root is the chroot."""
        return self._servers.chroot + (to_node_path(path) if path else "") or "/"

    @property
    def _said(self) -> str:
        return f"ZooKeeper at {self._servers.hosts}"

    @property
    def _silence(self) -> StoreFailure:
        why = self._handler.refusal
        return StoreFailure(f"{self._said}: {why}" if why else f"{self._said} does not answer")

    def _acl_of(self, path: str) -> Acl:
        digest = self._access.digest
        if digest is None or not self._access.sets_acls:
            return OPEN
        return acl_for(digest, is_secret=has_secrets(path))

    def _get(self, path: str, is_watched: bool) -> Request[tuple[bytes, Stat]]:
        watch = self._watch_fired if is_watched else None
        return partial(self._client.get_async, self.real(path), watch=watch)

    def _sync(self) -> KazooPromise[str]:
        return self._client.sync_async(self.real(""))

    def _answer(self, answer: T | BaseException, session_id: str | None) -> T | None:
        if not isinstance(answer, BaseException):
            return answer
        if isinstance(answer, NOT_THERE_OR_THERE):
            return None
        if isinstance(answer, LOST_CONNECTION):
            raise _ConnectionLost(f"{self._said}: the connection was lost") from answer
        if isinstance(answer, SESSION_ENDED) and session_id is not None:
            # Nothing of it took effect: it was refused, or never sent.
            raise SessionExpired(f"session {session_id} has ended") from answer
        if isinstance(answer, ANY_FAILURE):
            raise StoreFailure(f"{self._said}: {_text(answer)}") from answer
        raise answer

    @property
    def _is_connected(self) -> bool:
        """Whether the loop knows of the session that kazoo's thread has."""
        is_known = self.session_id != "" and self.session_id == self._kazoo_session_id
        return is_known and self._client.connected

    async def _until_connected(self, wait_ms: float) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not (self._is_connected or self.is_over):
                    self._has_moved.clear()
                    await self._has_moved.wait()
        except TimeoutError:
            raise self._silence from None
        if self.is_over:
            raise StoreFailure(f"{self._said}: the connection was closed")

    def _send(self, request: Request[T], session_id: str | None) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        future.add_done_callback(lambda _: self._slots.release())
        with self._lock:
            if session_id is not None and session_id != self._kazoo_session_id:
                future.set_exception(SessionExpired(f"session {session_id} has ended"))
                return future
            if self._kazoo_session_id != self._synced_id:
                # The server of a new session may be behind what was read before.
                self._synced_id = self._kazoo_session_id
                self._sync()
            promise = request()
        promise.rawlink(lambda done: self._call_loop(partial(_settle, future, done)))
        return future

    # In kazoo's thread.
    def _state_changed(self, state: str) -> None:
        with self._lock:
            if state == LOST:
                self._kazoo_session_id = ""
            elif state == CONNECTED:
                number, _ = self._client.client_id
                self._kazoo_session_id = session_name(number)
            session_id = self._kazoo_session_id
        self._call_loop(partial(self._moved, session_id))

    # In kazoo's thread.
    def _watch_fired(self, event: object) -> None:
        self._call_loop(self._on_wake)

    def _moved(self, session_id: str) -> None:
        if session_id != self.session_id:
            self.session_id = session_id
            for other, event in self._ended.items():
                if other != session_id:
                    event.set()
        self._has_moved.set()
        self._on_wake()

    def _tick(self) -> None:
        self._loop_ran.set()
        self._beat = self._loop.call_later(self.timeout_ms / 4000, self._tick)

    # In a thread of its own.
    def _watch_loop(self) -> None:
        while self._loop_ran.wait(self.timeout_ms / 1000):
            self._loop_ran.clear()
            if self.is_over:
                return
        self._stop()
        self._call_loop(self._over)

    def _stop(self) -> None:
        """End kazoo's threads; blocks until the server has answered."""
        with self._stopping:
            try:
                self._client.stop()
                self._client.close()
            except NOT_CLOSED as error:
                log.debug("not closed in order: %s", error)

    def _over(self) -> None:
        self.is_over = True
        if self._beat is not None:
            self._beat.cancel()
        for event in self._ended.values():
            event.set()
        self._has_moved.set()
        self._loop_ran.set()
        self._on_wake()

    def _call_loop(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            log.debug("the event loop has ended before its connection to ZooKeeper")


def _add(transaction: Multi, operation: Operation, path: str, acl: Acl) -> None:
    match operation:
        case Create(data=data, is_bound=is_bound):
            transaction.create(path, data, acl, ephemeral=is_bound)
        case SetData(data=data, version=version):
            transaction.set_data(path, data, version)
        case Delete(version=version):
            transaction.delete(path, version)
        case CheckVersion(version=version):
            transaction.check(path, version)


def _node(data: bytes, stat: Stat) -> Znode:
    return Znode(
        data,
        stat.version,
        stat.mzxid,
        stat.pzxid,
        session_name(stat.ephemeralOwner),
        stat.numChildren,
        stat.czxid,
    )


def _settle(future: asyncio.Future[T], promise: KazooPromise[T]) -> None:
    if future.done():
        return
    error = promise.exception
    if error is None:
        future.set_result(promise.value)
    else:
        future.set_exception(error)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _text(error: BaseException) -> str:
    if isinstance(error, NOT_ALLOWED):
        return f"these nodes are for others ({type(error).__name__}): {_DIGEST_HINT}"
    return str(error) or type(error).__name__
