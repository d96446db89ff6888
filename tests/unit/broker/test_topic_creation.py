"""Topics of one request share the writes of the store and the work in the executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from oncelog.broker.broker import Broker
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import (
    PARTITIONS_TAKEN_IN_TOGETHER_COUNT,
    TOPICS_CREATED_TOGETHER_COUNT_MAX,
)
from oncelog.metadata.memory import MemoryStore
from oncelog.metadata.store import Write
from oncelog.runtime import SystemDisk
from oncelog.runtime.disk import Lane
from oncelog.storage.files import LIFE_NAME
from tests.unit.broker.raw import until

T = TypeVar("T")

TOPICS_COUNT = 2 * TOPICS_CREATED_TOGETHER_COUNT_MAX + 1


class CountingStore(MemoryStore):
    """Counts the writes that wait for the disk."""

    writes_count = 0

    async def write_all(self, writes: Sequence[Write], **more: Any) -> None:
        self.writes_count += 1
        await super().write_all(writes, **more)


class CountingDisk(SystemDisk):
    """Counts the pieces of work in the executor."""

    works_count = 0

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        self.works_count += 1
        return await super().run(work, lane)


async def test_many_topics_of_a_request_need_few_writes_and_few_pieces_of_work(
    tmp_path: Path,
) -> None:
    store, disk = CountingStore(), CountingDisk()
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    broker = Broker(BrokerConfig(config), disk=disk, store=store)
    await broker.start()
    try:
        await until((tmp_path / LIFE_NAME).exists)
        store.writes_count = disk.works_count = 0
        wanted = [TopicToCreate(f"t{number}", 2) for number in range(TOPICS_COUNT)]
        outcomes = await broker.controller.create_topics(wanted)
        assert {outcome.error for outcome in outcomes} == {ErrorCode.none}
        assert [outcome.name for outcome in outcomes] == [new.name for new in wanted]
        assert len(broker.partitions) == 2 * TOPICS_COUNT
        assert store.writes_count == disk.works_count == 3
        disk.works_count = 0
        large = TopicToCreate("large", PARTITIONS_TAKEN_IN_TOGETHER_COUNT + 1)
        await broker.controller.create_topics([large, TopicToCreate("small")])
        assert disk.works_count == 2
    finally:
        await broker.stop()
        disk.close()
