"""A broker on a disk of which nothing is in memory, and whose reads wait until they are let go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from oncelog.broker.broker import Broker
from oncelog.core.config import BrokerConfig
from oncelog.runtime import DiskFile, Lane, NotCached, SystemDisk
from tests.unit.broker.context import Client

T = TypeVar("T")


class ColdDisk(SystemDisk):
    """Notes in which threads `.log` files are read. Work of a lane waits while it is `held`."""

    def __init__(self) -> None:
        super().__init__()
        self.read_by: list[int] = []
        self.synced_by: list[int] = []
        self.held: set[Lane] = set()
        self.running: dict[Lane, int] = dict.fromkeys(Lane, 0)
        self.finished: dict[Lane, int] = dict.fromkeys(Lane, 0)
        self._let_go = asyncio.Event()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return ColdFile(self, super().open(path, create=create))

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        self.running[lane] += 1
        while lane in self.held:
            await self._let_go.wait()
        try:
            return await super().run(work, lane)
        finally:
            self.running[lane] -= 1
            self.finished[lane] += 1

    def let_go(self) -> None:
        self.held.clear()
        self._let_go.set()


class ColdFile:
    def __init__(self, disk: ColdDisk, file: DiskFile) -> None:
        self._disk, self._file = disk, file
        self.path = file.path

    def pread(self, size: int, position: int) -> bytes:
        self._disk.read_by.append(threading.get_ident())
        return self._file.pread(size, position)

    def pread_cached(self, size: int, position: int) -> bytes:
        raise NotCached(self.path)

    def fsync(self) -> None:
        self._disk.synced_by.append(threading.get_ident())
        self._file.fsync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Cold:
    """A started broker on such a disk."""

    def __init__(self, broker: Broker, disk: ColdDisk) -> None:
        self.broker = broker
        self.disk = disk
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        host, _, port = self.broker.bootstrap_servers.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        self.clients.append(client)
        return client


@asynccontextmanager
async def cold_broker(
    folder: Path, *, held: Collection[Lane] = (), **settings: str
) -> AsyncIterator[Cold]:
    """A broker on `folder`; settings with underscores for dots. `held` is so from its start."""
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    } | {key.replace("_", "."): value for key, value in settings.items()}
    disk = ColdDisk()
    disk.held.update(held)
    broker = Broker(BrokerConfig(config), disk=disk)
    await broker.start()
    cold = Cold(broker, disk)
    try:
        yield cold
    finally:
        disk.let_go()
        for client in cold.clients:
            client.writer.close()
        await broker.stop()
        disk.close()
