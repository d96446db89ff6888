"""Strays among the other names of a log directory, and among several directories."""

from pathlib import Path

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.runtime import SystemDisk
from oncelog.storage import FolderMismatch, LogConfig
from oncelog.storage.strays import find_strays, restore_stray
from tests.support.folders import open_logs
from tests.unit.storage.context import NOW_MS
from tests.unit.storage.test_log_manager import FIRST, PARTITION, SECOND, fill

STRAY = f"{PARTITION}.{FIRST.hex}-stray"


def test_only_folders_that_were_set_aside_are_strays(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    manager.set_aside(PARTITION, "for the test")
    fill(manager)
    manager.close()
    (tmp_path / f"other-0.{FIRST.hex}-stray").write_text("a file of somebody else")
    assert [stray.name for stray in find_strays(SystemDisk(), str(tmp_path))] == [STRAY]


def test_a_stray_is_restored_though_its_partition_is_in_another_directory(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    manager = open_logs(one, two)
    fill(manager)
    manager.set_aside(PARTITION, "for the test")
    manager.create(TopicPartition("other", 0), SECOND, LogConfig(), NOW_MS)
    fill(manager, 0)
    assert manager.folder_of(PARTITION) is manager.folders[1]
    (stray,) = find_strays(SystemDisk(), str(one))
    restore_stray(SystemDisk(), stray, manager.folders)
    manager.abandon()
    again = open_logs(one, two)
    log = again.get(PARTITION)
    assert log is not None
    assert (log.directory, log.log_end_offset) == (str(one / str(PARTITION)), 3)
    again.close()


def test_a_stray_without_its_partition_in_any_directory_is_left(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    manager.set_aside(PARTITION, "for the test")
    (stray,) = find_strays(SystemDisk(), str(tmp_path))
    with pytest.raises(FolderMismatch, match=f"no folder {PARTITION} is in {tmp_path}"):
        restore_stray(SystemDisk(), stray, manager.folders)
    assert find_strays(SystemDisk(), str(tmp_path)) == [stray]
    manager.close()
