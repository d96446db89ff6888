"""Topics come and go without holding up the loop, whole or not at all (D12, D14)."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.broker import Broker
from oncelog.controller.events import AlterTopicConfigs
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.create_partitions import CreatePartitionsTopic
from oncelog.protocol.record import Record, build_batch
from oncelog.runtime import DiskFile, StorageFailure, SystemDisk
from tests.unit.broker.apis.test_topics import create, topic
from tests.unit.broker.cold import Cold, cold_broker
from tests.unit.broker.raw import error_of, fetch, produce, until, values
from tests.unit.broker.support import NOW_MS, batch

COUNT = 12


class NotingDisk(SystemDisk):
    """Notes what the event loop's thread asks for; refuses what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.loop_thread = threading.get_ident()
        self.asked_by_loop: list[str] = []
        self.refuses: Callable[[str, str], bool] = lambda operation, path: False

    def look(self, operation: str, path: str) -> None:
        if threading.get_ident() == self.loop_thread:
            self.asked_by_loop.append(f"{operation} {path}")
        if self.refuses(operation, path):
            raise StorageFailure(operation, path, OSError(errno.ENOSPC, "No space left on device"))

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        self.look("open", path)
        return super().open(path, create=create)

    def mkdir(self, path: str) -> None:
        self.look("mkdir", path)
        super().mkdir(path)

    def list(self, path: str) -> list[str]:
        self.look("list", path)
        return super().list(path)

    def rename(self, source: str, target: str) -> None:
        self.look("rename", source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.look("remove", path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.look("remove_tree", path)
        super().remove_tree(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        self.look("write_atomic", path)
        super().write_atomic(path, data, sync=sync)


class Noting(Cold):
    disk: Any


@asynccontextmanager
async def noting(folder: Path, **settings: str) -> AsyncIterator[Noting]:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    } | {key.replace("_", "."): value for key, value in settings.items()}
    disk: Any = NotingDisk()
    broker = Broker(BrokerConfig(config), disk=disk)
    await broker.start()
    disk.asked_by_loop.clear()
    running = Noting(broker, disk)
    try:
        yield running
    finally:
        for client in running.clients:
            client.writer.close()
        await broker.stop()
        disk.close()


def folders(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.is_dir())


async def test_topics_are_made_and_deleted_off_the_loop(tmp_path: Path) -> None:
    async with noting(tmp_path, log_segment_delete_delay_ms="0") as broker:
        client = await broker.connect()
        assert (await create(client, topic("t", COUNT)))["t"].error_code is ErrorCode.none
        assert error_of(await produce(client, 9, batch(), partition=COUNT - 1)) is ErrorCode.none
        topic_id = broker.broker.image.topics["t"].topic_id
        assert await broker.broker.controller.delete_topic(topic_id) is ErrorCode.none
        await until(lambda: folders(tmp_path) == [])
        # An append in a new leader epoch notes it; that is all.
        assert {text.rsplit("/", 1)[1] for text in broker.disk.asked_by_loop} <= {
            "leader-epoch-checkpoint"
        }


async def test_a_topic_is_made_again_while_the_files_of_the_old_one_are_there(
    tmp_path: Path,
) -> None:
    async with noting(tmp_path) as broker:
        client = await broker.connect()
        for _ in range(2):
            await create(client, topic("t"))
            assert (await produce(client, 9, batch())).base_offset == 0
            topic_id = broker.broker.image.topics["t"].topic_id
            await broker.broker.controller.delete_topic(topic_id)
        await create(client, topic("t"))
        assert (await fetch(client)).high_watermark == 0
        names = folders(tmp_path)
        assert names[0] == "t-0"
        assert [name.endswith("-delete") for name in names] == [False, True, True]
        assert len(broker.broker.partitions.removals) == 2
    async with noting(tmp_path) as broker:
        # What the stop left undone is done in the background.
        await until(lambda: folders(tmp_path) == ["t-0"])
        assert broker.disk.asked_by_loop == []


@pytest.mark.parametrize("operation", ["mkdir", "open", "write_atomic"])
async def test_a_topic_that_there_is_no_room_for_is_off_line_whole_until_there_is(
    tmp_path: Path, operation: str
) -> None:
    async with noting(tmp_path) as broker:
        client = await broker.connect()
        broker.disk.refuses = lambda asked, path: asked == operation and f"t-{COUNT - 2}" in path
        assert (await create(client, topic("t", COUNT)))["t"].error_code is ErrorCode.none
        made = broker.broker.image.topics["t"]
        assert {partition.leader for partition in made.partitions} == {-1}
        assert error_of(await produce(client, 9, batch())) is ErrorCode.kafka_storage_error
        assert len(broker.broker.partitions) == 0
        assert folders(tmp_path) == []
        assert broker.broker.stopped_because is None
        refused = (await create(client, topic("u", COUNT)))["u"]
        assert refused.error_code is ErrorCode.kafka_storage_error
        assert "No space left on device" in (refused.error_message or "")
        assert broker.broker.image.topic("u") is None
        broker.disk.refuses = lambda asked, path: False
        await broker.broker.feed.try_unmade()
        assert error_of(await produce(client, 9, batch())) is ErrorCode.none
        assert (await create(client, topic("u")))["u"].error_code is ErrorCode.none
    async with noting(tmp_path) as broker:
        assert len(broker.broker.partitions) == COUNT + 1
        assert broker.broker.image.topics["t"].topic_id == made.topic_id


async def test_new_partitions_that_there_is_no_room_for_leave_the_others_as_they_were(
    tmp_path: Path,
) -> None:
    async with noting(tmp_path) as broker:
        client = await broker.connect()
        await create(client, topic("t", 2))
        await produce(client, 9, batch(), partition=1)
        broker.disk.refuses = lambda asked, path: asked == "mkdir" and path.endswith("t-5")
        asked = CreatePartitionsTopic(name="t", count=8, assignments=None)
        answer = await client.ask(ApiKey.CREATE_PARTITIONS, topics=(asked,), validate_only=False)
        assert answer.results[0].error_code is ErrorCode.none
        leaders = [one.leader for one in broker.broker.image.topics["t"].partitions]
        assert leaders == [1, 1, *[-1] * 6]
        assert folders(tmp_path) == ["t-0", "t-1"]
        assert len(values((await fetch(client, partition=1)).records)) == 1
        asked = CreatePartitionsTopic(name="t", count=9, assignments=None)
        answer = await client.ask(ApiKey.CREATE_PARTITIONS, topics=(asked,), validate_only=False)
        assert answer.results[0].error_code is ErrorCode.kafka_storage_error


async def test_segments_that_retention_takes_are_removed_after_their_delay(
    tmp_path: Path,
) -> None:
    async with noting(
        tmp_path, log_segment_delete_delay_ms="0", log_retention_check_interval_ms="1"
    ) as broker:
        config = {"segment.bytes": str(2**20), "retention.bytes": "1", "retention.ms": "-1"}
        await broker.broker.controller.create_topics([TopicToCreate("t", config=config)])
        client = await broker.connect()
        partition = broker.broker.partitions.get("t", 0)
        assert partition is not None
        value = b"x" * 600_000
        for _ in range(3):
            made = build_batch([Record(0, NOW_MS, None, value)])
            assert error_of(await produce(client, 9, made)) is ErrorCode.none
        await until(lambda: partition.log.log_start_offset == 2)
        await until(lambda: len(list((tmp_path / "t-0").glob("*.log*"))) == 1)


async def test_a_request_that_is_cancelled_while_a_topic_is_created_leaves_it_whole(
    tmp_path: Path,
) -> None:
    """What is known has moved: its partitions follow, though nobody waits for them."""
    async with noting(tmp_path) as broker:
        controller = broker.broker.controller
        gate = threading.Event()
        broker.disk.refuses = lambda asked, path: asked == "mkdir" and not gate.wait(10)
        making = asyncio.create_task(controller.create_topics([TopicToCreate("t", COUNT)]))
        await until(lambda: broker.broker.feed.known.image.topic("t") is not None)
        following = asyncio.create_task(controller.submit(AlterTopicConfigs("t", ())))
        for task in (making, following):
            await asyncio.sleep(0)
            task.cancel()
        gate.set()
        await until(lambda: len(broker.broker.partitions) == COUNT)


async def test_a_stop_syncs_several_logs_at_a_time_and_those_untouched_not_at_all(
    tmp_path: Path,
) -> None:
    async with cold_broker(tmp_path) as broker:
        await broker.broker.controller.create_topics([TopicToCreate("t", COUNT)])
        client = await broker.connect()
        for index in range(COUNT):
            await produce(client, 9, batch(), partition=index)
        disk = broker.disk
    assert len(disk.synced_by) >= COUNT
    assert len(set(disk.synced_by)) > 1
    assert threading.get_ident() not in disk.synced_by
    async with cold_broker(tmp_path) as again:
        for index in range(COUNT):
            assert again.broker.logs.is_whole(TopicPartition("t", index))
        disk = again.disk
    assert disk.synced_by == []


@pytest.mark.parametrize("suffix", [".snapshot", ".index", ".batches"])
async def test_a_log_that_could_not_be_closed_is_recovered_by_the_next_start(
    tmp_path: Path, suffix: str
) -> None:
    async with noting(tmp_path) as broker:
        client = await broker.connect()
        await create(client, topic("t", COUNT))
        await produce(client, 9, batch(sequence=0, producer_id=5, epoch=0), partition=3)
        broker.disk.refuses = lambda asked, path: "t-3/" in path and path.endswith(suffix)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    async with noting(tmp_path) as again:
        assert not again.broker.logs.is_whole(TopicPartition("t", 0))
        client = await again.connect()
        assert len(values((await fetch(client, partition=3)).records)) == 1
