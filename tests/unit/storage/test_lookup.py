from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.limits import INT64_MAX, LOOKED_INTO_BATCHES_COUNT_MAX
from oncelog.protocol.batch import HEADER, iter_headers, read_header, renew_crc, set_max_timestamp
from oncelog.protocol.record import Record, build_batch, iter_records
from tests.support.examples import examples
from tests.support.scratch import scratch_folder
from tests.unit.protocol.test_record import with_such_a_name
from tests.unit.storage.context import NOW_MS, LogContext, batch


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 4)), min_size=1, max_size=25),
    st.integers(0, 70),
    st.booleans(),
)
def test_records_are_found_by_time_as_a_walk_over_all_finds_them(
    batches: list[tuple[int, int]], target: int, reopened: bool
) -> None:
    with TemporaryDirectory(dir=scratch_folder()) as folder:
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
        newest = ctx.log.offset_for_timestamp(None)
        assert newest is not None
        largest = max(record.timestamp for record in records)
        assert newest.timestamp_ms == largest
        assert newest.offset in {r.offset for r in records if r.timestamp == largest}


def test_an_empty_log_has_no_times(ctx: LogContext) -> None:
    assert ctx.log.offset_for_timestamp(0) is None
    assert ctx.log.offset_for_timestamp(None) is None
    assert ctx.log.cached_offset_for_timestamp(None) is None, "no look at the disk is needed"


def test_deleted_records_are_not_found(ctx: LogContext) -> None:
    ctx.append_well(batch(5))
    ctx.log.delete_records(3)
    found = ctx.log.offset_for_timestamp(0)
    assert found is not None
    assert (found.offset, found.timestamp_ms, found.leader_epoch) == (3, NOW_MS + 3, 0)


def test_a_deleted_batch_does_not_lend_its_time_to_the_next_record(tmp_path: Path) -> None:
    ctx = LogContext(tmp_path / "t-0", message_timestamp_type="LogAppendTime")
    ctx.append_well(batch(2))
    ctx.now_ms += 5
    ctx.append_well(batch(2))
    ctx.log.delete_records(2)
    assert found_at(ctx, 0) == (NOW_MS + 5, 2)


def lying(*times: int, claimed: int) -> bytearray:
    """A batch whose header claims another largest timestamp than its records have."""
    data = build_batch([Record(n, time, b"k", b"v") for n, time in enumerate(times)])
    set_max_timestamp(data, claimed)
    return data


def found_at(ctx: LogContext, timestamp_ms: int) -> tuple[int, int] | None:
    found = ctx.log.offset_for_timestamp(timestamp_ms)
    return None if found is None else (found.timestamp_ms, found.offset)


def test_a_batch_whose_header_claims_too_late_a_time_is_passed_over(ctx: LogContext) -> None:
    ctx.append_well(lying(NOW_MS, NOW_MS + 1, claimed=NOW_MS + 100))
    ctx.append_well(batch(3, timestamp_ms=NOW_MS + 50))
    assert found_at(ctx, NOW_MS + 1) == (NOW_MS + 1, 1)
    assert found_at(ctx, NOW_MS + 2) == (NOW_MS + 50, 2)
    assert found_at(ctx, NOW_MS + 51) == (NOW_MS + 51, 3)
    assert found_at(ctx, NOW_MS + 60) is None
    newest = ctx.log.offset_for_timestamp(None)
    assert newest is not None
    assert newest.offset == 0


def test_a_lookup_opens_few_such_batches_and_then_misses_nothing(ctx: LogContext) -> None:
    for _ in range(LOOKED_INTO_BATCHES_COUNT_MAX + 1):
        ctx.append_well(lying(NOW_MS, claimed=NOW_MS + 100))
    ctx.append_well(batch(timestamp_ms=NOW_MS + 50))
    assert found_at(ctx, NOW_MS + 50) == (NOW_MS + 100, 0)


def test_a_lookup_never_answers_with_an_offset_outside_its_batch(ctx: LogContext) -> None:
    records = [Record(offset, NOW_MS, b"k", b"v") for offset in (5, 2**31 - 1)]
    data = build_batch(records, keep_offsets=True)
    header = read_header(data)._replace(last_offset_delta=1, length=len(data) - 12)
    HEADER.pack_into(data, 0, *header)
    renew_crc(data, 0, len(data))
    ctx.append_well(data)
    assert found_at(ctx, NOW_MS) == (NOW_MS, 0)


def test_a_record_beyond_all_times_does_not_make_an_answer_fail(tmp_path: Path) -> None:
    ctx = LogContext(tmp_path / "t-0", message_timestamp_after_max_ms=INT64_MAX)
    data = build_batch([Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS + 5, b"k", b"v")])
    header = read_header(data)._replace(
        base_timestamp=INT64_MAX - 1, max_timestamp=INT64_MAX, length=len(data) - 12
    )
    HEADER.pack_into(data, 0, *header)
    renew_crc(data, 0, len(data))
    ctx.append_well(data)
    assert found_at(ctx, INT64_MAX) == (INT64_MAX, 0)


def test_a_lookup_reads_records_whose_headers_have_other_names_than_text(tmp_path: Path) -> None:
    ctx = LogContext(tmp_path / "t-0")
    ctx.append_well(with_such_a_name())
    named = build_batch([Record(0, NOW_MS + i, b"k", b"v", (("name", b""),)) for i in range(3)])
    for _ in range(3):
        at = named.index(b"name")
        named[at : at + 4] = b"\xff\xfe\x80\xc3"
    renew_crc(named, 0, len(named))
    ctx.append_well(named)
    found = ctx.log.offset_for_timestamp(NOW_MS + 1)
    assert found is not None
    assert found.offset == 2, "not the first one of the batch"


@pytest.mark.parametrize("later_ms", [(), (5,)])
def test_the_newest_record_may_be_in_the_batch_that_holds_the_start(
    ctx: LogContext, later_ms: tuple[int, ...]
) -> None:
    for times in ((30, 8, 20), *((time,) for time in later_ms)):
        ctx.append_well(build_batch([Record(i, time, b"k", b"v") for i, time in enumerate(times)]))
    ctx.log.delete_records(1)
    found = ctx.log.offset_for_timestamp(None)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (2, 20)
