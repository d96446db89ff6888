"""The last stable offset and aborted transactions against a model of the log (INV-3, INV-7)."""

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.protocol.record import control_batch
from oncelog.storage import AbortedTxn, Origin, PartitionLog
from tests.support.examples import examples
from tests.support.scratch import scratch_folder
from tests.unit.storage.cleaner.context import CompactedLog
from tests.unit.storage.context import LogContext, batch

moves = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "commit", "abort", "plain", "kill", "restart"]),
        st.integers(1, 3),
    ),
    max_size=40,
)


class Model:
    """Transactions that are open, by producer, and those that are done."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.done: list[tuple[int, int, int, bool]] = []  # producer, first, marker, committed

    def stable(self, high_watermark: int) -> int:
        undecided = [*self.open.values()]
        undecided += [first for _, first, marker, _ in self.done if marker >= high_watermark]
        return min([*undecided, high_watermark])

    def aborted(self, start: int, end: int) -> set[tuple[int, int, int]]:
        return {
            (producer, first, marker)
            for producer, first, marker, committed in self.done
            if not committed and marker >= start and first < end
        }


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(moves, st.data())
def test_readers_are_stopped_and_told_as_the_whole_log_says(
    steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    with TemporaryDirectory(dir=scratch_folder()) as folder:
        ctx, model = LogContext(Path(folder) / "t-0", segment_bytes=500), Model()
        sequences = dict.fromkeys((1, 2, 3), 0)
        for kind, producer in steps:
            take(ctx, model, sequences, kind, producer)
        end = ctx.log.log_end_offset
        check_aborted(ctx, model, data)
        watermark = data.draw(st.integers(0, end))
        for high_watermark in (watermark, end):
            assert ctx.log.last_stable_offset(high_watermark) == model.stable(high_watermark)


def take(
    ctx: LogContext, model: Model, sequences: dict[int, int], kind: str, producer: int
) -> None:
    if kind == "kill":
        ctx.kill(high_watermark=0)
    elif kind == "restart":
        ctx.restart(high_watermark=0)
    elif kind == "plain":
        ctx.append_well(batch(2))
    elif kind == "write":
        result = ctx.append_well(
            producer=producer, epoch=0, sequence=sequences[producer], transactional=True
        )
        sequences[producer] += 1
        model.open.setdefault(producer, result.base_offset)
    else:
        result = ctx.end(producer, 0, commit=kind == "commit")
        assert result.error is ErrorCode.none
        if producer in model.open:
            first = model.open.pop(producer)
            model.done.append((producer, first, result.base_offset, kind == "commit"))


def check_aborted(ctx: LogContext, model: Model, data: st.DataObject) -> None:
    end = ctx.log.log_end_offset
    start = data.draw(st.integers(0, end))
    stop = data.draw(st.integers(start, end))
    found = ctx.log.aborted_transactions(start, stop)
    assert {entry[:3] for entry in found} == model.aborted(start, stop)


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
@pytest.mark.parametrize("last_commits", [True, False])
def test_three_interleaved_transactions_hide_and_hold_in_any_order_of_ends(
    ctx: LogContext, order: tuple[int, int, int], last_commits: bool
) -> None:
    """INV-3: the oldest open one counts, and of those not yet replicated the first to begin."""
    steps = [("write", producer) for producer in (1, 2, 3, 1)]
    model, sequences = Model(), dict.fromkeys((1, 2, 3), 0)
    for kind, producer in steps:
        take(ctx, model, sequences, kind, producer)
    stored = {}
    for producer in order:
        commits = last_commits and producer == order[-1]
        take(ctx, model, sequences, "commit" if commits else "abort", producer)
        end = ctx.log.log_end_offset
        stored[end - 1] = min([*model.open.values(), end])
    for start in range(end + 1):
        for stop in range(start, end + 1):
            found = ctx.log.aborted_transactions(start, stop)
            assert {entry[:3] for entry in found} == model.aborted(start, stop), (start, stop)
            assert all(entry[3] == stored[entry.last_offset] for entry in found)
    for high_watermark in range(end + 1):
        assert ctx.log.last_stable_offset(high_watermark) == model.stable(high_watermark)


def test_a_finished_transaction_holds_readers_until_its_marker_is_replicated(
    ctx: LogContext,
) -> None:
    ctx.append_well(batch(3))
    ctx.append_well(producer=1, epoch=0, sequence=0, count=2, transactional=True)
    assert ctx.log.last_stable_offset(2) == 2
    assert ctx.log.last_stable_offset(5) == 3
    marker = ctx.end(1, 0).base_offset
    assert ctx.log.last_stable_offset(marker) == 3
    assert ctx.log.last_stable_offset(marker + 1) == marker + 1


def restart_of_an_earlier_version(ctx: LogContext, *, high_watermark: int) -> PartitionLog:
    """Start without the files that name what has ended."""
    ctx.log.close()
    for path in ctx.folder.glob("*.batches"):
        path.unlink()
    return ctx.open(clean=True, high_watermark=high_watermark)


@pytest.mark.parametrize("high_watermark", range(8))
@pytest.mark.parametrize(
    "again", [LogContext.kill, LogContext.restart, restart_of_an_earlier_version]
)
@pytest.mark.parametrize("segment_bytes", [170, 100_000])
def test_a_start_holds_readers_of_what_ended_above_the_high_watermark(
    make_log: Callable[..., LogContext],
    segment_bytes: int,
    again: Callable[..., PartitionLog],
    high_watermark: int,
) -> None:
    """INV-7: no snapshot names a transaction that has ended, but its marker may be truncated."""
    ctx, model = make_log(segment_bytes=segment_bytes), Model()
    sequences = dict.fromkeys((1, 2), 0)
    steps = "write 1, plain 0, write 2, commit 2, commit 1, write 2, abort 2"
    for step in steps.split(", "):
        kind, producer = step.split()
        take(ctx, model, sequences, kind, int(producer))
    log = again(ctx, high_watermark=high_watermark)
    assert (len(log.segment_base_offsets) > 3) is (segment_bytes < 200)
    for offset in range(high_watermark, 9):
        assert log.last_stable_offset(offset) == model.stable(offset)


@pytest.mark.parametrize(
    ("asked_at", "again", "is_read_again"),
    [
        (2, LogContext.restart, False),
        (3, LogContext.restart, False),
        (5, LogContext.restart, True),
        (2, restart_of_an_earlier_version, True),
    ],
)
def test_a_start_reads_batches_again_only_where_no_file_names_what_ended(
    ctx: LogContext, asked_at: int, again: Callable[..., PartitionLog], is_read_again: bool
) -> None:
    """INV-7: nor is named what was below the high watermark once."""
    model, sequences = Model(), dict.fromkeys((1, 2), 0)
    for step in ("write 1", "commit 1", "write 1", "write 2", "commit 1", "abort 2", "plain 0"):
        kind, producer = step.split()
        take(ctx, model, sequences, kind, int(producer))
    ctx.log.last_stable_offset(asked_at)
    log = again(ctx, high_watermark=3)
    assert (log.recovery.replayed_batches_count > 0) is is_read_again
    log = ctx.restart(high_watermark=3)
    assert log.recovery.replayed_batches_count == 0
    for offset in range(3, 8):
        assert log.last_stable_offset(offset) == model.stable(offset)


def test_a_start_that_finds_no_marker_below_a_snapshot_notes_that(
    make_log: Callable[..., LogContext],
) -> None:
    """Seed 89000093: each later start read the log again for what the one before had not found."""
    ctx, model = make_log(segment_bytes=100), Model()
    for step in ("write 1", "write 2", "commit 1"):
        kind, producer = step.split()
        take(ctx, model, {1: 0, 2: 0}, kind, int(producer))
    assert ctx.log.segment_base_offsets == [0, 1, 2]
    ctx.log.close()
    for path in (*ctx.folder.glob("*.batches"), ctx.folder / f"{2:020}.index"):
        path.unlink()
    for _ in range(2):
        log = ctx.open(clean=True, high_watermark=0)
        assert log.recovery.replayed_batches_count == 0
        assert [log.last_stable_offset(offset) for offset in range(3)] == [0, 0, 0]
        log.close()


def test_a_truncation_holds_readers_of_what_ended_above_the_high_watermark(
    make_log: Callable[..., LogContext],
) -> None:
    """INV-7: the newest snapshot that remains may be above the high watermark too."""
    ctx = make_log(segment_bytes=100)
    ctx.append_well(producer=1, epoch=0, sequence=0, transactional=True)
    ctx.end(1, 0)
    ctx.append_well(batch(1))
    ctx.append_well(batch(1))
    assert ctx.log.segment_base_offsets == [0, 1, 2, 3]
    ctx.log.truncate_to(3)
    assert ctx.log.last_stable_offset(1) == 0
    assert ctx.log.last_stable_offset(2) == 2


def test_the_open_transaction_survives_a_kill(ctx: LogContext) -> None:
    ctx.append_well(producer=1, epoch=0, sequence=0, transactional=True)
    for again in (ctx.kill, ctx.restart):
        opened = again()
        assert opened.producers.transaction_is_open(1, 0)
        assert not opened.producers.transaction_is_open(1, 1)
        assert opened.last_stable_offset(1) == 0
    ctx.end(1, 0, commit=False)
    assert ctx.kill().aborted_transactions(0, 10) == [AbortedTxn(1, 0, 1, 2)]
    assert ctx.restart().aborted_transactions(0, 10) == [AbortedTxn(1, 0, 1, 2)]


def test_a_marker_without_a_transaction_changes_nothing_for_readers(ctx: LogContext) -> None:
    ctx.end(1, 0, commit=False)
    assert ctx.log.last_stable_offset(1) == 1
    assert ctx.log.aborted_transactions(0, 10) == []


def test_a_small_max_message_bytes_does_not_keep_a_transaction_open(
    make_log: Callable[..., LogContext],
) -> None:
    ctx = make_log(max_message_bytes=76)
    ctx.append_well(producer=1, epoch=0, sequence=0, transactional=True, value=b"v")
    assert ctx.end(1, 0).error is ErrorCode.none
    assert ctx.kill().last_stable_offset(2) == 2


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_byte_for_byte_what_a_checked_append_writes(
    tmp_path: Path, commit: bool
) -> None:
    """A marker is numbered as it is made, and nobody checks it; here somebody does."""
    by_marker, by_append = LogContext(tmp_path / "marker-0"), LogContext(tmp_path / "append-0")
    for ctx in (by_marker, by_append):
        ctx.leader_epoch = 3
        ctx.append_well(producer=1, epoch=0, sequence=0, transactional=True)
        ctx.leader_epoch = 4
    ended = by_marker.end(1, 2, commit=commit, coordinator_epoch=9)
    marker = control_batch(commit, 1, 2, 9, by_append.now_ms)
    assert by_append.append_well(marker, origin=Origin.COORDINATOR) == ended
    assert by_marker.all_bytes() == by_append.all_bytes()
    assert by_marker.log.latest_epoch == by_append.log.latest_epoch == 4
    for ctx in (by_marker, by_append):
        assert ctx.kill().last_stable_offset(2) == 2
    entries = [ctx.log.producers.entry(1) for ctx in (by_marker, by_append)]
    assert all(entry is not None and entry.coordinator_epoch == 9 for entry in entries)
    aborted = by_marker.log.aborted_transactions(0, 2)
    assert aborted == by_append.log.aborted_transactions(0, 2)
    assert bool(aborted) is not commit


def test_inv3_the_end_of_a_transaction_that_is_not_open_stops_the_broker(ctx: LogContext) -> None:
    ctx.append_well(producer=1, epoch=0, sequence=0, transactional=True)
    ctx.log._local.state.producers.undecided.clear()
    with pytest.raises(InvariantViolation, match="INV-3"):
        ctx.end(1, 0)


@pytest.mark.parametrize("sealed_by", ["a clean stop", "a roll", "a cleaning"])
def test_records_before_the_start_of_the_log_stay_aborted_when_it_comes_back(
    tmp_path: Path, sealed_by: str
) -> None:
    """INV-3: they are in the first segment still, and the checkpoint of log starts may be lost."""
    ctx = CompactedLog(tmp_path)
    ctx.put_in_transaction(("a", "aborted"), producer=1)
    ctx.abort(1)
    ctx.put_in_transaction(("b", "committed"), producer=1)
    ctx.commit(1)
    ctx.put(("c", "last"))
    ctx.log.delete_records(4)
    if sealed_by != "a clean stop":
        ctx.seal()
    if sealed_by == "a cleaning":
        ctx.clean()
    ctx.restart()
    assert ctx.log.log_start_offset == 0
    assert ctx.pairs() == [("b", "committed"), ("c", "last")]
