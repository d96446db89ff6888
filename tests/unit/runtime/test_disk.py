import asyncio
import os
import threading
from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.runtime import FolderInUse, StorageFailure, SystemDisk


def test_a_file_keeps_what_is_written_at_a_position(tmp_path: Path) -> None:
    disk = SystemDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(b"hello", 0)
    file.pwrite(memoryview(b"world"), 5)
    file.fsync()
    assert file.pread(100, 0) == b"helloworld"
    assert file.pread(3, 5) == b"wor"
    file.truncate(4)
    assert file.size() == 4
    file.close()
    file.close()


def test_an_open_file_outlives_its_name(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = str(tmp_path / "f")
    file = disk.open(path, create=True)
    file.pwrite(b"still here", 0)
    disk.remove(path)
    assert not disk.exists(path)
    assert file.pread(100, 0) == b"still here"


def test_failures_of_the_system_carry_the_code_for_clients(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match="cannot open") as failure:
        SystemDisk().open(str(tmp_path / "missing"))
    assert failure.value.code is ErrorCode.kafka_storage_error


def test_a_closed_file_fails_instead_of_reading_another(tmp_path: Path) -> None:
    file = SystemDisk().open(str(tmp_path / "f"), create=True)
    file.close()
    with pytest.raises(StorageFailure):
        file.pread(1, 0)


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SystemDisk().open(str(tmp_path / "f"), create=True)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    file.pwrite(b"0123456789", 2)
    assert file.pread(100, 2) == b"0123456789"


def test_an_atomic_write_replaces_the_whole_file(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = str(tmp_path / "f")
    assert disk.read(path) is None
    disk.write_atomic(path, b"a long first content", sync=True)
    disk.write_atomic(path, b"second", sync=False)
    assert disk.read(path) == b"second"
    assert disk.list(str(tmp_path)) == ["f"]


def test_an_atomic_write_is_synced_before_and_after_its_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the bytes, or the name would lead to none; then the name."""
    done = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        done.append(("fsync", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def noted_replace(source: str, target: str) -> None:
        done.append(("replace", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    path = tmp_path / "file"
    SystemDisk().write_atomic(str(path), b"content", sync=True)
    file, folder = path.stat().st_ino, tmp_path.stat().st_ino
    assert done == [("fsync", file), ("replace", file), ("fsync", folder)]


def test_a_disk_that_does_not_sync_asks_the_system_for_no_sync(tmp_path: Path) -> None:
    """The system refuses to sync a pipe, and a folder that is not there."""
    pipe, missing = str(tmp_path / "pipe"), str(tmp_path / "missing")
    os.mkfifo(pipe)
    with pytest.raises(StorageFailure, match="cannot fsync"):
        SystemDisk().open(pipe).fsync()
    with pytest.raises(StorageFailure, match="cannot fsync"):
        SystemDisk().sync_dir(missing)
    disk = SystemDisk(syncs=False)
    disk.open(pipe).fsync()
    disk.sync_dir(missing)
    disk.write_atomic(str(tmp_path / "file"), b"content", sync=True)
    assert disk.read(str(tmp_path / "file")) == b"content"


def test_two_threads_may_replace_the_same_file(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = str(tmp_path / "f")
    contents = [bytes([65 + i]) * 1000 for i in range(4)]

    def write(content: bytes) -> None:
        for _ in range(50):
            disk.write_atomic(path, content, sync=False)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert disk.read(path) in contents
    assert disk.list(str(tmp_path)) == ["f"]


def test_a_folder_can_be_locked_once(tmp_path: Path) -> None:
    disk = SystemDisk()
    lock = disk.lock(str(tmp_path / ".lock"))
    with pytest.raises(FolderInUse, match="in use by another broker"):
        disk.lock(str(tmp_path / ".lock"))
    lock.release()
    disk.lock(str(tmp_path / ".lock")).release()


def test_trees_are_made_and_removed(tmp_path: Path) -> None:
    disk = SystemDisk()
    root = str(tmp_path / "a")
    disk.mkdir(f"{root}/b")
    disk.write_atomic(f"{root}/b/f", b"", sync=False)
    disk.rename(root, str(tmp_path / "c"))
    assert disk.is_dir(str(tmp_path / "c" / "b"))
    disk.remove_tree(str(tmp_path / "c"))
    disk.remove_tree(str(tmp_path / "c"))
    disk.remove(str(tmp_path / "nothing"))
    disk.sync_dir(str(tmp_path))
    assert disk.list(str(tmp_path)) == []


async def test_blocking_work_runs_off_the_loop() -> None:
    disk = SystemDisk()
    assert await disk.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(StorageFailure):
        await disk.run(lambda: disk.list("/nonexistent/folder"))
    assert asyncio.get_running_loop().is_running()
    disk.close()
    disk.close()
