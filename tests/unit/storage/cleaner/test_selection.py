"""Which log is cleaned next, and how far."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.storage.cleaner import LogToClean, filthiest, log_to_clean
from tests.unit.storage.cleaner.context import CompactedLog


@pytest.fixture
def ctx(tmp_path: Path) -> CompactedLog:
    ctx = CompactedLog(tmp_path / "flights-0")
    for number in range(4):
        ctx.put(("a", "x" * 100))
        ctx.seal(f"s{number}")
        ctx.later(10)
    return ctx


def look(ctx: CompactedLog, clean_offset: int | None = None, stable: int = 100) -> LogToClean:
    return log_to_clean(ctx.disk, ctx.log, clean_offset, stable, ctx.now_ms)


def test_a_log_never_cleaned_is_dirty_from_its_start_to_its_active_segment(
    ctx: CompactedLog,
) -> None:
    found = look(ctx)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 7)
    assert found.ratio == 1.0
    assert found.is_due


def test_only_whole_segments_below_the_last_stable_offset_may_be_cleaned(
    ctx: CompactedLog,
) -> None:
    assert [look(ctx, stable=stable).first_uncleanable_offset for stable in (0, 4, 5, 6)] == [
        0,
        3,
        5,
        5,
    ]


def test_a_log_is_due_when_more_than_its_ratio_is_dirty(ctx: CompactedLog) -> None:
    assert [look(ctx, clean).is_due for clean in (0, 3, 5, 7)] == [True, True, False, False]
    ctx.log.config = replace(ctx.log.config, min_cleanable_dirty_ratio=0.1)
    assert [look(ctx, clean).is_due for clean in (0, 3, 5, 7)] == [True, True, True, False]


def test_an_old_record_is_a_reason_whatever_the_ratio(ctx: CompactedLog) -> None:
    ctx.log.config = replace(
        ctx.log.config, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=15
    )
    assert [look(ctx, clean).is_due for clean in (0, 3, 5, 7)] == [True, True, True, False]
    ctx.log.config = replace(ctx.log.config, max_compaction_lag_ms=30)
    assert [look(ctx, clean).is_due for clean in (0, 3, 5, 7)] == [True, False, False, False]


@pytest.mark.parametrize("clean_offset", [100, 1])
def test_a_checkpoint_that_cannot_be_true_means_the_log_s_start(
    ctx: CompactedLog, clean_offset: int
) -> None:
    ctx.log.delete_records(2)
    assert look(ctx, clean_offset).first_dirty_offset == 2


def test_the_dirtiest_log_goes_first(ctx: CompactedLog, tmp_path: Path) -> None:
    other = CompactedLog(tmp_path / "other")
    assert filthiest([]) is None
    assert filthiest([look(other)]) is None
    dirty = look(ctx)
    assert filthiest([look(other), look(ctx, 3), dirty]) is dirty
