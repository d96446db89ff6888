"""The metadata store of a simulated cluster: one server that outlives processes and power.

A call takes effect at one moment and is answered at a later one; a process that dies in between
does not learn the result, as with ZooKeeper. A call that took effect is durable. The server may be
slow, away for a while, or lose the answer to a write: `StoreFailure` says no more than ZooKeeper's
lost connection does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from oncelog.metadata.state import StoreState
from oncelog.metadata.store import (
    Changes,
    Check,
    MetadataStore,
    Stored,
    StoreFailure,
    Write,
)
from oncelog.simulation.process import Process
from oncelog.simulation.trace import Trace

__all__ = ["SimulatedStore"]

T = TypeVar("T")

DELAY_S: Final = (0.0002, 0.003)
"""The delay of a call to the server, and of its response, in seconds."""


class SimulatedStore:
    """The server. `of` gives a process its connection to it."""

    def __init__(self, rng: random.Random, trace: Trace) -> None:
        self.state = StoreState()
        self._rng = rng
        self._trace = trace
        self._waiting: list[tuple[Process, asyncio.Future[None]]] = []
        self.is_away = False
        """Whether no call reaches it, and no answer comes back."""
        self.extra_s = 0.0
        """What each call and each answer takes longer."""
        self.answers_lost_count = 0
        """The answers to so many of the next writes are lost."""

    def go_away(self) -> None:
        """Be out of reach from now on. Calls that wait fail."""
        self.is_away = True
        self._wake()

    def heal(self) -> None:
        """End all faults."""
        self.is_away = False
        self.extra_s = 0.0
        self.answers_lost_count = 0

    def of(self, process: Process) -> MetadataStore:
        """Return the `MetadataStore` of a process."""
        return _StoreConnection(self, process)

    def delay_s(self) -> float:
        """Draw the delay of a call or a response, in seconds."""
        return self._rng.uniform(*DELAY_S) + self.extra_s

    def write_all(
        self, writes: Sequence[Write], checks: Sequence[Check], fence: Check | None
    ) -> None:
        """Write at the current time, and wake who waits for a change."""
        self.state.write_all(writes, checks, fence)
        self._trace.note("store", "write_all", ",".join(write.path for write in writes))
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for process, future in waiting:
            process.scheduler.call_after(self.delay_s(), process, _set, future)

    async def wait_for_change(self, process: Process, wait_ms: float) -> None:
        """Wait for the next write, or for that time."""
        future = process.loop.create_future()
        self._waiting.append((process, future))
        timer = process.loop.call_later(wait_ms / 1000, _set, future)
        await future
        timer.cancel()


class _StoreConnection:
    """One process's connection to the store."""

    def __init__(self, server: SimulatedStore, process: Process) -> None:
        self._server = server
        self._process = process

    async def get(self, path: str) -> Stored | None:
        return await self._call(lambda server: server.state.get(path))

    async def list(self, prefix: str) -> dict[str, Stored]:
        return await self._call(lambda server: server.state.list(prefix))

    async def write_all(
        self, writes: Sequence[Write], *, checks: Sequence[Check] = (), fence: Check | None = None
    ) -> None:
        await self._call(lambda server: server.write_all(writes, checks, fence), writes=True)

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        server = self._server
        await asyncio.sleep(server.delay_s())
        # The server waits, so that no write between an answer and a question is missed.
        if wait_ms > 0 and server.state.changes(after_revision).revision <= after_revision:
            await server.wait_for_change(self._process, wait_ms)
        return await self._call(lambda server: server.state.changes(after_revision))

    async def close(self) -> None:
        """Do nothing: there are no resources."""

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
        if self._server.is_away:
            raise StoreFailure("the store is out of reach")


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
