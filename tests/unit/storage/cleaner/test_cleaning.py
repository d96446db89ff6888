"""What one cleaning leaves of a log (KIP-58, KIP-534, INV-2, INV-3)."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.limits import INT32_MAX
from oncelog.protocol.batch import DELETE_HORIZON_MASK, read_header
from oncelog.protocol.record import Record, build_batch
from oncelog.storage import CorruptBatch
from oncelog.storage.cleaner import (
    CleanerSettings,
    Cleaning,
    Uncleanable,
    clean_log,
    log_to_clean,
)
from oncelog.storage.cleaner.cleaning import grouped
from oncelog.storage.config import LogConfig
from oncelog.storage.log_cleaning import LogChanged
from oncelog.storage.segment import Segment
from tests.support.logged import said_by
from tests.unit.storage.cleaner.context import NOW_MS, RETENTION_MS, CompactedLog


@pytest.fixture
def ctx(tmp_path: Path) -> CompactedLog:
    return CompactedLog(tmp_path / "flights-0")


def test_the_newest_record_of_each_key_stays_at_its_offset(ctx: CompactedLog) -> None:
    ctx.put(("a", "1"), ("b", "1"), ("a", "2"))
    ctx.put(("c", "1"))
    ctx.put(("b", "2"))
    ctx.seal()
    assert ctx.clean() == 5
    assert ctx.committed() == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "seal", "s")]
    first = ctx.headers()[0]
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)


def test_a_batch_of_which_nothing_stays_is_not_compared_again(ctx: CompactedLog) -> None:
    for number in range(9):
        ctx.put(("a", str(number)), ("b", str(number)), codec="zstd")
    ctx.seal()
    ctx.clean()
    assert ctx.committed() == [(16, "a", "8"), (17, "b", "8"), (18, "seal", "s")]
    # 18 records were noted, and those of the last batch looked up.
    assert ctx.stats.records_compared == 18 + 2


def test_what_was_cleaned_before_is_compared_with_what_came_since(ctx: CompactedLog) -> None:
    ctx.put(("a", "1"), ("b", "1"))
    ctx.seal()
    ctx.clean()
    ctx.put(("a", "2"))
    ctx.seal()
    ctx.clean()
    assert ctx.committed() == [(1, "b", "1"), (2, "seal", "s"), (3, "a", "2"), (4, "seal", "s")]
    # What is clean already gave its keys before.
    assert ctx.stats.bytes_mapped == sum(header.length for header in ctx.headers()[1:3])


def test_a_transaction_is_not_taken_for_the_aborted_one_that_was_cleaned_before(
    ctx: CompactedLog,
) -> None:
    ctx.put_in_transaction(("a", "0"), producer=7)
    ctx.abort(7)
    ctx.seal()
    ctx.clean()
    ctx.put_in_transaction(("a", "1"), producer=7)
    ctx.commit(7)
    ctx.put(("b", "1"))
    ctx.seal()
    ctx.clean()
    assert [pair for pair in ctx.pairs() if pair[0] != "seal"] == [("a", "1"), ("b", "1")]


def test_a_batch_that_the_map_had_room_for_in_part_is_cleaned_in_the_next_round(
    ctx: CompactedLog,
) -> None:
    ctx.put(("a", "1"), ("b", "1"), ("c", "1"))
    ctx.put(("a", "2"), ("b", "2"), ("d", "1"))
    ctx.seal()
    while ctx.clean_offset < 6:
        assert ctx.clean(dedupe_buffer_bytes=24 * 7, load_factor=0.5) > 0
    assert ctx.pairs() == [("c", "1"), ("a", "2"), ("b", "2"), ("d", "1")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_thinned_batch_keeps_its_codec_timestamps_and_headers(
    ctx: CompactedLog, codec: str
) -> None:
    records = [
        Record(0, NOW_MS + 9, b"a", b"1"),
        Record(0, NOW_MS, b"b", b"2" * 300, [("h", b"x"), ("n", None)]),
        Record(0, NOW_MS + 5, b"", b""),
    ]
    ctx.append_well(build_batch(records, codec=codec))
    ctx.put(("a", "2"))
    ctx.seal()
    ctx.clean()
    header = ctx.headers()[0]
    assert header.codec == codec
    assert (header.record_count, header.max_timestamp) == (2, NOW_MS + 5)
    assert ctx.records()[:2] == [
        Record(1, NOW_MS, b"b", b"2" * 300, (("h", b"x"), ("n", None))),
        Record(2, NOW_MS + 5, b"", b""),
    ]


def test_a_batch_that_lost_nothing_stays_the_same_bytes(ctx: CompactedLog) -> None:
    ctx.put(("a", "1"), ("b", "1"), codec="lz4")
    ctx.put(("c", "1"), producer=7)
    ctx.seal()
    before = ctx.all_bytes()
    ctx.clean()
    assert ctx.all_bytes() == before


def test_small_segments_are_joined_and_all_lookups_work(ctx: CompactedLog) -> None:
    for round_number in range(6):
        ctx.later(10)
        ctx.put(("a", str(round_number)), (f"k{round_number}", "x"))
        ctx.seal()
    ends = ctx.log.log_end_offset
    ctx.clean()
    assert ctx.log.segment_base_offsets == [0, ends - 1]
    check_lookups(ctx)
    ctx.restart()
    assert ctx.log.segment_base_offsets == [0, ends - 1]
    check_lookups(ctx)


def check_lookups(ctx: CompactedLog) -> None:
    log = ctx.log
    for offset, _, _ in ctx.committed():
        data = log.read(offset, 1, upper_bound=log.log_end_offset)
        assert offset in range(*offsets_of(bytes(data)))
    found = log.offset_for_timestamp(NOW_MS + 25)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (NOW_MS + 30, 7)
    newest = log.offset_for_timestamp(None)
    assert newest is not None
    assert newest.timestamp_ms == NOW_MS + 60


def offsets_of(data: bytes) -> tuple[int, int]:
    header = read_header(data)
    return header.base_offset, header.next_offset


def test_a_lookup_by_time_passes_an_emptied_batch(ctx: CompactedLog) -> None:
    ctx.put(("a", "1"), producer=7)
    ctx.later(100)
    ctx.put(("a", "2"))
    ctx.seal()
    ctx.clean()
    assert [header.record_count for header in ctx.headers()] == [0, 1, 1]
    found = ctx.log.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, NOW_MS + 100)


def test_the_newest_timestamp_is_one_of_a_record(ctx: CompactedLog) -> None:
    ctx.later(50)
    ctx.put(("a", "1"), producer=7)
    ctx.now_ms = NOW_MS
    ctx.put(("a", "2"))
    ctx.seal()
    ctx.clean()
    found = ctx.log.offset_for_timestamp(None)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, NOW_MS)


def test_of_equal_newest_timestamps_the_first_of_the_log_is_found(tmp_path: Path) -> None:
    ctx = CompactedLog(tmp_path / "flights-0", segment_bytes=150)
    ctx.put(("a", "1"), producer=8)
    ctx.put(("b", "1"), producer=8)
    ctx.later(50)
    ctx.put(("c", "1"), producer=7)
    ctx.now_ms = NOW_MS
    ctx.put(("c", "2"), producer=8)
    ctx.seal()
    ctx.clean()
    # The batch that was emptied keeps its time, and its segment is looked into first.
    assert [segment.max_timestamp_ms - NOW_MS for segment in list(ctx.log._local.segments)[:2]] == [
        0,
        50,
    ]
    found = ctx.log.offset_for_timestamp(None)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (0, NOW_MS)


# ---- tombstones ----


def test_a_tombstone_stays_until_its_horizon_has_passed(ctx: CompactedLog) -> None:
    ctx.put(("a", "1"), ("b", "1"))
    ctx.put(("a", None), ("c", "1"))
    ctx.seal()
    ctx.clean()
    assert ctx.pairs() == [("b", "1"), ("a", None), ("c", "1")]
    header = ctx.headers()[1]
    assert header.attributes & DELETE_HORIZON_MASK
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert [record.timestamp for record in ctx.records()] == [NOW_MS] * 4
    ctx.later(RETENTION_MS - 1)
    ctx.seal()
    ctx.clean()
    assert ("a", None) in ctx.pairs()
    ctx.later(1)
    ctx.seal()
    ctx.clean()
    assert ctx.pairs() == [("b", "1"), ("c", "1")]


def test_a_value_after_a_tombstone_stays(ctx: CompactedLog) -> None:
    ctx.put(("a", None))
    ctx.put(("a", "2"))
    ctx.seal()
    ctx.clean()
    assert ctx.pairs() == [("a", "2")]


def test_a_tombstone_that_the_map_had_no_room_for_gets_its_horizon_later(
    ctx: CompactedLog,
) -> None:
    ctx.put(("a", "1"))
    ctx.put(("b", None))
    ctx.seal()
    assert ctx.clean(dedupe_buffer_bytes=0, load_factor=0.2) == 1
    assert not ctx.headers()[1].attributes & DELETE_HORIZON_MASK


# ---- bounded memory ----


def test_a_full_map_cleans_in_several_rounds(ctx: CompactedLog) -> None:
    for number in range(20):
        ctx.put(("a", str(number)), (f"k{number}", "x"))
    ctx.seal()
    rounds = 0
    while ctx.clean_offset < 40:
        assert ctx.clean(dedupe_buffer_bytes=24 * 7, load_factor=0.5) > 0
        assert ctx.stats.keys_count <= 3
        rounds += 1
        assert rounds < 40
    assert [pair for pair in ctx.pairs() if pair[0] == "a"] == [("a", "19")]
    assert len(ctx.pairs()) == 21


def test_a_batch_with_more_keys_than_the_map_holds_is_named(ctx: CompactedLog) -> None:
    ctx.put(*[(f"k{number}", "x") for number in range(10)])
    ctx.seal()
    before = ctx.all_bytes()
    with pytest.raises(Uncleanable, match=r"dedupe\.buffer.size has room for 4 keys"):
        ctx.clean(dedupe_buffer_bytes=0)
    assert ctx.all_bytes() == before
    assert not leftovers(ctx)


def test_segments_that_the_map_had_no_room_for_are_not_rewritten(ctx: CompactedLog) -> None:
    ctx.put(("a", "1"), ("a", "2"))
    size = len(ctx.all_bytes())
    ctx.seal()
    ctx.put(("b", "1"))
    ctx.seal()
    assert ctx.clean(dedupe_buffer_bytes=0, load_factor=0.2) == 2
    assert ctx.stats.bytes_read == size


def test_deleted_records_of_a_batch_take_no_room_in_the_map(ctx: CompactedLog) -> None:
    ctx.put(*[(f"k{number}", "x") for number in range(10)])
    ctx.seal()
    ctx.log.delete_records(8)
    assert ctx.clean(dedupe_buffer_bytes=0) == 10
    assert ctx.stats.keys_count == 2


def leftovers(ctx: CompactedLog) -> list[str]:
    return [
        name
        for name in ctx.disk.list(str(ctx.folder))
        if name.endswith((".cleaned", ".swap", ".deleted"))
    ]


# ---- what may be cleaned ----


def test_nothing_from_the_active_segment_or_an_open_transaction_on_is_touched(
    ctx: CompactedLog,
) -> None:
    ctx.put(("a", "1"))
    ctx.seal()
    ctx.put_in_transaction(("b", "1"), producer=1)
    ctx.put(("a", "2"))
    ctx.seal()
    ctx.put(("a", "3"))
    before = ctx.all_bytes()
    assert ctx.clean() == 1
    assert ctx.all_bytes() == before
    ctx.commit(1)
    assert ctx.clean() == 4
    assert ("a", "1") not in ctx.pairs()
    assert ctx.pairs() == [("b", "1"), ("a", "2"), ("a", "3")]


def test_a_young_segment_is_left_alone(ctx: CompactedLog) -> None:
    ctx.log.config = replace(ctx.log.config, min_compaction_lag_ms=100)
    ctx.put(("a", "1"))
    ctx.seal()
    ctx.later(60)
    ctx.put(("a", "2"))
    ctx.seal()
    ctx.later(60)
    assert ctx.clean() == 1
    ctx.later(60)
    assert ctx.clean() == 3
    assert ctx.pairs() == [("a", "2")]


def test_records_without_a_key_are_dropped_and_counted(ctx: CompactedLog) -> None:
    ctx.log.config = replace(ctx.log.config, cleanup_policy=frozenset({"delete"}))
    ctx.append_well(build_batch([Record(0, NOW_MS, None, b"1"), Record(0, NOW_MS, b"a", b"1")]))
    ctx.log.config = replace(ctx.log.config, cleanup_policy=frozenset({"compact"}))
    ctx.seal()
    ctx.clean()
    assert ctx.pairs() == [("a", "1")]
    assert ctx.stats.records_without_key == 1


def test_deleted_records_do_not_make_the_cleaner_read_the_log_again(
    ctx: CompactedLog,
) -> None:
    for number in range(4):
        ctx.put(("a", str(number)))
        ctx.seal()
    ctx.log.delete_records(4)
    assert ctx.clean() == 7
    assert ctx.log.log_start_offset == 4
    assert ctx.pairs() == [("a", "3")]


# ---- damage, and others ----


def test_damage_ends_the_cleaning_and_nothing_is_removed(ctx: CompactedLog) -> None:
    for value in "123":
        ctx.put(("a", value))
        ctx.seal()
    path = next(iter(sorted(ctx.folder.glob("*.log"))))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before = {name: (ctx.folder / name).read_bytes() for name in ctx.disk.list(str(ctx.folder))}
    with pytest.raises(CorruptBatch) as damage:
        ctx.clean()
    assert damage.value.offset == 0
    assert {n: (ctx.folder / n).read_bytes() for n in ctx.disk.list(str(ctx.folder))} == before


def test_a_log_that_was_closed_meanwhile_is_left_alone(ctx: CompactedLog) -> None:
    ctx.put(("a", "1"))
    ctx.put(("a", "2"))
    ctx.seal()
    end = ctx.log.log_end_offset
    target = log_to_clean(ctx.disk, ctx.log, 0, end, ctx.now_ms)
    steps = Cleaning(ctx.disk, target, CleanerSettings(), end, ctx.now_ms).steps()
    next(steps)
    before = ctx.all_bytes()
    ctx.log.close()
    with pytest.raises(LogChanged):
        for _ in steps:
            pass
    ctx.open(clean=True)
    assert ctx.all_bytes() == before
    assert not leftovers(ctx)


def test_retention_and_compaction_do_not_meet(ctx: CompactedLog) -> None:
    for value in "123":
        ctx.put(("a", value))
        ctx.seal()
    end = ctx.log.log_end_offset
    target = log_to_clean(ctx.disk, ctx.log, 0, end, ctx.now_ms)
    steps = Cleaning(ctx.disk, target, CleanerSettings(), end, ctx.now_ms).steps()
    next(steps)
    ctx.log.delete_records(2)
    assert ctx.log.delete_old_segments(ctx.now_ms, end) == 1
    before = ctx.all_bytes()
    with pytest.raises(LogChanged):
        for _ in steps:
            pass
    assert ctx.all_bytes() == before
    assert not leftovers(ctx)
    assert ctx.clean() == 5


@pytest.mark.parametrize("steps_before", [1, 2, 3, 4])
def test_a_log_that_begins_again_ends_its_cleaning(ctx: CompactedLog, steps_before: int) -> None:
    """As a follower's does; other records have the names of its segments then."""
    for value in "123":
        ctx.put(("a", value))
        ctx.seal()
    end = ctx.log.log_end_offset
    target = log_to_clean(ctx.disk, ctx.log, 0, end, ctx.now_ms)
    steps = Cleaning(ctx.disk, target, CleanerSettings(), end, ctx.now_ms).steps()
    for _ in range(steps_before):
        next(steps)
    ctx.log.restart_at(0)
    ctx.put(("b", "1"))
    before = ctx.all_bytes()
    with pytest.raises(LogChanged):
        for _ in steps:
            pass
    assert ctx.log.failure is None
    assert ctx.all_bytes() == before
    assert not leftovers(ctx)


