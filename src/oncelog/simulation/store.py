"""The metadata store of a simulated cluster: one server that outlives processes and power.

A call takes effect at one moment and is answered at a later one; a process that dies in between
does not learn the result, as with ZooKeeper. A call that took effect is durable.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import Changes, MetadataStore, Stored, Write
from oncelog.simulation.process import Process
from oncelog.simulation.trace import Trace

__all__ = ["SimulatedStore"]

T = TypeVar("T")

DELAY_S: Final = (0.0002, 0.003)
"""The delay of a call to the server, and of its response, in seconds."""


class SimulatedStore:
    """The server. `of` gives a process its connection to it."""

    def __init__(self, rng: random.Random, trace: Trace) -> None:
        self._state = MemoryStore()
        self._rng = rng
        self._trace = trace
        self._waiting: list[tuple[Process, asyncio.Future[None]]] = []

    def of(self, process: Process) -> MetadataStore:
        """Return the `MetadataStore` of a process."""
        return _StoreConnection(self, process)

    def delay_s(self) -> float:
        """Draw the delay of a call or a response, in seconds."""
        return self._rng.uniform(*DELAY_S)

    def apply(self, name: str, path: str, call: Callable[[MemoryStore], Awaitable[T]]) -> T:
        """Apply one call to the memory store, at the current time."""
        value: T = _at_once(call(self._state))
        if name in ("create", "compare_and_set", "delete", "write_all"):
            self._trace.note("store", name, path)
            self._wake()
        return value

    async def wait_for_change(self, process: Process, wait_ms: float) -> None:
        """Wait for the next write, or for that time."""
        future = process.loop.create_future()
        self._waiting.append((process, future))
        timer = process.loop.call_later(wait_ms / 1000, _set, future)
        await future
        timer.cancel()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for process, future in waiting:
            process.scheduler.call_after(self.delay_s(), process, _set, future)


class _StoreConnection:
    """One process's connection to the store."""

    def __init__(self, server: SimulatedStore, process: Process) -> None:
        self._server = server
        self._process = process

    async def get(self, path: str) -> Stored | None:
        return await self._call("get", path, lambda state: state.get(path))

    async def create(self, path: str, value: bytes, *, controller_epoch: int | None = None) -> int:
        return await self._call(
            "create",
            path,
            lambda state: state.create(path, value, controller_epoch=controller_epoch),
        )

    async def compare_and_set(
        self, path: str, value: bytes, version: int, *, controller_epoch: int | None = None
    ) -> int:
        return await self._call(
            "compare_and_set",
            path,
            lambda state: state.compare_and_set(
                path, value, version, controller_epoch=controller_epoch
            ),
        )

    async def delete(
        self, path: str, version: int | None = None, *, controller_epoch: int | None = None
    ) -> None:
        await self._call(
            "delete",
            path,
            lambda state: state.delete(path, version, controller_epoch=controller_epoch),
        )

    async def write_all(
        self, writes: Sequence[Write], *, controller_epoch: int | None = None
    ) -> None:
        await self._call(
            "write_all",
            ",".join(write.path for write in writes),
            lambda state: state.write_all(writes, controller_epoch=controller_epoch),
        )

    async def list(self, prefix: str) -> dict[str, Stored]:
        return await self._call("list", prefix, lambda state: state.list(prefix))

    async def changes(self, after_revision: int, *, wait_ms: float = 0) -> Changes:
        found = await self._call("changes", "", lambda state: state.changes(after_revision))
        if wait_ms > 0 and found.revision <= after_revision:
            await self._server.wait_for_change(self._process, wait_ms)
            found = await self._call("changes", "", lambda state: state.changes(after_revision))
        return found

    async def close(self) -> None:
        """Do nothing: there are no resources."""

    async def _call(
        self, name: str, path: str, call: Callable[[MemoryStore], Coroutine[Any, Any, T]]
    ) -> T:
        server = self._server
        await asyncio.sleep(server.delay_s())
        value = server.apply(name, path, call)
        await asyncio.sleep(server.delay_s())
        return value


def _at_once(work: Awaitable[T]) -> T:
    """Return the result of a coroutine that never waits."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as done:
        value: T = done.value
        return value
    raise RuntimeError("the memory store waited")


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
