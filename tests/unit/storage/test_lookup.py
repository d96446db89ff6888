from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import iter_records
from tests.support.examples import examples
from tests.unit.storage.context import NOW_MS, LogContext, batch


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 4)), min_size=1, max_size=25),
    st.integers(0, 70),
    st.booleans(),
)
def test_records_are_found_by_time_as_a_walk_over_all_finds_them(
    batches: list[tuple[int, int]], target: int, reopened: bool
) -> None:
    with TemporaryDirectory() as folder:
        ctx = LogContext(Path(folder) / "t-0", segment_bytes=400, index_interval_bytes=100)
        for ahead, count in batches:
            ctx.append_well(batch(count, timestamp_ms=NOW_MS + ahead))
        if reopened:
            ctx.restart()
        data = ctx.all_bytes()
        records = [
            record
            for position, header in iter_headers(data)
            for record in iter_records(data, position, header)
        ]
        wanted = NOW_MS + target
        expected = next((r.offset for r in records if r.timestamp >= wanted), None)
        found = ctx.log.offset_for_timestamp(wanted)
        assert (found.offset if found else None) == expected
        newest = ctx.log.max_timestamp_offset()
        assert newest is not None
        largest = max(record.timestamp for record in records)
        assert newest.timestamp_ms == largest
        assert newest.offset in {r.offset for r in records if r.timestamp == largest}


def test_an_empty_log_has_no_times(ctx: LogContext) -> None:
    assert ctx.log.offset_for_timestamp(0) is None
    assert ctx.log.max_timestamp_offset() is None


def test_deleted_records_are_not_found(ctx: LogContext) -> None:
    ctx.append_well(batch(5))
    ctx.log.delete_records(3)
    found = ctx.log.offset_for_timestamp(0)
    assert found is not None
    assert (found.offset, found.timestamp_ms, found.leader_epoch) == (3, NOW_MS + 3, 0)
