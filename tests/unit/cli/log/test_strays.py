"""`oncelog log strays`: what was set aside is shown, put back or removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import Result

from oncelog.core.ids import TopicPartition
from oncelog.runtime import SystemDisk
from oncelog.storage import LogConfig, LogManager
from oncelog.storage.cleaner import read_clean_offsets, write_clean_offsets
from tests.support.folders import NOW_MS, open_logs
from tests.unit.storage.context import batch, read_all
from tests.unit.storage.test_log_manager import contents

Oncelog = Callable[..., Result]
T0 = TopicPartition("t", 0)
OLD, NEW = UUID(int=1), UUID(int=2)
NAME = f"t-0.{OLD.hex}-stray"


def append(manager: LogManager, count: int, topic_id: UUID) -> bytes:
    log = manager.create(T0, topic_id, LogConfig(), NOW_MS)
    for _ in range(count):
        log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    return read_all(log)


def folder_with_stray(*folders: Path, appended_since: int = 0) -> bytes:
    """Three records are set aside; returns their bytes."""
    manager = open_logs(*folders)
    records = append(manager, 3, OLD)
    held = manager.get(T0)
    assert held is not None
    held.delete_records(1)
    manager.checkpoint()
    manager.set_aside(T0, "for the test")
    append(manager, appended_since, NEW)
    manager.close()
    return records


def rows(log: Oncelog, *arguments: object) -> list[dict[str, Any]]:
    result = log("strays", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def error_line(result: Result) -> str:
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert result.exit_code != 0
    return line


def test_strays_are_shown_with_their_reason(log: Oncelog, tmp_path: Path) -> None:
    records = folder_with_stray(tmp_path)
    assert rows(log, tmp_path) == [
        {
            "folder": str(tmp_path / NAME),
            "partition": "t-0",
            "size_bytes": len(records),
            "topic_id": str(OLD),
            "reason": "for the test",
        }
    ]
    assert rows(log, tmp_path / NAME) == []


def test_a_restored_stray_is_served_again_under_the_topics_id(log: Oncelog, tmp_path: Path) -> None:
    folder_with_stray(tmp_path)
    result = log("strays", tmp_path, "--restore")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"put {tmp_path / NAME} back as t-0, ")
    assert rows(log, tmp_path) == []
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    manager = open_logs(tmp_path)
    held = manager.get(T0)
    assert held is not None
    assert (held.log_start_offset, held.log_end_offset) == (1, 3)
    assert manager.topic_id(T0) == NEW
    assert not (tmp_path / "t-0" / "oncelog.stray").exists()
    manager.close()


def test_what_was_written_in_its_place_becomes_a_stray(log: Oncelog, tmp_path: Path) -> None:
    records = folder_with_stray(tmp_path, appended_since=5)
    result = log("strays", tmp_path, "--restore")
    assert f"what was in its place is {tmp_path}/t-0.{NEW.hex}-stray now" in result.stdout
    (left,) = rows(log, tmp_path)
    assert left["reason"] == f"{NAME} was put back in its place"
    assert left["size_bytes"] == len(records) // 3 * 5


def test_a_stray_is_put_back_where_the_partition_is_in_another_folder_by_now(
    log: Oncelog, tmp_path: Path
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    folder_with_stray(a, b)
    (b / "t-0").mkdir(parents=True, exist_ok=True)
    for path in (a / "t-0").iterdir():
        path.rename(b / "t-0" / path.name)
    (a / "t-0").rmdir()
    assert "name all log directories" in error_line(log("strays", a, "--restore"))
    assert (a / NAME).exists()
    assert log("strays", a, b, "--restore").exit_code == 0
    # The partition has changed in both: neither is as it was when it was closed.
    assert not any((each / ".kafka_cleanshutdown").exists() for each in (a, b))
    manager = open_logs(a, b)
    assert [len(folder) for folder in manager.folders] == [1, 0]
    manager.close()


def test_a_removed_stray_is_gone(log: Oncelog, tmp_path: Path) -> None:
    folder_with_stray(tmp_path)
    assert log("strays", tmp_path, "--remove", "--only", NAME).exit_code == 0
    assert not (tmp_path / NAME).exists()
    assert (tmp_path / "t-0").exists()


@pytest.mark.parametrize("name", ["t-0", f"t-1.{OLD.hex}-stray", "../t-0"])
def test_only_strays_can_be_named(log: Oncelog, tmp_path: Path, name: str) -> None:
    folder_with_stray(tmp_path)
    before = contents(tmp_path)
    assert name in error_line(log("strays", tmp_path, "--remove", "--only", name))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("action", ["--restore", "--remove"])
def test_nothing_is_changed_while_a_broker_runs(log: Oncelog, tmp_path: Path, action: str) -> None:
    folder_with_stray(tmp_path)
    manager = open_logs(tmp_path)
    assert "in use by another broker" in error_line(log("strays", tmp_path, action))
    assert (tmp_path / NAME).exists()
    assert len(rows(log, tmp_path)) == 1
    manager.close()


def test_a_folder_that_is_not_there_is_not_made(log: Oncelog, tmp_path: Path) -> None:
    for action in ((), ("--restore",), ("--remove",)):
        assert str(tmp_path / "gone") in error_line(log("strays", tmp_path / "gone", *action))
    assert not (tmp_path / "gone").exists()


def test_a_restored_stray_is_dirty_from_its_start(log: Oncelog, tmp_path: Path) -> None:
    """The clean offset is of the log whose place it takes."""
    folder_with_stray(tmp_path, appended_since=2)
    disk = SystemDisk()
    write_clean_offsets(disk, str(tmp_path), {T0: 2})
    assert log("strays", tmp_path, "--restore").exit_code == 0
    assert read_clean_offsets(disk, {str(tmp_path): [T0]}) == {}
