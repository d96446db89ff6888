"""Crashes at every byte of the tail, and between the steps of rolls and deletions (INV-9)."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.protocol.batch import iter_headers
from oncelog.runtime.disk import Disk, SystemDisk
from tests.support.examples import examples, places
from tests.support.scratch import scratch_folder
from tests.unit.storage.context import LogContext, batch, read_all

MakeLog = Callable[..., LogContext]


def files(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.glob(f"*{suffix}"))


def fill(ctx: LogContext) -> bytes:
    """Plain, idempotent and transactional batches, one transaction left open, one aborted."""
    ctx.append_well(batch(3))
    ctx.append_well(producer=1, epoch=0, sequence=0, count=2)
    ctx.append_well(producer=2, epoch=0, sequence=0, transactional=True)
    ctx.append_well(producer=1, epoch=0, sequence=2, count=2)
    ctx.end(2, 0, commit=False)
    ctx.append_well(producer=3, epoch=1, sequence=0, transactional=True)
    ctx.append_well(producer=1, epoch=0, sequence=4, codec="gzip", count=4)
    return ctx.all_bytes()


def valid_prefix(data: bytes, size: int) -> bytes:
    """The whole batches within the first `size` bytes."""
    end = 0
    for position, header in iter_headers(data):
        if position + header.length > size:
            break
        end = position + header.length
    return data[:end]


@pytest.mark.slow
def test_a_log_cut_at_any_byte_serves_its_whole_batches(tmp_path: Path) -> None:
    source = LogContext(tmp_path / "t-0")
    data = fill(source)
    target = tmp_path / "copy-0"
    for size in places(len(data) + 1):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source.folder, target)
        os.truncate(files(target, ".log")[0], size)
        ctx = source_at(source, target)
        assert ctx.all_bytes() == valid_prefix(data, size)
        continues(ctx)


@pytest.mark.slow
def test_a_log_with_any_byte_changed_serves_what_was_before(tmp_path: Path) -> None:
    source = LogContext(tmp_path / "t-0")
    data = fill(source)
    batches = [(position, header.length) for position, header in iter_headers(data)]
    target = tmp_path / "copy-0"
    for at in places(len(data)):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source.folder, target)
        damaged = bytearray(data)
        damaged[at] ^= 0x55
        files(target, ".log")[0].write_bytes(damaged)
        start = max(position for position, _ in batches if position <= at)
        found = source_at(source, target).all_bytes()
        # Outside the CRC stand offset and leader epoch; a raised offset looks like a gap.
        if at - start < 16:
            assert found[:start] == data[:start]
        else:
            assert found == data[:start]


def source_at(source: LogContext, folder: Path) -> LogContext:
    other = object.__new__(LogContext)
    other.__dict__.update(source.__dict__, folder=folder)
    other.open()
    return other


def continues(ctx: LogContext) -> None:
    """Appends go on from the end, and another kill changes nothing."""
    result = ctx.append_well(batch(2))
    assert result.base_offset == ctx.log.log_end_offset - 2
    before = ctx.all_bytes()
    assert ctx.kill().recovery.cut_bytes == 0
    assert ctx.all_bytes() == before


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(st.integers(150, 900), st.integers(1, 30), st.data())
def test_any_segment_may_be_cut_and_what_follows_goes(
    segment_bytes: int, count: int, data: st.DataObject
) -> None:
    with TemporaryDirectory(dir=scratch_folder()) as folder:
        ctx = LogContext(Path(folder) / "t-0", segment_bytes=segment_bytes)
        for number in range(count):
            ctx.append_well(producer=1, epoch=0, sequence=number, value=b"%d" % number)
        whole = ctx.all_bytes()
        logs = files(ctx.folder, ".log")
        slot = data.draw(st.integers(0, len(logs) - 1))
        before = sum(path.stat().st_size for path in logs[:slot])
        size = data.draw(st.integers(0, logs[slot].stat().st_size))
        lost_nothing = size == logs[slot].stat().st_size
        os.truncate(logs[slot], size)
        ctx.kill()
        expected = whole if lost_nothing else valid_prefix(whole, before + size)
        assert ctx.all_bytes() == expected
        if expected:
            last = [header for _, header in iter_headers(expected)][-1]
            assert ctx.append(
                producer=1, epoch=0, sequence=last.base_sequence, value=b"again"
            ).duplicate
            ctx.append_well(producer=1, epoch=0, sequence=last.base_sequence + 1)


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\x00" * 200, b"\xff" * 100, b"\x7f" * 61])
def test_garbage_after_the_last_batch_is_cut(ctx: LogContext, garbage: bytes) -> None:
    data = fill(ctx)
    log = files(ctx.folder, ".log")[0]
    log.write_bytes(data + garbage)
    assert ctx.kill().recovery.cut_bytes == len(garbage)
    assert ctx.all_bytes() == data
    assert log.stat().st_size == len(data)


def test_a_crash_between_roll_and_first_append_leaves_an_empty_segment(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=400)
    data = fill(ctx)
    end = ctx.log.log_end_offset
    ctx.log.roll(end)
    assert ctx.log.segment_base_offsets[-1] == end
    for again in (ctx.kill, ctx.restart, ctx.kill):
        opened = again()
        assert opened.log_end_offset == end
        assert read_all(opened) == data
        assert opened.producers.transaction_is_open(3, 1)
    ctx.append_well(producer=1, epoch=0, sequence=8)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".batches", ".txnindex"])
@pytest.mark.parametrize("content", [None, b"", b"\x00\x01\x02", b"\xff" * 36])
def test_a_lost_or_torn_side_file_is_rebuilt(
    make_log: MakeLog, suffix: str, content: bytes | None
) -> None:
    ctx = make_log(segment_bytes=300, index_interval_bytes=1)
    data = fill(ctx)
    ctx.log.close()
    aborted = ctx.log.aborted_transactions(0, 100)
    if suffix == ".txnindex" and not content:
        return  # Without entries there is no such file, so its loss cannot be seen; it is synced.
    for path in files(ctx.folder, suffix):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    ctx.open(clean=True)
    assert ctx.all_bytes() == data
    assert ctx.log.aborted_transactions(0, 100) == aborted
    assert ctx.log.producers.transaction_is_open(3, 1)
    assert ctx.append(producer=1, epoch=0, sequence=4, count=4).duplicate
    ctx.append_well(producer=1, epoch=0, sequence=8)


def test_a_scan_removes_a_torn_snapshot_at_the_end(make_log: MakeLog) -> None:
    """No later start meets it, though it looks for an older state than that of the log's end."""
    ctx = make_log()
    ctx.append_well(producer=1, epoch=0, sequence=0, transactional=True)
    ctx.log.close()
    files(ctx.folder, ".snapshot")[-1].write_bytes(b"\x00")  # A loss of power: it was not synced.
    ctx.open()
    ctx.end(1, 0)
    log = ctx.restart(high_watermark=1)
    assert log.recovery.reasons == []
    assert log.last_stable_offset(1) == 0


