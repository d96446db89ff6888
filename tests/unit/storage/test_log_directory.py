"""One log directory: what is kept aside, its checkpoints, and their damage."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.simulation.disk import FaultKind
from oncelog.storage import FolderMismatch, LogConfig, LogManager, PartitionLog, StorageFailure
from oncelog.storage.cleaner import read_clean_offsets, write_clean_offsets
from tests.support.folders import open_logs
from tests.support.logged import said_by
from tests.support.machine import Machine
from tests.unit.storage.context import NOW_MS, batch
from tests.unit.storage.test_log_manager import FIRST, PARTITION, SECOND, contents, fill

SHORT = replace(LogConfig(), segment_bytes=150)
STRAY = f"{PARTITION}.{FIRST.hex}-stray"


def test_a_stray_keeps_all_its_files_and_says_whose_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    manager.flush()
    files = contents(tmp_path / str(PARTITION))
    manager.set_aside(PARTITION, "for the test")
    (record,) = said_by(caplog)
    assert record.levelno == logging.ERROR
    path = tmp_path / str(PARTITION)
    assert record.getMessage() == f"{path} is kept aside as {tmp_path / STRAY}: for the test"
    assert not path.exists()
    kept = {Path(name).name: data for name, data in contents(tmp_path / STRAY).items()}
    note = kept.pop("oncelog.stray")
    assert kept == {Path(name).name: data for name, data in files.items()}
    assert note == f"partition={PARTITION}\nreason=for the test\n".encode()
    assert manager.get(PARTITION) is None
    manager.close()
    again = open_logs(tmp_path)
    assert len(again) == 0
    assert (tmp_path / STRAY).exists()
    again.close()


def test_two_strays_of_one_partition_are_both_kept(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    for _ in range(2):
        fill(manager)
        manager.set_aside(PARTITION, "for the test")
    strays = sorted(path.name for path in tmp_path.glob("*-stray"))
    assert strays == [STRAY, f"{PARTITION}.{UUID(int=2).hex}-stray"]
    manager.close()


def test_a_deletion_does_not_reach_what_took_the_place_of_the_deleted_records() -> None:
    """INV-9: a loss of power took the log's end, and a start the offsets behind it."""
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    fill(manager, 3)
    manager.flush()
    log = log_of(manager)
    append(log, 5)
    log.delete_records(7)
    manager.checkpoint()
    machine.lose_power(rate=0.0)
    log = log_of(open_logs("/data", disk=machine.disk))
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    append(log, 6)
    machine.restart()
    log = log_of(open_logs("/data", disk=machine.disk))
    assert (log.log_start_offset, log.log_end_offset) == (3, 9)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_topic_made_again_does_not_inherit_the_log_start_of_its_name(restarts: bool) -> None:
    """INV-9: a crash before the next checkpoint takes no record of the new topic."""
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    fill(manager, 10)
    log_of(manager).delete_records(5)
    manager.write_log_starts()
    manager.write_high_watermarks({PARTITION: 10})
    write_clean_offsets(machine.disk, "/data", {PARTITION: 10})
    manager.delete(PARTITION)
    manager.sync_names()
    if restarts:
        machine.restart()
        manager = open_logs("/data", disk=machine.disk)
    append(manager.create(PARTITION, SECOND, LogConfig(), NOW_MS), 20)
    for _ in range(2):
        machine.restart()
        manager = open_logs("/data", disk=machine.disk)
        log = log_of(manager)
        assert (log.log_start_offset, log.log_end_offset) == (0, 20)
        assert not log.recovery.lost_tail
        assert manager.read_high_watermarks() == {}
        assert read_clean_offsets(machine.disk, {"/data": [PARTITION]}) == {}


def test_a_topic_made_again_does_not_inherit_the_clean_offset_of_its_name() -> None:
    """Only the cleaner's checkpoint names it: else a tombstone goes before what it deletes."""
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    fill(manager, 10)
    write_clean_offsets(machine.disk, "/data", {PARTITION: 10})
    manager.delete(PARTITION)
    manager.sync_names()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        machine.disk.remove(f"/data/{name}")
    machine.restart()
    manager = open_logs("/data", disk=machine.disk)
    append(manager.create(PARTITION, SECOND, LogConfig(), NOW_MS), 20)
    assert read_clean_offsets(machine.disk, {"/data": [PARTITION]}) == {}


