"""The metadata store of a simulated cluster: one server that outlives processes and power.

A call takes effect at one moment and is answered at a later one; a process that dies in between
does not learn the result, as with ZooKeeper. A call that took effect is durable. The server may be
slow, away for a while, or lose the answer to a write: `StoreFailure` says no more than ZooKeeper's
lost connection does. It may be out of one process's reach only, and may show a process less than
there is, as a server of ZooKeeper's that lags behind its leader does.

A session ends once its process has been dead, frozen or cut off for longer than the timeout; the
time that the store is away does not count, as ZooKeeper's next leader restarts all timeouts.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from oncelog.core.cluster_limits import METADATA_COMPANY_POLL_MS
from oncelog.metadata.state import StoreState
from oncelog.metadata.store import (
    Changes,
    Check,
    Session,
    SessionExpired,
    SessionId,
    Stored,
    StoreFailure,
    Write,
)
from oncelog.simulation.process import Process
from oncelog.simulation.trace import Trace

__all__ = ["POLL_PAUSES_S", "SimulatedSession", "SimulatedStore", "StoreConnection"]

T = TypeVar("T")

DELAY_S: Final = (0.0002, 0.003)
"""The delay of a call to the server, and of its response, in seconds."""
POLL_PAUSES_S: Final = (0.0, 0.02, METADATA_COMPANY_POLL_MS / 1000)
"""Pause between two looks of a process at what others wrote: ZooKeeper tells it at once, of a file
it has to look.
"""
BEATS_PER_TIMEOUT: Final = 4
"""How often the owner of a session reaches the server within the session's timeout."""


