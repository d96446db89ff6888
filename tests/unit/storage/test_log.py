"""Appends, reads, refusals and failures of one partition's log."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import HEADER_SIZE, iter_headers, renew_crc, set_max_timestamp
from oncelog.runtime import DiskFile, StorageFailure, SystemDisk
from oncelog.runtime.disk import Buffer
from oncelog.simulation.disk import FaultKind
from oncelog.storage import CorruptBatch, LogConfig, OffsetOutOfRange, Origin
from tests.support.examples import examples
from tests.support.folders import open_logs
from tests.support.machine import Machine
from tests.support.scratch import scratch_folder
from tests.unit.storage.context import NOW_MS, PARTITION, LogContext, batch, read_all

MakeLog = Callable[..., LogContext]


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 400)), min_size=1, max_size=25),
    st.sampled_from([1, 300, 4096]),
    st.booleans(),
    st.data(),
)
def test_a_read_is_the_longest_run_of_whole_batches_that_fits(
    sizes: list[tuple[int, int]], interval: int, reopened: bool, data: st.DataObject
) -> None:
    with TemporaryDirectory(dir=scratch_folder()) as folder:
        ctx = LogContext(Path(folder) / "t-0", segment_bytes=2200, index_interval_bytes=interval)
        for count, size in sizes:
            ctx.append_well(batch(count, value=b"x" * size))
        if reopened:
            ctx.restart()
        end = ctx.log.log_end_offset
        offset = data.draw(st.integers(0, end - 1))
        bound = data.draw(st.integers(0, end))
        size_max = data.draw(st.integers(0, 3000))
        min_one = data.draw(st.booleans())
        found = ctx.log.read(offset, size_max, upper_bound=bound, min_one=min_one)
        assert bytes(found) == expected_read(ctx, offset, bound, size_max, min_one)


def expected_read(ctx: LogContext, offset: int, bound: int, size_max: int, min_one: bool) -> bytes:
    whole = ctx.all_bytes()
    base = max(base for base in ctx.log.segment_base_offsets if base <= offset)
    following = [b for b in ctx.log.segment_base_offsets if b > base]
    stop = min([bound, *following])
    run = b""
    for position, header in iter_headers(whole):
        if offset >= bound or header.last_offset < offset:
            continue
        if header.base_offset >= stop:
            break
        if len(run) + header.length > size_max and (run or not min_one):
            break
        run += whole[position : position + header.length]
    return run


def test_offsets_and_leader_epoch_are_patched_into_the_batch(ctx: LogContext) -> None:
    ctx.leader_epoch = 7
    ctx.append_well(batch(3))
    result = ctx.append_well(batch(2))
    assert (result.base_offset, result.last_offset, result.log_append_time_ms) == (3, 4, -1)
    assert [(h.base_offset, h.leader_epoch) for h in ctx.headers()] == [(0, 7), (3, 7)]
    assert ctx.log.latest_epoch == ctx.log.epoch_at(4) == 7


def test_reading_outside_the_log_is_an_error(ctx: LogContext) -> None:
    ctx.append_well(batch(3))
    assert ctx.log.read(3, 100, upper_bound=3) == b""
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRange) as error:
            ctx.log.read(offset, 100, upper_bound=3)
        assert error.value.code is ErrorCode.offset_out_of_range


def test_a_reader_goes_on_while_its_segment_is_deleted(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=300, retention_bytes=1)
    for number in range(6):
        ctx.append_well(value=b"%d" % number * 100)
    first = ctx.log.read(0, 10_000, upper_bound=6)
    assert ctx.log.delete_old_segments(NOW_MS, 6) == 5
    assert next(iter_headers(first))[1].base_offset == 0
    with pytest.raises(OffsetOutOfRange):
        ctx.log.read(0, 100, upper_bound=6)


def damaged(data: bytearray, position: int) -> bytearray:
    data[position] ^= 1
    return data


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (bytearray(0), ErrorCode.invalid_record),
        (bytearray(10), ErrorCode.corrupt_message),
        (damaged(batch(), HEADER_SIZE), ErrorCode.corrupt_message),
        (batch()[:-1], ErrorCode.corrupt_message),
        (damaged(batch(), 16), ErrorCode.corrupt_message),
        (batch() + batch(), ErrorCode.invalid_record),
        (damaged(batch(), 7), ErrorCode.invalid_record),
        (damaged(batch(), 60), ErrorCode.invalid_record),
        (batch(producer=1, epoch=0), ErrorCode.invalid_record),
        (batch(transactional=True), ErrorCode.invalid_record),
        (batch(value=b"x" * 2000), ErrorCode.message_too_large),
        (batch(timestamp_ms=NOW_MS + 3_600_001), ErrorCode.invalid_timestamp),
    ],
)
def test_what_a_client_may_not_write_is_refused(
    make_log: MakeLog, data: bytearray, code: ErrorCode
) -> None:
    ctx = make_log(max_message_bytes=1500)
    result = ctx.append(data)
    assert result.error is code
    assert result.message
    assert result.base_offset == -1
    assert ctx.log.log_end_offset == ctx.log.size_bytes == 0


def test_a_client_may_not_write_a_marker(ctx: LogContext) -> None:
    ctx.end(1, 0)
    marker = bytearray(ctx.all_bytes())
    assert ctx.append(marker).error is ErrorCode.invalid_record


def test_more_than_a_segment_in_one_append_is_refused(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=200)
    result = ctx.append(batch(value=b"x" * 200))
    assert result.error is ErrorCode.record_list_too_large
    ctx.append_well(batch(value=b"x" * 200), origin=Origin.REPLICATION)


def test_coordinators_append_several_batches_at_once(ctx: LogContext) -> None:
    result = ctx.append_well(batch(2) + batch(3), origin=Origin.COORDINATOR)
    assert (result.base_offset, result.last_offset) == (0, 4)
    assert [h.base_offset for h in ctx.headers()] == [0, 2]


def test_log_append_time_is_stamped_by_the_broker(make_log: MakeLog) -> None:
    ctx = make_log(message_timestamp_type="LogAppendTime")
    ctx.now_ms = NOW_MS + 5
    result = ctx.append_well(producer=1, epoch=0, sequence=0, timestamp_ms=NOW_MS - 10_000)
    assert result.log_append_time_ms == ctx.now_ms
    (header,) = ctx.headers()
    assert (header.timestamp_type, header.max_timestamp) == (1, ctx.now_ms)
    ctx.now_ms += 100
    again = ctx.append(producer=1, epoch=0, sequence=0)
    assert (again.duplicate, again.log_append_time_ms) == (True, NOW_MS + 5)
    assert ctx.kill().recovery.cut_bytes == 0
    found = ctx.log.offset_for_timestamp(NOW_MS + 1)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (NOW_MS + 5, 0)


@pytest.mark.parametrize("codec", ["gzip", "uncompressed", "zstd"])
def test_a_topic_may_ask_for_its_own_compression(make_log: MakeLog, codec: str) -> None:
    ctx = make_log(compression_type=codec)
    ctx.append_well(batch(5, producer=1, epoch=2, sequence=3, codec="lz4", transactional=True))
    ctx.append_well(batch(2, codec="none"))
    wanted = "none" if codec == "uncompressed" else codec
    first, second = ctx.headers()
    assert (first.codec, second.codec) == (wanted, wanted)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (1, 2, 3)
    assert first.is_transactional
    assert ctx.values() == [b"value"] * 7
    assert ctx.kill().log_end_offset == 7


def test_segments_roll_by_size_time_and_index(make_log: MakeLog) -> None:
    by_time = make_log(segment_ms=1000)
    by_time.append_well(timestamp_ms=NOW_MS)
    by_time.append_well(timestamp_ms=NOW_MS + 1000)
    by_time.append_well(timestamp_ms=NOW_MS + 1001)
    assert by_time.log.segment_base_offsets == [0, 2]


def test_jitter_rolls_segments_apart_from_each_other(make_log: MakeLog) -> None:
    """Each rolls up to that much earlier; a restart changes nothing."""
    ctx = make_log(segment_ms=1000, segment_jitter_ms=900)
    for index in range(400):
        ctx.append_well(timestamp_ms=NOW_MS + 25 * index)
    bases = ctx.log.segment_base_offsets
    lengths = {after - before for before, after in pairwise(bases)}
    assert len(lengths) > 3
    assert min(lengths) >= 4
    assert max(lengths) <= 41
    assert ctx.restart().segment_base_offsets == bases
    assert make_log(segment_ms=1000).log.config.segment_jitter_ms == 0


def test_segments_roll_when_an_index_is_full(make_log: MakeLog) -> None:
    ctx = make_log(segment_index_bytes=36, index_interval_bytes=1)
    for number in range(8):
        ctx.append_well(timestamp_ms=NOW_MS + number)
    assert len(ctx.log.segment_base_offsets) > 1
    assert ctx.kill().log_end_offset == 8


class FailingDisk(SystemDisk):
    """A disk whose files refuse one operation when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses = ""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return FailingFile(self, super().open(path, create=create))