def test_a_clean_offset_counts_only_in_the_folder_that_holds_the_log() -> None:
    """Another folder had a topic of that name before."""
    machine = Machine()
    for folder, offset in (("/here", 3), ("/there", 10)):
        machine.disk.mkdir(folder)
        write_clean_offsets(machine.disk, folder, {PARTITION: offset})
    for folders in ({"/here": [PARTITION], "/there": []}, {"/there": [], "/here": [PARTITION]}):
        assert read_clean_offsets(machine.disk, folders) == {PARTITION: 3}


def test_a_move_that_was_given_up_leaves_no_offsets() -> None:
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    write_clean_offsets(machine.disk, "/data", {PARTITION: 5})
    manager.folders[0].expect(PARTITION, 5)
    assert read_clean_offsets(machine.disk, {"/data": [PARTITION]}) == {}
    append(manager.create(PARTITION, FIRST, LogConfig(), NOW_MS), 20)
    machine.restart()
    assert log_of(open_logs("/data", disk=machine.disk)).log_start_offset == 0


def test_deleted_records_do_not_come_back_with_the_names_of_their_segments() -> None:
    """A loss of power takes back the removal of files, which nobody syncs."""
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    log = manager.create(PARTITION, FIRST, SHORT, NOW_MS)
    append(log, 10)
    manager.flush()
    log.delete_records(5)
    manager.write_log_starts()
    before = machine.paths()
    assert log.delete_old_segments(NOW_MS, 10)
    manager.checkpoint()
    machine.lose_power(rate=0.0)
    assert set(machine.paths()) >= {path for path in before if path.endswith(".log")}
    manager = open_logs("/data", disk=machine.disk, config=SHORT)
    assert log_of(manager).log_start_offset == 5


def test_a_flushed_log_keeps_the_id_of_its_topic() -> None:
    """Otherwise the next topic of that name would take its records for its own."""
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    fill(manager)
    manager.flush()
    machine.lose_power(rate=0.0)
    manager = open_logs("/data", disk=machine.disk)
    assert manager.topic_id(PARTITION) == FIRST


def log_of(manager: LogManager) -> PartitionLog:
    log = manager.get(PARTITION)
    assert log is not None
    return log


