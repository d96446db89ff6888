"""A log moves between log directories: whole, and whatever the moment of a crash."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.runtime.disk import StorageFailure
from oncelog.simulation.disk import FaultKind, Moment
from oncelog.simulation.process import ProcessDied
from oncelog.storage import FolderMismatch, LogConfig, LogManager
from oncelog.storage.moves import LogMove
from tests.support.folders import open_logs, take_folders
from tests.support.logged import said_by
from tests.support.machine import Machine
from tests.unit.storage.context import NOW_MS, batch, read_all

T0, TOPIC_ID = TopicPartition("t", 0), UUID(int=7)
CONFIG = replace(LogConfig(), segment_bytes=300)
MOMENTS: list[Moment] = ["before", "after", "torn"]
FUTURE = f"t-0.{TOPIC_ID.hex}-future"


def fill(manager: LogManager) -> bytes:
    """Several segments, with an aborted and an open transaction, and a start that was moved."""
    log = manager.create(T0, TOPIC_ID, CONFIG, NOW_MS)
    for sequence in range(4):
        for producer in (1, 2):
            log.append(
                batch(1, producer=producer, epoch=0, sequence=sequence, transactional=True),
                leader_epoch=sequence,
                now_ms=NOW_MS,
            )
    log.append_marker(1, 0, 0, False, leader_epoch=4, now_ms=NOW_MS, transaction_version=0)
    log.delete_records(3)
    return read_all(log)


def begin(manager: LogManager) -> LogMove:
    source = manager.folder_of(T0)
    assert source is not None
    (target,) = [folder for folder in manager.folders if folder is not source]
    held = source.get(T0)
    assert held is not None
    return LogMove(manager._disk, held, source, target, TOPIC_ID, NOW_MS)


def delete_old(manager: LogManager) -> LogMove:
    """Move the log up to the renaming of the old folder, which decides."""
    move = begin(manager)
    move.finish()
    move.source.delete(T0)
    return move


def assert_whole(manager: LogManager, records: bytes) -> None:
    assert list(manager) == [T0]
    held = manager.get(T0)
    assert held is not None
    assert read_all(held) == records
    assert (held.log_start_offset, held.log_end_offset) == (3, 9)
    assert held.aborted_transactions(3, 9)[0].producer_id == 1
    assert held.producers.transaction_is_open(2, 0)
    assert held.end_offset_for_epoch(2) == (2, 6)
    # Before the move the note of it is not synced.
    assert manager.topic_id(T0) in (TOPIC_ID, None)


def test_a_moved_log_is_the_same_in_its_new_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    manager = open_logs(*folders, config=CONFIG)
    records = fill(manager)
    move = begin(manager)
    assert (move.lag, move.size_bytes) == (6, 0)
    while not move.copy():
        pass
    assert move.lag == 0
    assert move.size_bytes > 0
    move.finish()
    move.swap()
    assert said_by(caplog) == []
    assert_whole(manager, records)
    assert manager.topic_id(T0) == TOPIC_ID
    assert manager.folder_of(T0) is manager.folders[1]
    held = manager.get(T0)
    assert held is not None
    held.append(batch(1), leader_epoch=5, now_ms=NOW_MS)
    held.truncate_to(9)
    manager.close()
    assert [path.name for path in (tmp_path / "a").glob("t-0*")] == []
    assert [path.name for path in (tmp_path / "b").glob("t-0*")] == ["t-0"]
    again = open_logs(*folders, config=CONFIG)
    assert_whole(again, records)
    again.close()


def test_what_is_appended_and_deleted_meanwhile_is_moved_too(tmp_path: Path) -> None:
    manager = open_logs(tmp_path / "a", tmp_path / "b", config=CONFIG)
    fill(manager)
    held = manager.get(T0)
    assert held is not None
    move = begin(manager)
    move.copy()
    held.append(batch(2), leader_epoch=5, now_ms=NOW_MS)
    held.delete_records(8)
    held.delete_old_segments(NOW_MS, 11)
    records = read_all(held)
    move.finish()
    move.swap()
    moved = manager.get(T0)
    assert moved is not None
    assert moved is not held
    assert read_all(moved) == records
    assert moved.log_start_offset == 8
    manager.close()


def test_a_move_holds_readers_of_what_ended_above_the_high_watermark(tmp_path: Path) -> None:
    """INV-7: the marker of producer 1 at offset 8 may not be replicated yet."""
    manager = open_logs(tmp_path / "a", tmp_path / "b", config=CONFIG)
    fill(manager)
    held = manager.get(T0)
    assert held is not None
    held.append_marker(2, 0, 0, True, leader_epoch=5, now_ms=NOW_MS, transaction_version=0)
    move = begin(manager)
    move.finish()
    move.swap()
    moved = manager.get(T0)
    assert moved is not None
    assert [moved.last_stable_offset(at) for at in (8, 9, 10)] == [3, 3, 10]
    manager.close()


def test_an_abandoned_copy_leaves_nothing(tmp_path: Path) -> None:
    manager = open_logs(tmp_path / "a", tmp_path / "b", config=CONFIG)
    records = fill(manager)
    move = begin(manager)
    move.copy()
    move.abandon()
    assert not (tmp_path / "b" / FUTURE).exists()
    assert_whole(manager, records)
    manager.close()


def test_a_copy_without_its_log_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    manager = open_logs(*folders, config=CONFIG)
    fill(manager)
    begin(manager).copy()
    manager.close()
    (tmp_path / "a" / "t-0").rename(tmp_path / "elsewhere")
    open_logs(*folders, config=CONFIG).close()
    assert (tmp_path / "b" / FUTURE).exists()
    (record,) = [r for r in said_by(caplog) if r.levelno == logging.ERROR]
    assert record.getMessage().endswith("is a copy of a log that is not there; it is kept")


def test_a_copy_waits_for_the_folder_that_may_have_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The move may have failed, and the log may have taken records since."""
    folders = tmp_path / "a", tmp_path / "b"
    manager = open_logs(*folders, config=CONFIG)
    records = fill(manager)
    move = begin(manager)
    move.finish()
    manager.close()
    (tmp_path / "a").rename(tmp_path / "away")
    (tmp_path / "a").write_text("not a folder")
    again = open_logs(*folders, config=CONFIG)
    assert list(again.lost) == [str(tmp_path / "a")]
    assert list(again) == []
    assert "that may have its log is off line" in caplog.text
    again.close()
    (tmp_path / "a").unlink()
    (tmp_path / "away").rename(tmp_path / "a")
    whole = open_logs(*folders, config=CONFIG)
    assert_whole(whole, records)
    assert whole.folder_of(T0) is whole.folders[0]
    assert not (tmp_path / "b" / FUTURE).exists()
    whole.close()


