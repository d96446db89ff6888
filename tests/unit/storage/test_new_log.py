"""What a new partition costs: its file operations are counted, not timed."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.runtime import StorageFailure, SystemDisk
from oncelog.simulation.disk import FaultKind
from oncelog.storage import LogConfig, LogManager
from tests.support.folders import open_logs
from tests.support.logged import said_by
from tests.support.machine import Machine
from tests.unit.storage.context import NOW_MS, batch

TOPIC_ID = UUID(int=1)
COUNT = 5
LABELS = [TopicPartition("t", index) for index in range(COUNT)]
CHANGES_PER_PARTITION = 6
"""The folder; the log, opened and emptied; `partition.metadata`: opened, written, renamed."""


class CountingDisk(SystemDisk):
    """Counts what creations and stops may not ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.looked: list[str] = []
        self.synced: list[str] = []

    def list(self, path: str) -> list[str]:
        self.looked.append(path)
        return super().list(path)

    def read(self, path: str) -> bytes | None:
        self.looked.append(path)
        return super().read(path)

    def sync_dir(self, path: str) -> None:
        self.synced.append(path)
        super().sync_dir(path)


def make(manager: LogManager) -> None:
    for label in LABELS:
        manager.create(label, TOPIC_ID, LogConfig(), NOW_MS)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "t-0").iterdir())


def test_a_new_partition_costs_its_folder_and_two_files(tmp_path: Path) -> None:
    disk = CountingDisk()
    manager = open_logs(tmp_path, disk=disk)
    disk.looked.clear()
    make(manager)
    assert disk.looked == []
    assert files(tmp_path) == ["00000000000000000000.log", "partition.metadata"]
    manager.close()


def test_a_new_partition_costs_a_few_changes_of_the_disk() -> None:
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    before = machine.disk.changes_count
    make(manager)
    assert machine.disk.changes_count - before <= CHANGES_PER_PARTITION * COUNT


def test_a_stop_writes_nothing_for_a_partition_that_was_never_written_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = CountingDisk()
    manager = open_logs(tmp_path, disk=disk)
    make(manager)
    disk.synced.clear()
    manager.close()
    assert files(tmp_path) == ["00000000000000000000.log", "partition.metadata"]
    assert {path for path in disk.synced if path != str(tmp_path)} == set()
    for _ in range(2):
        caplog.clear()
        again = open_logs(tmp_path)
        assert all(again.is_whole(label) for label in LABELS)
        assert [one for one in said_by(caplog) if one.levelno >= logging.WARNING] == []
        again.close()


def test_an_emptied_log_is_not_taken_for_one_that_was_never_written_to(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    make(manager)
    held = manager.get(LABELS[0])
    assert held is not None
    held.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    manager.close()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(b"")
    (tmp_path / "t-0" / "oncelog.segments").unlink()
    again = open_logs(tmp_path)
    assert not again.is_whole(LABELS[0])
    assert again.is_whole(LABELS[1])
    again.close()


def test_a_partition_whose_topic_id_cannot_be_written_is_not_there_and_can_be_made_again() -> None:
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    machine.whole.faults.fail(
        FaultKind.WRITE, random.Random(1), matches=lambda path: "partition.metadata" in path
    )
    with pytest.raises(StorageFailure):
        manager.folders[0].create(LABELS[0], TOPIC_ID, LogConfig(), NOW_MS)
    assert manager.folder_of(LABELS[0]) is None
    assert "t-0" not in machine.disk.list("/data")
    assert manager.create(LABELS[0], TOPIC_ID, LogConfig(), NOW_MS).log_end_offset == 0