class SimulatedStore:
    """The server. `of` gives a process its connection to it."""

    def __init__(self, rng: random.Random, trace: Trace) -> None:
        self.state = StoreState()
        self._rng = rng
        self._trace = trace
        self._waiting: list[tuple[Process, asyncio.Future[None]]] = []
        self._connections: dict[Process, StoreConnection] = {}
        self.is_away = False
        """Whether no call reaches it, and no answer comes back."""
        self.extra_s = 0.0
        """What each call and each answer takes longer."""
        self.poll_pause_s = 0.0
        """See `POLL_PAUSES_S`."""
        self.answers_lost_count = 0
        """The answers to so many of the next writes are lost."""

    def go_away(self) -> None:
        """Be out of reach from now on. Calls that wait fail."""
        self.is_away = True
        self.wake()

    def heal(self) -> None:
        """End all faults."""
        self.is_away = False
        self.extra_s = 0.0
        self.answers_lost_count = 0
        for connection in self._connections.values():
            connection.heal()

    def of(self, process: Process) -> StoreConnection:
        """Return the `MetadataStore` of a process."""
        if process not in self._connections:
            self._connections[process] = StoreConnection(self, process)
            process.on_death.append(partial(self._forget, process))
        return self._connections[process]

    def _forget(self, process: Process) -> None:
        del self._connections[process]

    def expire(self, session_id: SessionId) -> bool:
        """End a session now, whatever its process does. False: it has ended before."""
        had_values = self.state.end_session(session_id)
        if had_values:
            self._trace.note("store", "session ended", session_id)
            self.wake()
        return had_values

    def delay_s(self) -> float:
        """Draw the delay of a call or a response, in seconds."""
        return self._rng.uniform(*DELAY_S) + self.extra_s

    def write_all(
        self,
        writes: Sequence[Write],
        checks: Sequence[Check],
        fence: Check | None,
        read_revision: int,
    ) -> None:
        """Write at the current time, and wake who waits for a change.

        `read_revision` is the last one that the writer had read when it sent this.
        """
        self.state.write_all(writes, checks, fence)
        self._trace.note("store", "write_all", ",".join(write.path for write in writes))
        self.wake()

    def open_session(self, connection: StoreConnection, timeout_ms: int) -> SimulatedSession:
        """Begin a session of that connection's process."""
        scheduler = connection.process.scheduler
        session_id = self.state.open_session(timeout_ms, scheduler.now_s * 1000)
        session = SimulatedSession(connection, session_id)
        self._watch(session, timeout_ms / 1000 / BEATS_PER_TIMEOUT)
        return session

    def _watch(self, session: SimulatedSession, interval_s: float) -> None:
        """Renew the session if its owner is in touch, and look again later, until it has ended."""
        session_id, scheduler = session.session_id, session.connection.process.scheduler
        now_ms = scheduler.now_s * 1000
        if session.is_in_touch or self.is_away:
            self.state.renew(session_id, now_ms)
        if self.state.is_late(session_id, now_ms):
            self.expire(session_id)
        has_ended = not self.state.is_alive(session_id)
        if has_ended and session.is_connected and not self.is_away:
            # A frozen process gets to know it when it wakes up.
            scheduler.call_after(self.delay_s(), session.connection.process, session.note_end)
        elif not has_ended or session.waits_for_end:
            scheduler.call_after(interval_s, None, self._watch, session, interval_s)

    def wake(self) -> None:
        """Have the calls that wait for a change look again."""
        waiting, self._waiting = self._waiting, []
        for process, future in waiting:
            delay_s = self.delay_s()
            if self.poll_pause_s:
                delay_s += self._rng.uniform(0, self.poll_pause_s)
            process.scheduler.call_after(delay_s, process, _set, future)

    async def wait_for_change(self, process: Process, wait_ms: float) -> None:
        """Wait for the next write, or for that time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append((process, future))
        timer = loop.call_later(wait_ms / 1000, _set, future)
        await future
        timer.cancel()


class StoreConnection:
    """One process's connection to the store."""

    write_limit = None

    def __init__(self, server: SimulatedStore, process: Process) -> None:
        self.process = process
        self.is_cut = False
        """Whether no call of this process reaches the server, and no answer comes back."""
        self._server = server
        self.sessions: list[SimulatedSession] = []
        self._view: StoreState | None = None
        self._read_revision = 0

    def cut(self) -> None:
        """Be out of the store's reach from now on. Calls that wait fail."""
        self.is_cut = True
        self._server.wake()

    def lag(self) -> None:
        """Have reads be shown what there is now, or was at the last write of this process."""
        self._view = self._server.state.copy()

    def heal(self) -> None:
        """End the faults of this connection."""
        self.is_cut = False
        self._view = None
        self._server.wake()

    @property
    def is_whole(self) -> bool:
        """Whether neither `cut` nor `lag` is in effect."""
        return not self.is_cut and self._view is None

    async def get(self, path: str) -> Stored | None:
        """See `MetadataStore.get`."""
        return await self._call(lambda server: self._shown().get(path))

    async def list(self, prefix: str) -> dict[str, Stored]:
        """See `MetadataStore.list`."""
        return await self._call(lambda server: self._shown().list(prefix))

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        """See `MetadataStore.write_all`."""
        read_revision = self._read_revision

        def write(server: SimulatedStore) -> None:
            try:
                server.write_all(writes, checks, fence, read_revision)
            except SessionExpired:
                for session in self.sessions:
                    if not server.state.is_alive(session.session_id):
                        session.note_end()
                raise
            finally:
                if self._view is not None:
                    # It answers a write once it has caught up to it, also one that is refused.
                    self._view = server.state.copy()

        await self._call(write, writes=True)

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        """See `MetadataStore.changes`."""
        server = self._server
        await asyncio.sleep(server.delay_s())
        # The server waits, so that no write between an answer and a question is missed.
        if wait_ms > 0 and self._shown().changes(after_revision).revision <= after_revision:
            await server.wait_for_change(self.process, wait_ms)
        found = await self._call(lambda server: self._shown().changes(after_revision))
        if not wait_ms:  # Who has waited for a change only knows that there is one.
            self._read_revision = max(self._read_revision, found.revision)
        return found

    async def open_session(self, timeout_ms: int) -> Session:
        """See `MetadataStore.open_session`."""
        session = await self._call(
            lambda server: server.open_session(self, timeout_ms), writes=True
        )
        self.sessions.append(session)
        return session

    async def close(self) -> None:
        """Do nothing: there are no resources."""

    async def end_session(self, session_id: SessionId) -> None:
        """End a session, if the server can be reached."""
        with contextlib.suppress(StoreFailure):
            await self._call(lambda server: server.expire(session_id))

    def _shown(self) -> StoreState:
        return self._server.state if self._view is None else self._view

    async def _call(self, call: Callable[[SimulatedStore], T], *, writes: bool = False) -> T:
        server = self._server
        await asyncio.sleep(server.delay_s())
        self._fail_if_away()
        value = call(server)
        is_lost = writes and server.answers_lost_count > 0
        server.answers_lost_count -= is_lost
        await asyncio.sleep(server.delay_s())
        self._fail_if_away()
        if is_lost:
            raise StoreFailure("the answer to a write is lost")
        return value

    def _fail_if_away(self) -> None:
        if self._server.is_away or self.is_cut:
            raise StoreFailure("the store is out of reach")


class SimulatedSession:
    """A session of one process; see `Session`."""

    def __init__(self, connection: StoreConnection, session_id: SessionId) -> None:
        self.session_id = session_id
        self.connection = connection
        self._ended = asyncio.Event()

    @property
    def is_alive(self) -> bool:
        """See `Session.is_alive`."""
        return not self._ended.is_set()

    @property
    def waits_for_end(self) -> bool:
        """Whether the process lives, and does not know of an end."""
        return self.is_alive and self.connection.process.alive

    @property
    def is_in_touch(self) -> bool:
        """Whether the process tells the server, when that can be reached, that it lives."""
        return self.is_connected and not self.connection.process.frozen

    @property
    def is_connected(self) -> bool:
        """Whether the process, which may be frozen, would get what the server sends."""
        return self.waits_for_end and not self.connection.is_cut

    def note_end(self) -> None:
        """Let the process know that the session has ended."""
        self._ended.set()

    async def wait_ended(self) -> None:
        """See `Session.wait_ended`."""
        await self._ended.wait()

    async def close(self) -> None:
        """See `Session.close`."""
        self._ended.set()
        await self.connection.end_session(self.session_id)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
