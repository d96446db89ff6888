"""Log files are closed and opened again under those who use them (INV-9)."""

import threading
from pathlib import Path

import pytest

from oncelog.runtime import DiskFile, NotCached, StorageFailure, SystemDisk
from oncelog.storage.kept_file import KeptFile
from tests.unit.storage.context import LogContext


class SpyDisk(SystemDisk):
    """Counts what is opened and synced; fsyncs fail when told to."""

    def __init__(self, files_count_max: int = 4) -> None:
        super().__init__(files_count_max)
        self.opened: list[str] = []
        self.synced: list[str] = []
        self.fails = False

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        self.opened.append(Path(path).name)
        return SpyFile(self, super().open(path, create=create))


class SpyFile:
    def __init__(self, disk: SpyDisk, file: DiskFile) -> None:
        self._disk = disk
        self.path, self.size, self.close = file.path, file.size, file.close
        self.pread, self.pwrite, self.truncate = file.pread, file.pwrite, file.truncate
        self.pread_cached = file.pread_cached
        self._file = file

    def fsync(self) -> None:
        self._disk.synced.append(Path(self.path).name)
        if self._disk.fails:
            raise StorageFailure("fsync", self.path, "input/output error")
        self._file.fsync()


def written(disk: SpyDisk, path: Path) -> KeptFile:
    kept = KeptFile(disk, str(path))
    kept.create()
    kept.unsynced = kept.written = True
    kept.file.pwrite(b"abc", 0)
    return kept


def test_a_file_that_was_closed_is_opened_again_with_the_next_use(tmp_path: Path) -> None:
    disk = SpyDisk()
    kept = written(disk, tmp_path / "f")
    kept.sync_plan()()
    assert kept.let_go()
    assert kept.held is None
    assert kept.reader(cached_only=False)(3, 0) == b"abc"
    assert disk.opened == ["f", "f"]


def test_a_reader_keeps_the_file_it_began_with(tmp_path: Path) -> None:
    disk = SpyDisk()
    kept = written(disk, tmp_path / "f")
    kept.sync_plan()()
    read = kept.reader(cached_only=False)
    assert kept.let_go()
    (tmp_path / "f").unlink()
    assert read(3, 0) == b"abc"


def test_a_closed_file_is_not_opened_by_a_reader_of_cached_bytes(tmp_path: Path) -> None:
    kept = KeptFile(SpyDisk(), str(tmp_path / "f"))
    with pytest.raises(NotCached):
        kept.reader(cached_only=True)


def test_a_file_with_unsynced_bytes_stays_open(tmp_path: Path) -> None:
    disk = SpyDisk()
    kept = written(disk, tmp_path / "f")
    assert not kept.let_go()
    kept.release()
    assert kept.held is not None
    assert len(disk.files) == 1
    assert kept.let_go(sync=True)
    assert disk.synced == ["f"]


def test_the_failed_sync_of_a_file_that_was_to_be_closed_is_told_by_the_next_flush(
    tmp_path: Path,
) -> None:
    """D12: the kernel would not tell it a second time."""
    disk = SpyDisk()
    kept = written(disk, tmp_path / "f")
    disk.fails = True
    assert not kept.let_go(sync=True)
    disk.fails = False
    for _ in range(2):
        with pytest.raises(StorageFailure):
            kept.sync_plan()()
    assert disk.synced == ["f"]


def test_what_has_not_been_written_since_is_not_synced_again(tmp_path: Path) -> None:
    disk = SpyDisk()
    kept = written(disk, tmp_path / "f")
    kept.sync_plan()()
    kept.sync_plan()()
    assert disk.synced == ["f"]


def test_bytes_of_an_earlier_process_are_synced_though_the_file_was_closed(tmp_path: Path) -> None:
    disk = SpyDisk()
    (tmp_path / "f").write_bytes(b"abc")
    kept = KeptFile(disk, str(tmp_path / "f"))
    assert kept.let_go()
    kept.sync_plan()()
    assert disk.synced == ["f"]


def test_many_logs_share_a_few_descriptors(tmp_path: Path) -> None:
    disk = SpyDisk(files_count_max=4)
    logs = [LogContext(tmp_path / f"t-{n}", disk) for n in range(20)]
    for round_number in range(3):
        for number, log in enumerate(logs):
            log.append_well(value=b"%d of %d" % (round_number, number))
            assert len(disk.files) <= 4
    for number, log in enumerate(logs):
        assert log.values() == [b"%d of %d" % (n, number) for n in range(3)]
    assert len(disk.files) <= 4
    for log in logs:
        log.log.close()
    assert len(disk.files) == 0


def test_a_deleted_log_and_its_removed_segments_hold_no_descriptor(tmp_path: Path) -> None:
    disk = SpyDisk()
    ctx = LogContext(tmp_path / "t-0", disk, segment_bytes=300, retention_bytes=1)
    for _ in range(3):
        ctx.append_well(value=b"x" * 200)
    assert len(disk.files) == 3
    ctx.log.delete_old_segments(ctx.now_ms, ctx.log.log_end_offset)
    assert len(disk.files) == 1
    ctx.log.abandon()
    assert len(disk.files) == 0


def test_appends_go_on_while_others_close_the_file(tmp_path: Path) -> None:
    """The order of `written` and `held` in both threads: no append meets a file that is gone."""
    disk = SpyDisk()
    ctx = LogContext(tmp_path / "t-0", disk)
    kept = ctx.log._local.segments.active.kept
    stop = threading.Event()

    def close_again_and_again() -> None:
        while not stop.is_set():
            kept.let_go()

    thread = threading.Thread(target=close_again_and_again)
    thread.start()
    try:
        for number in range(400):
            ctx.append_well(value=b"%d" % number)
            assert kept.held is not None or kept.written
            if number % 5 == 0:
                ctx.log.flush()
    finally:
        stop.set()
        thread.join()
    assert ctx.values() == [b"%d" % number for number in range(400)]


def test_a_flush_syncs_no_segment_that_an_earlier_one_has_synced(tmp_path: Path) -> None:
    disk = SpyDisk()
    ctx = LogContext(tmp_path / "t-0", disk, segment_bytes=250)
    for _ in range(5):
        ctx.append_well()
    ctx.log.flush()
    disk.synced.clear()
    ctx.append_well()
    ctx.log.flush()
    assert disk.synced == [f"{ctx.log.segment_base_offsets[-1]:020}.log"]
