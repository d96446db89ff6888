"""After anything that makes another segment the active one, lookups say what the bytes say.

By offset, by time, and in the lists of aborted transactions: each answer is compared with a scan of
the `.log` files that uses no index. The log is then started again twice, by each way to end it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.batch import BatchHeader, iter_headers
from oncelog.protocol.record import Record, build_batch, iter_records, read_end_marker
from oncelog.runtime import SystemDisk
from tests.support.examples import examples
from tests.unit.storage.cleaner.context import CompactedLog
from tests.unit.storage.context import NOW_MS, batch

Batch = tuple[BatchHeader, bytes]

SETTINGS: dict[str, Any] = {"segment_bytes": 500, "index_interval_bytes": 120}


def timeless(key: bytes) -> bytearray:
    """A batch of one record without a timestamp."""
    return build_batch([Record(0, -1, key, b"value")])


def scan(ctx: CompactedLog) -> list[Batch]:
    """Every batch of the files, in order, below the log's end."""
    found: list[Batch] = []
    for path in sorted(ctx.folder.glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            found.append((header, data[position : position + header.length]))
    return found


def records_of(batches: list[Batch]) -> Iterator[Record]:
    for header, data in batches:
        yield from iter_records(data, 0, header)


def expect_as_scanned(ctx: CompactedLog) -> None:
    batches = scan(ctx)
    start, end = ctx.log.log_start_offset, ctx.log.log_end_offset
    assert all(header.next_offset <= end for header, _ in batches)
    expect_offsets(ctx, batches, start, end)
    expect_times(ctx, batches, start)
    expect_aborted(ctx, batches, start, end)
    for segment in ctx.log._local.segments:
        expect_segment(ctx, segment, batches)


def expect_offsets(ctx: CompactedLog, batches: list[Batch], start: int, end: int) -> None:
    for offset in range(start, end):
        wanted = next((data for header, data in batches if header.next_offset > offset), b"")
        read = bytes(ctx.log.read(offset, 1, upper_bound=end))
        assert read == wanted, f"offset {offset}"
        assert bytes(ctx.log.read_cold(offset, 1, upper_bound=end)) == wanted, f"offset {offset}"


def expect_times(ctx: CompactedLog, batches: list[Batch], start: int) -> None:
    records = [record for record in records_of(batches) if record.offset >= start]
    times = sorted({record.timestamp for record in records})
    for wanted in (0, *times, *(time + 1 for time in times)):
        expected = next((r.offset for r in records if r.timestamp >= wanted), None)
        found = ctx.log.offset_for_timestamp(wanted)
        assert (found.offset if found else None) == expected, f"time {wanted}"
    newest = ctx.log.offset_for_timestamp(None)
    if times:
        assert newest is not None
        assert newest.timestamp_ms == times[-1]
        assert newest.offset == next(r.offset for r in records if r.timestamp == times[-1])


def hidden(ctx: CompactedLog, batches: list[Batch], start: int, end: int) -> list[int]:
    """First offsets of the batches from `start` on that a read_committed reader leaves out."""
    coming = sorted(ctx.log.aborted_transactions(start, end), key=lambda entry: entry.first_offset)
    aborted: set[int] = set()
    left_out = []
    for header, _ in batches:
        while coming and coming[0].first_offset <= header.last_offset:
            entry = coming.pop(0)
            if entry.last_offset >= header.base_offset:
                aborted.add(entry.producer_id)
        if header.next_offset <= start:
            continue
        if header.is_control:
            aborted.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborted:
            left_out.append(header.base_offset)
    return left_out


def expect_aborted(ctx: CompactedLog, batches: list[Batch], start: int, end: int) -> None:
    wanted: list[int] = []
    ends: dict[int, bool] = {}
    for header, data in reversed(batches):
        if header.is_control:
            record = next(iter(iter_records(data, 0, header)), None)
            marker = None if record is None else read_end_marker(record)
            if marker is not None:
                ends[header.producer_id] = marker.commit
        elif header.is_transactional and ends.get(header.producer_id) is False:
            wanted.append(header.base_offset)
    nexts = {header.base_offset: header.next_offset for header, _ in batches}
    for offset in range(start, end):
        expected = sorted(base for base in wanted if nexts[base] > offset)
        assert hidden(ctx, batches, offset, end) == expected, f"from {offset}"


def expect_segment(ctx: CompactedLog, segment: Any, batches: list[Batch]) -> None:
    """What retention, rolls and starts go by, and the index, as the segment's own bytes imply."""
    data = Path(segment.path).read_bytes()
    headers = list(iter_headers(data))
    assert segment.size == len(data)
    largest = max((header.max_timestamp for _, header in headers), default=-1)
    assert segment.max_timestamp_ms == largest
    places = {position: header.last_offset for position, header in headers}
    offsets, times = segment._indexes()
    for relative, position in zip(offsets.offsets, offsets._positions, strict=True):
        assert places[position] == segment.base_offset + relative
    for relative, time in zip(times.offsets, times._timestamps, strict=True):
        before = [h for _, h in headers if h.last_offset <= segment.base_offset + relative]
        assert max(header.max_timestamp for header in before) == time
    if segment is ctx.log._local.segments.active and headers:
        assert segment.first_timestamp_ms == headers[0][1].max_timestamp
        assert segment.begun_ms > 0


class Upkeep:
    """A log with open transactions, to which anything may happen."""

    def __init__(self, folder: Path, rng: random.Random, policy: str) -> None:
        self.ctx = CompactedLog(
            folder, cleanup_policy=frozenset(policy.split(",")), retention_ms=-1, **SETTINGS
        )
        self.rng = rng
        self.policy = policy

    def _sequence(self, producer: int) -> int:
        known = self.ctx.log.producers.entry(producer)
        return 0 if known is None else known.last_sequence + 1

    def append(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 9)):
            producer = rng.choice((-1, -1, 1, 2, 3))
            self.ctx.now_ms += rng.randint(0, 4)
            time_ms = rng.choice((self.ctx.now_ms, self.ctx.now_ms - rng.randint(0, 30), -1))
            records = [
                Record(0, time_ms, b"k%d" % rng.randint(0, 4), b"v" * rng.randint(0, 60))
                for _ in range(rng.randint(1, 3))
            ]
            if producer < 0:
                data = build_batch(records)
            else:
                data = build_batch(
                    records,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=self._sequence(producer),
                    transactional=True,
                )
            assert self.ctx.append(data).error is ErrorCode.none

    def end(self) -> None:
        producer = self.rng.choice((1, 2, 3))
        if self.ctx.log.producers.transaction_is_open(producer, 0):
            self.ctx.now_ms += self.rng.randint(0, 3)
            self.ctx.end(producer, 0, commit=self.rng.random() < 0.4)

    def truncate(self) -> None:
        log = self.ctx.log
        log.truncate_to(self.rng.randint(log.log_start_offset, log.log_end_offset), NOW_MS)

    def truncate_at_a_segment(self) -> None:
        self.ctx.log.truncate_to(self.rng.choice(self.ctx.log.segment_base_offsets), NOW_MS)

    def delete_records(self) -> None:
        log = self.ctx.log
        log.delete_records(self.rng.randint(log.log_start_offset, log.log_end_offset))
        if self.rng.random() < 0.7:
            log.delete_old_segments(self.ctx.now_ms, log.log_end_offset)

    def retain_nothing(self) -> None:
        log = self.ctx.log
        whole, log.config = (
            log.config,
            replace(
                log.config,
                retention_bytes=self.rng.choice((0, 600)),
                cleanup_policy=frozenset({"delete"}),
            ),
        )
        log.delete_old_segments(self.ctx.now_ms, log.log_end_offset)
        log.config = whole

    def clean(self) -> None:
        if "compact" in self.policy:
            self.ctx.clean_offset = 0
            self.ctx.now_ms += self.rng.choice((0, 5000))
            self.ctx.clean()

    def read(self) -> None:
        """Load the indexes of sealed segments, and release others."""
        log = self.ctx.log
        for _ in range(12):
            log.read_cold(
                self.rng.randint(log.log_start_offset, log.log_end_offset), 9, upper_bound=1 << 40
            )

    def flush(self) -> None:
        self.ctx.log.flush()

    def restart(self) -> None:
        start = self.ctx.log.log_start_offset
        self.ctx.restart()
        self.ctx.log.delete_records(start)

    def kill(self) -> None:
        log = self.ctx.log
        start = log.log_start_offset
        self.ctx.open(recovery_point=log.recovery_point)
        self.ctx.log.delete_records(start)

    def lose_a_tail(self) -> None:
        """As a loss of power does: a file above the recovery point ends early, others remain."""
        log = self.ctx.log
        start, point = log.log_start_offset, log.recovery_point
        above = [s for s in log._local.segments if s.end_offset >= point]
        self.cut(self.rng.choice(above[:-1] or above), point)
        self.ctx.open(recovery_point=point)
        self.ctx.log.delete_records(min(start, self.ctx.log.log_end_offset))
        self.append()

    def cut(self, segment: Any, point: int) -> None:
        data = Path(segment.path).read_bytes()
        ends = [0] * 8 if segment.base_offset >= point else []
        for position, header in iter_headers(data):
            if header.next_offset >= point:
                ends += [position + header.length] * 2
        if ends:
            torn = self.rng.choice((0, 0, 7))
            Path(segment.path).write_bytes(data[: self.rng.choice(ends) + torn])

    def step(self) -> str:
        change = self.rng.choice(
            (
                *(self.append, self.append, self.append, self.end, self.end, self.read),
                *(self.truncate, self.truncate_at_a_segment, self.delete_records),
                *(self.retain_nothing, self.clean, self.flush, self.restart, self.kill),
                *(self.lose_a_tail, self.lose_a_tail),
            )
        )
        change()
        return change.__name__


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_lookups_say_what_a_scan_of_the_bytes_says(tmp_path: Path, policy: str) -> None:
    for seed in range(examples(25)):
        upkeep = Upkeep(tmp_path / f"{policy}{seed}-0", random.Random(seed), policy)
        steps = []
        try:
            for _ in range(25):
                steps.append(upkeep.step())
                if upkeep.rng.random() < 0.3:  # A lookup loads indexes, which may hide a fault.
                    expect_as_scanned(upkeep.ctx)
            for again in (
                upkeep.restart,
                upkeep.append,
                upkeep.kill,
                upkeep.append,
                upkeep.restart,
            ):
                steps.append(again.__name__)
                again()
                expect_as_scanned(upkeep.ctx)
        except Exception as error:
            raise AssertionError(f"seed {seed}, after {steps}") from error


