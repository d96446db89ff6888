"""The segments of a log that were read last stay open, and removed ones take no place of theirs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.core.limits import SEALED_SEGMENTS_OPEN_COUNT_MAX
from oncelog.runtime import SystemDisk
from oncelog.storage.recovery_files import find_segments
from oncelog.storage.recovery_report import RecoveryReport
from oncelog.storage.segment import Segment
from oncelog.storage.segment_list import SegmentList
from tests.unit.storage.context import LogContext

OPEN_MAX = SEALED_SEGMENTS_OPEN_COUNT_MAX
COUNT = OPEN_MAX + 5


@pytest.fixture
def segments(make_log: Callable[..., LogContext]) -> SegmentList:
    """Segments of one record each, none open."""
    ctx = make_log(segment_bytes=120)
    for _ in range(COUNT):
        ctx.append_well(value=b"x" * 40)
    ctx.log.close()
    found = find_segments(SystemDisk(), str(ctx.folder), RecoveryReport("flights-0"))
    assert [segment.base_offset for segment in found] == list(range(COUNT))
    return SegmentList(found)


def read(segments: SegmentList, *offsets: int) -> None:
    for offset in offsets:
        assert segments.read(offset, 1, COUNT, min_one=True)


def open_ones(segments: SegmentList) -> list[int]:
    """Base offsets of the open segments but the active one."""
    return [
        segment.base_offset
        for segment in segments
        if segment.is_open and segment is not segments.active
    ]


def test_the_segments_that_were_read_last_stay_open(segments: SegmentList) -> None:
    read(segments, *range(OPEN_MAX), 0, OPEN_MAX)
    assert open_ones(segments) == [0, *range(2, OPEN_MAX + 1)]


def test_segments_that_retention_removed_close_no_other_one(segments: SegmentList) -> None:
    read(segments, COUNT - 2, *range(OPEN_MAX - 1))
    segments.drop_oldest(OPEN_MAX - 1)
    read(segments, COUNT - 3)
    assert open_ones(segments) == [COUNT - 3, COUNT - 2]


def test_segments_that_a_truncation_removed_close_no_other_one(segments: SegmentList) -> None:
    read(segments, 0, *range(COUNT - OPEN_MAX, COUNT - 1))
    segments.drop_newest(COUNT - OPEN_MAX)
    read(segments, 1)
    assert open_ones(segments) == [0, 1]


def test_segments_that_a_cleaned_one_replaced_close_no_other_one(
    segments: SegmentList, tmp_path: Path
) -> None:
    read(segments, 0, *range(1, OPEN_MAX))
    replaced = [segment for segment in segments if 1 <= segment.base_offset < OPEN_MAX]
    segments.replace(replaced, Segment(SystemDisk(), str(tmp_path), 1))
    read(segments, OPEN_MAX)
    assert open_ones(segments) == [0, OPEN_MAX]
