"""A log directory that fails takes only its partitions off line; the last one stops the broker."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.broker import Broker
from oncelog.broker.partitions.strays import confirmable
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.group.events import DescribeGroup
from oncelog.protocol.api import ApiKey
from oncelog.runtime.disk import DiskFile, StorageFailure, SystemDisk
from tests.support.logged import said_by
from tests.unit.broker.context import Client
from tests.unit.broker.raw import fetch, produce, until, values
from tests.unit.broker.support import batch

NONE, STORAGE = ErrorCode.none, ErrorCode.kafka_storage_error
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


class _File:
    def __init__(self, file: DiskFile, disk: BreakingDisk) -> None:
        self._file = file
        self._disk = disk
        self.path = file.path

    def __getattr__(self, name: str) -> Any:
        self._disk.check(name, self.path)
        return getattr(self._file, name)


class BreakingDisk(SystemDisk):
    """Fails each operation in a folder, once that is in `broken`, with its error number."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: dict[str, int] = {}

    def check(self, operation: str, path: str) -> None:
        for folder, number in self.broken.items():
            closes = operation in ("close", "path")
            if not closes and (path == folder or path.startswith(f"{folder}/")):
                raise StorageFailure(operation, path, OSError(number, "for the test"))

    def open(self, path: str, *, create: bool = False) -> Any:
        self.check("open", path)
        return _File(super().open(path, create=create), self)

    def mkdir(self, path: str) -> None:
        self.check("create", path)
        super().mkdir(path)

    def list(self, path: str) -> list[str]:
        self.check("list", path)
        return super().list(path)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        super().rename(source, target)

    def sync_dir(self, path: str) -> None:
        self.check("sync", path)
        super().sync_dir(path)

    def read(self, path: str) -> bytes | None:
        self.check("read", path)
        return super().read(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        self.check("write", path)
        super().write_atomic(path, data, sync=sync)


class Bench:
    """A broker on the folders a and b, with topic `t` in a and topic `u` in b."""

    def __init__(self, broker: Broker, disk: BreakingDisk, client: Client) -> None:
        self.broker = broker
        self.disk = disk
        self.client = client

    async def make_topics(self) -> None:
        for name in "tu":
            (made,) = await self.broker.controller.create_topics([TopicToCreate(name)])
            assert made.error is NONE

    def folder_of(self, name: str, index: int = 0) -> str:
        partition = self.broker.partitions.get(name, index)
        assert partition is not None
        return partition.log.directory.rpartition("/")[0]

    async def produce(self, topic: str) -> ErrorCode:
        answer = await produce(self.client, 9, batch(1), topic=topic)
        return ErrorCode(answer.error)

    async def fetch(self, topic: str) -> tuple[ErrorCode, int]:
        answer = await fetch(self.client, offset=0, topic=topic)
        return ErrorCode(answer.error), len(values(answer.records))

    async def metadata(self, topic: str) -> Any:
        response = await self.client.ask(ApiKey.METADATA, topics=None)
        (found,) = [each for each in response.topics if each.name == topic]
        return found.partitions[0]


@asynccontextmanager
async def bench(
    folder: Path, disk: BreakingDisk | None = None, names: str = "ab"
) -> AsyncIterator[Bench]:
    disk = disk or BreakingDisk()
    directories = ",".join(f"{folder}/{name}" for name in names)
    config = BrokerConfig(SETTINGS | {"log.dirs": directories})
    broker = Broker(config, disk=disk)
    await broker.start()
    host, _, port = broker.bootstrap_servers.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        yield Bench(broker, disk, client)
    finally:
        client.writer.close()
        await broker.stop()


async def test_only_the_partitions_of_a_failed_folder_go_off_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path) as b:
        await b.make_topics()
        assert (b.folder_of("t"), b.folder_of("u")) == (f"{tmp_path}/a", f"{tmp_path}/b")
        assert [await b.produce(name) for name in "tu"] == [NONE, NONE]
        b.disk.broken[f"{tmp_path}/b"] = errno.EIO
        assert await b.produce("u") is STORAGE
        assert [await b.produce(name) for name in "tu"] == [NONE, STORAGE]
        assert await b.fetch("u") == (STORAGE, 0)
        assert await b.fetch("t") == (NONE, 2)
        await until(lambda: b.broker.image.topics["u"].partitions[0].leader == -1)
        told = await b.metadata("u")
        assert (told.error_code, told.leader_id) == (ErrorCode.leader_not_available, -1)
        assert (told.offline_replicas, told.isr_nodes, told.replica_nodes) == ((1,), (1,), (1,))
        assert (await b.metadata("t")).leader_id == 1
        folders = (await b.client.ask(ApiKey.DESCRIBE_LOG_DIRS, topics=None)).results
        assert [(f.log_dir, f.error_code) for f in folders] == [
            (f"{tmp_path}/b", STORAGE),
            (f"{tmp_path}/a", NONE),
        ]
        (line,) = [r for r in caplog.records if "is off line" in r.getMessage()]
        assert line.levelno == logging.ERROR
        # It is not tried again, though the disk is well.
        b.disk.broken.clear()
        assert await b.produce("u") is STORAGE
        await b.broker.controller.create_topics([TopicToCreate("v")])
        assert b.folder_of("v") == f"{tmp_path}/a"
        assert b.broker.stopped_because is None
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    async with bench(tmp_path) as b:
        assert await b.fetch("u") == (NONE, 1)
        assert (await b.metadata("u")).leader_epoch == 1
        assert (await b.metadata("t")).leader_epoch == 0
        assert await b.produce("u") is NONE


