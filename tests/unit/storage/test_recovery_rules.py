"""What recovery rebuilds, keeps, cuts and says, and that a second restart knows it too."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.batch import HEADER_SIZE, iter_headers
from oncelog.storage import AbortedTxn, CorruptBatch, PartitionLog
from oncelog.storage.aborted import ABORTED_ENTRY_SIZE_BYTES
from oncelog.storage.checkpoints import format_epochs, parse_epochs
from tests.support.logged import said_by
from tests.unit.storage.context import NOW_MS, PARTITION, LogContext, batch

MakeLog = Callable[..., LogContext]

TAMPERED: list[Callable[[bytes], bytes | None]] = [
    lambda _: None,
    lambda _: b"",
    lambda data: data[:-1],
    lambda data: data[: len(data) // 2],
    lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    lambda data: data[:3] + bytes([data[3] ^ 0x10]) + data[4:],
    lambda data: bytes(len(data)),
    lambda data: data + data,
    lambda _: b"garbage",
]
SIDE_SUFFIXES = [".index", ".timeindex", ".txnindex", ".snapshot", ".batches"]


def files(ctx: LogContext, suffix: str) -> list[Path]:
    return sorted(ctx.folder.glob(f"*{suffix}"))


def fill(ctx: LogContext, rounds: int = 4) -> bytes:
    """Each round a segment: a transaction that is aborted, one that commits, plain records."""
    for number in range(rounds):
        sequence = number * 2
        ctx.append_well(producer=1, epoch=0, sequence=sequence, transactional=True)
        ctx.append_well(producer=2, epoch=0, sequence=number, transactional=True)
        ctx.append_well(producer=1, epoch=0, sequence=sequence + 1, transactional=True)
        ctx.end(1, 0, commit=False)
        ctx.end(2, 0, commit=True)
        if number < rounds - 1:
            ctx.log.roll(ctx.log.log_end_offset)
    return ctx.all_bytes()


def aborted(ctx: LogContext) -> list[AbortedTxn]:
    return ctx.log.aborted_transactions(0, ctx.log.log_end_offset)


def tamper(path: Path, change: Callable[[bytes], bytes | None]) -> bool:
    """Change a file; whether that made it another."""
    before = path.read_bytes()
    after = change(before)
    path.unlink()
    if after is not None:
        path.write_bytes(after)
    return after != before


@pytest.mark.parametrize("suffix", SIDE_SUFFIXES)
@pytest.mark.parametrize("slot", [0, -1])
@pytest.mark.parametrize("number", range(len(TAMPERED)))
def test_a_side_file_that_was_tampered_with_is_rebuilt_from_its_own_segment(
    make_log: MakeLog, suffix: str, slot: int, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-3: after a clean stop, and the starts after it agree."""
    ctx = make_log(index_interval_bytes=1)
    data = fill(ctx)
    expected = aborted(ctx)
    assert len(expected) == 4
    ctx.log.close()
    chosen = files(ctx, suffix)[slot]
    changed = tamper(chosen, TAMPERED[number])
    own = chosen.with_suffix(".log")
    size = own.stat().st_size if own.exists() else 0
    report = ctx.open(clean=True).recovery
    is_index = suffix in (".index", ".timeindex", ".txnindex")
    assert report.scanned_bytes == (size if is_index and changed else 0)
    assert not report.unclean
    assert (report.cut_bytes, report.damaged_bytes) == (0, 0)
    if is_index and changed:
        assert any(chosen.stem in record.getMessage() for record in caplog.records)
    for again in (ctx.restart, ctx.kill, ctx.restart):
        assert ctx.all_bytes() == data
        assert aborted(ctx) == expected
        known = ctx.append(producer=2, epoch=0, sequence=3, transactional=True)
        assert known.error is ErrorCode.unknown_producer_id
        assert "was taken in a transaction that has ended" in (known.message or "")
        again()
    assert ctx.log.recovery.reasons == []