def test_a_copy_whose_log_was_renamed_as_deleted_is_the_log(tmp_path: Path) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    manager = open_logs(*folders, config=CONFIG)
    records = fill(manager)
    delete_old(manager)
    manager.close()
    again = open_logs(*folders, config=CONFIG)
    assert_whole(again, records)
    assert again.folder_of(T0) is again.folders[1]
    again.close()


@pytest.mark.parametrize("is_same_topic", [True, False])
def test_a_copy_of_another_log_than_the_one_there_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_same_topic: bool
) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    manager = open_logs(*folders, config=CONFIG)
    fill(manager)
    move = delete_old(manager)
    move.source.create(T0, TOPIC_ID if is_same_topic else UUID(int=8), CONFIG, NOW_MS)
    manager.close()
    open_logs(*folders, config=CONFIG).close()
    assert (tmp_path / "b" / FUTURE / "oncelog.moved").exists()
    assert "is a copy of another log than the one of t-0; it is kept" in caplog.text


def test_a_log_that_another_has_replaced_is_deleted_when_its_folder_is_back(
    tmp_path: Path,
) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    manager = open_logs(*folders, config=CONFIG)
    records = fill(manager)
    move = begin(manager)
    move.finish()
    manager.close()
    (tmp_path / "b" / FUTURE).rename(tmp_path / "b" / "t-0")
    starts = (tmp_path / "a" / "log-start-offset-checkpoint").read_bytes()
    (tmp_path / "b" / "log-start-offset-checkpoint").write_bytes(starts)
    for _ in range(2):
        whole = open_logs(*folders, config=CONFIG)
        assert_whole(whole, records)
        assert whole.folder_of(T0) is whole.folders[1]
        whole.close()
    assert not (tmp_path / "b" / "t-0" / "oncelog.moved").exists()


