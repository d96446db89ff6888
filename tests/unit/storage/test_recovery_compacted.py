"""Compaction leaves gaps in a log; what a loss of power took leaves gaps as well."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.protocol.batch import iter_headers
from oncelog.storage import CorruptBatch
from tests.unit.storage.cleaner.context import CompactedLog
from tests.unit.storage.context import LogContext, read_all
from tests.unit.storage.test_recovery_rules import files

MakeLog = Callable[..., LogContext]


def test_a_compacted_log_of_apache_kafka_has_gaps_that_cut_nothing(make_log: MakeLog) -> None:
    ctx = make_log(index_interval_bytes=1, cleanup_policy=frozenset({"compact"}))
    for number in range(9):
        ctx.append_well(value=b"%d" % number * 20)
        if number % 3 == 2:
            ctx.log.roll(number + 1)
    logs = files(ctx, ".log")
    size = logs[0].stat().st_size // 3
    first, second = logs[0].read_bytes(), logs[1].read_bytes()
    logs[0].write_bytes(first[:size] + first[2 * size :])
    logs[1].write_bytes(second[:size])
    for ours in (ctx.folder / "oncelog.segments", *files(ctx, ".batches")):
        ours.unlink()
    end = ctx.log.log_end_offset
    for open_again in (ctx.kill, ctx.restart, ctx.kill):
        assert open_again().log_end_offset == end
        found = [header.base_offset for _, header in iter_headers(read_all(ctx.log))]
        assert found == [0, 2, 3, 6, 7, 8]
        assert ctx.log.recovery.cut_bytes + ctx.log.recovery.damaged_bytes == 0


def test_a_compacted_log_ends_where_power_took_the_end_of_a_segment(make_log: MakeLog) -> None:
    """INV-1: else an older record of a key would be shown, and behind it what came later."""
    ctx = make_log(cleanup_policy=frozenset({"compact"}))
    for number in range(6):
        ctx.append_well(value=b"%d" % number * 20)
        if number % 3 == 2:
            ctx.log.roll(number + 1)
    log = files(ctx, ".log")[0]
    os.truncate(log, log.stat().st_size // 3 * 2)
    assert ctx.kill().log_end_offset == 2


@pytest.mark.parametrize("lost", ["register", "bytes of the register"])
def test_a_compacted_log_is_cut_where_power_took_a_segment_and_the_register(
    make_log: MakeLog, lost: str
) -> None:
    ctx = make_log(cleanup_policy=frozenset({"compact"}))
    for number in range(4):
        ctx.append_well(value=b"%d" % number)
        ctx.log.roll(number + 1)
    os.truncate(files(ctx, ".log")[1], 0)
    register = ctx.folder / "oncelog.segments"
    if lost == "register":
        register.unlink()
    else:
        os.truncate(register, 0)
    assert ctx.kill().log_end_offset == 1
    assert len(files(ctx, ".cut")) == 2


@pytest.mark.parametrize(
    ("kept", "has_checkpoint", "end"),
    [("first", True, 1), ("first", False, 1), ("none", True, 1), ("none", False, 0)],
)
def test_an_epoch_whose_first_batches_were_compacted_away_does_not_begin_later(
    make_log: MakeLog, kept: str, has_checkpoint: bool, end: int
) -> None:
    """KIP-320: a reader of a lost tail of epoch 0 would go on behind what took its offsets."""
    ctx = make_log(cleanup_policy=frozenset({"compact"}))
    ctx.append_well(value=b"0" * 20)
    ctx.leader_epoch = 1
    for number in range(1, 4):
        ctx.append_well(value=b"%d" % number * 20)
    ctx.log.roll(4)
    ctx.append_well()
    log = files(ctx, ".log")[0]
    data = log.read_bytes()
    size = len(data) // 4
    log.write_bytes((data[:size] if kept == "first" else b"") + data[3 * size :])
    for ours in (ctx.folder / "oncelog.segments", *files(ctx, ".batches")):
        ours.unlink()
    if not has_checkpoint:
        (ctx.folder / "leader-epoch-checkpoint").unlink()
    for _ in range(2):
        opened = ctx.kill()
        assert opened.log_end_offset == 5
        assert opened.end_offset_for_epoch(0).end_offset == end


def once_compacted(folder: Path) -> CompactedLog:
    """A log whose first segment ends with a batch behind a gap; its policy is `delete` now."""
    ctx = CompactedLog(folder)
    ctx.put(("k", "keep"))
    ctx.put(("b", "1"))
    ctx.put(("b", "2"))
    ctx.put(("b", "3"), ("z", "keep"))
    ctx.seal()
    ctx.put(("d", "1"))
    ctx.clean()
    ctx.config = replace(ctx.config, cleanup_policy=frozenset({"delete"}))
    return ctx


@pytest.mark.parametrize("flushed", ["nothing", "the cleaned segment"])
@pytest.mark.parametrize("register", ["kept", "lost"])
def test_a_log_that_is_no_longer_compacted_keeps_the_batch_behind_a_gap(
    tmp_path: Path, flushed: str, register: str
) -> None:
    """INV-9: the next segment bounds the offsets of a cleaned one, whatever the policy is now."""
    ctx = once_compacted(tmp_path)
    before, end = ctx.pairs(), ctx.log.log_end_offset
    point = 0 if flushed == "nothing" else ctx.log.cleaning.active_base_offset
    if register == "lost":
        (tmp_path / "oncelog.segments").unlink()
    for _ in range(2):
        ctx.open(recovery_point=point)
        assert (ctx.pairs(), ctx.log.log_end_offset) == (before, end)
        assert ctx.log.recovery.cut_bytes + ctx.log.recovery.damaged_bytes == 0
        if register == "kept":
            assert ctx.log.recovery.reasons == []


def test_a_lost_index_of_a_log_that_is_no_longer_compacted_is_rebuilt(tmp_path: Path) -> None:
    ctx = once_compacted(tmp_path)
    before = ctx.pairs()
    ctx.log.close()
    files(ctx, ".index")[0].unlink()
    for _ in range(2):
        ctx.open(clean=True, recovery_point=ctx.log.log_end_offset)
        assert ctx.pairs() == before
        assert ctx.log.recovery.damaged_bytes == 0
        ctx.log.close()


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("recovery_point", [0, 4])
def test_an_offset_that_the_next_segment_contradicts_is_damage(
    make_log: MakeLog, policy: str, recovery_point: int
) -> None:
    """No CRC covers the base offset: a wrong one in a whole segment exceeds the next one's."""
    ctx = make_log(cleanup_policy=frozenset({policy}))
    for _ in range(3):
        ctx.append_well()
    ctx.log.roll(3)
    ctx.append_well()
    log = files(ctx, ".log")[0]
    data = bytearray(log.read_bytes())
    data[len(data) // 3 * 2 + 7] ^= 1
    log.write_bytes(data)
    ctx.open(recovery_point=recovery_point)
    if recovery_point:
        assert ctx.log.log_end_offset == 4
        with pytest.raises(CorruptBatch):
            ctx.log.read(2, 1, upper_bound=4)
    else:
        assert ctx.log.log_end_offset == 2