def test_a_second_cleaning_changes_nothing(ctx: CompactedLog) -> None:
    for number in range(9):
        ctx.put((f"k{number % 3}", str(number)), producer=number % 2)
    ctx.seal()
    ctx.clean()
    before = ctx.all_bytes()
    ctx.clean_offset = 0
    ctx.clean()
    assert ctx.all_bytes() == before


def test_a_cleaned_segment_is_as_old_as_the_newest_of_those_it_replaces(
    ctx: CompactedLog,
) -> None:
    """Records without timestamps give it no other age."""
    ctx.append_well(build_batch([Record(0, -1, b"a", b"1")]))
    ctx.seal()
    paths = sorted(ctx.folder.glob("*.log"))
    ctx.disk.set_modified_ms(str(paths[0]), NOW_MS - 5000)
    ctx.log.config = replace(ctx.log.config, min_compaction_lag_ms=6000)
    assert ctx.clean() == 0
    ctx.log.config = replace(ctx.log.config, min_compaction_lag_ms=4000)
    assert ctx.clean() == 1
    (sealed,) = ctx.log.cleaning.sealed_segments()
    assert sealed.newest_ms() == NOW_MS - 5000


def test_groups_are_bounded_by_size_indexes_and_offsets(ctx: CompactedLog) -> None:
    def segment(base: int, end: int, size: int) -> Segment:
        made = Segment(ctx.disk, str(ctx.folder), base)
        made.end_offset, made.size = end, size
        return made

    segments = [segment(n * 10, n * 10 + 10, 40) for n in range(5)]
    config = LogConfig(segment_bytes=100)
    assert [len(group) for group in grouped(segments, config)] == [2, 2, 1]
    config = LogConfig(segment_index_bytes=36, index_interval_bytes=61)
    assert [len(group) for group in grouped(segments, config)] == [3, 2]
    far = [segment(0, 10, 40), segment(10, INT32_MAX + 1, 40), segment(INT32_MAX + 1, 2**40, 40)]
    assert [len(group) for group in grouped(far, LogConfig())] == [2, 1]


def test_an_interrupted_offline_cleaning_can_be_done_again(
    ctx: CompactedLog, caplog: pytest.LogCaptureFixture
) -> None:
    ctx.put(("a", "1"))
    ctx.put(("a", "2"))
    ctx.seal()
    (ctx.folder / "00000000000000000000.log.cleaned").write_bytes(b"x")
    with caplog.at_level(logging.WARNING):
        end, stats = clean_log(ctx.disk, ctx.log, ctx.now_ms)
    assert (end, stats.records_read, stats.records_written) == (2, 2, 1)
    assert said_by(caplog) == []


def test_the_marker_that_made_a_record_obsolete_is_synced_before_that_one_goes(
    ctx: CompactedLog,
) -> None:
    """INV-3: without it the records of the transaction would be open again, and gone."""
    ctx.put_in_transaction(("a", "1"), producer=7)
    ctx.put(("b", "1"))
    ctx.seal()
    ctx.log.flush()
    ctx.abort(7)
    assert ctx.log.recovery_point < ctx.log.log_end_offset
    ctx.clean()
    assert ctx.stats.bytes_written < ctx.stats.bytes_read
    assert ctx.log.recovery_point == ctx.log.log_end_offset
