"""Runs one test on every kind of metadata store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from oncelog.metadata import MemoryStore, MetadataStore, Write
from oncelog.metadata.sqlite import SqliteStore
from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import Scheduler
from oncelog.simulation.store import SimulatedStore
from oncelog.simulation.trace import Trace

Body = Callable[[MetadataStore], Coroutine[Any, Any, None]]


def on_memory(body: Body, folder: Path) -> None:
    asyncio.run(body(MemoryStore()))


def on_sqlite(body: Body, folder: Path) -> None:
    async def run() -> None:
        store = SqliteStore(str(folder / "m.sqlite"))
        try:
            await body(store)
        finally:
            await store.close()

    asyncio.run(run())


def on_simulated(body: Body, folder: Path) -> None:
    scheduler = Scheduler()
    server = SimulatedStore(random.Random(1), Trace(lambda: scheduler.now_s))
    process = Process(scheduler, "broker", "10.0.0.1", random.Random(2))
    tasks: list[asyncio.Task[None]] = []

    async def run() -> None:
        tasks.append(asyncio.create_task(body(server.of(process))))
        await asyncio.wait(tasks)

    process.spawn(run())
    scheduler.run_until(3_600)
    (task,) = tasks
    task.result()


def on_every_store(body: Body) -> Callable[..., None]:
    """A test that hands a new store of each kind to `body`."""

    @pytest.mark.parametrize("run", [on_memory, on_sqlite, on_simulated])
    def test(run: Callable[[Body, Path], None], tmp_path: Path) -> None:
        run(body, tmp_path)

    test.__doc__ = body.__doc__
    return test


async def put(
    store: MetadataStore, path: str, value: bytes | None, version: int = 0, **more: Any
) -> None:
    """Write one value."""
    await store.write_all([Write(path, value, version)], **more)