def test_a_half_removed_copy_does_not_replace_its_log(tmp_path: Path) -> None:
    """The process died while it abandoned a finished copy."""
    folders = tmp_path / "a", tmp_path / "b"
    manager = open_logs(*folders, config=CONFIG)
    records = fill(manager)
    manager.flush()
    begin(manager).finish()
    for path in sorted((tmp_path / "b" / FUTURE).glob("*.log"))[1:]:
        path.unlink()
    manager.abandon()
    again = open_logs(*folders, config=CONFIG)
    assert_whole(again, records)
    again.close()


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_folder_that_fails_while_a_start_finishes_a_move_goes_off_line_alone(name: str) -> None:
    machine = Machine()
    for folder in ("/a", "/b"):
        machine.disk.mkdir(folder)
    manager = open_logs("/a", "/b", disk=machine.disk, config=CONFIG)
    records = fill(manager)
    manager.flush()
    other = TopicPartition("u", 0)
    manager.folders[name == "b"].create(other, TOPIC_ID, CONFIG, NOW_MS)
    delete_old(manager)
    machine.restart()
    kind, broken = (FaultKind.FSYNC, "/a") if name == "a" else (FaultKind.NAMES, f"/b/{FUTURE}")
    machine.whole.faults.fail(kind, random.Random(0), matches=lambda path: path == broken)
    again = open_logs("/a", "/b", disk=machine.disk, config=CONFIG)
    assert again.off_line_directories == [f"/{name}"]
    assert again.get(T0) is None
    assert again.get(other) is None
    machine.restart()
    final = open_logs("/a", "/b", disk=machine.disk, config=CONFIG)
    assert final.get(other) is not None
    held = final.get(T0)
    assert held is not None
    assert read_all(held) == records
    assert final.folder_of(T0) is final.folders[1]


def test_the_last_folder_that_fails_while_a_start_finishes_a_move_refuses_it() -> None:
    machine = Machine()
    manager = open_logs("/a", "/b", disk=machine.disk, config=CONFIG)
    fill(manager)
    begin(manager).finish()
    machine.restart()
    manager = take_folders("/a", "/b", disk=machine.disk)
    for folder in manager.folders:
        machine.whole.faults.fail(FaultKind.READ, random.Random(0), matches=folder.directory.__eq__)
    with pytest.raises(StorageFailure):
        manager.finish_moves()


@pytest.mark.damages
def test_two_logs_that_both_say_they_replaced_the_other_are_refused(tmp_path: Path) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    manager = open_logs(*folders, config=CONFIG)
    fill(manager)
    ids = [folder.directory_id for folder in manager.folders]
    manager.close()
    (tmp_path / "b" / "t-0").mkdir()
    for name, other in (("a", ids[1]), ("b", ids[0])):
        (tmp_path / name / "t-0" / "oncelog.moved").write_text(f"from={other}\n")
    with pytest.raises(FolderMismatch, match="is both in"):
        open_logs(*folders, config=CONFIG)


@pytest.mark.parametrize("at", range(1, 12))
def test_a_crash_in_a_move_shows_no_deleted_record_again(at: int) -> None:
    """The copy began before the records were deleted."""
    machine = Machine()
    manager = open_logs("/a", "/b", disk=machine.disk, config=CONFIG)
    fill(manager)
    held = manager.get(T0)
    assert held is not None
    move = begin(manager)
    move.copy()
    held.delete_records(8)
    manager.checkpoint()
    move.finish()
    machine.whole.arm_kill(machine.process, after_operations=at, moment="before")
    with pytest.raises(ProcessDied):
        move.swap()
    for _ in range(2):
        machine.restart()
        again = open_logs("/a", "/b", disk=machine.disk, config=CONFIG)
        held = again.get(T0)
        assert held is not None
        assert (held.log_start_offset, held.log_end_offset) == (8, 9)


@pytest.mark.parametrize("is_clean", [True, False])
def test_records_deleted_after_a_start_finished_a_move_stay_deleted(
    tmp_path: Path, is_clean: bool
) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    manager = open_logs(*folders, config=CONFIG)
    fill(manager)
    delete_old(manager)
    manager.abandon()
    manager = open_logs(*folders, config=CONFIG)
    held = manager.get(T0)
    assert held is not None
    assert held.log_start_offset == 3
    held.delete_records(8)
    manager.write_log_starts()
    if is_clean:
        manager.close()
    else:
        manager.flush()
        manager.abandon()
    again = open_logs(*folders, config=CONFIG)
    held = again.get(T0)
    assert held is not None
    assert held.log_start_offset == 8
    again.close()


