"""AlterReplicaLogDirs: partitions move between log directories while they are used."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirTopic,
)
from oncelog.runtime.disk import StorageFailure, SystemDisk
from oncelog.storage.moves import LogMove
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import fetch, produce, until, values
from tests.unit.broker.support import batch

NONE = ErrorCode.none
T0 = TopicPartition("t", 0)


def folders(tmp_path: Path) -> dict[str, object]:
    return {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"}


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, folders(tmp_path)) as started:
        await started.broker.controller.create_topics([TopicToCreate("t"), TopicToCreate("u")])
        yield started


async def alter(client: Client, path: Path, *partitions: TopicPartition) -> list[ErrorCode]:
    topics = tuple(
        AlterReplicaLogDirTopic(name=name, partitions=(index,)) for name, index in partitions
    )
    directory = AlterReplicaLogDir(path=str(path), topics=topics)
    response = await client.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, dirs=(directory,))
    return [p.error_code for topic in response.results for p in topic.partitions]


def place(context: Running, partition: TopicPartition = T0) -> str:
    folder = context.broker.logs.folder_of(partition)
    assert folder is not None
    return folder.directory


async def described(client: Client) -> list[tuple[str, str, bool]]:
    results = (await client.ask(ApiKey.DESCRIBE_LOG_DIRS, topics=None)).results
    return [
        (Path(result.log_dir).name, f"{topic.name}-{p.partition_index}", p.is_future_key)
        for result in results
        for topic in result.topics
        for p in topic.partitions
    ]


async def test_a_partition_moves_while_it_is_written(context: Running, tmp_path: Path) -> None:
    client, writer = await context.connect(), await context.connect()
    assert await described(client) == [("a", "t-0", False), ("b", "u-0", False)]
    acknowledged = 0
    for _ in range(20):
        assert (await produce(client, 9, batch(5))).error == NONE
        acknowledged += 5
    assert await alter(client, tmp_path / "b", T0) == [NONE]
    while T0 in context.broker.mover._wanted:
        answer = await produce(writer, 9, batch(1))
        acknowledged += answer.error == NONE
        assert answer.error in (NONE, ErrorCode.not_leader_or_follower)
    await until(lambda: context.broker.partitions.get("t", 0) is not None)
    assert (await produce(client, 9, batch(1))).error == NONE
    found = await fetch(client, offset=0)
    assert len(values(found.records)) == acknowledged + 1
    await until(lambda: not context.broker.mover.moves)
    assert await described(client) == [("b", "t-0", False), ("b", "u-0", False)]
    assert not (tmp_path / "a" / "t-0").exists()
    image = context.broker.image.partition("t", 0)
    assert image is not None
    assert image.leader_epoch == 0


async def test_a_move_is_shown_and_can_be_given_up(
    context: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await context.connect()
    for _ in range(4):
        await produce(client, 9, batch(1))
    copy = LogMove.copy
    monkeypatch.setattr(LogMove, "copy", lambda self: copy(self) and False)
    assert await alter(client, tmp_path / "b", T0) == [NONE]
    await until(lambda: any(move.size_bytes for move in context.broker.mover.moves.values()))
    assert ("b", "t-0", True) in await described(client)
    assert await alter(client, tmp_path / "a", T0) == [NONE]
    await until(lambda: not context.broker.mover.moves)
    assert await described(client) == [("a", "t-0", False), ("b", "u-0", False)]
    assert (await fetch(client, offset=0)).high_watermark == 4


async def test_a_partition_is_not_cleaned_while_it_moves(
    context: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await context.connect()
    await produce(client, 9, batch(1))
    cleaner, copy = context.broker.partitions.cleaner, LogMove.copy
    seen = []

    def watched(move: LogMove) -> bool:
        seen.append(T0 in cleaner._paused)
        return copy(move)

    monkeypatch.setattr(LogMove, "copy", watched)
    assert await alter(client, tmp_path / "b", T0) == [NONE]
    await until(lambda: not context.broker.mover.moves and place(context).endswith("/b"))
    assert seen
    assert all(seen)
    assert not cleaner._paused


async def test_moves_that_cannot_be_are_refused_as_in_kafka(
    context: Running, tmp_path: Path
) -> None:
    client = await context.connect()
    assert await alter(client, tmp_path / "c", T0) == [ErrorCode.log_dir_not_found]
    gone = ErrorCode.replica_not_available
    assert await alter(client, tmp_path / "b", TopicPartition("gone", 0)) == [gone]
    assert await alter(client, tmp_path / "a", T0) == [NONE]
    failure = StorageFailure("write", f"{tmp_path}/b/x", "for the test")
    context.broker.partitions.folder_failed(failure)
    storage = ErrorCode.kafka_storage_error
    assert await alter(client, tmp_path / "b", T0) == [storage]
    assert await alter(client, tmp_path / "a", TopicPartition("u", 0)) == [storage]
    assert place(context).endswith("/a")


async def test_the_log_of_a_coordinator_moves_too(context: Running, tmp_path: Path) -> None:
    await context.broker.controller.create_topics([TopicToCreate(CONSUMER_OFFSETS_TOPIC, 1)])
    client = await context.connect()
    offsets = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
    before = context.broker.groups._coordinators[0]
    target = tmp_path / ("b" if place(context, offsets).endswith("/a") else "a")
    assert await alter(client, target, offsets) == [NONE]
    await until(lambda: context.broker.groups._coordinators.get(0) not in (None, before))
    assert place(context, offsets) == str(target)


async def test_a_topic_deleted_in_the_last_step_is_gone(
    context: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await context.connect()
    await produce(client, 9, batch(1))
    topic = context.broker.image.topics["t"]
    loop = asyncio.get_running_loop()
    swap = LogMove.swap

    def slow_swap(move: Any) -> None:
        deletion = context.broker.controller.delete_topic(topic.topic_id)
        asyncio.run_coroutine_threadsafe(deletion, loop).result()
        swap(move)

    monkeypatch.setattr(LogMove, "swap", slow_swap)
    assert await alter(client, tmp_path / "b", T0) == [NONE]
    await until(lambda: "t" not in context.broker.image.topics)
    await until(lambda: not context.broker.mover.moves)
    await until(lambda: left(tmp_path) == [])
    assert context.broker.partitions.get("t", 0) is None


async def test_a_move_that_ends_in_a_failed_deletion_is_over(
    context: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await context.connect()
    await produce(client, 9, batch(1))
    topic = context.broker.image.topics["t"]
    loop = asyncio.get_running_loop()
    swap, rename = LogMove.swap, SystemDisk.rename

    def slow_swap(move: Any) -> None:
        deletion = context.broker.controller.delete_topic(topic.topic_id)
        asyncio.run_coroutine_threadsafe(deletion, loop).result()
        swap(move)

    def fails(disk: SystemDisk, old: str, new: str) -> None:
        if old == f"{tmp_path}/b/t-0":
            raise StorageFailure("rename", old, OSError(errno.EIO, "for the test"))
        rename(disk, old, new)

    monkeypatch.setattr(LogMove, "swap", slow_swap)
    monkeypatch.setattr(SystemDisk, "rename", fails)
    assert await alter(client, tmp_path / "b", T0) == [NONE]
    await until(lambda: bool(context.broker.logs.off_line_directories))
    await until(lambda: not context.broker.mover.moves)
    assert context.broker.stopped_because is None
    # Its name follows the metadata again: the folder there is off line.
    (made,) = await context.broker.controller.create_topics([TopicToCreate("t")])
    assert made.error is NONE
    assert context.broker.image.topics["t"].partitions[0].leader == -1


async def test_a_move_whose_target_fails_leaves_the_partition_where_it_is(
    context: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await context.connect()
    await produce(client, 9, batch(1))

    def fail(move: LogMove) -> None:
        raise StorageFailure("write", f"{move.path}/x", "for the test")

    monkeypatch.setattr(LogMove, "finish", fail)
    assert await alter(client, tmp_path / "b", T0) == [NONE]
    await until(lambda: bool(context.broker.logs.off_line_directories))
    await until(lambda: context.broker.partitions.get("t", 0) is not None)
    assert (await produce(client, 9, batch(1))).error == NONE
    assert place(context).endswith("/a")
    assert (await fetch(client, offset=0)).high_watermark == 2


def break_renames(
    monkeypatch: pytest.MonkeyPatch, context: Running, *, source: bool, path: str
) -> None:
    """Make the sync of the source folder's names, or the rename of the copy, fail."""
    rename = SystemDisk.rename
    folder = context.broker.logs.folder_of(T0)
    assert folder is not None

    def fail(operation: str, where: str) -> None:
        raise StorageFailure(operation, where, OSError(errno.EIO, "for the test"))

    def fails(disk: SystemDisk, old: str, new: str) -> None:
        if new == path:
            fail("rename", old)
        rename(disk, old, new)

    if source:
        monkeypatch.setattr(folder, "sync_names", lambda: fail("fsync", folder.directory))
    else:
        monkeypatch.setattr(SystemDisk, "rename", fails)


