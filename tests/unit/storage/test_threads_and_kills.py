"""What loop and executor do at once, and what a real SIGKILL leaves (INV-1, INV-9)."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import iter_records
from oncelog.runtime import DiskFile, SystemDisk
from tests.support.examples import examples
from tests.unit.storage.context import NOW_MS, LogContext, batch, read_all

MakeLog = Callable[..., LogContext]

WRITER = """
import sys
from pathlib import Path
from tests.unit.storage.context import LogContext
ctx = LogContext(Path(sys.argv[1]), segment_bytes=20_000, index_interval_bytes=200)
entry = ctx.log.producers.entry(1)
sequence = entry.last_sequence + 1 if entry else 0
while True:
    value = b"%d" % sequence + b"." * (sequence * 7919 % 5000)
    result = ctx.append_well(producer=1, epoch=0, sequence=sequence, value=value)
    sequence += 1
    print(result.base_offset, flush=True)
"""


@pytest.mark.slow
def test_a_killed_writer_keeps_every_acknowledged_batch(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    for rounds in range(examples(4)):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        acknowledged = -1
        for _ in range(40 + 37 * rounds):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, writer.stdout.read().split("\n")[:-1])])
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL
        ctx = LogContext(folder)
        assert ctx.log.log_end_offset > acknowledged
        sequences = [header.base_sequence for header in ctx.headers()]
        assert sequences == list(range(ctx.log.log_end_offset))
        values = [int(value.split(b".")[0]) for value in ctx.values() if value]
        assert values == sequences
        ctx.log.close()


@pytest.mark.slow
def test_upkeep_in_other_threads_leaves_appends_and_reads_alone(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=2000, retention_ms=-1, retention_bytes=6000)
    stop = threading.Event()
    failures: list[BaseException] = []

    def upkeep(work: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    works: list[Callable[[], object]] = [
        lambda: ctx.log.flush(),
        lambda: ctx.log.delete_old_segments(NOW_MS, ctx.log.log_end_offset),
    ]
    threads = [threading.Thread(target=upkeep, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        for sequence in range(1500):
            ctx.leader_epoch = sequence // 100
            result = ctx.append_well(
                producer=1, epoch=0, sequence=sequence, transactional=True, value=b"%d" % sequence
            )
            if sequence % 7 == 0:
                ctx.end(1, 0, commit=False)
            data = ctx.log.read(result.base_offset, 4000, upper_bound=ctx.log.log_end_offset)
            position, header = next(iter_headers(data))
            assert header.base_sequence == sequence
            assert next(iter_records(data, position, header)).value == b"%d" % sequence
            ctx.log.aborted_transactions(0, ctx.log.log_end_offset)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    ctx.log.delete_old_segments(NOW_MS, ctx.log.log_end_offset)
    whole, start = ctx.all_bytes(), ctx.log.log_start_offset
    aborted = ctx.log.aborted_transactions(start, ctx.log.log_end_offset)
    for again in (ctx.kill, ctx.restart):
        opened = again()
        assert opened.log_start_offset == start
        assert read_all(opened) == whole
        assert opened.aborted_transactions(start, opened.log_end_offset) == aborted
        assert opened.producers.transaction_is_open(1, 0)
        known = ctx.append(producer=1, epoch=0, sequence=1498, transactional=True, value=b"1498")
        assert known.error is ErrorCode.unknown_producer_id


def test_records_without_timestamps_do_not_roll_the_log(make_log: MakeLog) -> None:
    ctx = make_log(segment_ms=1000)
    for timestamp_ms in (-1, NOW_MS, NOW_MS + 5000):
        ctx.append_well(batch(timestamp_ms=timestamp_ms))
    assert ctx.log.segment_base_offsets == [0]


class GatedDisk(SystemDisk):
    """Fsyncs wait until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.gate = threading.Event()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return GatedFile(self, super().open(path, create=create))


class GatedFile:
    def __init__(self, disk: GatedDisk, file: DiskFile) -> None:
        self._disk, self._file = disk, file
        self.path = file.path

    def fsync(self) -> None:
        self._disk.begun.set()
        assert self._disk.gate.wait(30)
        self._file.fsync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_flush_waits_for_the_one_before_it(make_log: MakeLog) -> None:
    """INV-1: what the first is still syncing is not durable by the word of the second."""
    disk = GatedDisk()
    ctx = make_log(disk=disk)
    ctx.append_well()
    first = threading.Thread(target=ctx.log.flush)
    first.start()
    assert disk.begun.wait(30)
    second = threading.Thread(target=ctx.log.flush)
    second.start()
    second.join(0.05)
    points = [ctx.log.recovery_point]
    disk.gate.set()
    for thread in (first, second):
        thread.join()
    assert [*points, ctx.log.recovery_point] == [0, 1]