class FailingFile:
    def __init__(self, disk: FailingDisk, file: DiskFile) -> None:
        self._disk, self._file = disk, file
        self.path = file.path

    def pwrite(self, data: Buffer, position: int) -> None:
        if self._disk.refuses == "write":
            self._file.pwrite(bytes(data)[: len(data) // 2], position)
            raise StorageFailure("write", self.path, "no space left on device")
        self._file.pwrite(data, position)

    def fsync(self) -> None:
        if self._disk.refuses == "fsync":
            raise StorageFailure("fsync", self.path, "input/output error")
        self._file.fsync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("refused", ["write", "fsync"])
def test_after_a_failure_the_log_takes_nothing_more(make_log: MakeLog, refused: str) -> None:
    ctx = make_log(flush_messages=1)
    ctx.append_well(batch(2))
    ctx.disk = disk = FailingDisk()
    ctx.kill()
    disk.refuses = refused
    with pytest.raises(StorageFailure) as failure:
        ctx.append(batch(3))
    assert failure.value.code is ErrorCode.kafka_storage_error
    disk.refuses = ""
    assert ctx.log.failure is failure.value
    for attempt in (lambda: ctx.append(batch()), lambda: ctx.end(1, 0), ctx.log.flush):
        with pytest.raises(StorageFailure):
            attempt()
    ctx.log.close()
    ctx.disk = SystemDisk()
    ctx.kill()
    assert ctx.log.log_end_offset == (2 if refused == "write" else 5)
    ctx.append_well(batch())


def test_flush_messages_moves_the_recovery_point_with_each_append(make_log: MakeLog) -> None:
    ctx = make_log(flush_messages=1)
    for expected in (1, 2, 3):
        ctx.append_well()
        assert ctx.log.recovery_point == expected
    other = make_log(flush_messages=3)
    other.log.flush()
    other.append_well(batch(2, producer=1, epoch=0, sequence=0, transactional=True))
    assert other.log.recovery_point == 3
    other.end(1, 0)
    assert other.log.recovery_point == 6
    other.append_well(batch(2))
    assert other.log.recovery_point == 6


def test_truncation_takes_producers_and_transactions_back(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=400)
    ctx.append_well(producer=1, epoch=0, sequence=0, count=2)
    ctx.append_well(producer=2, epoch=0, sequence=0, transactional=True)
    ctx.leader_epoch = 1
    ctx.append_well(producer=1, epoch=0, sequence=2, count=2)
    ctx.end(2, 0, commit=False)
    for sequence in range(4, 12):
        ctx.append_well(producer=1, epoch=0, sequence=sequence)
    before = ctx.all_bytes()
    ctx.log.truncate_to(4, ctx.now_ms)
    # The batch of offsets 3 and 4 goes whole.
    assert ctx.log.log_end_offset == 3
    assert before.startswith(ctx.all_bytes())
    assert ctx.log.latest_epoch == 0
    assert ctx.log.producers.transaction_is_open(2, 0)
    assert ctx.log.aborted_transactions(0, 100) == []
    assert ctx.append_well(producer=1, epoch=0, sequence=2, count=2).base_offset == 3
    after = ctx.all_bytes()
    assert ctx.kill().recovery.cut_bytes == 0
    assert ctx.all_bytes() == after


@pytest.mark.parametrize("work", ["truncate", "retain"])
def test_what_fails_half_way_is_not_closed_in_order(tmp_path: Path, work: str) -> None:
    """By a clean stop the next start would trust segments that nobody synced."""
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    log = manager.create(PARTITION, UUID(int=1), LogConfig(segment_bytes=300), NOW_MS)
    for _ in range(6):
        log.append(batch(value=b"v" * 60), leader_epoch=0, now_ms=NOW_MS)
    faults = machine.whole.faults
    faults.fail(FaultKind.NAMES, random.Random(1), matches=lambda path: path.endswith(".log"))
    log.delete_records(4)
    works: dict[str, Callable[[], object]] = {
        "truncate": lambda: log.truncate_to(0),
        "retain": lambda: log.delete_old_segments(NOW_MS, log.log_end_offset),
    }
    with pytest.raises(StorageFailure, match=r"cannot rename .*\.log"):
        works[work]()
    assert log.failure is not None
    manager.close()
    for end in (machine.restart, lambda: machine.lose_power(rate=0.0)):
        end()
        again = open_logs("/data", disk=machine.disk)
        assert not again.folders[0].was_clean
        found = again.get(PARTITION)
        assert found is not None
        assert found.log_end_offset == 6
        assert len(list(iter_headers(read_all(found)))) == 6
        again.abandon()


def test_what_was_cut_off_does_not_come_back_behind_the_next_history() -> None:
    machine = Machine()
    manager = open_logs("/data", disk=machine.disk)
    log = manager.create(PARTITION, UUID(int=1), LogConfig(segment_bytes=300), NOW_MS)
    for _ in range(6):
        log.append(batch(value=b"v" * 60), leader_epoch=1, now_ms=NOW_MS)
    manager.flush()
    assert log.segment_base_offsets == [0, 2, 4]
    log.recovery_point = 3
    manager.checkpoint()
    log.truncate_to(3)
    log.append(batch(value=b"v" * 60), leader_epoch=2, now_ms=NOW_MS)
    machine.lose_power(spared=lambda path: path.endswith(".log"), rate=0.0)
    found = open_logs("/data", disk=machine.disk).get(PARTITION)
    assert found is not None
    assert [header.leader_epoch for _, header in iter_headers(read_all(found))] == [1, 1, 1, 2]


def test_truncating_everything_leaves_an_empty_log(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=200)
    for sequence in range(5):
        ctx.append_well(producer=1, epoch=0, sequence=sequence, value=b"x" * 80)
    ctx.log.truncate_to(0, ctx.now_ms)
    assert ctx.log.log_end_offset == ctx.log.size_bytes == 0
    assert ctx.log.producers.entries() == []
    ctx.append_well(producer=1, epoch=0, sequence=0)
    assert ctx.kill().log_end_offset == 1


def test_epochs_end_as_the_log_says(ctx: LogContext) -> None:
    for epoch in (0, 2):
        ctx.leader_epoch = epoch
        ctx.append_well(batch(3))
    assert ctx.log.end_offset_for_epoch(1) == (0, 3)
    assert ctx.log.end_offset_for_epoch(2) == (2, 6)
    assert ctx.kill().end_offset_for_epoch(0) == (0, 3)


def test_a_flush_that_was_queued_before_the_log_was_deleted_does_nothing(tmp_path: Path) -> None:
    """Found by simulation: it stopped the broker."""
    ctx = LogContext(tmp_path / "t-0")
    ctx.append_well()
    ctx.log.abandon()
    ctx.log.flush()
    assert ctx.log.recovery_point == 0


def test_a_deleted_log_is_refused_to_late_callers(ctx: LogContext) -> None:
    ctx.log.abandon()
    with pytest.raises(StorageFailure, match="was deleted"):
        ctx.append()
    assert ctx.log.delete_old_segments(NOW_MS, 0) == 0


@pytest.mark.parametrize(
    ("codec", "code"), [("none", ErrorCode.invalid_record), ("zstd", ErrorCode.corrupt_message)]
)
def test_damaged_records_are_found_when_the_broker_must_rewrite(
    make_log: MakeLog, codec: str, code: ErrorCode
) -> None:
    ctx = make_log(compression_type="gzip")
    data = batch(3, codec=codec)
    data[HEADER_SIZE] = 0x7F
    renew_crc(data, 0, len(data))
    result = ctx.append(data)
    assert result.error is code
    assert issubclass(OffsetOutOfRange, ProtocolError)


def test_a_header_without_its_largest_timestamp_is_put_right_and_found_by_time(
    make_log: MakeLog,
) -> None:
    ctx = make_log()
    lying = batch(3)
    set_max_timestamp(lying, -1)
    ctx.append_well(lying)
    ctx.append_well(batch(timestamp_ms=NOW_MS + 10))
    found = ctx.log.offset_for_timestamp(NOW_MS + 2)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (NOW_MS + 2, 2)
    assert ctx.kill().recovery.cut_bytes == 0
    assert ctx.log.offset_for_timestamp(NOW_MS + 2) == found


def test_a_damaged_header_is_an_error_for_its_offsets_only(make_log: MakeLog) -> None:
    ctx = make_log(index_interval_bytes=1)
    for _ in range(4):
        ctx.append_well(value=b"x" * 100)
    whole, size = ctx.all_bytes(), len(ctx.all_bytes()) // 4
    ctx.restart()
    with open(ctx.folder / f"{0:020}.log", "r+b") as file:
        file.seek(2 * size + 8)
        file.write(bytes(4))
    end = ctx.log.log_end_offset
    assert bytes(ctx.log.read(1, size, upper_bound=end)) == whole[size : 2 * size]
    with pytest.raises(CorruptBatch, match="from offset 2 on") as raised:
        ctx.log.read(2, size, upper_bound=end)
    assert (raised.value.code, raised.value.offset) == (ErrorCode.corrupt_message, 2)
    assert bytes(ctx.log.read(3, size, upper_bound=end)) == whole[3 * size :]


@pytest.mark.parametrize("length", [-12, -85, 0, 48, 2**31 - 1])
def test_a_read_ends_in_front_of_a_batch_of_impossible_length(
    make_log: MakeLog, length: int
) -> None:
    ctx = make_log()
    for _ in range(4):
        ctx.append_well()
    size = len(ctx.all_bytes()) // 4
    ctx.restart()
    damage(ctx, 2 * size + 8, length.to_bytes(4, "big", signed=True))
    data = ctx.log.read(0, 10 * size, upper_bound=4)
    assert [header.base_offset for _, header in iter_headers(data)] == [0, 1]


def test_a_batch_whose_offset_is_beyond_the_log_is_damaged(make_log: MakeLog) -> None:
    ctx = make_log()
    for _ in range(4):
        ctx.append_well()
    size = len(ctx.all_bytes()) // 4
    ctx.restart()
    damage(ctx, 2 * size, b"\x40")
    with pytest.raises(CorruptBatch, match="beyond the log"):
        ctx.log.read(2, 10 * size, upper_bound=4)


def damage(ctx: LogContext, position: int, data: bytes) -> None:
    with open(ctx.folder / f"{0:020}.log", "r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [None, b"x" * 7])
def test_an_index_that_is_damaged_while_the_log_is_open_keeps_no_record_from_readers(
    make_log: MakeLog, suffix: str, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = make_log(segment_bytes=40_000, index_interval_bytes=100)
    for number in range(60):
        ctx.append_well(value=b"x" * 2000, timestamp_ms=NOW_MS + number)
    whole = ctx.all_bytes()
    for segment in ctx.log._local.segments:
        segment.release()
        path = ctx.folder / f"{segment.base_offset:020}{suffix}"
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content)
    assert len(ctx.log.segment_base_offsets) > 3
    assert ctx.all_bytes() == whole
    found = ctx.log.offset_for_timestamp(NOW_MS + 25)
    assert found is not None
    assert found.offset == 25
    assert "missing or damaged" in caplog.text
    assert ctx.log.failure is None