def test_a_snapshot_of_lost_records_is_not_trusted_once_others_take_their_offsets(
    make_log: MakeLog,
) -> None:
    """A client that sends its lost records again would take them for written (INV-2)."""
    ctx = make_log()
    for number in range(4):
        ctx.append_well(producer=1, epoch=0, sequence=number)
        ctx.log.roll(number + 1)
    ctx.log.close()
    for path in files(ctx.folder, ".log")[2:]:
        path.unlink()
    assert ctx.open().log_end_offset == 2
    for _ in range(4):
        ctx.append_well()
    ctx.log.close()
    files(ctx.folder, ".snapshot")[-1].unlink()
    ctx.open(clean=True)
    again = ctx.append_well(producer=1, epoch=0, sequence=2)
    assert (again.duplicate, again.base_offset) == (False, 6)


def test_a_start_removes_each_damaged_snapshot_that_it_meets(make_log: MakeLog) -> None:
    ctx = make_log()
    for number in range(3):
        ctx.append_well(producer=1, epoch=0, sequence=number)
        ctx.log.roll(number + 1)
    ctx.append_well(producer=1, epoch=0, sequence=3)
    ctx.log.close()
    *_, older, newest = files(ctx.folder, ".snapshot")
    older.write_bytes(b"torn")
    newest.write_bytes(b"torn")
    assert len(ctx.open(clean=True).recovery.reasons) == 2
    assert not older.exists()
    assert ctx.append_well(producer=1, epoch=0, sequence=3).duplicate