@pytest.mark.parametrize("source", [True, False])
async def test_a_move_that_fails_once_the_old_folder_is_renamed_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: bool
) -> None:
    async with running(tmp_path, folders(tmp_path)) as context:
        await context.broker.controller.create_topics([TopicToCreate("t"), TopicToCreate("u")])
        client = await context.connect()
        for _ in range(5):
            assert (await produce(client, 9, batch(1))).error == NONE
        with monkeypatch.context() as patched:
            break_renames(patched, context, source=source, path=f"{tmp_path}/b/t-0")
            assert await alter(client, tmp_path / "b", T0) == [NONE]
            await until(lambda: bool(context.broker.logs.off_line_directories))
            await until(lambda: not context.broker.mover.moves)
        await until(lambda: context.broker.feed.known.is_off_line(T0))
        assert (await produce(client, 9, batch(1))).error != NONE
    async with running(tmp_path, folders(tmp_path)) as context:
        client = await context.connect()
        assert (await fetch(client, offset=0)).high_watermark == 5
        assert (await produce(client, 9, batch(1))).error == NONE
        assert place(context).endswith("/b")


async def test_a_finished_copy_that_could_not_be_removed_does_not_replace_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target became read-only at the last sync of the copy: it is complete, and remains."""
    async with running(tmp_path, folders(tmp_path)) as context:
        await context.broker.controller.create_topics([TopicToCreate("t"), TopicToCreate("u")])
        client = await context.connect()
        assert (await produce(client, 9, batch(5))).error == NONE
        finish = LogMove.finish

        def fail(move: LogMove) -> None:
            raise StorageFailure("remove", move.path, OSError(errno.EROFS, "for the test"))

        def fails(move: LogMove) -> None:
            finish(move)
            fail(move)

        monkeypatch.setattr(LogMove, "finish", fails)
        monkeypatch.setattr(LogMove, "abandon", fail)
        assert await alter(client, tmp_path / "b", T0) == [NONE]
        await until(lambda: bool(context.broker.logs.off_line_directories))
        await until(lambda: not context.broker.mover.moves)
        await until(lambda: context.broker.partitions.get("t", 0) is not None)
        assert (await produce(client, 9, batch(7))).error == NONE
        assert place(context).endswith("/a")
        assert left(tmp_path / "b", "*-future/oncelog.moved") != []
    async with running(tmp_path, folders(tmp_path)) as context:
        assert (await fetch(await context.connect(), offset=0)).high_watermark == 12
        assert place(context).endswith("/a")
    assert left(tmp_path / "b", "*-future") == []


@pytest.mark.damages
async def test_damage_in_a_log_ends_its_move_and_no_folder_goes_off_line(
    context: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = await context.connect()
    for _ in range(3):
        assert (await produce(client, 9, batch(1))).error == NONE
    path = tmp_path / "a" / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    assert await alter(client, tmp_path / "b", T0) == [NONE]
    await until(lambda: T0 not in context.broker.mover._wanted)
    assert context.broker.logs.off_line_directories == []
    assert f"t-0 cannot be moved, it is damaged: {tmp_path}/a/t-0" in caplog.text
    assert "from offset 0 on" in caplog.text
    assert place(context).endswith("/a")
    assert (await produce(client, 9, batch(1))).error == NONE
    assert left(tmp_path / "b", "*-future") == []


def hold_copies(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Awaitable[Any]]) -> None:
    """Run `meanwhile` in the loop after the first step of a copy, which has two."""
    loop, copy = asyncio.get_running_loop(), LogMove.copy
    begun: list[bool] = []

    def held(move: LogMove) -> bool:
        if begun:
            return copy(move)
        begun.append(copy(move))
        asyncio.run_coroutine_threadsafe(_result(meanwhile), loop).result()
        return False

    monkeypatch.setattr(LogMove, "copy", held)


async def _result(meanwhile: Callable[[], Awaitable[Any]]) -> None:
    await meanwhile()


async def test_a_topic_deleted_while_it_is_copied_takes_no_folder_off_line(
    context: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await context.connect()
    monkeypatch.setattr("oncelog.storage.moves.MOVE_READ_BYTES", 1)
    monkeypatch.setattr("oncelog.storage.moves.MOVE_STEP_BYTES", 1)
    for _ in range(3):
        await produce(client, 9, batch(1))
    topic_id = context.broker.image.topics["t"].topic_id
    hold_copies(monkeypatch, lambda: context.broker.controller.delete_topic(topic_id))
    assert await alter(client, tmp_path / "b", T0) == [NONE]
    await until(lambda: T0 not in context.broker.mover._wanted)
    assert context.broker.logs.off_line_directories == []
    assert left(tmp_path / "b", "*-future") == []


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_folder_that_goes_off_line_meanwhile_ends_the_move(
    context: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    client = await context.connect()
    await produce(client, 9, batch(1))

    async def fail() -> None:
        failure = StorageFailure("fsync", f"{tmp_path}/{name}/x", "for the test")
        context.broker.partitions.folder_failed(failure)

    hold_copies(monkeypatch, fail)
    assert await alter(client, tmp_path / "b", T0) == [NONE]
    await until(lambda: T0 not in context.broker.mover._wanted)
    assert place(context).endswith("/a")
    answer = await produce(client, 9, batch(1))
    assert answer.error == (NONE if name == "b" else ErrorCode.kafka_storage_error)


async def test_the_last_step_of_a_move_ends_before_the_logs_are_closed(
    context: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await context.connect()
    await produce(client, 9, batch(1))
    loop, swap = asyncio.get_running_loop(), LogMove.swap
    swapped: list[LogMove] = []
    (running_moves,) = (
        task
        for task in asyncio.all_tasks()
        if getattr(task.get_coro(), "__qualname__", "") == "PartitionMover.run"
    )

    async def stop() -> None:
        running_moves.cancel()

    def slow(move: LogMove) -> None:
        for work in (stop, _turn, _turn, _turn, _turn):
            asyncio.run_coroutine_threadsafe(work(), loop).result()
        swap(move)
        swapped.append(move)

    monkeypatch.setattr(LogMove, "swap", slow)
    assert await alter(client, tmp_path / "b", T0) == [NONE]
    await asyncio.wait([running_moves])
    assert swapped


async def _turn() -> None:
    await asyncio.sleep(0)


async def test_a_restart_in_the_middle_of_a_copy_goes_on_without_it(tmp_path: Path) -> None:
    async with running(tmp_path, folders(tmp_path)) as context:
        await context.broker.controller.create_topics([TopicToCreate("t")])
        client = await context.connect()
        await produce(client, 9, batch(1))
        held = context.broker.partitions.get("t", 0)
        assert held is not None
        source, target = context.broker.logs.folders
        topic_id = held.state.topic_id
        LogMove(context.broker.disk, held.log, source, target, topic_id, 0).copy()
        assert left(tmp_path / "b", "*-future") != []
    async with running(tmp_path, folders(tmp_path)) as context:
        assert (await fetch(await context.connect(), offset=0)).high_watermark == 1
    assert left(tmp_path / "b", "*-future") == []


def left(folder: Path, pattern: str = "*/t-0*") -> list[Path]:
    return list(folder.glob(pattern))
