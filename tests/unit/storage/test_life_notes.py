"""What log directories tell of the life before, through deaths, losses of power and copies."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from oncelog.runtime.disk import StorageFailure, SystemDisk
from oncelog.runtime.file_place import system_place
from oncelog.storage import LogManager
from tests.support.folders import open_logs
from tests.support.machine import Machine

EPOCH = 5


def live(manager: LogManager, *, is_synced: bool = False, epoch: int = EPOCH) -> None:
    manager.begin_life(epoch)
    manager.note_life(is_synced=is_synced)


def reason(manager: LogManager, last_epoch: int = EPOCH) -> str:
    """Why it is unclean; empty for a clean one."""
    return manager.unclean_because(last_epoch) or ""


def test_a_first_life_is_clean(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    assert reason(manager, 0) == ""
    assert manager.noted_epoch == 0
    manager.close()


def test_a_life_that_was_closed_is_clean_and_its_copy_too(tmp_path: Path) -> None:
    manager = open_logs(tmp_path / "a")
    manager.begin_life(EPOCH)
    manager.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in "ab":
        again = open_logs(tmp_path / name)
        assert again.noted_epoch == EPOCH
        assert reason(again) == ""
        assert "whose last was 6" in reason(again, 6)
        assert not again.may_take_over(EPOCH)
        again.abandon()


def test_a_start_that_registered_nothing_takes_no_life_away(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    live(manager)
    manager.abandon()
    for _ in range(2):
        again = open_logs(tmp_path)
        assert reason(again) == ""
        again.close()


def test_a_process_that_is_killed_loses_nothing() -> None:
    machine = Machine()
    live(open_logs("/data", disk=machine.disk))
    again = open_logs("/data", disk=machine.restart())
    assert reason(again) == ""
    assert again.noted_epoch == EPOCH
    assert again.may_take_over(EPOCH)
    assert not again.may_take_over(EPOCH + 1)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_loss_of_power_is_unclean(rate: float) -> None:
    machine = Machine()
    live(open_logs("/data", disk=machine.disk))
    machine.lose_power(rate=rate)
    again = open_logs("/data", disk=machine.disk)
    assert "/data was not closed cleanly" in reason(again)
    assert not again.may_take_over(EPOCH)


def test_a_loss_of_power_is_clean_where_every_record_was_synced() -> None:
    machine = Machine()
    live(open_logs("/data", disk=machine.disk), is_synced=True)
    machine.lose_power(rate=0.0)
    again = open_logs("/data", disk=machine.disk)
    assert reason(again) == ""
    assert not again.may_take_over(EPOCH)


def test_the_power_after_a_clean_stop_counts_not() -> None:
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    live(manager)
    manager.close()
    machine.lose_power(rate=0.0)
    assert reason(open_logs("/data", disk=machine.disk)) == ""


def test_a_life_without_a_note_is_unclean() -> None:
    """It was killed before it had written one, so the note is of the life before."""
    machine = Machine()
    live(open_logs("/data", disk=machine.disk))
    open_logs("/data", disk=machine.restart()).begin_life(EPOCH + 1)
    again = open_logs("/data", disk=machine.restart())
    assert "not closed cleanly in life 5" in reason(again, EPOCH + 1)


def test_a_copy_of_a_folder_is_unclean(tmp_path: Path) -> None:
    manager = open_logs(tmp_path / "a")
    live(manager)
    manager.abandon()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    again = open_logs(tmp_path / "b")
    assert reason(again) == f"{tmp_path / 'b'} is a copy"
    assert not again.may_take_over(EPOCH)
    again.abandon()


def test_an_older_folder_that_was_put_back_is_unclean(tmp_path: Path) -> None:
    manager = open_logs(tmp_path / "a")
    live(manager)
    manager.abandon()
    os.rename(tmp_path / "a", tmp_path / "kept")
    shutil.copytree(tmp_path / "kept", tmp_path / "a")
    again = open_logs(tmp_path / "a")
    live(again, epoch=EPOCH + 1)
    again.abandon()
    shutil.rmtree(tmp_path / "a")
    os.rename(tmp_path / "kept", tmp_path / "a")
    restored = open_logs(tmp_path / "a")
    assert "in life 5 of this broker, whose last was 6" in reason(restored, EPOCH + 1)
    assert not restored.may_take_over(EPOCH + 1)
    restored.abandon()


def test_a_folder_of_another_host_is_unclean() -> None:
    """The same inode on the same device, and another boot."""
    machine = Machine()
    live(open_logs("/data", disk=machine.disk))
    machine.lose_power(rate=1.0)
    assert "before the system went down" in reason(open_logs("/data", disk=machine.disk))


def test_an_emptied_folder_of_two_is_unclean(tmp_path: Path) -> None:
    manager = open_logs(tmp_path / "a", tmp_path / "b")
    live(manager)
    known = manager.directory_ids
    manager.close()
    shutil.rmtree(tmp_path / "b")
    again = open_logs(tmp_path / "a", tmp_path / "b")
    again.missing = known - again.directory_ids
    assert reason(again).endswith("is missing")
    again.abandon()


def test_an_empty_folder_that_is_added_takes_nothing_away(tmp_path: Path) -> None:
    manager = open_logs(tmp_path / "a")
    live(manager)
    manager.close()
    again = open_logs(tmp_path / "a", tmp_path / "b")
    assert reason(again) == ""
    assert not again.may_take_over(EPOCH)
    again.abandon()


def test_a_folder_that_was_added_from_elsewhere_is_unclean(tmp_path: Path) -> None:
    for name, epoch in (("a", EPOCH), ("b", 3)):
        manager = open_logs(tmp_path / name)
        manager.begin_life(epoch)
        manager.close()
    meta = (tmp_path / "a" / "meta.properties").read_text()
    other = meta.replace(f"{1:022d}", f"{2:022d}")
    (tmp_path / "b" / "meta.properties").write_text(other)
    again = open_logs(tmp_path / "a", tmp_path / "b")
    assert f"{tmp_path / 'b'} is of life 3" in reason(again)
    again.abandon()


@pytest.mark.damages
@pytest.mark.parametrize("content", [b"", b"\0" * 120, None])
def test_a_damaged_note_is_unclean(tmp_path: Path, content: bytes | None) -> None:
    manager = open_logs(tmp_path)
    live(manager)
    manager.abandon()
    note = tmp_path / "oncelog.life"
    if content is None:
        note.unlink()
    else:
        note.write_bytes(content)
    again = open_logs(tmp_path)
    assert "no sound note" in reason(again)
    again.abandon()


def test_a_failed_fsync_is_unclean_for_all_folders_after_a_kill() -> None:
    machine = Machine()
    manager = open_logs("/a", "/b", disk=machine.disk)
    live(manager)
    manager.take_off_line(StorageFailure("fsync", "/a/t-0", OSError(errno.EIO, "for the test")))
    assert "/a is off line" in reason(manager)
    manager.note_life(is_synced=False)
    again = open_logs("/a", "/b", disk=machine.restart())
    assert "/a was not closed cleanly, and has no sound note" in reason(again)
    only = open_logs("/b", disk=machine.restart())
    assert "no sound note" in reason(only)


def test_a_failed_folder_is_unclean_after_a_stop_too() -> None:
    machine = Machine()
    manager = open_logs("/a", "/b", disk=machine.disk)
    live(manager)
    manager.take_off_line(StorageFailure("fsync", "/a/t-0", OSError(errno.EIO, "for the test")))
    manager.close()
    again = open_logs("/a", "/b", disk=machine.restart())
    assert "/a was not closed cleanly, and has no sound note" in reason(again)


def test_a_process_vouches_for_its_own_life_when_its_session_ends(tmp_path: Path) -> None:
    manager = open_logs(tmp_path)
    live(manager)
    assert reason(manager) == ""
    live(manager, epoch=EPOCH + 1)
    assert reason(manager, EPOCH + 1) == ""
    manager.abandon()


def test_a_full_disk_has_no_note_of_the_life() -> None:
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    live(manager)
    machine.whole.faults.fill(random.Random(1))
    live(manager, epoch=EPOCH + 1)
    machine.whole.faults.drain()
    assert machine.whole.peek("/data/oncelog.life") is None


def test_a_file_of_this_machine_has_a_place(tmp_path: Path) -> None:
    path = tmp_path / "a b"
    assert system_place(str(path)) is None
    path.write_bytes(b"x")
    place = SystemDisk().place_of(str(path))
    status = path.stat()
    assert place is not None
    assert place[1:3] == (status.st_dev, status.st_ino)
    assert place.is_same_boot(place)
