from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.storage import OffsetOutOfRange
from tests.unit.storage.context import NOW_MS, LogContext, batch, read_all

MakeLog = Callable[..., LogContext]
HOUR_MS = 3_600_000


def hourly(make_log: MakeLog, **settings: object) -> LogContext:
    """Five segments of one batch each, an hour apart; the last is of now."""
    ctx = make_log(segment_bytes=150, **settings)
    for age in (4, 3, 2, 1, 0):
        ctx.append_well(value=b"x" * 60, timestamp_ms=NOW_MS - age * HOUR_MS)
    assert ctx.log.segment_base_offsets == [0, 1, 2, 3, 4]
    return ctx


def test_old_segments_go_by_age(make_log: MakeLog) -> None:
    ctx = hourly(make_log, retention_ms=2 * HOUR_MS + 1)
    assert ctx.log.delete_old_segments(NOW_MS, 5) == 2
    assert ctx.log.log_start_offset == 2
    assert ctx.log.delete_old_segments(NOW_MS, 5) == 0
    assert ctx.kill().log_start_offset == 2


def test_the_active_segment_rolls_when_even_it_is_too_old(make_log: MakeLog) -> None:
    ctx = hourly(make_log, retention_ms=HOUR_MS)
    assert ctx.log.delete_old_segments(NOW_MS + 2 * HOUR_MS, 5) == 5
    assert ctx.log.segment_base_offsets == [5]
    assert (ctx.log.log_start_offset, ctx.log.log_end_offset) == (5, 5)
    assert ctx.log.delete_old_segments(NOW_MS + 9 * HOUR_MS, 5) == 0
    assert ctx.kill().log_end_offset == 5
    assert ctx.append_well().base_offset == 5


def test_the_oldest_segments_go_by_size(make_log: MakeLog) -> None:
    ctx = hourly(make_log, retention_ms=-1)
    one = ctx.log.size_bytes // 5
    ctx.log.config = replace(ctx.config, retention_bytes=2 * one)
    assert ctx.log.delete_old_segments(NOW_MS, 5) == 3
    assert ctx.log.size_bytes == 2 * one


def test_the_active_segment_goes_too_when_no_bytes_are_to_be_kept(make_log: MakeLog) -> None:
    """As in Kafka (`UnifiedLog.deleteRetentionSizeBreachedSegments`): it rolls first."""
    ctx = hourly(make_log, retention_ms=-1, retention_bytes=0)
    assert ctx.log.delete_old_segments(NOW_MS, 4) == 4
    assert ctx.log.delete_old_segments(NOW_MS, 5) == 1
    assert (ctx.log.log_start_offset, ctx.log.log_end_offset) == (5, 5)
    assert ctx.log.delete_old_segments(NOW_MS, 5) == 0
    assert ctx.append_well().base_offset == 5


def test_nothing_above_the_high_watermark_goes(make_log: MakeLog) -> None:
    ctx = hourly(make_log, retention_ms=1)
    assert ctx.log.delete_old_segments(NOW_MS, 2) == 2


def test_a_compacted_topic_keeps_its_segments(make_log: MakeLog) -> None:
    ctx = hourly(make_log, retention_ms=1, cleanup_policy=frozenset({"compact"}))
    assert ctx.log.delete_old_segments(NOW_MS, 5) == 0


def test_an_empty_policy_keeps_records_for_ever_unless_they_are_deleted_by_hand(
    make_log: MakeLog,
) -> None:
    ctx = hourly(make_log, retention_ms=1, retention_bytes=1, cleanup_policy=frozenset())
    assert ctx.log.delete_old_segments(NOW_MS, 5) == 0
    ctx.log.delete_records(3)
    assert ctx.log.delete_old_segments(NOW_MS, 5) == 3


def test_deleted_records_cannot_be_read_and_their_segments_go(make_log: MakeLog) -> None:
    ctx = hourly(make_log, retention_ms=-1)
    assert ctx.log.delete_records(3) == 3
    assert ctx.log.delete_records(1) == 3
    assert ctx.log.segment_base_offsets == [0, 1, 2, 3, 4]
    assert ctx.log.delete_old_segments(NOW_MS, 5) == 3
    assert len(read_all(ctx.log)) == ctx.log.size_bytes
    with pytest.raises(OffsetOutOfRange):
        ctx.log.delete_records(6)


def test_state_at_the_start_goes_with_its_segments(make_log: MakeLog) -> None:
    ctx = make_log(segment_bytes=250, retention_ms=-1, retention_bytes=0)
    ctx.append_well(producer=1, epoch=0, sequence=0, transactional=True)
    ctx.end(1, 0, commit=False)
    ctx.leader_epoch = 1
    for sequence in range(1, 5):
        ctx.append_well(producer=1, epoch=0, sequence=sequence, value=b"y" * 100)
    ctx.append_well(batch())
    ctx.log.delete_old_segments(NOW_MS, ctx.log.log_end_offset)
    assert ctx.log.aborted_transactions(0, 100) == []
    assert ctx.log.end_offset_for_epoch(0).end_offset <= ctx.log.log_start_offset
    # Producers outlive their batches: what a snapshot holds still recognises a repetition.
    for again in (lambda: None, ctx.kill, ctx.restart):
        again()
        assert ctx.append(producer=1, epoch=0, sequence=2, value=b"y" * 100).duplicate
    names = {path.name for path in ctx.folder.iterdir()}
    base = f"{ctx.log.segment_base_offsets[0]:020d}"
    assert not [name for name in names if name[:20].isdigit() and name[:20] < base]