def test_what_a_folder_noted_of_an_earlier_log_of_that_name_is_no_part_of_a_move(
    tmp_path: Path,
) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    manager = open_logs(*folders, config=CONFIG)
    source, target = manager.folders
    old = target.create(T0, UUID(int=8), CONFIG, NOW_MS)
    for _ in range(20):
        old.append(batch(1), leader_epoch=0, now_ms=NOW_MS)
    manager.flush()
    manager._disk.remove_tree(target.delete(T0))
    held = source.create(T0, TOPIC_ID, CONFIG, NOW_MS)
    held.append(batch(1), leader_epoch=0, now_ms=NOW_MS)
    begin(manager).finish()
    target.expect(T0, 0)
    source.delete(T0)
    manager.abandon()
    again = open_logs(*folders, config=CONFIG)
    moved = again.get(T0)
    assert moved is not None
    assert not moved.recovery.lost_tail
    again.close()


@pytest.mark.parametrize("start", [10, 11])
@pytest.mark.parametrize("is_finished", [True, False])
def test_a_copy_that_a_deletion_overtakes_has_no_gap(
    tmp_path: Path, start: int, is_finished: bool
) -> None:
    """After a crash a recovery would cut off what is behind the gap."""
    folders = tmp_path / "a", tmp_path / "b"
    manager = open_logs(*folders, config=LogConfig())
    held = manager.create(T0, TOPIC_ID, LogConfig(), NOW_MS)
    held.append(batch(5), leader_epoch=0, now_ms=NOW_MS)
    move = begin(manager)
    assert move.copy()
    for _ in range(6):
        held.append(batch(1), leader_epoch=0, now_ms=NOW_MS)
    held.delete_records(start)
    move.finish()
    if is_finished:
        move.swap()
    else:
        move.source.delete(T0)
    manager.abandon()
    again = open_logs(*folders, config=LogConfig())
    moved = again.get(T0)
    assert moved is not None
    assert (moved.log_start_offset, moved.log_end_offset) == (start, 11)
    again.close()


def die_while_it_moves(machine: Machine, at: int, moment: Moment) -> bool:
    machine.whole.arm_kill(
        machine.process, after_operations=at, moment=moment, rng=random.Random(at)
    )
    try:
        manager = open_logs("/a", "/b", disk=machine.disk, config=CONFIG)
        if manager.folder_of(T0) is manager.folders[0]:
            move = begin(manager)
            move.finish()
            move.swap()
        manager.close()
    except ProcessDied:
        return True
    return False


def crash_and_start_twice(at: int, moment: Moment, *, power: bool) -> bool:
    machine = Machine()
    for name in "ab":
        machine.disk.mkdir(f"/{name}")
    machine.disk.sync_dir("/")
    manager = open_logs("/a", "/b", disk=machine.disk, config=CONFIG)
    records = fill(manager)
    manager.flush()
    manager.close()
    machine.disk.sync_dir("/a")
    dies = die_while_it_moves(machine, at, moment)
    for again in (3 + at % 11, 1 + at % 5):
        if power:
            machine.lose_power(at)
        else:
            machine.restart()
        die_while_it_moves(machine, again, moment)
    machine.restart()
    final = open_logs("/a", "/b", disk=machine.disk, config=CONFIG)
    assert_whole(final, records)
    final.close()
    for path in final.deleted:
        machine.disk.remove_tree(path)
    assert not [path for path in machine.paths() if "-future" in path or "-delete" in path]
    return dies


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("at", range(5, 90, 17))
def test_a_crash_in_a_move_loses_nothing(at: int, power: bool) -> None:
    for moment in MOMENTS:
        crash_and_start_twice(at, moment, power=power)


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_crash_at_every_change_of_a_move_loses_nothing(moment: Moment, power: bool) -> None:
    at = 1
    while crash_and_start_twice(at, moment, power=power):
        at += 1
    assert at > 60


def test_a_failed_target_leaves_the_log_where_it_was(tmp_path: Path) -> None:
    machine = Machine()
    manager = open_logs("/a", "/b", disk=machine.disk, config=CONFIG)
    records = fill(manager)
    move = begin(manager)
    machine.whole.faults.fail(
        FaultKind.WRITE, random.Random(0), matches=lambda path: path.startswith("/b/")
    )
    with pytest.raises(StorageFailure):
        move.finish()
    assert_whole(manager, records)
