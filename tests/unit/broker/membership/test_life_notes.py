"""When the notes of a broker's life are written into its log directories, and taken back."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import cast

from oncelog.broker.membership.life_notes import LifeNotes
from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.events import AlterTopicConfigs
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from oncelog.runtime.disk import Disk, StorageFailure
from oncelog.storage.lives import LifeNote, parse_note
from oncelog.storage.log_manager import LogManager
from tests.unit.broker.context import running
from tests.unit.broker.raw import until

ALL_SYNCED = {"log.flush.interval.messages": 1}
NAME = "oncelog.life"


def note_in(folder: Path) -> LifeNote | None:
    path = folder / NAME
    return parse_note(path.read_bytes()) if path.exists() else None


def says_synced(folder: Path) -> bool | None:
    note = note_in(folder)
    return None if note is None else note.is_synced


async def test_a_broker_notes_its_life_once_it_serves(tmp_path: Path) -> None:
    async with running(tmp_path):
        await until(lambda: note_in(tmp_path) is not None)
        assert says_synced(tmp_path) is False


async def test_a_synced_life_is_noted_until_a_topic_syncs_less(tmp_path: Path) -> None:
    async with running(tmp_path, ALL_SYNCED) as context:
        await until(lambda: says_synced(tmp_path) is True)
        submit = context.broker.controller.submit
        await context.broker.controller.create_topics([TopicToCreate("t")])
        assert says_synced(tmp_path) is True
        await submit(
            AlterTopicConfigs("t", (ConfigChange("flush.messages", ConfigOperation.SET, "9"),))
        )
        assert says_synced(tmp_path) is False
        await submit(
            AlterTopicConfigs("t", (ConfigChange("flush.messages", ConfigOperation.SET, "1"),))
        )
        assert says_synced(tmp_path) is False
    async with running(tmp_path, ALL_SYNCED):
        await until(lambda: says_synced(tmp_path) is True)


async def test_a_topic_that_syncs_less_is_seen_at_the_start(tmp_path: Path) -> None:
    async with running(tmp_path, ALL_SYNCED) as context:
        await context.broker.controller.create_topics(
            [TopicToCreate("t", config={"flush.messages": "2"})]
        )
        assert says_synced(tmp_path) is False
    async with running(tmp_path, ALL_SYNCED):
        await until(lambda: note_in(tmp_path) is not None)
        assert says_synced(tmp_path) is False


async def test_a_failed_folder_takes_the_notes_of_all_back(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    config = {"log.dirs": ",".join(map(str, folders))}
    async with running(tmp_path, config) as context:
        await until(lambda: all(note_in(folder) is not None for folder in folders))
        failure = StorageFailure("fsync", f"{folders[1]}/t-0", OSError(errno.EIO, "for the test"))
        context.broker.partitions.folder_failed(failure)
        await until(lambda: not any((folder / NAME).exists() for folder in folders))


async def test_the_last_folders_failure_takes_its_note_back(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        await until(lambda: note_in(tmp_path) is not None)
        failure = StorageFailure("fsync", f"{tmp_path}/t-0", OSError(errno.EIO, "for the test"))
        context.broker.partitions.folder_failed(failure)
        async with asyncio.timeout(10):
            await context.broker.wait_until_stop_is_requested()
    assert not (tmp_path / NAME).exists()


async def test_a_note_that_comes_due_while_one_is_written_is_written_too() -> None:
    written: list[bool] = []
    disk_moves = asyncio.Event()

    class Logs:
        def note_life(self, *, is_synced: bool) -> None:
            written.append(is_synced)

    class SlowDisk:
        async def run(self, work: Callable[[], None]) -> None:
            await disk_moves.wait()
            work()

    notes = LifeNotes(BrokerConfig({}), cast(LogManager, Logs()), cast(Disk, SlowDisk()), print)
    running_on = asyncio.create_task(notes.run())
    notes.write_again()
    await asyncio.sleep(0.001)
    notes.write_again()
    disk_moves.set()
    await until(lambda: len(written) == 2)
    running_on.cancel()
