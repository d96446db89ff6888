"""Reads in the executor, while the loop and other threads change the log."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.protocol.batch import iter_headers
from oncelog.runtime import DiskFile, NotCached, StorageFailure, SystemDisk
from oncelog.storage import OffsetOutOfRange
from tests.unit.storage.context import NOW_MS, LogContext, batch

MakeLog = Callable[..., LogContext]
ONE = len(batch(value=b"x" * 200))


class TurningDisk(SystemDisk):
    """Something happens right before the next look at a `.log` file, or once some have been read.

    Nothing is cached if told.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_cold = False
        self.happens: list[Callable[[], object]] = []
        self.reads_before = 0

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if not (create or self.reads_before):
            self.turn()
        return TurningFile(self, super().open(path, create=create))

    def turn(self) -> None:
        while self.happens:
            self.happens.pop()()


class TurningFile:
    def __init__(self, disk: TurningDisk, file: DiskFile) -> None:
        self._disk, self._file = disk, file
        self.path = file.path

    def pread(self, size: int, position: int) -> bytes:
        is_early = self._disk.reads_before == 0
        if is_early:
            self._disk.turn()
        data = self._file.pread(size, position)
        if not is_early:
            self._disk.reads_before -= 1
            if self._disk.reads_before == 0:
                self._disk.turn()
        return data

    def pread_cached(self, size: int, position: int) -> bytes | bytearray:
        if self._disk.is_cold:
            raise NotCached(self.path)
        return self._file.pread_cached(size, position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture
def disk() -> TurningDisk:
    return TurningDisk()


@pytest.fixture
def ctx(tmp_path: Path, disk: TurningDisk) -> LogContext:
    return six_batches(tmp_path, disk)


def six_batches(folder: Path, disk: TurningDisk) -> LogContext:
    """Six batches in three segments, found by a start."""
    ctx = LogContext(folder / "t-0", disk, segment_bytes=2 * ONE, retention_bytes=1)
    for number in range(6):
        ctx.append_well(value=b"%d" % number + b"x" * 199)
    ctx.restart()
    return ctx


def offsets(data: Any) -> list[int]:
    return [header.base_offset for _, header in iter_headers(data)]


def read_cold(ctx: LogContext, offset: int, max_bytes: int = 1 << 20) -> list[int]:
    return offsets(ctx.log.read_cold(offset, max_bytes, upper_bound=ctx.log.log_end_offset))


def test_a_cold_read_gives_what_a_read_gives(ctx: LogContext) -> None:
    end = ctx.log.log_end_offset
    for offset in range(end + 1):
        for size in (1, ONE, 2 * ONE, 1 << 20):
            for bound in range(end + 1):
                for min_one in (False, True):
                    limits: Any = {"upper_bound": bound, "min_one": min_one}
                    warm = ctx.log.read(offset, size, **limits)
                    assert bytes(ctx.log.read_cold(offset, size, **limits)) == bytes(warm)


def test_what_is_in_memory_is_read_without_the_executor(
    tmp_path_factory: pytest.TempPathFactory, disk: TurningDisk
) -> None:
    # Not in the unit tests' folder: a file system in memory does not say so.
    ctx = six_batches(tmp_path_factory.mktemp("cold"), disk)
    ctx.log.read(0, 1 << 20, upper_bound=6)
    try:
        found = ctx.log.read(0, 1 << 20, upper_bound=6, cached_only=True)
    except NotCached:
        pytest.skip("this file system does not say what is in memory")
    assert offsets(found) == [0, 1]


def test_neither_a_file_is_opened_nor_an_index_loaded_for_a_cached_read(
    ctx: LogContext, disk: TurningDisk
) -> None:
    disk.happens.append(lambda: pytest.fail("a file was opened"))
    for offset in (0, 2):
        with pytest.raises(NotCached):
            ctx.log.read(offset, 1 << 20, upper_bound=6, cached_only=True)
    with pytest.raises(NotCached):
        ctx.log.cached_offset_for_timestamp(NOW_MS)
    disk.happens.clear()


def test_a_lookup_of_a_time_after_all_records_needs_no_file(
    ctx: LogContext, disk: TurningDisk
) -> None:
    disk.happens.append(lambda: pytest.fail("a file was opened"))
    assert ctx.log.cached_offset_for_timestamp(NOW_MS + 1) is None
    disk.happens.clear()


def test_the_tail_is_read_though_nothing_is_known_to_be_in_memory(
    ctx: LogContext, disk: TurningDisk
) -> None:
    disk.is_cold = True
    ctx.append_well(value=b"6")
    assert offsets(ctx.log.read(6, 1 << 20, upper_bound=7, cached_only=True)) == [6]


def test_segments_that_retention_takes_meanwhile_are_out_of_range(
    ctx: LogContext, disk: TurningDisk
) -> None:
    disk.happens.append(lambda: ctx.log.delete_old_segments(NOW_MS, 6))
    with pytest.raises(OffsetOutOfRange):
        read_cold(ctx, 0)
    assert ctx.log.failure is None


def test_a_read_ahead_of_what_retention_takes_is_carried_out(
    ctx: LogContext, disk: TurningDisk
) -> None:
    disk.happens.append(lambda: ctx.log.delete_old_segments(NOW_MS, 6))
    assert read_cold(ctx, 4) == [4, 5]


@pytest.mark.parametrize("reads_before", [0, 1, 2])
def test_bytes_that_were_truncated_and_rewritten_during_a_read_are_not_returned(
    ctx: LogContext, disk: TurningDisk, reads_before: int
) -> None:
    """A follower cuts its log: what stood there must not be given or mixed with what comes."""

    def cut() -> None:
        ctx.log.truncate_to(3, NOW_MS)
        ctx.append_well(value=b"y" * 200)

    held = ctx.log.read_cold(0, 1 << 20, upper_bound=6)
    disk.happens.append(cut)
    disk.reads_before = reads_before
    found = ctx.log.read_cold(2, 1 << 20, upper_bound=6)
    assert offsets(held) == [0, 1]
    assert offsets(found) == [2, 3]
    assert b"y" * 200 in bytes(found)


def test_the_files_of_a_deleted_log_fail_no_other_log(ctx: LogContext, disk: TurningDisk) -> None:
    def delete() -> None:
        ctx.log.abandon()
        for path in ctx.folder.iterdir():
            path.unlink()

    disk.happens.append(delete)
    with pytest.raises(StorageFailure):
        read_cold(ctx, 0)
    assert ctx.log.is_deleted


def test_a_lookup_by_time_looks_again_when_its_segment_is_gone(
    ctx: LogContext, disk: TurningDisk
) -> None:
    disk.happens.append(lambda: ctx.log.delete_old_segments(NOW_MS, 6))
    found = ctx.log.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.offset == 4


def test_cold_reads_of_the_active_segment_go_on_while_it_grows(make_log: MakeLog) -> None:
    ctx = make_log(index_interval_bytes=0)
    ctx.append_well(value=b"x")
    failures: list[BaseException] = []
    stop = threading.Event()

    def read_again_and_again() -> Iterator[None]:
        while not stop.is_set():
            end = ctx.log.log_end_offset
            for offset in (0, end // 2, end - 1):
                found = offsets(ctx.log.read_cold(offset, 400, upper_bound=end))
                assert found, offset
                assert found[0] == offset
                assert found[-1] < end
            yield

    def reader() -> None:
        try:
            for _ in read_again_and_again():
                pass
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        for _ in range(1500):
            ctx.append_well(value=b"x")
    finally:
        stop.set()
        thread.join()
    assert failures == []