@pytest.mark.parametrize("left_count", [0, 1, 2])
def test_a_segment_that_a_lost_tail_makes_the_last_one_takes_appends(
    tmp_path: Path, left_count: int
) -> None:
    ctx = CompactedLog(tmp_path / "t-0", cleanup_policy=frozenset({"delete"}), **SETTINGS)
    for _ in range(12):
        ctx.append_well(batch(value=b"v" * 60))
    path = ctx.folder / f"{ctx.log.segment_base_offsets[1]:020}.log"
    data = path.read_bytes()
    ends = [0, *(place + header.length for place, header in iter_headers(data))]
    path.write_bytes(data[: ends[left_count]])
    ctx.open()
    for ahead in (9, 1, 2, 3, 4):
        ctx.append_well(batch(timestamp_ms=NOW_MS + ahead, value=b"v" * 60))
    expect_as_scanned(ctx)
    for again in (ctx.restart, ctx.kill):
        again()
        expect_as_scanned(ctx)


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_segment_that_is_active_again_is_not_as_old_as_the_epoch(
    tmp_path: Path, is_cleaned: bool
) -> None:
    """Without timestamps its age is counted from its first append, or from the start."""
    ctx = CompactedLog(tmp_path / "t-0", segment_bytes=300)
    for number in range(5):
        ctx.append_well(timeless(b"key %d" % number))
    assert ctx.log.segment_base_offsets == [0, 3]
    if is_cleaned:
        ctx.clean()
    else:
        ctx.restart()
    ctx.log.truncate_to(1, ctx.now_ms)
    ctx.append_well(timeless(b"key 1"))
    assert ctx.log.segment_base_offsets == [0]


