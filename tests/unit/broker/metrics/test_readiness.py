"""What makes a broker not ready, in one line; and what does not."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from oncelog.broker.broker import Broker
from oncelog.core.config import BrokerConfig
from oncelog.metadata.store import StoreFailure, Write
from oncelog.runtime.disk import Lane, StorageFailure, SystemDisk
from tests.support.members import Cluster, members
from tests.unit.broker.context import running
from tests.unit.broker.metrics.test_replication import read

T = TypeVar("T")

ADDRESS = {"oncelog.metrics.address": "127.0.0.1:0"}
FENCED = (503, "fenced: the session with the metadata store has ended\n")
NO_CONTROLLER = (503, "no broker is the controller\n")
READY = (200, "ready\n")


async def ask(broker: Broker, path: str = "/readyz") -> tuple[int, str]:
    """The status and the body."""
    reader, writer = await asyncio.open_connection(*broker.metrics.address)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    async with asyncio.timeout(10):
        answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


class HeldWrites:
    """Holds up what a broker writes to the store until it is let go."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self._go_on = asyncio.Event()
        cluster[broker_id].link.around_write = self._around

    async def _around(self, writes: Sequence[Write], is_after: bool) -> None:
        if not is_after:
            await self._go_on.wait()

    def let_go(self) -> None:
        self._go_on.set()


class SlowDisk(SystemDisk):
    """Does nothing before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        self.is_asked.set()
        await self.go_on.wait()
        return await super().run(work, lane)


async def test_a_broker_is_ready_from_the_end_of_its_start_to_its_stop(tmp_path: Path) -> None:
    config = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", **ADDRESS}
    disk = SlowDisk()
    broker = Broker(BrokerConfig(config), disk=disk)
    starting = asyncio.create_task(broker.start())
    await disk.is_asked.wait()
    assert await ask(broker) == (503, "starting\n")
    assert await ask(broker, "/metrics") == (503, "starting\n")
    disk.go_on.set()
    await starting
    assert await ask(broker) == READY
    broker.stopping = "ending requests"
    assert await ask(broker) == (503, "stopping: ending requests\n")
    assert await ask(broker, "/livez") == (200, "alive\n")
    await broker.stop()
    disk.close()


async def test_a_broker_is_not_ready_between_two_of_its_lives() -> None:
    async with members(2, ADDRESS) as cluster:
        broker = cluster[2].broker
        assert await ask(broker) == READY
        held = HeldWrites(cluster, 2)
        cluster.expire(2)
        await cluster.until(lambda: not broker.membership.is_alive)
        assert await ask(broker) == FENCED
        assert read(cluster, 2, "oncelog_ready") == 0
        held.let_go()
        await cluster.until(lambda: read(cluster, 2, "oncelog_ready") == 1)
        assert await ask(broker) == READY


async def test_a_broker_is_not_ready_while_none_is_the_controller() -> None:
    config = {**ADDRESS, "controlled.shutdown.enable": "false"}
    async with members(2, config) as cluster:
        held = HeldWrites(cluster, 2)
        await cluster.kill(1)
        cluster.expire(1)
        broker = cluster[2].broker
        await cluster.until(lambda: broker.image.controller_id < 0)
        assert await ask(broker) == NO_CONTROLLER
        held.let_go()
        await cluster.until(lambda: broker.image.controller_id == 2)
        assert await ask(broker) == READY


async def test_a_folder_off_line_is_named(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in "ab"]
    async with running(tmp_path, {**ADDRESS, "log.dirs": ",".join(folders)}) as context:
        broker = context.broker
        assert await ask(broker) == READY
        broken = StorageFailure("write", f"{folders[1]}/t-0/0.log", OSError(errno.EIO, "I/O"))
        broker.logs.take_off_line(broken)
        assert await ask(broker) == (503, f"the log directory {folders[1]} is off line\n")


async def test_a_store_that_does_not_answer_is_measured_and_keeps_nobody_away() -> None:
    async with members(1, ADDRESS) as cluster:
        broker = cluster[1].broker
        away = "oncelog_metadata_store_away_seconds"
        assert read(cluster, 1, away) == 0
        broker.feed.health.failed(StoreFailure("no answer"))
        await cluster.until(lambda: read(cluster, 1, away) > 0)
        assert await ask(broker) == READY
        broker.feed.health.answered()
        assert read(cluster, 1, away) == 0