def append(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        log.append(batch(), leader_epoch=0, now_ms=NOW_MS)


def test_the_mark_of_a_clean_stop_does_not_come_back() -> None:
    """INV-9: a crash after a clean stop and a start is a crash."""
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    fill(manager)
    manager.close()
    for was_clean in (True, False):
        again = open_logs("/data", disk=machine.disk)
        assert again.folders[0].was_clean == was_clean
        machine.lose_power(rate=0.0)


def test_a_folder_with_a_log_that_failed_is_not_marked_as_closed_in_order() -> None:
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    fill(manager)
    log = manager.get(PARTITION)
    assert log is not None
    machine.whole.faults.fail(FaultKind.WRITE, random.Random(1))
    with pytest.raises(StorageFailure):
        log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    manager.close()
    machine.restart()
    assert not open_logs("/data", disk=machine.disk).folders[0].was_clean


def test_the_name_of_a_folder_is_durable_whichever_process_created_it() -> None:
    machine = Machine()
    machine.disk.mkdir("/data")
    machine.restart()
    open_logs("/data", disk=machine.disk).close()
    machine.lose_power(rate=0.0)
    assert machine.disk.exists("/data/meta.properties")


def test_a_stray_survives_a_loss_of_power() -> None:
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    fill(manager)
    manager.flush()
    machine.disk.sync_dir("/data")
    manager.set_aside(PARTITION, "for the test")
    machine.lose_power(rate=0.0)
    assert f"/data/{STRAY}/00000000000000000000.log" in machine.paths()


@pytest.mark.parametrize(
    ("name", "consequence"),
    [
        ("recovery-point-offset-checkpoint", "every log is scanned from its start"),
        ("log-start-offset-checkpoint", "logs start at their first segment again"),
    ],
)
@pytest.mark.parametrize("content", [b"", b"garbage", b"0\n2\nflights.by-carrier 3 2\n"])
def test_damaged_checkpoints_are_passed_over_with_a_warning_as_in_kafka(
    tmp_path: Path, name: str, consequence: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    manager.close()
    (tmp_path / name).write_bytes(content)
    again = open_logs(tmp_path)
    (record,) = said_by(caplog)
    assert record.levelno == logging.WARNING
    assert f"{name} is damaged, {len(content)} bytes: {consequence}" in record.getMessage()
    held = again.get(PARTITION)
    assert held is not None
    assert (held.log_start_offset, held.log_end_offset) == (0, 3)
    again.close()


@pytest.mark.damages
def test_a_damaged_checkpoint_of_high_watermarks_is_refused_as_in_kafka(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    manager.close()
    (tmp_path / "replication-offset-checkpoint").write_bytes(b"garbage")
    with pytest.raises(FolderMismatch, match="replication-offset-checkpoint is damaged: remove it"):
        open_logs(tmp_path)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_the_names_of_new_folders_survive_a_loss_of_power() -> None:
    """INV-9: also those of the folders above, which the broker makes."""
    machine = Machine()
    machine.disk.mkdir("/disk")
    machine.disk.sync_dir("/")
    manager = open_logs("/disk/a/b", disk=machine.disk)
    fill(manager)
    manager.flush()
    machine.disk.sync_dir("/disk/a/b")
    machine.lose_power(rate=0.0)
    again = open_logs("/disk/a/b", disk=machine.disk)
    held = again.get(PARTITION)
    assert held is not None
    assert held.log_end_offset == 3


def test_a_flushed_log_has_its_folder_after_a_loss_of_power() -> None:
    """Whatever it was set to when it was made: a topic may be told later to flush."""
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    fill(manager)
    held = manager.get(PARTITION)
    assert held is not None
    held.config = replace(held.config, flush_messages=1)
    held.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    machine.lose_power(rate=0.0)
    again = open_logs("/data", disk=machine.disk)
    held = again.get(PARTITION)
    assert held is not None
    assert held.log_end_offset == 4


def test_a_folder_that_went_off_line_is_not_marked_as_closed_in_order(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    manager.take_off_line(StorageFailure("write", f"{tmp_path}/x", "for the test"))
    assert manager.online == []
    manager.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_failure_of_the_second_log_of_a_folder_is_a_failure_of_the_folder(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    fill(manager)
    failed = manager.create(TopicPartition("other", 0), SECOND, LogConfig(), NOW_MS)
    failure = StorageFailure("write", failed.directory, "for the test")
    failed.fail(failure)
    assert manager.folders[0].failure is failure
    manager.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_flush_in_a_folder_that_went_off_line_is_no_success(tmp_path: Path) -> None:
    """One that is under way would otherwise acknowledge what no disk holds."""
    manager = open_logs(tmp_path)
    fill(manager)
    held = manager.get(PARTITION)
    assert held is not None
    manager.take_off_line(StorageFailure("fsync", held.directory, "for the test"))
    with pytest.raises(StorageFailure):
        held.flush()
    with pytest.raises(StorageFailure):
        held.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    manager.close()


def test_a_directory_goes_off_line_while_the_executor_makes_a_log_in_it(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    (folder,) = manager.folders

    class Meanwhile:
        """A log that is told of the failure while another thread makes the next one."""

        failure: StorageFailure | None = None

        def fail(self, failure: StorageFailure) -> None:
            self.failure = failure
            folder.create(PARTITION, FIRST, LogConfig(), NOW_MS)

    told: Any = Meanwhile()
    folder._logs[TopicPartition("told", 0)] = told
    failure = StorageFailure("write", f"{tmp_path}/told-0/x", "for the test")
    manager.take_off_line(failure)
    assert told.failure is failure
    assert manager.get(PARTITION) is None
    del folder._logs[TopicPartition("told", 0)]
    manager.abandon()
