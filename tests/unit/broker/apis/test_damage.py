"""Damage that a request meets is told for its partition; the others of the request are answered."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
)
from oncelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from oncelog.runtime.disk import NotCached, StorageFailure
from oncelog.storage.files import CLEAN_SHUTDOWN_NAME
from tests.support.logged import said_by
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import fetch, produce, receive_fetch, until, values
from tests.unit.broker.support import NOW_MS, batch

SIZE = len(batch())
CORRUPT, STORAGE, NONE = (
    ErrorCode.corrupt_message,
    ErrorCode.kafka_storage_error,
    ErrorCode.none,
)
SETTINGS: dict[str, object] = {"log.index.interval.bytes": 1}


def damage_header(folder: Path, position: int) -> None:
    """Set the length of the batch at `position` in the log of t to zero."""
    with open(folder / "t-0" / f"{0:020}.log", "r+b") as file:
        file.seek(position + 8)
        file.write(bytes(4))


@pytest.fixture
async def damaged(tmp_path: Path) -> AsyncIterator[Running]:
    """Topics t and u of four batches each; the third one of t was damaged while the broker was
    stopped.
    """
    async with running(tmp_path, SETTINGS) as context:
        await context.broker.controller.create_topics([TopicToCreate("t"), TopicToCreate("u")])
        client = await context.connect()
        for number in range(4):
            for topic in "tu":
                data = batch(timestamp_ms=NOW_MS + number)
                await produce(client, 9, data, topic=topic)
    damage_header(tmp_path, 2 * SIZE)
    async with running(tmp_path, SETTINGS) as context:
        yield context


async def fetch_both(client: Client, offset: int, **options: int) -> list[tuple[ErrorCode, int]]:
    """(error, records) of topics t and u, both read from `offset` on."""
    topics = [
        FetchTopic(name, None, [FetchPartition(0, offset, options.get("size", SIZE), -1)])
        for name in "tu"
    ]
    request = FetchRequest(0, 0, 2**20, options.get("isolation_level", 0), 0, -1, topics)
    frame = encode_fetch_request(12, 78, "test", request)
    await client.send(bytes(frame) if isinstance(frame, bytes | bytearray) else b"".join(frame))
    answers = [topic.partitions[0] for topic in (await receive_fetch(client)).topics]
    return [(ErrorCode(answer.error), len(values(answer.records))) for answer in answers]


async def list_offset(client: Client, topic: str, timestamp: int) -> tuple[ErrorCode, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    response = await client.ask(
        ApiKey.LIST_OFFSETS,
        replica_id=-1,
        isolation_level=0,
        topics=(ListOffsetsTopic(name=topic, partitions=(asked,)),),
    )
    found = response.topics[0].partitions[0]
    return found.error_code, found.offset


@pytest.mark.damages
async def test_a_damaged_batch_is_corrupt_for_its_partition_and_offsets_only(
    damaged: Running, caplog: pytest.LogCaptureFixture
) -> None:
    client = await damaged.connect()
    with caplog.at_level(logging.ERROR, "oncelog.broker.partitions"):
        for _ in range(3):
            assert await fetch_both(client, 2) == [(CORRUPT, 0), (NONE, 1)]
    assert await fetch_both(client, 1) == [(NONE, 1), (NONE, 1)]
    assert await fetch_both(client, 3) == [(NONE, 1), (NONE, 1)]
    (said,) = [record.getMessage() for record in said_by(caplog)]
    assert "t-0 is damaged" in said
    assert f"byte {2 * SIZE}" in said


@pytest.mark.damages
async def test_damage_that_a_start_has_found_is_told_without_another_read(
    damaged: Running, tmp_path: Path
) -> None:
    await damaged.broker.stop()
    # So that the next start looks at all that was synced before.
    (tmp_path / CLEAN_SHUTDOWN_NAME).unlink()
    async with running(tmp_path, SETTINGS) as context:
        client = await context.connect()
        assert await fetch_both(client, 2) == [(CORRUPT, 0), (NONE, 1)]
        assert await fetch_both(client, 3) == [(NONE, 1), (NONE, 1)]


@pytest.mark.damages
async def test_aborted_transactions_are_named_though_damage_hides_the_end_of_a_read(
    tmp_path: Path,
) -> None:
    """INV-3: what stands in front of the damage is still hidden from read_committed."""
    async with running(tmp_path) as context:
        await context.broker.controller.create_topics([TopicToCreate("t")])
        partition = partition_of(context)
        aborted = batch(producer_id=5, epoch=0, sequence=0, transactional=True)
        for data in (aborted, batch()):
            partition.append(data, now_ms=NOW_MS)
        partition.append_marker(5, 0, 0, commit=False, now_ms=NOW_MS, transaction_version=0)
        # Another batch follows, whose header will be damaged.
        place = partition.log.size_bytes
        partition.append(batch(), now_ms=NOW_MS)
        damage_header(tmp_path, place)
        client = await context.connect()
        found = await fetch(client, isolation_level=1)
        assert ErrorCode(found.error) is NONE
        assert found.aborted_transactions == [(5, 0)]


@pytest.mark.damages
async def test_a_lookup_by_time_that_meets_a_damaged_batch_says_so(damaged: Running) -> None:
    client = await damaged.connect()
    assert await list_offset(client, "t", NOW_MS + 1) == (NONE, 1)
    assert await list_offset(client, "t", NOW_MS + 2) == (CORRUPT, -1)
    assert await list_offset(client, "t", -1) == (NONE, 4)
    assert await list_offset(client, "u", NOW_MS + 2) == (NONE, 2)


class FailingFile:
    """A file whose reads fail as those of a broken disk do."""

    path = "broken"

    def pread(self, size: int, position: int) -> bytes:
        raise StorageFailure("read", self.path, "Input/output error")

    def pwrite(self, data: bytes, position: int) -> None:
        raise StorageFailure("write", self.path, "No space left on device")

    def pread_cached(self, size: int, position: int) -> bytes:
        raise NotCached(self.path)

    def fsync(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
async def failing(tmp_path: Path) -> AsyncIterator[tuple[Running, list[StorageFailure]]]:
    """The same topics; the disk does not read t. What would take its folder off line is kept."""
    async with running(tmp_path) as context:
        await context.broker.controller.create_topics([TopicToCreate("t"), TopicToCreate("u")])
        client = await context.connect()
        for topic in "tu" * 4:
            await produce(client, 9, batch(), topic=topic)
        partition = partition_of(context)
        failures: list[StorageFailure] = []
        partition.on_failure = failures.append
        partition.log._local.segments.active.kept.held = FailingFile()  # type: ignore[assignment]
        yield context, failures


def partition_of(context: Running) -> Partition:
    partition = context.broker.partitions.get("t", 0)
    assert partition is not None
    return partition


async def test_a_read_error_is_answered_and_takes_the_folder_off_line(
    failing: tuple[Running, list[StorageFailure]],
) -> None:
    context, failures = failing
    client = await context.connect()
    assert await fetch_both(client, 0) == [(STORAGE, 0), (NONE, 1)]
    assert await list_offset(client, "t", NOW_MS) == (STORAGE, -1)
    assert await list_offset(client, "u", NOW_MS) == (NONE, 0)
    assert len(failures) == 2


async def test_a_write_that_the_disk_refuses_is_answered_and_takes_the_folder_off_line(
    failing: tuple[Running, list[StorageFailure]],
) -> None:
    context, failures = failing
    client = await context.connect()
    assert ErrorCode((await produce(client, 9, batch(), topic="t")).error) is STORAGE
    assert ErrorCode((await produce(client, 9, batch(), topic="u")).error) is NONE
    assert len(failures) == 1


async def delete(client: Client, offset: int) -> list[tuple[ErrorCode, int]]:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    response = await client.ask(
        ApiKey.DELETE_RECORDS,
        topics=tuple(DeleteRecordsTopic(name=name, partitions=(asked,)) for name in ("t", "none")),
    )
    answers = [topic.partitions[0] for topic in response.topics]
    return [(answer.error_code, answer.low_watermark) for answer in answers]


async def fails(*_: Any) -> None:
    raise StorageFailure("write", "checkpoint", "No space left on device")


def fails_at_once(*_: Any) -> None:
    raise StorageFailure("write", "epochs", "No space left on device")


def refuse_the_checkpoint(context: Running) -> None:
    context.broker.partitions.note_log_starts = fails  # type: ignore[method-assign]


def refuse_the_epochs(context: Running) -> None:
    partition_of(context).log._local.files.write_epochs = fails_at_once  # type: ignore[assignment]


@pytest.mark.parametrize("refuse", [refuse_the_checkpoint, refuse_the_epochs])
async def test_a_log_start_that_the_disk_does_not_take_is_no_success(
    failing: tuple[Running, list[StorageFailure]], refuse: Callable[[Running], None]
) -> None:
    context, failures = failing
    refuse(context)
    client = await context.connect()
    unknown = ErrorCode.unknown_topic_or_partition
    assert await delete(client, 2) == [(STORAGE, -1), (unknown, -1)]
    assert len(failures) == 1


async def test_a_read_error_stops_a_broker_of_one_folder(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        await context.broker.controller.create_topics([TopicToCreate("t"), TopicToCreate("u")])
        client = await context.connect()
        await produce(client, 9, batch())
        partition_of(context).log._local.segments.active.kept.held = FailingFile()  # type: ignore[assignment]
        assert await fetch_both(client, 0) == [(STORAGE, 0), (NONE, 0)]
        await until(lambda: context.broker.stopped_because is not None)
        assert isinstance(context.broker.stopped_because, StorageFailure)