class HookedDisk(SystemDisk):
    """Runs `hook` once, right after a time index was read."""

    hook: Callable[[], None] | None = None

    def read(self, path: str) -> bytes | None:
        data = super().read(path)
        hook = self.hook
        if hook is not None and path.endswith(".timeindex"):
            self.hook = None
            hook()
        return data


def test_a_truncation_while_a_reader_loads_indexes_keeps_its_own(tmp_path: Path) -> None:
    disk = HookedDisk()
    ctx = CompactedLog(tmp_path / "t-0", disk, cleanup_policy=frozenset({"delete"}), **SETTINGS)
    for ahead in range(12):
        ctx.append_well(batch(value=b"v" * 60, timestamp_ms=NOW_MS + ahead))
    ctx.restart()

    def cut() -> None:
        ctx.log.truncate_to(5)
        ctx.append_well(batch(value=b"w" * 60, timestamp_ms=NOW_MS - 5))

    disk.hook = cut
    ctx.log.read_cold(4, 10, upper_bound=100)
    ctx.append_well(batch(value=b"w" * 60, timestamp_ms=NOW_MS - 4))
    expect_as_scanned(ctx)
    ctx.restart()
    expect_as_scanned(ctx)


@pytest.mark.parametrize("cut_at", [5, 6])
def test_a_truncation_takes_the_lost_offsets_at_the_end_along(tmp_path: Path, cut_at: int) -> None:
    ctx = CompactedLog(tmp_path / "t-0", cleanup_policy=frozenset({"delete"}), **SETTINGS)
    for _ in range(12):
        ctx.append_well(batch(value=b"v" * 60))
    assert ctx.log.segment_base_offsets == [0, 3, 6, 9]
    path = ctx.folder / f"{3:020}.log"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 3])
    ctx.open(recovery_point=12)
    ctx.log.truncate_to(cut_at)
    for _ in range(5):
        ctx.append_well(batch())
    expect_as_scanned(ctx)
    for again in (ctx.restart, ctx.kill, ctx.restart):
        again()
        assert ctx.log.log_end_offset == 9
        expect_as_scanned(ctx)