def test_what_a_start_writes_in_place_of_a_sound_snapshot_is_synced(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power would take both, and with them which batches are duplicates."""
    ctx = make_log(segment_bytes=300)
    ctx.append_well(producer=1, epoch=0, sequence=0, transactional=True)
    ctx.end(1, 0)
    ctx.append_well(value=b"x" * 200)
    ctx.append_well(value=b"x" * 200)
    written: list[tuple[str, bool]] = []
    write = type(ctx.disk).write_atomic

    def noted(disk: Disk, path: str, data: bytes, *, sync: bool) -> None:
        written.append((path, sync))
        write(disk, path, data, sync=sync)

    monkeypatch.setattr(type(ctx.disk), "write_atomic", noted)
    ctx.log.close()
    ctx.open(clean=True)
    ctx.log.close()
    for path in files(ctx.folder, ".batches"):
        path.unlink()  # It names the transactions that have ended.
    written.clear()
    ctx.open(clean=True, high_watermark=1)
    end = f"{ctx.log.log_end_offset:020}.snapshot"
    assert [sync for path, sync in written if path.endswith(end)] == [True]


def test_a_truncation_removes_a_torn_snapshot_that_it_meets(make_log: MakeLog) -> None:
    """It is told of once: the log that is left has no state to write in its place."""
    ctx = make_log(segment_bytes=300)
    for number in range(6):
        ctx.append_well(producer=1, epoch=0, sequence=number, value=b"x" * 100)
    ctx.log.close()
    torn = ctx.folder / f"{0:020}.snapshot"
    torn.write_bytes(b"\x00")  # Written by a start that rebuilt the first files, and never synced.
    ctx.open(clean=True)
    ctx.log.truncate_to(0, ctx.now_ms)
    assert not torn.exists()
    assert ctx.restart().recovery.reasons == []


def test_a_log_that_was_cut_to_nothing_is_closed_without_a_snapshot(make_log: MakeLog) -> None:
    """Once torn it would be met by a start far later: no sync ever includes it."""
    ctx = make_log()
    ctx.append_well(producer=1, epoch=0, sequence=0)
    ctx.log.truncate_to(0, ctx.now_ms)
    assert ctx.restart().recovery.reasons == []
    assert files(ctx.folder, ".snapshot") == []
    assert ctx.log.producers.entries() == []


def test_the_epoch_checkpoint_is_rebuilt_from_the_batches(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=300)
    for epoch in (0, 0, 2, 5):
        ctx.leader_epoch = epoch
        ctx.append_well(batch(2))
    ctx.log.flush()
    entries = ctx.log._local.state.epochs.entries()
    checkpoint = ctx.folder / "leader-epoch-checkpoint"
    assert checkpoint.read_text() == "0\n3\n0 0\n2 4\n5 6\n"
    for content in (None, "0\n9\n0 0\n"):
        checkpoint.unlink()
        if content is not None:
            checkpoint.write_text(content)
        assert ctx.kill()._local.state.epochs.entries() == entries


def test_an_epoch_makes_no_file_before_a_flush_and_is_read_from_the_batches(
    make_log: MakeLog,
) -> None:
    """Nobody waits for a file to be made, and a start after a kill knows the epoch all the same."""
    ctx = make_log()
    checkpoint = ctx.folder / "leader-epoch-checkpoint"
    ctx.leader_epoch = 3
    ctx.append_well(batch(2))
    assert not checkpoint.exists()
    ctx.log.flush()
    assert checkpoint.read_text() == "0\n1\n3 0\n"
    ctx.leader_epoch = 4
    ctx.append_well(batch(2))
    assert checkpoint.read_text() == "0\n1\n3 0\n"
    assert ctx.kill()._local.state.epochs.entries() == [(3, 0), (4, 2)]
    assert checkpoint.read_text() == "0\n2\n3 0\n4 2\n"


def test_a_sealed_segment_has_its_epochs_noted(make_log: MakeLog) -> None:
    """A start would not trust the producer snapshot at its end without them."""
    ctx = make_log()
    ctx.leader_epoch = 3
    ctx.append_well(batch(2))
    ctx.log.roll(2)
    assert (ctx.folder / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"


def test_epochs_of_segments_that_a_loss_of_power_brought_back_are_found_again(
    make_log: MakeLog,
) -> None:
    """Retention had forgotten them; its removal of the segments was lost, the checkpoint was not.

    They end below the recovery point, so nothing else would look at them.
    """
    ctx = make_log(segment_bytes=300)
    for epoch in (0, 0, 2, 5, 5):
        ctx.leader_epoch = epoch
        ctx.append_well(batch(2))
    ctx.log.flush()
    checkpoint = ctx.folder / "leader-epoch-checkpoint"
    checkpoint.write_text("0\n1\n5 8\n")
    for _ in range(2):
        opened = ctx.open(recovery_point=9)
        assert [opened.epoch_at(offset) for offset in range(0, 10, 2)] == [0, 0, 2, 5, 5]
        assert checkpoint.read_text() == "0\n3\n0 0\n2 4\n5 6\n"


def test_leftovers_of_deletions_and_renames_are_removed(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=300)
    data = fill(ctx)
    prefix = ctx.folder / ("0" * 20)
    logs = files(ctx.folder, ".log")
    # Killed after the first rename of the oldest segment's deletion: its indexes are orphans now.
    logs[0].rename(f"{prefix}.log.deleted")
    Path(f"{prefix}.index.123.tmp").write_bytes(b"torn")
    ctx.kill()
    assert ctx.log.log_start_offset == int(logs[1].stem)
    assert ctx.all_bytes() == data[-len(ctx.all_bytes()) :]
    left = {path.name for path in ctx.folder.iterdir()}
    assert not [name for name in left if name.endswith((".deleted", ".tmp"))]
    assert f"{prefix.name}.index" not in left
    assert f"{prefix.name}.timeindex" not in left


def test_an_index_is_kept_though_its_lost_log_left_a_snapshot(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=300)
    fill(ctx)
    ctx.log.close()
    lost = files(ctx.folder, ".log")[1]
    index = lost.with_suffix(".index")
    assert lost.with_suffix(".batches").exists()
    before = index.read_bytes()
    lost.unlink()
    ctx.open(clean=True)
    assert index.with_name(f"{index.name}.orphan").read_bytes() == before


class CountingDisk(SystemDisk):
    """Notes which files are read whole."""

    def __init__(self) -> None:
        super().__init__()
        self.read_names: list[str] = []

    def read(self, path: str) -> bytes | None:
        self.read_names.append(Path(path).name)
        return super().read(path)


def test_a_start_reads_the_index_files_below_its_snapshot_once(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=300)
    fill(ctx)
    ctx.log.close()
    ctx.disk = disk = CountingDisk()
    ctx.open(clean=True)
    for suffix in (".index", ".timeindex"):
        names = [path.name for path in files(ctx.folder, suffix)]
        assert len(names) > 2
        assert sorted(name for name in disk.read_names if name.endswith(suffix)) == names


def test_nothing_is_scanned_after_a_clean_stop(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=300)
    data = fill(ctx)
    report = ctx.restart().recovery
    assert (report.scanned_bytes, report.replayed_batches_count) == (0, 0)
    assert ctx.all_bytes() == data


def test_segments_below_the_recovery_point_are_not_scanned(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=300)
    data = fill(ctx)
    ctx.log.flush()
    assert ctx.log.recovery_point == ctx.log.log_end_offset
    active = files(ctx.folder, ".log")[-1].stat().st_size
    report = ctx.open(recovery_point=ctx.log.recovery_point).recovery
    assert report.scanned_bytes == active
    assert ctx.all_bytes() == data


def test_a_gap_between_segments_ends_the_log(make_log: MakeLog) -> None:
    """A loss of power can take whole batches from a sealed segment and leave the next one."""
    ctx = make_log(segment_bytes=200)
    for number in range(6):
        ctx.append_well(value=b"%d" % number * 50)
    logs = files(ctx.folder, ".log")
    assert len(logs) == 6
    os.truncate(logs[2], 0)
    assert ctx.kill().log_end_offset == 2
    assert files(ctx.folder, ".log") == logs[:3]
    assert ctx.append_well().base_offset == 2