async def test_the_last_folder_stops_the_broker_with_one_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path) as b:
        await b.make_topics()
        for name, folder in (("u", "b"), ("t", "a")):
            assert b.broker.stopped_because is None
            b.disk.broken[f"{tmp_path}/{folder}"] = errno.EIO
            assert await b.produce(name) is STORAGE
        await until(lambda: b.broker.stopped_because is not None)
    (line,) = [r for r in said_by(caplog) if r.levelno == logging.CRITICAL]
    assert "stopping, as no log directory is left: cannot pwrite" in line.getMessage()
    assert line.exc_info is None


async def test_a_folder_that_failed_in_the_background_goes_off_line(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.make_topics()
        b.disk.broken[f"{tmp_path}/b"] = errno.EIO
        partitions = b.broker.partitions
        failure = StorageFailure("fsync", f"{tmp_path}/b/u-0/x.log", "for the test")
        partitions.folder_failed(failure)
        await until(lambda: b.broker.image.topics["u"].partitions[0].leader == -1)
        partitions._upkeep._checkpoint()()
        assert partitions._upkeep._retain()().failures == []
        partitions._upkeep.note_high_watermarks()()
        assert await b.produce("t") is NONE


async def test_a_coordinator_in_a_failed_folder_is_not_available(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        (made,) = await b.broker.controller.create_topics(
            [TopicToCreate(CONSUMER_OFFSETS_TOPIC, 2)]
        )
        assert made.error is NONE
        kept = b.folder_of(CONSUMER_OFFSETS_TOPIC, 0)
        broken = b.folder_of(CONSUMER_OFFSETS_TOPIC, 1)
        assert kept != broken
        groups = b.broker.groups
        names = {groups.partition_of(name): name for name in map(str, range(20))}
        failure = StorageFailure("write", f"{broken}/x", "for the test")
        b.broker.partitions.folder_failed(failure)
        await until(lambda: 1 not in groups._coordinators)
        response = await b.client.ask(
            ApiKey.FIND_COORDINATOR, coordinator_keys=(names[0], names[1]), key_type=0
        )
        assert [found.error_code for found in response.coordinators] == [
            NONE,
            ErrorCode.coordinator_not_available,
        ]
        asked = groups.ask(
            names[1], DescribeGroup(names[1]), lambda value: value, lambda error: error
        )
        assert asked is ErrorCode.not_coordinator


@pytest.mark.parametrize("folder", ["a", "b"])
async def test_a_folder_that_is_broken_at_the_start_keeps_its_partitions(
    tmp_path: Path, folder: str
) -> None:
    """They are not made anew elsewhere. The metadata is in folder a."""
    async with bench(tmp_path) as b:
        await b.make_topics()
        assert [await b.produce(name) for name in "tu"] == [NONE, NONE]
    disk = BreakingDisk()
    disk.broken[f"{tmp_path}/{folder}/" + ("u-0" if folder == "b" else "t-0")] = errno.EIO
    lost, kept = ("u", "t") if folder == "b" else ("t", "u")
    async with bench(tmp_path, disk) as b:
        assert await b.fetch(kept) == (NONE, 1)
        assert (await b.metadata(lost)).leader_id == -1
        assert b.broker.partitions.get(lost, 0) is None
        assert await b.produce(lost) is STORAGE
        assert await b.fetch(lost) == (STORAGE, 0)
    async with bench(tmp_path) as b:
        assert await b.fetch(lost) == (NONE, 1)
        # Its folder missed a life of this broker, as an older copy of it would have.
        assert (await b.metadata(lost)).leader_epoch == 1


async def test_a_folder_that_cannot_be_locked_is_off_line_while_there_are_others(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b:
        await b.make_topics()
        await b.produce("u")
    disk = BreakingDisk()
    disk.broken[f"{tmp_path}/b"] = errno.EIO
    async with bench(tmp_path, disk) as b:
        assert (await b.metadata("u")).leader_id == -1
        assert await b.produce("t") is NONE
        # Deleted while its folder is away: remembered until that is back.
        assert await b.broker.controller.delete_topic(b.broker.image.topics["u"].topic_id) is NONE
    async with bench(tmp_path) as b:
        assert not (tmp_path / "b" / "u-0").exists()
        await until(lambda: not b.broker.image.deleted)
    disk.broken[f"{tmp_path}/a"] = errno.EIO
    with pytest.raises(StorageFailure, match="cannot"):
        async with bench(tmp_path, disk):
            pass


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
async def test_a_topic_that_no_folder_has_room_for_is_off_line_and_the_next_refused(
    tmp_path: Path, number: int
) -> None:
    async with bench(tmp_path) as b:
        await b.make_topics()
        for name in ("v-0", "v-1"):
            b.disk.broken[f"{tmp_path}/a/{name}"] = number
        b.disk.broken[f"{tmp_path}/b/v-1"] = number
        (made,) = await b.broker.controller.create_topics([TopicToCreate("v", 2)])
        assert made.error is NONE
        told = await b.metadata("v")
        assert (told.leader_id, told.offline_replicas) == (-1, (1,))
        assert await b.produce("v") is STORAGE
        assert left(tmp_path) == []
        assert [await b.produce(name) for name in "tu"] == [NONE, NONE]
        (refused,) = await b.broker.controller.create_topics([TopicToCreate("w")])
        assert refused.error is STORAGE
        assert "for the test" in (refused.message or "")
        assert b.broker.image.topic("w") is None
        b.disk.broken.clear()
        await b.broker.feed.try_unmade()
        assert await b.produce("v") is NONE


async def test_a_broker_whose_folders_have_no_room_starts_and_serves_the_others(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b:
        await b.make_topics()
        assert await b.produce("t") is NONE
        b.disk.broken |= {f"{tmp_path}/{folder}/v-0": errno.ENOSPC for folder in "ab"}
        await b.broker.controller.create_topics([TopicToCreate("v")])
    disk = BreakingDisk()
    disk.broken |= {f"{tmp_path}/{folder}/v-0": errno.ENOSPC for folder in "ab"}
    async with bench(tmp_path, disk) as b:
        assert await b.fetch("t") == (NONE, 1)
        assert await b.produce("v") is STORAGE


async def test_new_partitions_that_no_folder_has_room_for_are_off_line(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.make_topics()
        for folder in "ab":
            b.disk.broken[f"{tmp_path}/{folder}/t-2"] = errno.ENOSPC
        message = await b.client.ask(
            ApiKey.CREATE_PARTITIONS,
            topics=(_more_partitions("t", 3),),
            timeout_ms=1000,
            validate_only=False,
        )
        assert message.results[0].error_code is NONE
        assert [one.leader for one in b.broker.image.topics["t"].partitions] == [1, -1, -1]
        assert b.broker.partitions.get("t", 1) is None
        assert await b.produce("t") is NONE


async def test_a_full_disk_at_the_stop_is_one_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path) as b:
        await b.make_topics()
        assert await b.produce("t") is NONE
        for folder in "ab":
            b.disk.broken[f"{tmp_path}/{folder}"] = errno.ENOSPC
    assert any(
        "not closed in order, so the next start recovers: cannot" in r.getMessage()
        for r in caplog.records
    )
    async with bench(tmp_path) as b:
        assert await b.fetch("t") == (NONE, 1)


def left(folder: Path) -> list[Path]:
    return list(folder.glob("*/v-*"))


def _more_partitions(name: str, count: int) -> Any:
    from oncelog.protocol.messages.create_partitions import CreatePartitionsTopic

    return CreatePartitionsTopic(name=name, count=count, assignments=None)


async def test_partitions_of_a_folder_that_is_not_configured_are_not_created_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path) as b:
        await b.make_topics()
        assert [await b.produce(name) for name in "tu"] == [NONE, NONE]
    for _ in range(2):
        async with bench(tmp_path, names="a") as b:
            assert (await b.metadata("u")).leader_id == -1
            assert await b.produce("u") is STORAGE
            assert await b.produce("t") is NONE
            (made,) = await b.broker.controller.create_topics([TopicToCreate("v")])
            assert made.error is NONE
            await b.broker.controller.delete_topic(b.broker.image.topics["v"].topic_id)
    assert "is not in log.dirs: 1 partitions are off line" in caplog.text
    async with bench(tmp_path) as b:
        assert await b.fetch("u") == (NONE, 1)


async def test_a_folder_that_holds_nothing_may_be_taken_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path) as b:
        (made,) = await b.broker.controller.create_topics([TopicToCreate("t")])
        assert made.error is NONE
    async with bench(tmp_path, names="a"):
        pass
    assert "is not in log.dirs" not in caplog.text
    async with bench(tmp_path, names="a") as b:
        assert b.broker.logs.has_all
        assert await b.produce("t") is NONE


def are_deleted(folder: Path, topic: str) -> list[bool]:
    """Of each folder of the topic whether it is named as deleted; those that are not first."""
    return sorted(path.name.endswith("-delete") for path in folder.glob(f"?/{topic}-*"))


async def test_a_deletion_in_a_folder_that_fails_stops_no_other_folder(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.make_topics()
        (made,) = await b.broker.controller.create_topics([TopicToCreate("v", 2)])
        assert made.topic is not None
        topic_id = made.topic.topic_id
        b.disk.broken[f"{tmp_path}/b"] = errno.EIO
        assert await b.broker.controller.delete_topic(topic_id) is NONE
        assert b.broker.stopped_because is None
        assert await b.produce("t") is NONE
        assert "v" not in b.broker.image.topics
        assert are_deleted(tmp_path, "v") == [False, True]
        # The next start finds the other one, by the note of the deletion.
        assert topic_id not in confirmable(b.broker.logs, b.broker.image, b.broker.broker_id)
    async with bench(tmp_path) as b:
        assert all(are_deleted(tmp_path, "v"))


async def test_a_folder_that_cannot_sync_a_deletion_goes_off_line(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.make_topics()
        await b.broker.controller.delete_topic(b.broker.image.topics["u"].topic_id)
        b.disk.broken[f"{tmp_path}/b"] = errno.EIO
        confirming = asyncio.create_task(b.broker.deletions.run())
        await until(lambda: b.broker.logs.off_line_directories == [f"{tmp_path}/b"])
        assert not confirming.done()
        confirming.cancel()
        assert "u" in b.broker.image.deleted
        # A loss of power may bring the folder back.
        assert confirmable(b.broker.logs, b.broker.image, b.broker.broker_id) == frozenset()
        assert await b.produce("t") is NONE


@pytest.mark.parametrize("is_empty", [True, False])
async def test_a_name_whose_old_folder_is_off_line_is_made_by_the_next_start(
    tmp_path: Path, is_empty: bool
) -> None:
    """A start refuses two folders of one partition, and the old one cannot be removed now."""
    async with bench(tmp_path) as b:
        await b.make_topics()
        assert is_empty or await b.produce("u") is NONE
        b.disk.broken[f"{tmp_path}/b"] = errno.EIO
        assert await b.produce("u") is STORAGE
        deleted = b.broker.image.topics["u"].topic_id
        assert await b.broker.controller.delete_topic(deleted) is NONE
        making = b.broker.controller.create_topics([TopicToCreate("u"), TopicToCreate("v")])
        outcomes = await asyncio.wait_for(making, 5)
        assert [made.error for made in outcomes] == [NONE, NONE]
        assert (await b.metadata("u")).leader_id == -1
        assert [await b.produce(name) for name in "tuv"] == [NONE, STORAGE, NONE]
        (made,) = await b.broker.controller.create_topics([TopicToCreate("w")])
        assert made.error is NONE
    async with bench(tmp_path) as b:
        assert [await b.produce(name) for name in "tuv"] == [NONE, NONE, NONE]