def test_a_side_file_is_what_it_was_once_it_is_rebuilt(make_log: MakeLog) -> None:
    ctx = make_log(index_interval_bytes=1)
    fill(ctx)
    ctx.log.close()
    before = {path.name: path.read_bytes() for path in ctx.folder.glob("*index")}
    for suffix in SIDE_SUFFIXES[:3]:
        for path in files(ctx, suffix)[:-1]:
            path.unlink()
    ctx.open(clean=True)
    assert {path.name: path.read_bytes() for path in ctx.folder.glob("*index")} == before


def test_without_the_register_a_start_believes_what_kafka_believes(make_log: MakeLog) -> None:
    ctx = make_log(index_interval_bytes=1)
    data = fill(ctx)
    expected = aborted(ctx)
    ctx.log.close()
    (ctx.folder / "oncelog.segments").unlink()
    active = files(ctx, ".log")[-1].stat().st_size
    assert ctx.open(clean=True).recovery.scanned_bytes == active
    assert (ctx.all_bytes(), aborted(ctx)) == (data, expected)
    # A damaged one is still seen.
    ctx.log.close()
    (ctx.folder / "oncelog.segments").unlink()
    tamper(files(ctx, ".txnindex")[1], lambda data: data[: ABORTED_ENTRY_SIZE_BYTES - 1])
    ctx.open(clean=True)
    assert (ctx.all_bytes(), aborted(ctx)) == (data, expected)


@pytest.mark.parametrize("slot", [0, 1, 2])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("change", ["crc", "header", "empty", "cut", "missing"])
def test_damage_below_the_recovery_point_is_an_error_for_its_offsets_only(
    make_log: MakeLog, slot: int, clean: bool, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = make_log(index_interval_bytes=1, retention_ms=-1)
    whole: dict[int, bytes] = {}
    for number in range(12):
        ctx.append_well(value=b"%d" % number * 40)
        whole[number] = bytes(ctx.log.read(number, 1, upper_bound=number + 1))
        if number % 3 == 2 and number < 11:
            ctx.log.roll(number + 1)
    ctx.log.close()
    log = files(ctx, ".log")[slot]
    base = int(log.stem)
    size = log.stat().st_size // 3
    lost = damage(log, change, base, size)
    # One index is gone as well, so that the segment is looked at after a clean stop too.
    if log.exists():
        log.with_suffix(".index").unlink()
    if change == "missing" and slot == 0:
        assert ctx.open(clean=clean, recovery_point=12).log_start_offset == 3
        return
    for _ in range(3):
        caplog.clear()
        ctx.open(clean=clean, recovery_point=12)
        assert ctx.log.log_end_offset == 12
        assert ctx.log.recovery.cut_bytes == 0
        check(ctx, whole, lost)
        text = [record.getMessage() for record in said_by(caplog)]
        assert any("flights-0" in t and f"{min(lost)} to {max(lost)}" in t for t in text)
        ctx.log.close()
        clean = not clean


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_leader_epoch_is_served_and_the_next_start_goes_above_it(
    make_log: MakeLog, clean: bool
) -> None:
    """No CRC covers it. Its records are sound, and epochs of later appends do not go back."""
    ctx = make_log(index_interval_bytes=1)
    for _ in range(3):
        ctx.append_well()
    size = len(ctx.all_bytes()) // 3
    ctx.log.close()
    log = files(ctx, ".log")[0]
    data = bytearray(log.read_bytes())
    data[size + 15] ^= 0x80
    log.write_bytes(data)
    for _ in range(2):
        ctx.open(clean=clean)
        assert ctx.all_bytes() == data
        assert ctx.log.recovery.cut_bytes == 0
        # A start that scans knows the epoch, and the broker begins one above it (`raise_epochs`).
        assert ctx.log.latest_epoch == (0 if clean else 128)
        ctx.log.close()


def damage(log: Path, change: str, base: int, size: int) -> set[int]:
    """Returns the offsets that it costs."""
    data = bytearray(log.read_bytes())
    if change == "missing":
        log.unlink()
        return {base, base + 1, base + 2}
    if change == "crc":
        data[size + HEADER_SIZE] ^= 1
    elif change == "header":
        data[size + 8 : size + 20] = bytes(12)
    elif change == "cut":
        del data[2 * size - 5 :]
    else:
        data.clear()
    log.write_bytes(data)
    return {
        "crc": {base + 1},
        "header": {base + 1},
        "cut": {base + 1, base + 2},
        "empty": {base, base + 1, base + 2},
    }[change]


def check(ctx: LogContext, whole: dict[int, bytes], lost: set[int]) -> None:
    for number, data in whole.items():
        if number in lost:
            with pytest.raises(CorruptBatch):
                ctx.log.read(number, 1, upper_bound=number + 1)
        else:
            assert ctx.log.read(number, 1, upper_bound=number + 1) == data


def test_what_is_damaged_above_the_recovery_point_ends_the_log_and_is_kept_aside(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = make_log(segment_bytes=250)
    for number in range(8):
        ctx.append_well(value=b"%d" % number * 40)
    logs = files(ctx, ".log")
    kept = logs[3].read_bytes()
    data = bytearray(logs[2].read_bytes())
    data[-1] ^= 1
    logs[2].write_bytes(data)
    bases = [int(path.stem) for path in logs]
    report = ctx.open(recovery_point=bases[2]).recovery
    assert ctx.log.log_end_offset == bases[3] - 1
    assert report.unclean
    assert not report.lost_tail
    assert report.set_aside_segments_count == len(logs) - 3
    assert logs[3].with_name(logs[3].name + ".cut").read_bytes() == kept
    assert f"from offset {bases[3] - 1} on" in caplog.text
    for path in logs[3:]:
        assert not path.exists()
        assert path.name in caplog.text
    caplog.clear()
    assert ctx.kill().recovery.reasons == []
    assert said_by(caplog) == []


def test_epochs_are_those_of_the_history_that_is_there(make_log: MakeLog) -> None:
    """A loss of power may keep the file of epochs and bring back what was cut off in the log."""
    ctx = make_log()
    for epoch in (1, 1, 2, 2):
        ctx.leader_epoch = epoch
        ctx.append_well()
    path = ctx.folder / "leader-epoch-checkpoint"
    path.write_bytes(format_epochs([(1, 0), (3, 3)]))
    for opened in (ctx.kill(), ctx.restart()):
        assert [opened.epoch_at(offset) for offset in range(4)] == [1, 1, 2, 2]
        assert opened.latest_epoch == 2
    assert parse_epochs(path.read_bytes()) == [(1, 0), (2, 2)]


def test_an_overlapping_batch_ends_the_log(make_log: MakeLog) -> None:
    ctx = make_log()
    for _ in range(3):
        ctx.append_well()
    data = ctx.all_bytes()
    last = data[[position for position, _ in iter_headers(data)][-1] :]
    log = files(ctx, ".log")[0]
    log.write_bytes(data + last)
    assert ctx.kill().log_end_offset == 3
    assert ctx.all_bytes() == data


def test_an_offset_that_jumps_alone_is_damage(make_log: MakeLog) -> None:
    """Offsets stand outside of the CRC."""
    ctx = make_log()
    for _ in range(4):
        ctx.append_well()
    data = bytearray(ctx.all_bytes())
    size = len(data) // 4
    data[size + 6] ^= 1
    files(ctx, ".log")[0].write_bytes(data)
    ctx.open(recovery_point=4)
    assert bytes(ctx.log.read(2, 1, upper_bound=4)) == data[2 * size : 3 * size]
    with pytest.raises(CorruptBatch):
        ctx.log.read(1, 1, upper_bound=4)
    assert ctx.log.log_end_offset == 4


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("field", [("base offset", 6), ("last offset delta", 25)], ids=str)
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_header_that_nothing_confirms_does_not_move_the_end_of_the_log(
    make_log: MakeLog, clean: bool, field: tuple[str, int], policy: str
) -> None:
    """The last batch says where the log ends; below the recovery point that is known."""
    ctx = make_log(cleanup_policy=frozenset({policy}))
    for _ in range(3):
        ctx.append_well()
    data = bytearray(ctx.all_bytes())
    size = len(data) // 3
    data[2 * size + field[1]] ^= 1
    if clean:
        ctx.log.close()
    files(ctx, ".log")[0].write_bytes(data)
    ctx.open(clean=clean, recovery_point=3)
    for _ in range(2):
        assert ctx.log.log_end_offset == 3
        assert bytes(ctx.log.read(0, 1 << 20, upper_bound=3)) == data[: 2 * size]
        with pytest.raises(CorruptBatch):
            ctx.log.read(2, 1, upper_bound=3)
        ctx.open(recovery_point=3)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_below_its_recovery_point_is_recovered_and_reported(
    make_log: MakeLog, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = make_log()
    for _ in range(4):
        ctx.append_well()
    ctx.log.close()
    log = files(ctx, ".log")[0]
    os.truncate(log, log.stat().st_size - 10)
    report = ctx.open(clean=clean, recovery_point=4).recovery
    assert ctx.log.log_end_offset == 3
    assert report.lost_tail
    assert report.unclean
    assert "ends at offset 3, but 4 was synced" in caplog.text
    assert len(files(ctx, ".cut")) == 1
    assert ctx.append_well().base_offset == 3


def test_records_without_timestamps_come_back_after_a_clean_stop(make_log: MakeLog) -> None:
    ctx = make_log(index_interval_bytes=1)
    for number in range(30):
        ctx.append_well(batch(timestamp_ms=-1, value=b"%d" % number))
        if number == 20:
            ctx.log.roll(number + 1)
    data = ctx.all_bytes()
    report = ctx.restart().recovery
    assert (report.scanned_bytes, report.reasons) == (0, [])
    assert ctx.all_bytes() == data
    assert ctx.log.read(7, 1, upper_bound=30)


def test_records_without_timestamps_roll_by_wall_time(make_log: MakeLog) -> None:
    ctx = make_log(segment_ms=1000)
    for ahead_ms in (0, 1000, 1001, 1500, 2001):
        ctx.now_ms = NOW_MS + ahead_ms
        ctx.append_well(batch(timestamp_ms=-1))
    assert ctx.log.segment_base_offsets == [0, 2]


def test_records_without_timestamps_go_by_the_time_of_their_file(make_log: MakeLog) -> None:
    ctx = make_log(retention_ms=1000)
    for number in range(2):
        ctx.append_well(batch(timestamp_ms=-1))
        ctx.log.roll(number + 1)
    ctx.append_well(batch(timestamp_ms=-1))
    for path, ago_s in zip(files(ctx, ".log"), (100, 2, 0), strict=True):
        os.utime(path, (NOW_MS / 1000 - ago_s,) * 2)
    assert ctx.log.delete_old_segments(NOW_MS - 1500, 3) == 1
    assert ctx.log.segment_base_offsets == [1, 2]
    ctx.restart()
    assert ctx.log.delete_old_segments(NOW_MS, 3) == 1


def test_an_index_without_its_log_and_unknown_files_are_kept_and_said(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = make_log()
    ctx.append_well()
    ctx.log.close()
    orphan, note = ctx.folder / f"{77:020}.txnindex", ctx.folder / "notes.txt"
    orphan.write_bytes(b"entries")
    note.write_bytes(b"mine")
    ctx.open(clean=True)
    assert orphan.with_name(orphan.name + ".orphan").read_bytes() == b"entries"
    assert note.read_bytes() == b"mine"
    assert orphan.name in caplog.text
    assert "notes.txt" in caplog.text


def test_a_damaged_snapshot_gives_way_to_an_older_one(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = make_log(index_interval_bytes=1)
    fill(ctx)
    ctx.log.close()
    newest = files(ctx, ".snapshot")[-1]
    before = newest.read_bytes()
    tamper(newest, TAMPERED[4])
    ctx.open(clean=True)
    assert newest.name in caplog.text
    known = ctx.append(producer=2, epoch=0, sequence=3, transactional=True)
    assert known.error is ErrorCode.unknown_producer_id
    assert len(newest.read_bytes()) == len(before)
    assert ctx.restart().recovery.reasons == []


def test_a_long_scan_says_how_far_it_is(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.storage.recovery_report.RECOVERY_PROGRESS_SIZE_BYTES", 500)
    ctx = make_log(index_interval_bytes=1)
    for _ in range(8):
        ctx.append_well(value=b"x" * 200)
    with caplog.at_level(logging.INFO, "oncelog.storage"):
        ctx.kill()
    assert "flights-0: 25 % scanned of " in caplog.text


@pytest.mark.parametrize("lost", ["the abort marker", "the commit marker", "the first record"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_transaction_stays_aborted_though_damage_took_a_marker(
    make_log: MakeLog, lost: str, number: int
) -> None:
    """INV-3: the segment's `.txnindex` still says how it ended, and its CRC says that it is whole.

    Otherwise the producer's next commit would end the aborted transaction too, and its next abort
    the committed one.
    """
    ctx = make_log(index_interval_bytes=1)
    for round_number in range(2):
        for part, commit in enumerate((False, True, False)):
            sequence = round_number * 6 + part * 2
            ctx.append_well(producer=1, epoch=0, sequence=sequence, transactional=True)
            ctx.append_well(producer=1, epoch=0, sequence=sequence + 1, transactional=True)
            ctx.end(1, 0, commit=commit)
        if round_number == 0:
            ctx.log.roll(ctx.log.log_end_offset)
    expected = aborted(ctx)
    assert len(expected) == 4
    ctx.log.close()
    path = files(ctx, ".log")[number]
    data = path.read_bytes()
    places = [position for position, _ in iter_headers(data)]
    at = places[{"the abort marker": 2, "the commit marker": 5, "the first record": 0}[lost]]
    path.write_bytes(data[: at + 20] + data[at + 25 :])
    ctx.open(clean=True)
    end = ctx.log.log_end_offset
    starts: list[Callable[[], object]] = [ctx.restart, lambda: ctx.open(recovery_point=end)]
    for again in (*starts, ctx.restart):
        found = aborted(ctx)
        assert [(e.producer_id, e.last_offset) for e in found] == [
            (e.producer_id, e.last_offset) for e in expected
        ]
        assert lost == "the first record" or found == expected
        again()


def test_a_record_of_a_lost_segment_is_forgotten_for_good(make_log: MakeLog) -> None:
    """A segment that begins there later is another, though it may look the same."""
    ctx = make_log(segment_bytes=250)
    for _ in range(6):
        ctx.append_well(value=b"x" * 40)
    ctx.log.close()
    logs = files(ctx, ".log")
    for path in logs[1:]:
        path.unlink()
    register = ctx.folder / "oncelog.segments"
    before = register.stat().st_size
    ctx.open(recovery_point=2)
    assert ctx.log.log_end_offset == int(logs[1].stem)
    assert register.stat().st_size == before // len(logs)


def test_the_register_stays_small(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.storage.segment_register.REGISTER_DEAD_RECORDS_COUNT_MAX", 3)
    ctx = make_log()
    ctx.append_well()
    register = ctx.folder / "oncelog.segments"
    for number in range(9):
        ctx.append_well()
        ctx.restart()
        assert register.stat().st_size <= 5 * 43, number
    assert ctx.log.recovery.reasons == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_start_beyond_the_end_is_said_and_hides_nothing_after_a_clean_stop(
    make_log: MakeLog, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """D14: retention would delete what a damaged checkpoint hides.

    After a loss of power the end may be what is missing: then the records below the start were
    deleted.
    """
    ctx = make_log()
    fill(ctx)
    end = ctx.log.log_end_offset
    ctx.log.close()
    held = PartitionLog.open(
        ctx.disk, str(ctx.folder), PARTITION, ctx.config, NOW_MS, clean,
        recovery_point=end, log_start_offset=end + 40,
    )  # fmt: skip
    assert held.log_start_offset == (0 if clean else end)
    (said,) = [r.getMessage() for r in said_by(caplog) if r.levelname == "WARNING"]
    assert f"start at offset {end + 40}" in said
